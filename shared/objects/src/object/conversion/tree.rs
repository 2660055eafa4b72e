//! Moving values within an object, by dotted paths.

use serde_json::{Map, Value};

/// Moves the value at `from` to `to`. Does nothing if there is no value.
pub(super) fn rename(object: &mut Value, from: &str, to: &str) {
    if let Some(value) = take(object, from) {
        let (parent, name) = split(to);
        put(object, parent, name, value);
        let (parent, _) = split(from);
        if parent.contains('.') {
            drop_if_empty(object, parent);
        }
    }
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('.').unwrap_or(("", path))
}

pub(super) fn take(object: &mut Value, path: &str) -> Option<Value> {
    let (parent, name) = split(path);
    object.pointer_mut(&format!("/{}", parent.replace('.', "/")))?.as_object_mut()?.remove(name)
}

/// Sets `parent.name` and creates missing mappings. Does nothing if a value on the path isn't a mapping.
pub(super) fn put(object: &mut Value, parent: &str, name: &str, value: Value) {
    let mut at = object;
    for key in parent.split('.') {
        let Some(map) = at.as_object_mut() else { return };
        if map.get(key).is_some_and(Value::is_null) {
            map.remove(key);
        }
        at = map.entry(key).or_insert_with(|| Value::Object(Map::new()));
    }
    if let Some(map) = at.as_object_mut() {
        map.insert(name.to_owned(), value);
    }
}

pub(super) fn drop_if_empty(object: &mut Value, path: &str) {
    let pointer = format!("/{}", path.replace('.', "/"));
    if object.pointer(&pointer).and_then(Value::as_object).is_some_and(Map::is_empty) {
        take(object, path);
    }
}
