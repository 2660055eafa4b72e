//! Turns the manager's statuses into those of the management cluster.

use meridian_objects::Kind;
use meridian_objects::job::JobKind;
use meridian_objects::kind::MERIDIAN_GROUP;
use serde_json::{Map, Value, json};

/// A status field of the manager's API that no schema of Kubernetes or Kueue has.
const OWN: &str = "meridian";

/// API group of the kind whose statuses the API server checks.
const BATCH: &str = "batch";

/// The status of a settings object; `None` if the manager has none.
pub(crate) fn of_settings(kind: Kind, held: &Value) -> Option<Value> {
    let mut status = held.get("status")?.as_object()?.clone();
    if kind.group() != MERIDIAN_GROUP {
        status.remove(OWN);
    }
    (!status.is_empty()).then(|| without_nulls(Value::Object(status)))
}

/// Removes nulls: schemas refuse a null in place of an absent field.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let present = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(present.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

/// Which `startTime` a Job's status gets. The API server accepts another `startTime` only while the spec is
/// suspended, or together with a change of the condition `Suspended` to `False`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// The manager's `startTime`, because the API server accepts it.
    Free,
    /// The previous `startTime`, with the condition `Suspended` set to `True`. The next write can then resume
    /// the Job with the new one.
    Suspended,
    /// The `startTime` of this start, with the condition `Suspended` set to `False`.
    Resumed,
    /// The `startTime` in the cluster, which can't be changed any more.
    Kept,
}

impl Start {
    /// `is_fixed`: the API server refused another `startTime`.
    fn of(kind: &JobKind, held: &Value, written: &Value, is_fixed: bool) -> Self {
        let time = |job: &Value| job.pointer("/status/startTime").filter(|time| !time.is_null()).cloned();
        let (began, begins) = (time(written), time(held));
        let has_ended = kind.has_ended(held);
        if kind.kind().group() != BATCH || began.is_none() {
            return Self::Free;
        }
        if kind.is_suspended(written) {
            return if has_ended && begins.is_none() { Self::Kept } else { Self::Free };
        }
        match suspension(&written["status"]) {
            // Kubernetes keeps the condition.
            Some("False") if began == begins && !kind.is_suspended(held) => Self::Resumed,
            _ if began == begins => Self::Free,
            _ if is_fixed => Self::Kept,
            Some("True") if begins.is_some() => Self::Resumed,
            _ if has_ended => Self::Kept,
            _ => Self::Suspended,
        }
    }
}

/// The status of the condition `Suspended`.
fn suspension(status: &Value) -> Option<&str> {
    let mut conditions = status["conditions"].as_array()?.iter();
    conditions.find(|condition| condition["type"] == "Suspended")?["status"].as_str()
}

/// The status of a job as its own controller would write it, based on the status in the cluster. `None` if
/// there is nothing to write. `start_is_fixed`: the API server refused another `startTime`.
pub(crate) fn of_job(
    kind: &JobKind,
    held: &Value,
    written: &Value,
    is_ours: bool,
    start_is_fixed: bool,
) -> Option<Value> {
    let has_ended = kind.has_ended(held);
    if kind.has_ended(written) || (!is_ours && !has_ended && !is_without_controller(kind, written)) {
        // an ended job's status is final; while a job's own controller keeps the job suspended, that
        // controller writes the status
        return None;
    }
    let is_batch = kind.kind().group() == BATCH;
    let has_begun = held.pointer("/status/meridian/startTime").is_some_and(|start| !start.is_null());
    let has_status = written["status"].as_object().is_some_and(|status| !status.is_empty());
    if !is_batch && !has_begun && !has_ended && !has_status {
        // A waiting job needs no status, because its Workload has the reason.
        return None;
    }
    let mut status = held.get("status").and_then(Value::as_object).cloned().unwrap_or_default();
    status.remove(OWN);
    let start = Start::of(kind, held, written, start_is_fixed);
    let is_suspended = start == Start::Suspended || (kind.is_suspended(held) && !has_ended);
    if is_batch {
        let mut conditions = conditions(&status);
        if is_suspended {
            conditions.push(suspended(&held["metadata"]["creationTimestamp"]));
        } else if start == Start::Resumed {
            conditions.push(resumed(&held["status"]["startTime"]));
        }
        status.insert("conditions".to_owned(), Value::Array(conditions));
    }
    if matches!(start, Start::Suspended | Start::Kept) {
        status.insert("startTime".to_owned(), written["status"]["startTime"].clone());
    }
    if start == Start::Suspended {
        remove_counts(&mut status);
    }
    if is_batch && has_ended {
        end(&mut status, held);
    }
    (!status.is_empty()).then_some(Value::Object(status))
}

/// For a job without a field that names its controller: whether no controller of the cluster writes its
/// status. The controller of LeaderWorkerSets always writes the field that is checked here.
fn is_without_controller(kind: &JobKind, written: &Value) -> bool {
    kind.is_gated(written) && written.pointer("/status/hpaPodSelector").is_none()
}

