//! Files of objects, untidy as people have them, into objects with places and problems that say what to do.
//!
//! Takes multi-document YAML and JSON (one object, a list of objects, or a `List`). Empty documents and exact duplicates
//! are dropped, the latter with a warning; two different objects of one name are an error. Every problem shows as
//! `file:line:column: field: message; remedy`. When there is any error the caller applies nothing.
//!
//! Bounds: [`MAX_FILE_BYTES`], [`MAX_SET_BYTES`], [`MAX_PROBLEMS`], and those of the readers beneath.

use crate::field::{FieldError, FieldPath, Warning};
use crate::kind::Kind;
use crate::object::Object;
use crate::spec::Spec;
use crate::spec::multikueue::PROVISIONING_CONTROLLER;
use crate::text::node::{At, Broken, Content, MAX_DOCUMENTS, Node};
use crate::text::{json, yaml};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Largest file, in bytes: thousands of jobs, and what a person may send in one request.
pub const MAX_FILE_BYTES: usize = 16 * 1024 * 1024;
/// Largest file set, in bytes.
pub const MAX_SET_BYTES: usize = 64 * 1024 * 1024;
/// Most problems that are kept of one file set, errors and warnings each. Later ones follow from the first.
pub const MAX_PROBLEMS: usize = 500;
/// Deepest `List` within a `List`.
const MAX_LIST_DEPTH: usize = 4;

/// A place in a file; lines and columns count from 1, columns in characters. 0 is the file as a whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The file's name, as the caller gave it.
    pub file: Arc<str>,
    /// Line.
    pub line: u32,
    /// Column.
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line == 0 { Ok(()) } else { write!(f, ":{}:{}", self.line, self.column) }
    }
}

/// An error or a warning, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// Which field; empty for the object or file as a whole.
    pub field: FieldPath,
    /// What is the matter.
    pub message: String,
    /// What to do about it; empty when the message says it all.
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.field.0.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "; {}", self.remedy) }
    }
}

impl std::error::Error for Problem {}

/// Something and where it was read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Located<T> {
    /// Where it begins.
    pub place: Place,
    /// What was read.
    pub value: T,
}

/// What a file or a set of files holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed<T = Object> {
    /// The objects without errors, in the order of the files, exact duplicates left out.
    pub objects: Vec<Located<T>>,
    /// What a person should know.
    pub warnings: Vec<Problem>,
    /// Why nothing may be applied; empty when everything may.
    pub errors: Vec<Problem>,
}

impl<T> Default for Parsed<T> {
    fn default() -> Self {
        Self { objects: Vec::new(), warnings: Vec::new(), errors: Vec::new() }
    }
}

/// What a document of a file is read into.
pub(crate) trait Document: Sized {
    /// Reads it, with paths as the writer knows them.
    fn read(written: Value) -> Result<(Self, Vec<Warning>), Vec<FieldError>>;
    /// Kind, namespace and name; the name is empty while it is still to be made.
    fn identity(&self) -> (&'static str, Option<String>, String);
    /// For people.
    fn title(&self) -> String;
    /// Whether two of one identity are one.
    fn same(&self, other: &Self) -> bool;
    /// The ordinary object that it is, if it is one.
    fn object(&self) -> Option<&Object>;
}

impl Document for Object {
    fn read(written: Value) -> Result<(Self, Vec<Warning>), Vec<FieldError>> {
        Self::from_value(written)
    }

    fn identity(&self) -> (&'static str, Option<String>, String) {
        (self.kind.name(), self.namespace_or_default().map(str::to_owned), self.name.clone())
    }

    fn title(&self) -> String {
        self.title()
    }

    fn same(&self, other: &Self) -> bool {
        if self.stored == other.stored {
            return true;
        }
        // a written default namespace is as good as none
        let (mut a, mut b) = (self.clone(), other.clone());
        for object in [&mut a, &mut b] {
            if let Some(namespace) = object.namespace_or_default().map(str::to_owned) {
                object.set_namespace(&namespace);
            }
        }
        a.stored == b.stored
    }

    fn object(&self) -> Option<&Object> {
        Some(self)
    }
}

/// Reads one file.
pub fn parse(source_name: &str, text: &str) -> Parsed {
    parse_set(&[(source_name, text)])
}

/// Reads several files that are applied together.
pub fn parse_set(files: &[(&str, &str)]) -> Parsed {
    read_set(files)
}

/// Reads several files that belong together, into whatever a document may be.
pub(crate) fn read_set<T: Document>(files: &[(&str, &str)]) -> Parsed<T> {
    let mut reader = Reader::default();
    let total: usize = files.iter().map(|(_, text)| text.len()).sum();
    if total > MAX_SET_BYTES {
        let name = files.first().map_or("", |(name, _)| *name);
        let message = format!("the files are {total} bytes together");
        reader.error(
            whole(name),
            FieldPath::default(),
            message,
            format!("apply at most {MAX_SET_BYTES} bytes at once"),
        );
    } else {
        for (name, text) in files {
            reader.file(name, text);
        }
        reader.find_twins();
    }
    reader.parsed
}

/// A text that objects were read from, for problems that are found in an object later and not in its file.
#[derive(Debug)]
pub struct Source(Vec<Node>);

impl Source {
    /// Reads it again; nothing is found in what can't be read.
    pub fn read(text: &str) -> Self {
        Self(read(text.strip_prefix('\u{feff}').unwrap_or(text)).unwrap_or_default())
    }

