//! Decides on writes of Workloads: object and status in the cluster, and `spec.active` in both directions.
//!
//! Users set `spec.active` in the cluster. The manager writes the field only when it deactivates a workload
//! itself, together with a mark of that deactivation. If the field is `true` without the mark, the
//! deactivation must still be written; with the mark, somebody has activated the workload since.
//!
//! The object is applied without `spec.active`, and the field is written by updates instead of applies, so
//! that the API server neither removes the field nor takes its ownership from the user who set it.

use super::stage::{self, Stage};
use super::{
    Action, Memory, Next, Pair, REPAIR_EVERY, SEEN_WITHIN, fingerprint, is_being_deleted, pods, write_status,
};
use crate::sides::uid;
use crate::{manifest, status};
use meridian_objects::job::{SOURCE_ANNOTATION, SOURCE_CLUSTER};
use serde_json::{Value, json};
use std::time::Duration;

/// Annotation of a Workload in the cluster with the mark: the time of the manager's own deactivation that
/// `spec.active` shows.
pub(crate) const DEACTIVATED: &str = "meridian.dev/deactivated";
/// How often a Workload whose job has yet to be submitted is checked again.
const JOB_COMES_WITHIN: Duration = Duration::from_secs(5);

pub(super) fn next_for_workload(pair: Pair<'_>, memory: &Memory) -> Next {
    let Some(held) = pair.manager else { return next_for_orphan(pair) };
    if is_being_deleted(held) || !manifest::is_from_cluster(held) {
        return Next::Nothing;
    }
    let (mut object, status) = status::of_workload(held);
    if pods::is_of_group(&object) {
        if pair.members.is_empty() {
            // the group will be removed after its pods, and the Workload after the group
            return Next::LookIn(SEEN_WITHIN);
        }
        object["metadata"]["ownerReferences"] = pods::owner_references(pair.members);
    }
    object["metadata"]["annotations"] = json!({SOURCE_ANNOTATION: SOURCE_CLUSTER});
    let Some(written) = pair.cluster else { return create(object, held, memory) };
    let has_ended = is_finished(&written["status"]);
    let is_over = has_ended || is_finished(&held["status"]);
    if let Some(action) = next_activity(written, held).filter(|_| !is_over) {
        return Next::Do(action);
    }
    let mut repair_in = None;
    if !has_ended && !status::contains(written, &object) {
        // the watch will soon show the last write, unless somebody changed the object since
        let ago = applied(memory, &object);
        repair_in = ago.map(|ago| REPAIR_EVERY.saturating_sub(ago)).filter(|wait| !wait.is_zero());
        if repair_in.is_none() {
            return Next::Do(Action::ApplyWorkload { object });
        }
    }
    if has_ended {
        return Next::Nothing;
    }
    let pace = stage::pace_of_workload(Stage::of_workload(&written["status"]), Stage::of_workload(&status));
    match write_status(&written["status"], status, memory.status, memory.applied, pace) {
        Next::Nothing => repair_in.map_or(Next::Nothing, Next::LookIn),
        next => next,
    }
}

/// A Workload of this manager that only the cluster has, perhaps because the journal was lost. It stays until
/// its job has been submitted, because its `spec.active` is submitted with the job.
fn next_for_orphan(pair: Pair<'_>) -> Next {
    match pair.cluster.filter(|object| manifest::is_from_cluster(object)) {
        Some(_) if pair.awaits_job => Next::LookIn(JOB_COMES_WITHIN),
        Some(stale) => Next::Do(Action::RemoveWorkload { uid: uid(stale) }),
        None => Next::Nothing,
    }
}

/// Creates the Workload, unless that was just done and the watch will soon show it. An inactive Workload is
/// created with `spec.active: false`, because without the field it would look as if somebody had activated
/// it.
fn create(mut object: Value, held: &Value, memory: &Memory) -> Next {
    let is_inactive = !is_active(held);
    if is_inactive {
        object["spec"]["active"] = json!(false);
        if let Some(mark) = own_deactivation(held) {
            object["metadata"]["annotations"][DEACTIVATED] = json!(mark);
        }
    }
    let wait = applied(memory, &object).map(|ago| SEEN_WITHIN.saturating_sub(ago));
    match wait.filter(|wait| !wait.is_zero()) {
        Some(wait) => Next::LookIn(wait),
        None if is_inactive => Next::Do(Action::CreateWorkload { object }),
        None => Next::Do(Action::ApplyWorkload { object }),
    }
}

/// Makes `spec.active` equal on both sides, before anything else, because it stops and starts gangs.
fn next_activity(written: &Value, held: &Value) -> Option<Action> {
    if let Some(mark) = own_deactivation(held)
        && written["metadata"]["annotations"][DEACTIVATED] != mark
    {
        let version = written["metadata"]["resourceVersion"].clone();
        return Some(Action::Deactivate { mark: mark.to_owned(), version });
    }
    let active = is_active(written);
    (active != is_active(held)).then_some(Action::SetActive(active))
}

/// When the manager deactivated the workload by itself, such as at its maximum execution time. `None` if it
/// is active, or was deactivated in the cluster.
fn own_deactivation(held: &Value) -> Option<&str> {
    held.pointer("/status/meridian/deactivated")?.as_str()
}

fn is_active(workload: &Value) -> bool {
    workload.pointer("/spec/active").and_then(Value::as_bool).unwrap_or(true)
}

fn applied(memory: &Memory, object: &Value) -> Option<Duration> {
    memory.applied.filter(|(hash, _)| *hash == fingerprint(object)).map(|(_, ago)| ago)
}

fn is_finished(status: &Value) -> bool {
    Stage::of_workload(status) == Stage::Ended
}
