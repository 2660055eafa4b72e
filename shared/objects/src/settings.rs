//! Reads files of settings and of fleets: YAML into typed values, with a position and a remedy for every
//! problem.

mod origins;

pub use origins::{Invalid, Origins};

use crate::fields::{FieldPath, suggest};
use crate::text::syntax::Position;
use crate::text::yaml;
use serde::de::DeserializeOwned;
use serde_saphyr::Error;
use std::fmt;

/// Why a file of settings can't be used. Displayed as `LINE:COLUMN: FIELD: message; remedy`, after the file's
/// name and a colon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError {
    /// Line, from 1; 0 means the whole file.
    pub line: u32,
    /// Column, from 1, in characters.
    pub column: u32,
    /// Empty if no field is known.
    pub field: FieldPath,
    pub message: String,
    /// Remedy; empty if the message is enough.
    pub remedy: String,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "{}:{}: ", self.line, self.column)?;
        }
        if !self.field.0.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "; {}", self.remedy) }
    }
}

impl std::error::Error for SettingsError {}

/// Reads a file of settings. Fails at the first problem.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, SettingsError> {
    serde_saphyr::from_str_with_options(text, serde_saphyr::options! { with_snippet: false })
        .map_err(|error| settings_error(text, &error))
}

/// Position of the value of a top-level key, in kebab case or camel case.
fn key_at(text: &str, key: &str) -> Option<Position> {
    let nodes = yaml::read(text).ok()?;
    let camel = camel(key);
    let value = nodes.first().and_then(|node| node.get(key).or_else(|| node.get(&camel)))?;
    Some(value.at)
}

fn camel(kebab: &str) -> String {
    let mut words = kebab.split('-');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |all, word| {
        all + &word[..word.len().min(1)].to_uppercase() + word.get(1..).unwrap_or_default()
    })
}

fn settings_error(text: &str, error: &Error) -> SettingsError {
    let inner = yaml::innermost(error);
    let at = error.location().map(yaml::at).unwrap_or_default();
    let (message, remedy) = type_message(inner).unwrap_or_else(|| {
        let broken = yaml::broken(text, error);
        (broken.message, broken.remedy)
    });
    SettingsError { line: at.line, column: at.column, field: field_at(text, at), message, remedy }
}

fn field_at(text: &str, at: Position) -> FieldPath {
    let nodes = yaml::read(text).unwrap_or_default();
    nodes.first().and_then(|node| node.path_at(at)).unwrap_or_default()
}

/// Message and remedy for a value of the wrong type; `None` for a text that isn't YAML.
fn type_message(error: &Error) -> Option<(String, String)> {
    let known = |word: &str, expected: &[&'static str]| match suggest::nearest(word, expected.iter().copied())
    {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!(
            "known keys: {}",
            expected.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
        ),
    };
    Some(match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            (format!("`{field}` is not known here"), known(field, expected))
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            (format!("`{variant}` is not a choice"), known(variant, expected))
        }
        Error::SerdeMissingField { field, .. } => (format!("`{field}` is missing"), "add it".to_owned()),
        Error::InvalidScalar { ty, .. } => (format!("this is not {}", type_words(ty)), String::new()),
        Error::SerdeInvalidType { expected, .. } | Error::SerdeInvalidValue { expected, .. } => {
            (format!("this is not {}", type_words(expected)), String::new())
        }
        Error::Unexpected { expected, .. } => {
            (format!("this is not {}", type_words(expected)), String::new())
        }
        Error::InvalidBooleanStrict { .. } => ("this is not `true` or `false`".to_owned(), String::new()),
        Error::NullIntoString { .. } => {
            ("there is no value".to_owned(), "write one, or leave the field out".to_owned())
        }
        Error::Eof { .. } => {
            ("the file is empty".to_owned(), "write what it should say, or leave the file out".to_owned())
        }
        Error::MultipleDocuments { .. } => {
            ("there is more than one document in it".to_owned(), "keep one".to_owned())
        }
        Error::Message { msg, .. } => (msg.clone(), String::new()),
        _ => return None,
    })
}

/// Plain words for a type in the YAML reader's messages.
fn type_words(expected: &str) -> String {
    let has = |part: &str| expected.contains(part);
    let words = match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number, 0 or more",
        "i8" | "i16" | "i32" | "i64" => "a whole number",
        "f32" | "f64" | "floating point" => "a number",
        "bool" | "boolean" => "`true` or `false`",
        _ if has("mapping") || has("struct") || expected == "a map" => "a mapping",
        _ if has("sequence") => "a list",
        _ if has("string") || has("scalar") => "a single value",
        other => other,
    };
    words.to_owned()
}

#[cfg(test)]
mod tests;
