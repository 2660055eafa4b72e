//! The result of a command that changes objects: `job.batch/train created`.

use crate::args::{DryRun, Format};
use crate::error::Error;
use crate::output::references::reference;
use crate::session::Session;
use meridian_objects::{Kind, Located, Object};
use serde_json::{Value, json};

/// Outcomes for the objects of one command, in the objects' order.
#[derive(Debug, Default)]
pub(super) struct Results {
    documents: Vec<Value>,
    lines: Vec<ResultLine>,
}

#[derive(Debug)]
struct ResultLine {
    reference: String,
    /// Such as `created`.
    done: String,
}

impl Results {
    /// The results of one object.
    pub(super) fn of(kind: Kind, name: &str, done: &str, document: Value) -> Self {
        let mut results = Self::default();
        results.add(kind, name, done, document);
        results
    }

    /// Expected outcomes for objects in files, as far as they can be determined without the manager.
    pub(super) fn of_files(objects: &[Located<Object>], done: &str) -> Self {
        let mut results = Self::default();
        for Located { value: object, .. } in objects {
            let name = if object.name.is_empty() {
                format!("{}<generated>", object.generate_name.as_deref().unwrap_or_default())
            } else {
                object.name.clone()
            };
            let document = object.in_version(object.version);
            results.add(object.kind, &name, &format!("{done}{}", DryRun::Client.suffix()), document);
        }
        results
    }

    pub(super) fn add(&mut self, kind: Kind, name: &str, done: &str, document: Value) {
        self.lines.push(ResultLine { reference: reference(kind, name), done: done.to_owned() });
        self.documents.push(document);
    }

    pub(super) fn add_line(&mut self, reference: String, done: String) {
        self.lines.push(ResultLine { reference, done });
    }

    pub(super) fn add_document(&mut self, document: Value) {
        self.documents.push(document);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }

    /// Prints documents for `-o json` and `-o yaml`, else a line per object. Fails if standard output does.
    pub(super) fn show(self, session: &mut Session) -> Result<(), Error> {
        match session.format() {
            Some(Format::Json) => session.out.json(&list(self.documents)),
            Some(Format::Yaml) => session.out.yaml(&list(self.documents)),
            Some(Format::Name) => self.lines.iter().try_for_each(|line| session.out.line(&line.reference)),
            Some(Format::Wide | Format::Text) | None => self
                .lines
                .iter()
                .try_for_each(|line| session.out.line(format!("{} {}", line.reference, line.done))),
        }
    }
}

/// One document as it is, several as a `List`.
fn list(mut documents: Vec<Value>) -> Value {
    if documents.len() == 1 {
        return documents.remove(0);
    }
    json!({"apiVersion": "v1", "kind": "List", "items": documents})
}
