//! Events of the management cluster: one sentence about a change of a job. Pure.

use serde_json::{Value, json};

/// Content of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventText {
    pub(crate) is_warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// The event for a job whose Workload gets a new status; `None` if nothing is worth an event.
pub(crate) fn of_workload(before: &Value, after: &Value) -> Option<EventText> {
    let newly = |kind: &str| {
        let is_true = |status: &Value| condition(status, kind).is_some_and(|c| c["status"] == "True");
        is_true(after) && (!is_true(before) || at(before, kind) != at(after, kind))
    };
    let text = |status: &Value, kind: &str| {
        condition(status, kind).and_then(|c| c["message"].as_str()).unwrap_or_default().to_owned()
    };
    if newly("Evicted") && !newly("Admitted") {
        return Some(EventText { is_warning: false, reason: "Evicted", message: text(after, "Evicted") });
    }
    if newly("Admitted") {
        let queue = after.pointer("/admission/clusterQueue").and_then(Value::as_str).unwrap_or_default();
        let cluster = after["clusterName"].as_str().unwrap_or_default();
        let message = format!("Admitted by ClusterQueue {queue}, runs in cluster {cluster}");
        return Some(EventText { is_warning: false, reason: "Admitted", message });
    }
    None
}

/// The event for a refusal by the manager.
pub(crate) fn of_refusal(message: &str) -> EventText {
    EventText { is_warning: true, reason: "Refused", message: message.to_owned() }
}

/// The event for a job with the name of another job that was submitted at the manager directly.
pub(crate) fn of_taken_name(job: &Value) -> EventText {
    let (kind, name) = (&job["kind"], &job["metadata"]["name"]);
    of_refusal(&format!(
        "the manager has another {} `{}`, which was submitted there directly: delete that one with \
         `meridian delete`, or give this job another name",
        kind.as_str().unwrap_or("job"),
        name.as_str().unwrap_or_default(),
    ))
}

/// The event for a job that waits, with the reason.
pub(crate) fn of_hold(reason: &str) -> EventText {
    EventText { is_warning: true, reason: "Held", message: reason.to_owned() }
}

/// The event for a group of which some pods don't exist yet.
pub(crate) fn of_incomplete_group(here: usize, total: usize) -> EventText {
    let message =
        format!("{here} of {total} pods of the group exist: it is submitted when the last one is created");
    EventText { is_warning: false, reason: "GroupIncomplete", message }
}

/// The event that says why the manager can't run the agent of a cluster.
pub(crate) fn of_hosting(problem: &str) -> EventText {
    EventText { is_warning: true, reason: "AgentNotHosted", message: problem.to_owned() }
}

fn condition<'s>(status: &'s Value, kind: &str) -> Option<&'s Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

fn at<'s>(status: &'s Value, kind: &str) -> Option<&'s Value> {
    condition(status, kind).map(|condition| &condition["lastTransitionTime"])
}

/// The object that an event is about: the owner of a Workload, or the object itself.
pub(crate) fn about(object: &Value) -> Value {
    let metadata = &object["metadata"];
    match metadata["ownerReferences"].as_array().and_then(|owners| owners.first()) {
        Some(owner) if object["kind"] == "Workload" => json!({
            "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["name"],
            "uid": owner["uid"], "namespace": metadata["namespace"],
        }),
        _ => json!({
            "apiVersion": object["apiVersion"], "kind": object["kind"], "name": metadata["name"],
            "uid": metadata["uid"], "namespace": metadata["namespace"],
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(kinds: &[(&str, &str, &str)]) -> Value {
        let conditions: Vec<Value> = kinds
            .iter()
            .map(|(kind, status, at)| {
                json!({"type": kind, "status": status, "lastTransitionTime": at, "message": kind})
            })
            .collect();
        json!({"conditions": conditions, "clusterName": "eu", "admission": {"clusterQueue": "main"}})
    }

    #[test]
    fn an_admission_and_an_eviction_are_reported_once() {
        let (none, admitted) = (status(&[]), status(&[("Admitted", "True", "1")]));
        let event = of_workload(&none, &admitted).unwrap();
        assert_eq!(event.message, "Admitted by ClusterQueue main, runs in cluster eu");
        assert_eq!(of_workload(&admitted, &admitted), None);
        let evicted = status(&[("Admitted", "False", "2"), ("Evicted", "True", "2")]);
        assert_eq!(of_workload(&admitted, &evicted).unwrap().reason, "Evicted");
        let again = status(&[("Admitted", "True", "3"), ("Evicted", "False", "3")]);
        assert_eq!(of_workload(&evicted, &again).unwrap().reason, "Admitted");
    }
}
