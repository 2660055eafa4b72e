//! Workloads that have quota in a plan, and no nodes at the manager.

use super::fixtures::{admitted, elastic, listed, local_queue, pending, queue, what_if};
use serde_json::{Value, json};

/// Existing queues, and a workload per state at the manager.
fn existing() -> Vec<Value> {
    let mut all = vec![queue("cq", 6, &json!({})), local_queue("q", "cq")];
    for (number, name) in [(1, "runs"), (2, "asks"), (3, "full")] {
        let job = elastic(name, "q", 1);
        let mut workload = match name {
            "full" => pending(&job, number),
            _ => admitted(&job, number, 1, "cq"),
        };
        let status = &mut workload["status"];
        match name {
            "asks" => {
                status["meridian"]["state"] = json!("Dispatching");
                status["meridian"]["legs"] =
                    json!([{"cluster": "eu", "state": "Waiting"}, {"cluster": "us", "state": "Offered"}]);
            }
            "full" => {
                status["meridian"]["state"] = json!("Pending");
                let message = "no cluster has 1 free cpu";
                status["conditions"] = json!([{
                    "type": "QuotaReserved", "status": "False", "reason": "Pending", "message": message,
                    "lastTransitionTime": "2026-06-01T09:00:01Z",
                }]);
            }
            _ => status["meridian"]["state"] = json!("Running"),
        }
        all.extend([job, workload]);
    }
    all
}

/// The notes, without the one about objects that were made here and never applied.
fn notes(report: &Value) -> Vec<&str> {
    let notes = report["notes"].as_array().unwrap().iter().filter_map(Value::as_str);
    notes.filter(|note| !note.contains("the last applied object isn't known")).collect()
}

#[tokio::test]
async fn a_workload_that_waits_for_nodes_is_not_admitted_without_a_note() {
    let asks = "`ml/job-asks` has quota here, and doesn't run: the manager says: waiting for nodes of the \
                provider in `eu`";
    let full = "`ml/job-full` has quota here, and doesn't run: the manager says: no cluster has 1 free cpu";
    let report = what_if(&existing(), &[queue("cq", 7, &json!({}))]).await;
    assert_eq!((&report["after"]["admitted"], &report["after"]["waiting"]), (&json!(3), &json!(0)));
    assert_eq!(notes(&report), [asks, full]);
    // With a smaller quota the workload has no quota in the plan, so the plan's own reason is shown.
    let report = what_if(&existing(), &[queue("cq", 2, &json!({}))]).await;
    assert_eq!(notes(&report), [asks], "{report:#}");
}

#[tokio::test]
async fn what_would_be_admitted_is_said_to_be_by_quota() {
    let report = what_if(&existing(), &[elastic("new", "q", 1)]).await;
    assert_eq!(listed(&report, "admitted", "/state").len(), 1, "{report:#}");
    let by_quota = "`Would be admitted` is by quota: whether a cluster has room, or must ask its provider \
                    for nodes, isn't evaluated";
    assert!(notes(&report).contains(&by_quota), "{report:#}");
}
