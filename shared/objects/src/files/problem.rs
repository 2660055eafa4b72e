//! Positions in files, and the problems there.

use crate::fields::FieldPath;
use crate::object::Object;
use std::fmt;
use std::sync::Arc;

/// A position in a file. Lines and columns count from 1, columns in characters; line 0 is the file as a
/// whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePosition {
    /// Name of the file, as given by the caller.
    pub file: Arc<str>,
    pub line: u32,
    pub column: u32,
}

impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line == 0 { Ok(()) } else { write!(f, ":{}:{}", self.line, self.column) }
    }
}

/// An error or a warning, with its position.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Problem {
    pub place: FilePosition,
    /// Empty for the object or the file as a whole.
    pub field: FieldPath,
    /// Description of the error.
    pub message: String,
    /// Remedy; empty if the message is enough.
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

/// A value and its position.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Located<T> {
    pub place: FilePosition,
    pub value: T,
}

/// The content of a set of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed<T = Object> {
    /// The objects without errors, in the order of the files, without exact duplicates.
    pub objects: Vec<Located<T>>,
    pub warnings: Vec<Problem>,
    /// Errors. Nothing may be applied unless there are none.
    pub errors: Vec<Problem>,
}

impl<T> Default for Parsed<T> {
    fn default() -> Self {
        Self { objects: Vec::new(), warnings: Vec::new(), errors: Vec::new() }
    }
}

pub(super) fn whole(name: &str) -> FilePosition {
    FilePosition { file: Arc::from(name), line: 0, column: 0 }
}
