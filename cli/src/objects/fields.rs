//! Fields that every kind has in the same place.

use serde_json::Value;

/// The text at a JSON pointer; empty if there is none.
pub(crate) fn text<'o>(object: &'o Value, pointer: &str) -> &'o str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn name_of(object: &Value) -> &str {
    text(object, "/metadata/name")
}
