//! Requirements of a job's pods that only a container runtime can meet, and the one that no process has: an
//! image.

use meridian_objects::PodTemplate;
use serde_json::Value;

/// Fields of a job's spec that process runners can't honour.
const OF_JOB: [&str; 3] = ["backoffLimitPerIndex", "podFailurePolicy", "successPolicy"];

/// Fields of a security context that choose another user than the agent's, as names for messages. The manager
/// doesn't know as which user an agent runs, so each of them counts.
const OF_USER: [(&str, &str); 3] = [
    ("runAsUser", "securityContext.runAsUser"),
    ("runAsGroup", "securityContext.runAsGroup"),
    ("runAsNonRoot", "securityContext.runAsNonRoot"),
];

/// The first thing in a job's manifest that process runners can't do, as a field name for messages.
pub(crate) fn container_needs(manifest: &Value) -> Option<&'static str> {
    let spec = manifest.get("spec")?;
    let pod = spec.pointer("/template/spec")?;
    let containers = list(pod, "containers");
    let has = |field: &str| containers.iter().any(|container| !list(container, field).is_empty());
    let value_from =
        |container: &Value| list(container, "env").iter().any(|env| is_written(env, "valueFrom"));
    let of_job = OF_JOB.into_iter().find(|field| is_written(spec, field));
    let of_pod = [
        ("initContainers", !list(pod, "initContainers").is_empty()),
        ("several containers per pod", containers.len() > 1),
        ("envFrom", has("envFrom")),
        ("env[].valueFrom", containers.iter().any(value_from)),
        ("volumeMounts", has("volumeMounts")),
        ("volumes", !list(pod, "volumes").is_empty()),
        ("the entry point of its image", containers.iter().any(|one| list(one, "command").is_empty())),
    ];
    of_job
        .or_else(|| of_pod.into_iter().find_map(|(name, needed)| needed.then_some(name)))
        .or_else(|| user(pod, containers))
}

/// The first field by which a pod or one of its containers asks for a user.
fn user(pod: &Value, containers: &[Value]) -> Option<&'static str> {
    let contexts = || [pod].into_iter().chain(containers).filter_map(|of| of.get("securityContext"));
    // `runAsNonRoot: false` asks for nothing.
    let asks = |context: &Value, field: &str| {
        is_written(context, field) && context.get(field) != Some(&Value::Bool(false))
    };
    let found = OF_USER.into_iter().find(|(field, _)| contexts().any(|context| asks(context, field)));
    found.map(|(_, name)| name)
}

/// Whether a field has a value: null is the same as absent.
fn is_written(value: &Value, field: &str) -> bool {
    value.get(field).is_some_and(|value| !value.is_null())
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
        let user = |fields: Value| json!({"securityContext": fields});
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
            (Some("securityContext.runAsUser"), job(user(json!({"runAsUser": 1000})), none())),
            (Some("securityContext.runAsUser"), job(none(), user(json!({"runAsUser": 0})))),
            (Some("securityContext.runAsGroup"), job(none(), user(json!({"runAsGroup": 1000})))),
            (Some("securityContext.runAsNonRoot"), job(user(json!({"runAsNonRoot": true})), none())),
            (None, job(user(json!({"runAsNonRoot": false, "fsGroup": 1})), user(json!({})))),
            (Some("podFailurePolicy"), of_job("podFailurePolicy")),
            (Some("successPolicy"), of_job("successPolicy")),
            (Some("backoffLimitPerIndex"), of_job("backoffLimitPerIndex")),
        ];
        for (needs, job) in cases {
            assert_eq!(container_needs(&job), needs, "{job}");
        }
    }

    #[test]
    fn null_is_no_need() {
        let user = json!({"runAsUser": null, "runAsGroup": null, "runAsNonRoot": null});
        let container = json!({
            "command": ["true"],
            "env": [{"name": "N", "valueFrom": null}],
            "envFrom": null,
            "volumeMounts": null,
            "securityContext": user,
        });
        let pod = json!({
            "containers": [container],
            "initContainers": null,
            "volumes": null,
            "securityContext": null,
        });
        let mut job = json!({"spec": {"template": {"spec": pod}}});
        for field in OF_JOB {
            job["spec"][field] = Value::Null;
        }
        assert_eq!(container_needs(&job), None);
    }
}