/// The status of a job that the manager no longer has, for example because its queue label was removed:
/// nothing of it runs. `None` if the cluster's status already shows that.
pub(crate) fn of_left_job(kind: &JobKind, written: &Value) -> Option<Value> {
    let counts = |field: &str| written["status"][field].as_u64().unwrap_or(0) > 0;
    let is_batch = kind.kind().group() == BATCH;
    (is_batch && !kind.has_ended(written) && (counts("active") || counts("ready"))).then(|| {
        let since = written["metadata"]["creationTimestamp"].clone();
        json!({"conditions": [suspended(&since)]})
    })
}

fn suspended(since: &Value) -> Value {
    json!({
        "type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended",
        "lastProbeTime": since, "lastTransitionTime": since,
    })
}

fn resumed(since: &Value) -> Value {
    json!({
        "type": "Suspended", "status": "False", "reason": "JobResumed", "message": "Job resumed",
        "lastProbeTime": since, "lastTransitionTime": since,
    })
}

fn remove_counts(status: &mut Map<String, Value>) {
    for count in ["active", "ready", "terminating"] {
        status.remove(count);
    }
}

/// Adds what the API server demands of a `batch/v1` Job that has ended: a start, and no active pod.
fn end(status: &mut Map<String, Value>, held: &Value) {
    remove_counts(status);
    let created = held["metadata"]["creationTimestamp"].clone();
    status.entry("startTime").or_insert(created);
}

/// The manager's conditions, with the cause before the end, as Kubernetes demands.
fn conditions(status: &Map<String, Value>) -> Vec<Value> {
    let mut conditions = status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    conditions.retain(|condition| condition["type"] != "Suspended");
    for (end, cause) in [("Complete", "SuccessCriteriaMet"), ("Failed", "FailureTarget")] {
        let has = |wanted: &str| conditions.iter().position(|condition| condition["type"] == wanted);
        if let (Some(at), None) = (has(end), has(cause)) {
            let mut before = conditions[at].clone();
            before["type"] = json!(cause);
            conditions.insert(at, before);
        }
    }
    conditions
}

/// A Workload for the cluster, in two parts: everything but the status, and the status.
pub(crate) fn of_workload(held: &Value) -> (Value, Value) {
    let metadata = &held["metadata"];
    let mut spec = held["spec"].clone();
    if let Some(spec) = spec.as_object_mut() {
        // users set this field in the cluster
        spec.remove("active");
    }
    let object = json!({
        "apiVersion": held["apiVersion"], "kind": held["kind"],
        "metadata": {
            "name": metadata["name"], "namespace": metadata["namespace"], "labels": metadata["labels"],
            "ownerReferences": metadata["ownerReferences"],
        },
        "spec": spec,
    });
    let mut status = held["status"].as_object().cloned().unwrap_or_default();
    status.remove(OWN);
    (without_nulls(object), without_nulls(Value::Object(status)))
}

/// Whether `current` contains every value of `wanted`. Lists must be equal in length.
pub(crate) fn contains(current: &Value, wanted: &Value) -> bool {
    match (current, wanted) {
        (_, Value::Null) => true,
        (Value::Object(current), Value::Object(wanted)) => {
            wanted.iter().all(|(name, value)| contains(current.get(name).unwrap_or(&Value::Null), value))
        }
        (Value::Array(current), Value::Array(wanted)) => {
            current.len() == wanted.len() && current.iter().zip(wanted).all(|(a, b)| contains(a, b))
        }
        (current, wanted) => current == wanted,
    }
}