    /// Where a field stands of the object that begins at a place, or the nearest thing above it that is there.
    pub fn place_of(&self, object: &Place, field: &FieldPath) -> Place {
        let begins = At { line: object.line, column: object.column };
        let at = self
            .0
            .iter()
            .find_map(|document| beginning_at(document, begins, 0))
            .map_or(begins, |node| node.find(field));
        Place { file: object.file.clone(), line: at.line, column: at.column }
    }
}

/// The object that begins there, in a document or a list of them.
fn beginning_at(node: &Node, begins: At, depth: usize) -> Option<&Node> {
    let children = match &node.content {
        Content::List(items) => items,
        Content::Map(_) => match node.get("items").map(|items| &items.content) {
            Some(Content::List(items)) if node.at != begins => items,
            _ => return Some(node).filter(|node| node.at == begins),
        },
        _ => return None,
    };
    children
        .iter()
        .filter(|_| depth < MAX_LIST_DEPTH)
        .find_map(|child| beginning_at(child, begins, depth + 1))
}

fn whole(name: &str) -> Place {
    Place { file: Arc::from(name), line: 0, column: 0 }
}

struct Reader<T> {
    parsed: Parsed<T>,
}

impl<T> Default for Reader<T> {
    fn default() -> Self {
        Self { parsed: Parsed::default() }
    }
}

impl<T: Document> Reader<T> {
    fn error(
        &mut self,
        place: Place,
        field: FieldPath,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        if self.parsed.errors.len() < MAX_PROBLEMS {
            self.parsed.errors.push(Problem { place, field, message: message.into(), remedy: remedy.into() });
        }
    }

    fn warn(
        &mut self,
        place: Place,
        field: FieldPath,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        if self.parsed.warnings.len() < MAX_PROBLEMS {
            self.parsed.warnings.push(Problem {
                place,
                field,
                message: message.into(),
                remedy: remedy.into(),
            });
        }
    }

