//! JSON merge patches (RFC 7386): a user's change, applied to another version of the object.

use serde_json::{Map, Value};

/// The patch that makes `to` of `from`; `None` if they are equal. A list is one value.
pub(super) fn difference(from: &Value, to: &Value) -> Option<Value> {
    if from == to {
        return None;
    }
    let (Value::Object(before), Value::Object(after)) = (from, to) else { return Some(to.clone()) };
    let mut patch = Map::new();
    for (key, value) in after {
        let changed = match before.get(key) {
            Some(old) => difference(old, value),
            None => Some(value.clone()),
        };
        patch.extend(changed.map(|changed| (key.clone(), changed)));
    }
    let removed = before.keys().filter(|key| !after.contains_key(*key));
    patch.extend(removed.map(|key| (key.clone(), Value::Null)));
    Some(Value::Object(patch))
}

/// Makes the changes of a patch.
pub(super) fn apply(object: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(fields) = object else { return };
    for (key, change) in changes {
        if change.is_null() {
            fields.remove(key);
        } else {
            apply(fields.entry(key.clone()).or_insert(Value::Null), change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_change_is_made_to_another_version() {
        let base =
            json!({"metadata": {"version": "1", "labels": {"a": "1", "b": "2"}}, "spec": {"l": [1, 2]}});
        let mine =
            json!({"metadata": {"version": "1", "labels": {"a": "9"}}, "spec": {"l": [1], "n": {"x": 1}}});
        let patch = difference(&base, &mine).unwrap();
        assert_eq!(
            patch,
            json!({"metadata": {"labels": {"a": "9", "b": null}}, "spec": {"l": [1], "n": {"x": 1}}})
        );
        let mut theirs =
            json!({"metadata": {"version": "2", "labels": {"a": "1", "b": "2", "c": "3"}}, "spec": {}});
        apply(&mut theirs, &patch);
        assert_eq!(
            theirs,
            json!({
                "metadata": {"version": "2", "labels": {"a": "9", "c": "3"}},
                "spec": {"l": [1], "n": {"x": 1}},
            })
        );
        assert_eq!(difference(&base, &base), None);
    }
}
