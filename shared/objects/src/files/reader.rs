//! Reads documents into objects and collects problems.

use super::duplicates::{twin_remedy, worker_file};
use super::pod_groups::GroupName;
use super::problem::{FilePosition, Located, Parsed, Problem, whole};
use crate::fields::{FieldError, FieldPath, FieldValidation, Warning};
use crate::object::Object;
use crate::object::unknown::{Foreign, UnknownKind};
use crate::text::syntax::{Key, MAX_DOCUMENTS, Position, SyntaxError, SyntaxNode, SyntaxValue};
use crate::text::{json, yaml};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Largest file, in bytes: thousands of jobs, and the largest request of a user.
pub const MAX_FILE_BYTES: usize = 16 * 1024 * 1024;

/// Largest file set, in bytes.
pub const MAX_SET_BYTES: usize = 64 * 1024 * 1024;

/// Most errors and most warnings of one set of files. Later ones usually follow from the first.
pub const MAX_PROBLEMS: usize = 500;

/// Most lines that a warning of skipped documents names.
const SHOWN_LINES: usize = 10;

/// Deepest `List` within a `List`.
pub(super) const MAX_LIST_DEPTH: usize = 4;

/// A type that a document of a file is read into.
pub(crate) trait ReadDocument: Sized {
    /// Why Meridian doesn't take this document: it is for another program.
    fn foreign(written: &Value) -> Option<UnknownKind>;
    /// Reads the document. Fails with all errors; their paths are in the version that the user wrote.
    fn read(written: Value, validation: FieldValidation) -> Result<(Self, Vec<Warning>), Vec<FieldError>>;
    /// Kind, namespace and name. The name is empty if it is generated later.
    fn identity(&self) -> (&'static str, Option<String>, String);
    /// Name of the object in messages.
    fn title(&self) -> String;
    /// Whether two objects of one identity are duplicates.
    fn same(&self, other: &Self) -> bool;
    /// The ordinary object, if the document is one.
    fn object(&self) -> Option<&Object>;
    /// The group to which the document, a pod, belongs, if the pods of a group are read together.
    fn group_of(_written: &Value) -> Option<GroupName> {
        None
    }
}

/// How strictly files are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strictness {
    pub validation: FieldValidation,
    /// Whether a document of another program's kind is an error.
    pub refuse_foreign: bool,
}

impl ReadDocument for Object {
    fn foreign(written: &Value) -> Option<UnknownKind> {
        UnknownKind::of(written).filter(|unknown| unknown.foreign == Foreign::Skipped)
    }

    fn read(written: Value, validation: FieldValidation) -> Result<(Self, Vec<Warning>), Vec<FieldError>> {
        Self::validated(written, validation)
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
        // An explicit default namespace counts as none.
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

    fn group_of(written: &Value) -> Option<GroupName> {
        GroupName::of(written)
    }
}

/// Reads several files that belong together into `T`.
pub(crate) fn read_set<T: ReadDocument>(files: &[(&str, &str)], strictness: Strictness) -> Parsed<T> {
    let mut reader = Reader {
        parsed: Parsed::default(),
        strictness,
        grouped: Vec::new(),
        skipped: BTreeMap::new(),
        unknown: BTreeMap::new(),
    };
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
        reader.read_pod_groups();
        reader.find_twins();
    }
    reader.parsed
}

pub(super) struct Reader<T> {
    pub(super) parsed: Parsed<T>,
    pub(super) strictness: Strictness,
    /// Pods of groups, each with its group.
    pub(super) grouped: Vec<(GroupName, Document)>,
    /// Documents of the file that other programs take, by message, each with its position.
    skipped: BTreeMap<String, Vec<FilePosition>>,
    /// Documents of the file whose kind or version is wrong, by message.
    unknown: BTreeMap<String, UnknownDocuments>,
}

/// One document, and the position of its start.
pub(super) struct Document {
    pub(super) place: FilePosition,
    pub(super) node: SyntaxNode,
}

impl Document {
    /// Position of a field.
    pub(super) fn at(&self, field: &FieldPath) -> FilePosition {
        let Position { line, column } = self.node.find(field);
        FilePosition { file: self.place.file.clone(), line, column }
    }
}

/// Documents with the same error, which is reported once.
struct UnknownDocuments {
    /// Index of the error at the first document.
    error: usize,
    /// Lines of the others.
    lines: Vec<u32>,
}