    fn file(&mut self, name: &str, text: &str) {
        if text.len() > MAX_FILE_BYTES {
            let message = format!("the file is {} bytes", text.len());
            return self.error(
                whole(name),
                FieldPath::default(),
                message,
                format!("split it; the most is {MAX_FILE_BYTES} bytes"),
            );
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if let Some(before) = text.find('\0').map(|at| &text[..at]) {
            let at = end_of(before);
            let place = Place { file: Arc::from(name), line: at.line, column: at.column };
            return self.error(place, FieldPath::default(), "the file is not text", "save it as UTF-8");
        }
        let file: Arc<str> = Arc::from(name);
        let (before, count) = (self.parsed.errors.len(), self.parsed.objects.len());
        match read(text) {
            Ok(documents) => {
                for document in documents {
                    self.document(&file, document, 0);
                }
            }
            Err(broken) => {
                let place = Place { file: file.clone(), line: broken.at.line, column: broken.at.column };
                self.error(place, FieldPath::default(), broken.message, broken.remedy);
            }
        }
        if self.parsed.errors.len() == before && self.parsed.objects.len() == count {
            self.warn(whole(name), FieldPath::default(), "there is no object in it", "");
        }
    }

    /// One document: an object, a list of objects, or a `List`.
    fn document(&mut self, file: &Arc<str>, node: Node, depth: usize) {
        let place = Place { file: file.clone(), line: node.at.line, column: node.at.column };
        let is_list =
            node.text("kind").is_some_and(|kind| kind.ends_with("List")) && node.get("items").is_some();
        let children = match node.content {
            Content::Null => return,
            Content::List(items) => items,
            Content::Map(entries) if is_list => {
                let items =
                    entries.into_iter().find(|(key, _)| key.text == "items").map(|(_, value)| value.content);
                match items {
                    Some(Content::List(items)) => items,
                    Some(Content::Null) | None => return,
                    Some(_) => {
                        return self.error(
                            place,
                            FieldPath::of("items"),
                            "must be a list",
                            "write the objects as a list",
                        );
                    }
                }
            }
            Content::Map(entries) => {
                return self.object(place, Node { at: node.at, content: Content::Map(entries) });
            }
            Content::Bool(_) | Content::Number(_) | Content::Text(_) => {
                let remedy = "write `apiVersion`, `kind`, `metadata` and the rest";
                return self.error(place, FieldPath::default(), "this document is not an object", remedy);
            }
        };
        if depth >= MAX_LIST_DEPTH || children.len() > MAX_DOCUMENTS {
            return self.error(
                place,
                FieldPath::default(),
                "this list is too long or too deep",
                format!("list at most {MAX_DOCUMENTS} objects"),
            );
        }
        for child in children {
            self.document(file, child, depth + 1);
        }
    }

    fn object(&mut self, place: Place, node: Node) {
        let value = node.clone().into_value();
        let at = |field: &FieldPath| {
            let At { line, column } = node.find(field);
            Place { file: place.file.clone(), line, column }
        };
        match T::read(value) {
            Ok((object, warnings)) => {
                for warning in warnings {
                    self.warn(at(&warning.field), warning.field, warning.message, warning.remedy);
                }
                self.parsed.objects.push(Located { place, value: object });
            }
            Err(errors) => {
                for error in errors {
                    self.error(at(&error.field), error.field, error.message, error.remedy);
                }
            }
        }
    }

    /// Drops exact duplicates and reports different objects of one name.
    fn find_twins(&mut self) {
        let objects = std::mem::take(&mut self.parsed.objects);
        let worker_file = worker_file(&objects);
        let mut first: BTreeMap<(&str, Option<String>, String), usize> = BTreeMap::new();
        let mut kept: Vec<Located<T>> = Vec::with_capacity(objects.len());
        for located in objects {
            let object = &located.value;
            // an object whose name is still to be made is a new one every time
            let identity = object.identity();
            let Some(&twin) = first.get(&identity).filter(|_| !identity.2.is_empty()) else {
                first.insert(identity, kept.len());
                kept.push(located);
                continue;
            };
            let twin = &kept[twin];
            let (title, there) = (object.title(), twin.place.clone());
            if twin.value.same(object) {
                let message = format!("`{title}` is the same as at {there}, and read once");
                self.warn(located.place, FieldPath::default(), message, "remove one of them");
            } else {
                let remedy = twin_remedy(
                    object.object().map(|object| object.kind),
                    &located.place,
                    &there,
                    worker_file.as_ref(),
                );
                self.error(
                    located.place,
                    FieldPath::default(),
                    format!("`{title}` is also at {there}, with other content"),
                    remedy,
                );
            }
        }
        self.parsed.objects = kept;
    }
}

/// The file that looks like a worker cluster's own: it says how a provider is asked.
fn worker_file<T: Document>(objects: &[Located<T>]) -> Option<Arc<str>> {
    let is_workers = |object: &Object| match &object.spec {
        Spec::ProvisioningRequestConfig(_) => true,
        Spec::AdmissionCheck(check) => check.controller_name == PROVISIONING_CONTROLLER,
        _ => false,
    };
    objects
        .iter()
        .find(|located| located.value.object().is_some_and(is_workers))
        .map(|located| located.place.file.clone())
}

fn twin_remedy(kind: Option<Kind>, here: &Place, there: &Place, worker_file: Option<&Arc<str>>) -> String {
    match kind {
        Some(Kind::ClusterQueue | Kind::ResourceFlavor | Kind::LocalQueue) if here.file != there.file => {
            let file = worker_file.filter(|file| **file == here.file || **file == there.file).unwrap_or(&here.file);
            format!("a worker cluster's file has the manager's names and other numbers: apply the worker's file with `apply --cluster NAME -f {file}`")
        }
        Some(Kind::ClusterQueue | Kind::ResourceFlavor | Kind::LocalQueue) => {
            "keep one of them; if one is a worker cluster's, put it into a file of its own and apply that with `apply --cluster NAME -f FILE`".to_owned()
        }
        _ => "keep one of them, or give one another name".to_owned(),
    }
}

/// JSON when it looks like JSON and is; YAML otherwise. When it is neither, the reader that came further says why.
fn read(text: &str) -> Result<Vec<Node>, Broken> {
    if !text.trim_start().starts_with(['{', '[']) {
        return yaml::read(text);
    }
    match json::read(text) {
        Ok(nodes) => Ok(nodes),
        Err(from_json) => match yaml::read(text) {
            // a flow mapping such as `{a: b}` is YAML; a key that is there twice is wrong in both
            Ok(nodes) => Ok(nodes),
            Err(from_yaml) if from_yaml.at > from_json.at => Err(from_yaml),
            Err(_) => Err(from_json),
        },
    }
}

fn end_of(text: &str) -> At {
    let line = text.matches('\n').count() + 1;
    let column = text.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
    let clip = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    At { line: clip(line), column: clip(column) }
}

#[cfg(test)]
mod tests;
