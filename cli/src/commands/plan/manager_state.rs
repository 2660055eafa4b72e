//! Fetches the objects of a running manager.
//!
//! The manager's workloads have pod sets with names and counts only. The requests of their pods are taken
//! from the jobs.

mod workloads;

use super::capacity_notes::NotRunning;
use super::scale::pending_scale_up;
use crate::client::{Client, Selection};
use crate::error::Error;
use meridian_objects::job::JobKind;
use meridian_objects::plan::PlanObject;
use meridian_objects::spec::workload::ELASTIC_ANNOTATION;
use meridian_objects::{Kind, any_job};
use meridian_queueing::model::Moment;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Kinds that decisions depend on, in the order in which they are read: referenced kinds come first, jobs
/// come before their workloads.
fn evaluated_kinds() -> impl Iterator<Item = Kind> {
    let is_evaluated = |kind: &Kind| {
        !kind.grants() && !matches!(kind, Kind::Cluster | Kind::ResidencyPolicy | Kind::DispatchPolicy)
    };
    Kind::ALL.into_iter().filter(is_evaluated)
}

/// JSON pointer to the label of objects that describe one worker cluster.
const CLUSTER_LABEL: &str = "/metadata/labels/meridian.dev~1cluster";
/// JSON pointer to the uid of a workload's job.
const OWNER_UID: &str = "/metadata/ownerReferences/0/uid";

/// Kind, namespace and name of a job.
pub(super) type JobKey = (Kind, String, String);

/// The objects of a manager. Objects that describe one worker cluster are left out.
#[derive(Debug, Default)]
pub(super) struct ManagerState {
    /// Includes jobs only if they have no workload.
    pub(super) objects: Vec<PlanObject>,
    /// Jobs that have a workload.
    pub(super) jobs: Vec<PlanObject>,
    pub(super) ended_jobs: BTreeSet<JobKey>,
    /// When the last workload was submitted, in milliseconds since the Unix epoch.
    pub(super) last_submission: Moment,
    pub(super) not_running: NotRunning,
    pub(super) notes: Vec<String>,
}

impl ManagerState {
    pub(super) fn objects(&self) -> &[PlanObject] {
        &self.objects
    }

    /// Adds an object, or a note if it can't be read.
    fn add(&mut self, item: &Value) {
        match PlanObject::lenient(item) {
            Ok(object) => self.objects.push(object),
            Err(error) => {
                let [kind, namespace, name] =
                    ["/kind", "/metadata/namespace", "/metadata/name"].map(|path| text(item, path));
                self.notes.push(format!("ignored {kind} `{namespace}/{name}` of the manager: {error}"));
            }
        }
    }
}

/// Fetches all objects that decisions depend on, and those of `given` kinds, which are compared. Fails if a
/// request fails, except for kinds that the manager doesn't serve.
pub(super) async fn fetch(client: &Client, given: &BTreeSet<Kind>) -> Result<ManagerState, Error> {
    let mut state = ManagerState::default();
    let mut jobs: BTreeMap<String, Value> = BTreeMap::new();
    let mut priority_classes: BTreeSet<String> = BTreeSet::new();
    let compared = given.iter().copied().filter(|kind| evaluated_kinds().all(|other| other != *kind));
    for kind in evaluated_kinds().chain(compared) {
        let Some(items) = list(client, kind, &mut state.notes).await? else { continue };
        let (ended, items): (Vec<Value>, Vec<Value>) = items.into_iter().partition(has_ended);
        match kind {
            any_job!() => {
                state.ended_jobs.extend(ended.iter().map(|job| job_key(kind, job)));
                jobs.extend(items.into_iter().map(|job| (text(&job, "/metadata/uid").to_owned(), job)));
            }
            Kind::Workload => add_workloads(&mut state, items, &jobs, &priority_classes),
            Kind::WorkloadPriorityClass => {
                priority_classes.extend(items.iter().map(|item| text(item, "/metadata/name").to_owned()));
                items.iter().for_each(|item| state.add(item));
            }
            _ => items.iter().for_each(|item| state.add(item)),
        }
    }
    Ok(state)
}

/// All items of a kind; `None` with a note if the manager doesn't serve the kind.
async fn list(client: &Client, kind: Kind, notes: &mut Vec<String>) -> Result<Option<Vec<Value>>, Error> {
    let selection = Selection { kind, namespace: None, labels: String::new(), name: None };
    match client.list(&selection).await {
        Ok(list) => {
            let of_manager = |item: &Value| item.pointer(CLUSTER_LABEL).is_none();
            Ok(Some(list.items.into_iter().filter(of_manager).collect()))
        }
        Err(error) if error.is_not_found() => {
            notes.push(format!("the manager doesn't serve {}: none are considered", kind.plural()));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Adds workloads, completed from their jobs, and the jobs that have no workload.
fn add_workloads(
    state: &mut ManagerState,
    mut items: Vec<Value>,
    jobs: &BTreeMap<String, Value>,
    priority_classes: &BTreeSet<String>,
) {
    let is_elastic = |item: &Value| jobs.get(text(item, OWNER_UID)).is_some_and(is_elastic);
    let scale_ups: Vec<Value> =
        items.iter_mut().filter(|item| is_elastic(item)).filter_map(pending_scale_up).collect();
    items.iter().for_each(|item| state.not_running.add(item));
    items.extend(scale_ups);
    state.last_submission = workloads::restore_submission_order(&mut items);
    let mut owners: BTreeSet<String> = BTreeSet::new();
    for mut item in items {
        workloads::follow_priority_class(&mut item, priority_classes);
        workloads::restore_reservation_time(&mut item);
        let owner = text(&item, OWNER_UID).to_owned();
        if let Some(job) = jobs.get(&owner) {
            workloads::complete_from_job(&mut item, job);
            owners.insert(owner);
        }
        state.add(&item);
    }
    for (uid, job) in jobs {
        if !owners.contains(uid) {
            state.add(job);
        } else if let Ok(job) = PlanObject::lenient(job) {
            state.jobs.push(job);
        }
    }
}

fn text<'v>(item: &'v Value, pointer: &str) -> &'v str {
    item.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn job_key(kind: Kind, job: &Value) -> JobKey {
    (kind, text(job, "/metadata/namespace").to_owned(), text(job, "/metadata/name").to_owned())
}

/// Whether a job or workload has ended.
fn has_ended(item: &Value) -> bool {
    if let Some(kind) = JobKind::of_manifest(item) {
        return kind.has_ended(item);
    }
    let conditions = item.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["status"] == "True" && condition["type"] == "Finished")
}

fn is_elastic(job: &Value) -> bool {
    job["metadata"]["annotations"][ELASTIC_ANNOTATION] == "true"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn finished_jobs_and_workloads_have_ended() {
        let with_condition = |kind: &str, condition: &str| {
            let version = if kind == "Job" { "batch/v1" } else { "kueue.x-k8s.io/v1beta2" };
            has_ended(&json!({"apiVersion": version, "kind": kind,
                "status": {"conditions": [{"type": condition, "status": "True"}]}}))
        };
        assert!(with_condition("Workload", "Finished"));
        assert!(with_condition("Job", "Complete") && with_condition("Job", "Failed"));
        assert!(!with_condition("Workload", "Admitted") && !has_ended(&json!({"kind": "Job"})));
    }
}