impl<T: ReadDocument> Reader<T> {
    pub(super) fn error(
        &mut self,
        place: FilePosition,
        field: FieldPath,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        if self.parsed.errors.len() < MAX_PROBLEMS {
            self.parsed.errors.push(Problem { place, field, message: message.into(), remedy: remedy.into() });
        }
    }

    pub(super) fn warn(
        &mut self,
        place: FilePosition,
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
                format!("split it; the maximum is {MAX_FILE_BYTES} bytes"),
            );
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if let Some(before) = text.find('\0').map(|at| &text[..at]) {
            let at = end_of(before);
            let place = FilePosition { file: Arc::from(name), line: at.line, column: at.column };
            return self.error(place, FieldPath::default(), "the file is not text", "save it as UTF-8");
        }
        let file: Arc<str> = Arc::from(name);
        let (before, count) = (self.parsed.errors.len(), self.parsed.objects.len() + self.grouped.len());
        match read(text) {
            Ok(documents) => {
                for document in documents {
                    self.document(&file, document, 0);
                }
            }
            Err(broken) => {
                let place =
                    FilePosition { file: file.clone(), line: broken.at.line, column: broken.at.column };
                self.error(place, FieldPath::default(), broken.message, broken.remedy);
            }
        }
        self.count_unknown();
        let skipped = self.warn_of_skipped();
        let read = self.parsed.objects.len() + self.grouped.len();
        if self.parsed.errors.len() == before && read == count && !skipped {
            self.warn(whole(name), FieldPath::default(), "there is no object in it", "");
        }
    }

    /// Reports a wrong kind or version, once for all documents of the file with the same error.
    fn unknown(&mut self, place: FilePosition, field: FieldPath, message: String, remedy: String) {
        let error = self.parsed.errors.len();
        match self.unknown.get_mut(&message) {
            Some(known) => known.lines.push(place.line),
            None if error < MAX_PROBLEMS => {
                self.unknown.insert(message.clone(), UnknownDocuments { error, lines: Vec::new() });
                self.error(place, field, message, remedy);
            }
            None => {}
        }
    }

    /// Adds to each error of [`Reader::unknown`] the other lines of the file with the same error.
    fn count_unknown(&mut self) {
        for UnknownDocuments { error, lines } in std::mem::take(&mut self.unknown).into_values() {
            let shown: Vec<String> = lines.iter().take(SHOWN_LINES).map(u32::to_string).collect();
            let also = match lines.len() {
                0 => continue,
                1 => format!(" (also at line {})", shown.join("")),
                count if count > SHOWN_LINES => format!(" (also in {count} more documents of this file)"),
                _ => format!(" (also at lines {})", shown.join(", ")),
            };
            self.parsed.errors[error].message += &also;
        }
    }

    /// Warns once of each kind that was skipped in a file. Returns whether any was.
    fn warn_of_skipped(&mut self) -> bool {
        let skipped = std::mem::take(&mut self.skipped);
        let any = !skipped.is_empty();
        for (message, places) in skipped {
            let Some(first) = places.first().cloned() else { continue };
            let lines: Vec<String> = places.iter().take(SHOWN_LINES).map(|at| at.line.to_string()).collect();
            let which = match places.len() {
                1 => "it is skipped".to_owned(),
                count if count > SHOWN_LINES => format!("all {count} are skipped"),
                _ => format!("those at lines {} are skipped", lines.join(", ")),
            };
            self.warn(first, FieldPath::of("kind"), format!("{message}: {which}"), "");
        }
        any
    }

    /// Reads one document: an object, a list of objects, or a `List`.
    fn document(&mut self, file: &Arc<str>, node: SyntaxNode, depth: usize) {
        let place = FilePosition { file: file.clone(), line: node.at.line, column: node.at.column };
        let is_list =
            node.text("kind").is_some_and(|kind| kind.ends_with("List")) && node.get("items").is_some();
        let implied = is_list.then(|| implied_type(&node)).flatten();
        let children = match node.content {
            SyntaxValue::Null => return,
            SyntaxValue::List(items) => items,
            SyntaxValue::Map(entries) if is_list => {
                let items =
                    entries.into_iter().find(|(key, _)| key.text == "items").map(|(_, value)| value.content);
                match items {
                    Some(SyntaxValue::List(items)) => items,
                    Some(SyntaxValue::Null) | None => return,
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
            SyntaxValue::Map(entries) => {
                return self.object(place, SyntaxNode { at: node.at, content: SyntaxValue::Map(entries) });
            }
            SyntaxValue::Bool(_) | SyntaxValue::Number(_) | SyntaxValue::Text(_) => {
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
            self.document(file, with_implied_type(child, implied.as_ref()), depth + 1);
        }
    }

    fn object(&mut self, place: FilePosition, node: SyntaxNode) {
        let value = node.clone().into_value();
        let document = Document { place, node };
        if let Some(unknown) = T::foreign(&value) {
            let field = FieldPath::of("kind");
            let at = document.at(&field);
            if self.strictness.refuse_foreign {
                return self.unknown(at, field, unknown.message, unknown.remedy);
            }
            return self.skipped.entry(unknown.message).or_default().push(at);
        }
        if let Some(group) = T::group_of(&value) {
            return self.grouped.push((group, document));
        }
        if let Some(object) = self.read_document(&document, value) {
            self.parsed.objects.push(Located { place: document.place, value: object });
        }
    }

    /// Reads an object, and reports its problems at their positions in the document.
    pub(super) fn read_document(&mut self, document: &Document, value: Value) -> Option<T> {
        match T::read(value, self.strictness.validation) {
            Ok((object, warnings)) => {
                for warning in warnings {
                    let at = document.at(&warning.field);
                    self.warn(at, warning.field, warning.message, warning.remedy);
                }
                Some(object)
            }
            Err(errors) => {
                for FieldError { field, message, remedy, .. } in errors {
                    let is_type = [FieldPath::of("kind"), FieldPath::of("apiVersion")].contains(&field);
                    match is_type {
                        true => self.unknown(document.at(&field), field, message, remedy),
                        false => self.error(document.at(&field), field, message, remedy),
                    }
                }
                None
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
            // An object whose name is generated later is a new object every time.
            let identity = object.identity();
            let Some(&twin) = first.get(&identity).filter(|_| !identity.2.is_empty()) else {
                first.insert(identity, kept.len());
                kept.push(located);
                continue;
            };
            let twin = &kept[twin];
            let (title, there) = (object.title(), twin.place.clone());
            if twin.value.same(object) {
                let message = format!("`{title}` is identical to the one at {there} and is read once");
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
                    format!("`{title}` is also at {there} with different content"),
                    remedy,
                );
            }
        }
        self.parsed.objects = kept;
    }
}

/// The API version and the kind that items of a typed list, such as a `JobList`, have if they state neither,
/// as in kubectl.
fn implied_type(list: &SyntaxNode) -> Option<(String, String)> {
    let kind = list.text("kind")?.strip_suffix("List").filter(|kind| !kind.is_empty())?;
    Some((list.text("apiVersion")?.to_owned(), kind.to_owned()))
}

fn with_implied_type(mut item: SyntaxNode, implied: Option<&(String, String)>) -> SyntaxNode {
    let states_none = item.get("apiVersion").is_none() && item.get("kind").is_none();
    if let (SyntaxValue::Map(entries), Some((api_version, kind)), true) =
        (&mut item.content, implied, states_none)
    {
        let at = item.at;
        let entry = |name: &str, value: &str| {
            let content = SyntaxValue::Text(value.to_owned());
            (Key { at, text: name.to_owned() }, SyntaxNode { at, content })
        };
        entries.extend([entry("apiVersion", api_version), entry("kind", kind)]);
    }
    item
}

/// Reads JSON if the text is valid JSON, otherwise YAML. If the text is neither, reports the error of the
/// reader that got further.
pub(super) fn read(text: &str) -> Result<Vec<SyntaxNode>, SyntaxError> {
    if !text.trim_start().starts_with(['{', '[']) {
        return yaml::read(text);
    }
    match json::read(text) {
        Ok(nodes) => Ok(nodes),
        Err(from_json) => match yaml::read(text) {
            // A flow mapping such as `{a: b}` is YAML. A duplicate key is wrong in both.
            Ok(nodes) => Ok(nodes),
            Err(from_yaml) if from_yaml.at > from_json.at => Err(from_yaml),
            Err(_) => Err(from_json),
        },
    }
}

fn end_of(text: &str) -> Position {
    let line = text.matches('\n').count() + 1;
    let column = text.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
    let clip = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Position { line: clip(line), column: clip(column) }
}
