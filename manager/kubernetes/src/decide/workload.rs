//! Decides on writes of Workloads: object and status in the cluster, and `spec.active` in both directions.
//!
//! Users set `spec.active` in the cluster. The manager writes it only when it deactivates a workload itself,
//! together with a mark of that deactivation. A field that is `true` without the mark is the older state;
//! with the mark, somebody has activated the workload since.
//!
//! The object is applied without `spec.active`, and both writes of the field are updates and not applies, so
//! that the API server neither removes the field nor takes it from the user who set it.

use super::stage::{self, Stage};
use super::{
    Action, Memory, Next, Pair, REPAIR_EVERY, SEEN_WITHIN, fingerprint, is_being_deleted, pods, write_status,
};
use crate::sides::uid;
use crate::{manifest, status};
use meridian_objects::job::{SOURCE_ANNOTATION, SOURCE_CLUSTER};
use serde_json::{Value, json};
use std::time::Duration;

/// Annotation of a Workload in the cluster: the manager's own deactivation that its `spec.active` shows.
pub(crate) const DEACTIVATED: &str = "meridian.dev/deactivated";
/// A Workload whose job is to be submitted is looked at again this often.
const JOB_COMES_WITHIN: Duration = Duration::from_secs(5);

pub(super) fn next_for_workload(pair: Pair<'_>, memory: &Memory) -> Next {
    let Some(held) = pair.manager else { return next_for_orphan(pair) };
    if is_being_deleted(held) || !manifest::is_from_cluster(held) {
        return Next::Nothing;
    }
    let (mut object, status) = status::of_workload(held);
    if pods::is_of_group(&object) {
        if pair.members.is_empty() {
            // the group follows its pods, and the Workload follows the group
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
        // what was written a moment ago is about to be shown, or was changed by hand since
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

/// A Workload that only the cluster has, and that this manager made, perhaps from a journal that was lost.
/// While its job is to come, it stays: its `spec.active` goes to the manager with the job.
fn next_for_orphan(pair: Pair<'_>) -> Next {
    match pair.cluster.filter(|object| manifest::is_from_cluster(object)) {
        Some(_) if pair.awaits_job => Next::LookIn(JOB_COMES_WITHIN),
        Some(stale) => Next::Do(Action::RemoveWorkload { uid: uid(stale) }),
        None => Next::Nothing,
    }
}

/// Creates the Workload, unless that was done a moment ago and the watch is about to show it. One that is
/// inactive says so from the start: without the field it would be active, as if somebody had activated it.
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

/// Brings `spec.active` of both sides in line, before anything else: it stops and starts gangs.
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
