//! Fields that every kind has in the same place.

use serde_json::Value;

/// The text at a JSON pointer; empty if there is none.
pub(crate) fn text<'o>(object: &'o Value, pointer: &str) -> &'o str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn name_of(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// A condition by its type.
pub(crate) fn find_condition<'o>(object: &'o Value, name: &str) -> Option<&'o Value> {
    object
        .pointer("/status/conditions")?
        .as_array()?
        .iter()
        .find(|condition| text(condition, "/type") == name)
}

/// The status of a condition: `True`, `False`, `Unknown`, or empty.
pub(crate) fn condition_status<'o>(object: &'o Value, name: &str) -> &'o str {
    find_condition(object, name).map(|condition| text(condition, "/status")).unwrap_or_default()
}
