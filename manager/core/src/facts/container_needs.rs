//! Requirements of a job's pods that only a container runtime can meet, and the one that no process has: an
//! image.

use meridian_objects::PodTemplate;
use serde_json::Value;

/// Fields of a job's spec that process runners can't honour.
const OF_JOB: [&str; 3] = ["backoffLimitPerIndex", "podFailurePolicy", "successPolicy"];

/// The first thing in a job's manifest that process runners can't do, as a field name for messages.
pub(crate) fn container_needs(manifest: &Value) -> Option<&'static str> {
    let spec = manifest.get("spec")?;
    let pod = spec.pointer("/template/spec")?;
    let containers = list(pod, "containers");
    let has = |field: &str| containers.iter().any(|container| !list(container, field).is_empty());
    let value_from =
        |container: &Value| list(container, "env").iter().any(|env| env.get("valueFrom").is_some());
    let of_job = OF_JOB.into_iter().find(|field| spec.get(field).is_some_and(|value| !value.is_null()));
    let of_pod = [
        ("initContainers", !list(pod, "initContainers").is_empty()),
        ("several containers per pod", containers.len() > 1),
        ("envFrom", has("envFrom")),
        ("env[].valueFrom", containers.iter().any(value_from)),
        ("volumeMounts", has("volumeMounts")),
        ("volumes", !list(pod, "volumes").is_empty()),
        ("the entry point of its image", containers.iter().any(|one| list(one, "command").is_empty())),
    ];
    of_job.or_else(|| of_pod.into_iter().find_map(|(name, needed)| needed.then_some(name)))
}

/// The field under which a job has what [`container_needs`] found.
pub(crate) fn place_of(needs: &str) -> &'static str {
    if OF_JOB.contains(&needs) { "spec" } else { "spec.template.spec" }
}

/// The first container without an image, which no container runtime can start.
pub(crate) fn without_image(templates: &[PodTemplate]) -> Option<&str> {
    let all =
        templates.iter().flat_map(|template| template.init_containers.iter().chain(&template.containers));
    all.into_iter().find(|container| !container.has_image).map(|container| container.name.as_str())
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_process_cannot_do_is_named() {
        let job = |more: Value, container: Value| {
            let mut one = json!({"name": "c", "command": ["true"]});
            one.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
            let mut pod = json!({"containers": [one]});
            pod.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"spec": {"template": {"spec": pod}}})
        };
        let of_job = |field: &str| {
            let mut job = job(json!({}), json!({}));
            job["spec"][field] = json!({"rules": []});
            job
        };
        let none = || json!({});
        let cases = [
            (None, job(none(), none())),
            (None, job(json!({"volumes": [], "initContainers": []}), json!({"envFrom": [], "env": []}))),
            (Some("volumes"), job(json!({"volumes": [{"name": "data", "emptyDir": {}}]}), none())),
            (Some("initContainers"), job(json!({"initContainers": [{"name": "first"}]}), none())),
            (Some("several containers per pod"), job(json!({"containers": [{}, {}]}), none())),
            (Some("envFrom"), job(none(), json!({"envFrom": [{"secretRef": {"name": "s"}}]}))),
            (Some("env[].valueFrom"), job(none(), json!({"env": [{"name": "N", "valueFrom": {}}]}))),
            (Some("volumeMounts"), job(none(), json!({"volumeMounts": [{"mountPath": "/data"}]}))),
            (Some("the entry point of its image"), job(none(), json!({"command": []}))),
            (Some("podFailurePolicy"), of_job("podFailurePolicy")),
            (Some("successPolicy"), of_job("successPolicy")),
            (Some("backoffLimitPerIndex"), of_job("backoffLimitPerIndex")),
        ];
        for (needs, job) in cases {
            assert_eq!(container_needs(&job), needs, "{job}");
        }
    }
}
