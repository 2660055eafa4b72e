//! Reads users' files of objects, with the position of every problem.
//!
//! Reads multi-document YAML and JSON (one object, a list of objects, or a `List`). Documents of other
//! programs' kinds are skipped, with one warning per kind and file. Empty documents are dropped, as are exact
//! duplicates, with a warning. Two different objects of one name are an error. The Pods of a group become one
//! PodGroup. Every problem is displayed as `file:line:column: field: message; remedy`. If there is any error,
//! the caller must apply nothing.
//!
//! Bounds: [`MAX_FILE_BYTES`], [`MAX_SET_BYTES`], [`MAX_PROBLEMS`], and those of the YAML and JSON readers.

mod duplicates;
mod pod_groups;
mod problem;
mod reader;
mod source;

pub use problem::{FilePosition, Located, Parsed, Problem};
pub use reader::Strictness;
pub use reader::{MAX_FILE_BYTES, MAX_PROBLEMS, MAX_SET_BYTES};
pub(crate) use reader::{ReadDocument, read_set};
pub use source::SourceText;

/// Reads one file.
pub fn parse(source_name: &str, text: &str) -> Parsed {
    parse_set(&[(source_name, text)])
}

/// Reads several files that are applied together.
pub fn parse_set(files: &[(&str, &str)]) -> Parsed {
    parse_set_with(files, Strictness::default())
}

/// Like [`parse_set`], with the given strictness.
pub fn parse_set_with(files: &[(&str, &str)], strictness: Strictness) -> Parsed {
    read_set(files, strictness)
}

#[cfg(test)]
mod tests;
