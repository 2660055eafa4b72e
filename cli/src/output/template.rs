//! Answers in the user's own form: `-o jsonpath=…` and `-o custom-columns=…`.
//!
//! A template shows the document that `-o json` would print.

mod custom_columns;
mod jsonpath;
mod path;

pub(crate) use self::path::Path;

use self::custom_columns::CustomColumns;
use self::jsonpath::JsonPathTemplate;
use serde_json::Value;

/// How documents are shown.
#[derive(Clone, Debug)]
pub(crate) enum Template {
    JsonPath(JsonPathTemplate),
    CustomColumns(CustomColumns),
}

impl Template {
    /// Reads kubectl's template dialect. Fails with what is wrong with it.
    pub(crate) fn jsonpath(text: &str) -> Result<Self, String> {
        JsonPathTemplate::parse(text).map(Self::JsonPath)
    }

    /// Reads `HEADER:PATH,HEADER:PATH`. Fails with what is wrong with it.
    pub(crate) fn custom_columns(text: &str) -> Result<Self, String> {
        CustomColumns::parse(text).map(Self::CustomColumns)
    }

    /// One document as text. It is unescaped for a JSONPath template, and escaped in columns.
    pub(crate) fn show(&mut self, document: &Value) -> String {
        match self {
            Self::JsonPath(template) => template.show(document),
            Self::CustomColumns(columns) => columns.show(document),
        }
    }
}

/// A found value as kubectl prints it: text without quotes, everything else as JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