/// A status without the texts and times that change without a change of state.
pub(crate) fn without_texts(status: &Value) -> Value {
    let mut status = status.clone();
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        condition.remove("message");
        condition.remove("lastTransitionTime");
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(status: Value) -> Value {
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "j", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"suspend": false}, "status": status,
        })
    }

    fn types(status: &Value) -> Vec<&str> {
        status["conditions"].as_array().unwrap().iter().map(|c| c["type"].as_str().unwrap()).collect()
    }

    #[test]
    fn an_end_is_written_as_the_api_server_wants_it() {
        let kind = JobKind::usual();
        let done = held(json!({
            "active": 3, "ready": 3, "succeeded": 3, "completionTime": "2026-01-01T00:01:00Z",
            "conditions": [{"type": "Complete", "status": "True"}], "meridian": {"state": "Finished"},
        }));
        let status = of_job(kind, &done, &json!({"spec": {"suspend": true}}), false, false).unwrap();
        assert_eq!(types(&status), ["SuccessCriteriaMet", "Complete"]);
        assert!(status.get("active").is_none() && status.get("meridian").is_none(), "{status}");
        assert_eq!(status["startTime"], "2026-01-01T00:00:00Z");
        let written = held(status);
        assert_eq!(of_job(kind, &done, &written, true, false), None, "an end is final");
    }

    #[test]
    fn a_job_of_the_local_controller_keeps_its_status_until_its_end() {
        let kind = JobKind::usual();
        let running = held(json!({"active": 3, "startTime": "2026-01-01T00:00:30Z"}));
        assert_eq!(of_job(kind, &running, &json!({"spec": {"suspend": true}}), false, false), None);
        let status = of_job(kind, &running, &json!({"spec": {"suspend": true}}), true, false).unwrap();
        assert_eq!(status["active"], 3);
        let waiting = json!({"metadata": {}, "spec": {"suspend": true}, "status": {"failed": 0}});
        assert_eq!(types(&of_job(kind, &waiting, &json!({}), true, false).unwrap()), ["Suspended"]);
    }

    /// What the API server says about a new status of a Job that isn't suspended in its spec.
    fn is_taken(old: &Value, new: &Value) -> bool {
        let (began, begins) = (&old["status"]["startTime"], &new["startTime"]);
        let resumes = suspension(&old["status"]) == Some("True") && suspension(new) == Some("False");
        began.is_null() || began == begins || resumes
    }

    #[test]
    fn each_activation_of_a_job_shows_its_own_start() {
        let kind = JobKind::usual();
        let (first, second) = ("2026-01-01T00:00:30Z", "2026-01-01T02:00:00Z");
        let running = |start: &str| held(json!({"active": 3, "ready": 3, "startTime": start}));
        let mut waiting = held(json!({"failed": 0}));
        waiting["spec"]["suspend"] = json!(true);
        let starting = held(json!({"failed": 0}));
        let mut done = running(second);
        done["status"]["conditions"] = json!([{"type": "Complete", "status": "True"}]);
        for suspend in [false, true] {
            let mut cluster = held(json!({}));
            cluster["spec"]["suspend"] = json!(suspend);
            // The second one was displaced between two looks; the third one runs to its end.
            let steps = [
                (&waiting, None),
                (&running(first), Some(first)),
                (&running(first), Some(first)),
                (&waiting, Some(first).filter(|_| !suspend)),
                (&starting, Some(first).filter(|_| !suspend)),
                (&running(second), Some(second)),
                (&running(second), Some(second)),
                (&running(first), Some(if suspend { first } else { second })),
                (&running(first), Some(first)),
                (&waiting, Some(first).filter(|_| !suspend)),
                (&done, Some(second)),
            ];
            for (step, (held, start)) in steps.into_iter().enumerate() {
                let status = of_job(kind, held, &cluster, true, false).unwrap();
                assert_eq!(status["startTime"].as_str(), start, "{suspend} {step}: {status}");
                assert!(suspend || is_taken(&cluster, &status), "{step}: {status}");
                let runs = status["active"] == 3;
                assert!(!runs || suspension(&status) != Some("True"), "{step}: {status}");
                cluster["status"] = status;
                let again = of_job(kind, held, &cluster, true, false);
                let settles = kind.has_ended(&cluster) || runs || held["status"]["startTime"].is_null();
                assert!(!settles || again.is_none_or(|again| again == cluster["status"]), "{suspend} {step}");
            }
        }
    }

    #[test]
    fn a_start_that_the_api_server_does_not_replace_stays() {
        let kind = JobKind::usual();
        let (old, new) = ("2026-01-01T00:00:30Z", "2026-01-01T02:00:00Z");
        let written = held(json!({"startTime": old, "conditions": [suspended(&json!(old))]}));
        let running = held(json!({"active": 3, "startTime": new}));
        let status = of_job(kind, &running, &written, true, true).unwrap();
        assert_eq!((&status["startTime"], &status["active"]), (&json!(old), &json!(3)), "{status}");
        assert_eq!(types(&status), [""; 0]);
    }

    #[test]
    fn a_leader_worker_set_has_its_status_unless_a_controller_writes_it() {
        let kind = Kind::LeaderWorkerSet.job().unwrap();
        let gates = json!([{"name": "meridian.dev/admission"}]);
        let spec = json!({"leaderWorkerTemplate": {
            "workerTemplate": {"spec": {"schedulingGates": gates, "containers": []}},
        }});
        let set = |status: Value| json!({"metadata": {}, "spec": spec, "status": status});
        let running = set(json!({"readyReplicas": 1, "meridian": {"startTime": "later"}}));
        let waiting = set(json!({"readyReplicas": 0, "meridian": {}}));
        let written = |held: &Value, status: Value| of_job(kind, held, &set(status), false, false);
        assert_eq!(written(&waiting, json!({})), None, "a write is saved");
        assert_eq!(written(&running, json!({})), Some(json!({"readyReplicas": 1})));
        assert_eq!(written(&waiting, json!({"readyReplicas": 1})), Some(json!({"readyReplicas": 0})));
        assert_eq!(written(&running, json!({"hpaPodSelector": "s", "readyReplicas": 0})), None);
    }

    #[test]
    fn other_fields_of_the_cluster_do_not_count_as_a_difference() {
        let current = json!({"a": 1, "b": {"c": [1, {"d": 2, "e": 3}]}});
        assert!(contains(&current, &json!({"b": {"c": [1, {"d": 2}]}, "x": null})));
        assert!(!contains(&current, &json!({"b": {"c": [1]}})));
        assert!(!contains(&current, &json!({"x": 1})));
    }
}
