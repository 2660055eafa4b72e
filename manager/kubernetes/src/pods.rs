//! Pods of the cluster: which of them the manager takes, and in which form. Pure.
//!
//! A pod has no controller that could be switched off; only a scheduling gate keeps it from the cluster's own
//! scheduler. A gate can't be added later, so a pod without one is left to the cluster.

use crate::events::EventText;
use meridian_objects::Kind;
use meridian_objects::job::{ADMISSION_GATES, POD_GROUP_LABEL, QUEUE_LABEL};
use serde_json::Value;

/// Volumes of service account tokens. The management cluster's API server adds them to every pod, and so does
/// the API server of the cluster that runs the pod.
const TOKEN_VOLUMES: &str = "kube-api-access-";
/// Fields that API servers compute from the pod's classes. A worker cluster's API server would refuse another
/// value than its own.
const COMPUTED: [&str; 2] = ["priority", "preemptionPolicy"];

/// The label by which a LeaderWorkerSet marks its pods.
const SET_LABEL: &str = "leaderworkerset.sigs.k8s.io/name";

/// Whether the pod has a queue, and an admission gate keeps it from the cluster's own scheduler. The pod may
/// belong to a group.
pub(crate) fn is_taken(pod: &Value) -> bool {
    let is_bound = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let is_held = has_own_gate(pod) && other_gates(pod).next().is_none();
    has_queue(pod) && is_held && !is_bound && !is_being_deleted(pod) && !is_of_set(pod)
}

/// Whether a LeaderWorkerSet made the pod. Then the set is the job, and the gates come from its templates.
fn is_of_set(pod: &Value) -> bool {
    pod["metadata"]["labels"][SET_LABEL].is_string()
}

/// The name of the group that the pod belongs to.
pub(crate) fn group_of(pod: &Value) -> Option<&str> {
    pod["metadata"]["labels"][POD_GROUP_LABEL].as_str().filter(|name| !name.is_empty())
}

/// Whether the pod's phase is final.
pub(crate) fn has_ended(pod: &Value) -> bool {
    Kind::Pod.job().is_some_and(|kind| kind.has_ended(pod))
}

/// The event for a pod with a queue that isn't taken: why, and the remedy. `None` if no user would expect the
/// pod to be taken.
pub(crate) fn refusal(pod: &Value) -> Option<EventText> {
    if !has_queue(pod) || is_being_deleted(pod) || has_ended(pod) {
        return None;
    }
    if !has_own_gate(pod) {
        let message = format!(
            "not taken: without a scheduling gate this cluster's own scheduler runs the pod. Create it with \
             `spec.schedulingGates: [{{name: {}}}]`; a gate can't be added later",
            ADMISSION_GATES[0]
        );
        return Some(EventText { is_warning: true, reason: "NotTaken", message });
    }
    let others: Vec<String> = other_gates(pod).map(|gate| format!("`{gate}`")).collect();
    (!others.is_empty()).then(|| EventText {
        is_warning: false,
        reason: "SchedulingGated",
        message: format!("not taken yet: waits for the removal of the gates {}", others.join(", ")),
    })
}

/// Removes the fields that the management cluster's API server added to a pod. The API server of the cluster
/// that runs the pod adds its own.
pub(crate) fn strip(pod: &mut Value) {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for field in COMPUTED {
        spec.remove(field);
    }
    if spec.contains_key("runtimeClassName") {
        spec.remove("overhead");
    }
    remove_tokens(spec.get_mut("volumes"));
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            remove_tokens(container.get_mut("volumeMounts"));
        }
    }
}

/// Removes token volumes from a list of volumes or of their mounts.
fn remove_tokens(list: Option<&mut Value>) {
    if let Some(list) = list.and_then(Value::as_array_mut) {
        list.retain(|item| !item["name"].as_str().is_some_and(|name| name.starts_with(TOKEN_VOLUMES)));
    }
}

fn has_queue(pod: &Value) -> bool {
    pod["metadata"]["labels"][QUEUE_LABEL].as_str().is_some_and(|queue| !queue.is_empty())
}

fn is_being_deleted(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_string()
}

fn gates(pod: &Value) -> impl Iterator<Item = &str> {
    let gates = pod["spec"]["schedulingGates"].as_array();
    gates.into_iter().flatten().filter_map(|gate| gate["name"].as_str())
}

fn has_own_gate(pod: &Value) -> bool {
    gates(pod).any(|gate| ADMISSION_GATES.contains(&gate))
}

fn other_gates(pod: &Value) -> impl Iterator<Item = &str> {
    gates(pod).filter(|gate| !ADMISSION_GATES.contains(gate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(gates: &[&str]) -> Value {
        let gates: Vec<Value> = gates.iter().map(|name| json!({"name": name})).collect();
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "team", "labels": {QUEUE_LABEL: "main"}},
            "spec": {"schedulingGates": gates}, "status": {"phase": "Pending"},
        })
    }

    #[test]
    fn a_pod_is_taken_at_a_gate_of_admission_and_at_no_other() {
        for gate in ADMISSION_GATES {
            assert!(is_taken(&pod(&[gate])) && refusal(&pod(&[gate])).is_none(), "{gate}");
        }
        // The gate that an agent gives its own pods.
        let of_an_agent = pod(&["meridian.dev/placement"]);
        assert!(!is_taken(&of_an_agent));
        let ungated = pod(&[]);
        assert!(!is_taken(&ungated));
        let text = refusal(&ungated).unwrap();
        assert!(
            text.is_warning && text.message.contains("schedulingGates: [{name: kueue.x-k8s.io/admission}]")
        );
        let two = pod(&[ADMISSION_GATES[0], "example.com/data"]);
        assert!(!is_taken(&two));
        assert!(refusal(&two).unwrap().message.ends_with("the gates `example.com/data`"));
    }

    #[test]
    fn a_pod_that_ended_is_bound_or_has_no_queue_is_nobodys_surprise() {
        let mut bound = pod(&[ADMISSION_GATES[0]]);
        bound["spec"]["nodeName"] = json!("n");
        assert!(!is_taken(&bound));
        let mut over = pod(&[]);
        over["status"]["phase"] = json!("Succeeded");
        assert_eq!(refusal(&over), None);
        let mut of_a_set = pod(&[ADMISSION_GATES[0]]);
        of_a_set["metadata"]["labels"][SET_LABEL] = json!("serve");
        assert!(!is_taken(&of_a_set));
        assert_eq!(refusal(&of_a_set), None);
        let mut unqueued = pod(&[]);
        unqueued["metadata"]["labels"] = json!({});
        assert_eq!(refusal(&unqueued), None);
    }

    #[test]
    fn what_the_api_server_added_is_removed() {
        let mut pod = pod(&[ADMISSION_GATES[0]]);
        pod["spec"] = json!({
            "priority": 0, "preemptionPolicy": "PreemptLowerPriority",
            "volumes": [{"name": "kube-api-access-x2x", "projected": {}}, {"name": "data", "emptyDir": {}}],
            "containers": [{"name": "c", "volumeMounts": [
                {"name": "kube-api-access-x2x", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
                {"name": "data", "mountPath": "/data"},
            ]}],
        });
        strip(&mut pod);
        assert_eq!(
            pod["spec"],
            json!({
                "volumes": [{"name": "data", "emptyDir": {}}],
                "containers": [{"name": "c", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
            })
        );
    }
}
