//! Parts of rendered objects.

use meridian_shared::time::Wall;
use meridian_shared::timestamp::timestamp;
use serde_json::{Map, Value, json};

pub(crate) fn metadata(value: &mut Value) -> &mut Map<String, Value> {
    if !value["metadata"].is_object() {
        value["metadata"] = json!({});
    }
    value["metadata"].as_object_mut().expect("made an object above")
}

pub(crate) fn condition(kind: &str, is: bool, reason: &str, message: &str, at: Wall) -> Value {
    let status = if is { "True" } else { "False" };
    json!({"conditions": [{
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": timestamp(at),
    }]})
}
