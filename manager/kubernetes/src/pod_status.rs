//! The status of a pod in the cluster, made from the manager's status of its job. Pure.
//!
//! The manager reports one status for a whole gang, so all pods of a group get the same status, without
//! statuses of containers.

use meridian_objects::job::{JobFinish, JobKind};
use serde_json::{Value, json};

const SCHEDULED: &str = "PodScheduled";
const READY: &str = "Ready";

/// The status of a pod of this job.
pub(crate) fn of_job(kind: &JobKind, held: &Value) -> Value {
    let started = &held["status"]["meridian"]["startTime"];
    if let Some(finish) = kind.end(held) {
        return of_end(&finish, started);
    }
    if kind.is_suspended(held) {
        return of_waiting();
    }
    let scheduled = scheduled(held["status"]["meridian"]["cluster"].as_str());
    if kind.active(held) == 0 {
        return json!({"phase": "Pending", "conditions": [scheduled]});
    }
    let ready = json!({"type": READY, "status": "True", "lastTransitionTime": started});
    without_nulls(json!({"phase": "Running", "startTime": started, "conditions": [scheduled, ready]}))
}

/// The status of a pod that waits for its admission, as the API server writes it into a new one.
pub(crate) fn of_waiting() -> Value {
    let scheduled = json!({
        "type": SCHEDULED, "status": "False", "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    });
    json!({"phase": "Pending", "conditions": [scheduled]})
}

/// The status of a pod whose job has ended. `started` is a timestamp, or null if no pod started.
pub(crate) fn of_end(finish: &JobFinish<'_>, started: &Value) -> Value {
    let at = if finish.at.is_empty() { Value::Null } else { json!(finish.at) };
    let (phase, ready) =
        if finish.succeeded { ("Succeeded", "PodCompleted") } else { ("Failed", "PodFailed") };
    let mut status = json!({
        "phase": phase, "startTime": started,
        "conditions": [
            scheduled(None),
            {"type": READY, "status": "False", "reason": ready, "lastTransitionTime": at},
        ],
    });
    // Only for a failure, because kubectl shows a reason in place of the phase.
    if !finish.succeeded && !finish.reason.is_empty() {
        status["reason"] = json!(finish.reason);
        status["message"] = json!(finish.message);
    }
    without_nulls(status)
}

fn scheduled(cluster: Option<&str>) -> Value {
    match cluster {
        Some(cluster) => {
            json!({"type": SCHEDULED, "status": "True", "message": format!("runs in cluster {cluster}")})
        }
        None => json!({"type": SCHEDULED, "status": "True"}),
    }
}

/// The pod's status with only the conditions of `wanted`, in its order, because other writers may add
/// conditions.
pub(crate) fn comparable(pod: &Value, wanted: &Value) -> Value {
    let mut status = pod.get("status").cloned().unwrap_or_else(|| json!({}));
    let written = status["conditions"].as_array().cloned().unwrap_or_default();
    let kinds = wanted["conditions"].as_array().into_iter().flatten().map(|condition| &condition["type"]);
    let known = kinds.filter_map(|kind| written.iter().find(|condition| condition["type"] == *kind).cloned());
    status["conditions"] = known.collect();
    status
}

fn without_nulls(mut status: Value) -> Value {
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        condition.retain(|_, value| !value.is_null());
    }
    if let Some(status) = status.as_object_mut() {
        status.retain(|_, value| !value.is_null());
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_objects::Kind;

    fn group(suspended: bool, status: Value) -> Value {
        let gates = if suspended { json!([{"name": "kueue.x-k8s.io/admission"}]) } else { json!([]) };
        let pods = json!([{"spec": {"schedulingGates": gates}}]);
        json!({"kind": "PodGroup", "spec": {"pods": pods}, "status": status})
    }

    #[test]
    fn a_pod_shows_where_its_group_is_in_its_life() {
        let kind = Kind::PodGroup.job().unwrap();
        let of = |suspended: bool, status: Value| of_job(kind, &group(suspended, status));
        let phase = |status: &Value| {
            let conditions = status["conditions"].as_array().unwrap();
            let shown: Vec<String> = conditions
                .iter()
                .map(|c| format!("{}={}", c["type"].as_str().unwrap(), c["status"].as_str().unwrap()))
                .collect();
            format!("{} {}", status["phase"].as_str().unwrap(), shown.join(" "))
        };
        assert_eq!(phase(&of(true, json!({}))), "Pending PodScheduled=False");
        let granted = of(false, json!({"meridian": {"cluster": "eu", "runningPods": 0}}));
        assert_eq!(phase(&granted), "Pending PodScheduled=True");
        assert_eq!(granted["conditions"][0]["message"], "runs in cluster eu");
        let at = "2026-01-01T00:00:30Z";
        let running = of(false, json!({"meridian": {"cluster": "eu", "runningPods": 3, "startTime": at}}));
        assert_eq!(phase(&running), "Running PodScheduled=True Ready=True");
        assert_eq!(running["startTime"], at);
        let end = |kind: &str| {
            let condition = json!({"type": kind, "status": "True", "reason": "PodFailed", "message": "m"});
            of(false, json!({"conditions": [condition], "meridian": {"startTime": at}}))
        };
        assert_eq!(phase(&end("Succeeded")), "Succeeded PodScheduled=True Ready=False");
        assert_eq!(end("Succeeded").get("reason"), None, "kubectl would show it in place of the phase");
        assert_eq!(phase(&end("Failed")), "Failed PodScheduled=True Ready=False");
        assert_eq!(end("Failed")["message"], "m");
    }

    #[test]
    fn conditions_of_others_make_no_difference() {
        let wanted = of_waiting();
        let mut pod = json!({"status": wanted});
        pod["status"]["conditions"].as_array_mut().unwrap().insert(0, json!({"type": "example.com/warm"}));
        assert_eq!(comparable(&pod, &wanted), wanted);
    }
}
