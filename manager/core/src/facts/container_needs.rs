//! Requirements of a job's pods that only a container runtime can meet. Process runners can't.

use serde_json::Value;

/// The first such thing in a job's manifest, as a field name for messages.
pub(crate) fn container_needs(manifest: &Value) -> Option<&'static str> {
    let pod = manifest.pointer("/spec/template/spec")?;
    let containers = list(pod, "containers");
    let has = |field: &str| containers.iter().any(|container| !list(container, field).is_empty());
    let value_from =
        |container: &Value| list(container, "env").iter().any(|env| env.get("valueFrom").is_some());
    if !list(pod, "initContainers").is_empty() {
        Some("initContainers")
    } else if containers.len() > 1 {
        Some("several containers per pod")
    } else if has("envFrom") {
        Some("envFrom")
    } else if containers.iter().any(value_from) {
        Some("env[].valueFrom")
    } else if has("volumeMounts") {
        Some("volumeMounts")
    } else {
        None
    }
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
