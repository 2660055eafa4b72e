//! What one object needs now, from what both sides have. Pure.

mod pods;
mod stage;

use crate::events::EventText;
use crate::manifest;
use crate::pod_status;
use crate::resources::{Flow, Resource};
use crate::sides::uid;
use crate::status;
use meridian_objects::Kind;
use serde_json::{Value, json};
use stage::Stage;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// A status that differs only in its texts is written again this often.
const TEXTS_EVERY: Duration = Duration::from_secs(60);
/// A status that the cluster doesn't take as it was written is written again this often.
const REPAIR_EVERY: Duration = Duration::from_secs(30);
/// An object that was written is seen within this time, or was deleted again.
const SEEN_WITHIN: Duration = Duration::from_secs(2);
/// Shortest time between two statuses of one settings object: those of queues change with every job.
const SETTINGS_EVERY: Duration = Duration::from_secs(2);

/// A write to one of the two API servers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Create the object at the manager. `existed`: it may have run before the manager started.
    Submit { manifest: Value, existed: bool },
    /// Replace the object at the manager.
    Change { manifest: Value },
    /// Delete the object at the manager.
    Remove { uid: Option<String> },
    /// Set `spec.active` of the Workload at the manager.
    SetActive(bool),
    /// Create or change the Workload in the cluster.
    ApplyWorkload { object: Value },
    /// Write a status in the cluster.
    WriteStatus { status: Value },
    /// Delete the Workload in the cluster, if it still has this uid.
    RemoveWorkload { uid: Option<String> },
    /// Write an event in the cluster: why the object isn't at the manager.
    Explain { text: EventText },
}

/// What was written for an object before. Lost at a restart; everything is compared again then.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    /// Fingerprint of the manifest that the manager took, and how long ago.
    pub(crate) sent: Option<(u64, Duration)>,
    /// Fingerprint of the Workload that the cluster took, and how long ago.
    pub(crate) applied: Option<(u64, Duration)>,
    /// Fingerprint of the last status, and how long ago it was written.
    pub(crate) status: Option<(u64, Duration)>,
    /// Fingerprint of the last explanation, and how long ago it was written.
    pub(crate) explained: Option<(u64, Duration)>,
    /// How long the object has been looked at.
    pub(crate) known: Duration,
    /// The API server refused another `startTime` for the job. Releases before 1.35 may, for a job that isn't
    /// suspended in its spec.
    pub(crate) start_is_fixed: bool,
}

/// Both sides' versions of one object.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pair<'o> {
    pub(crate) cluster: Option<&'o Value>,
    pub(crate) manager: Option<&'o Value>,
    /// Of a group, of one of its pods, or of its Workload: the pods of the group that are taken.
    pub(crate) members: &'o [Arc<Value>],
    /// Of a pod in a group: the group at the manager.
    pub(crate) group: Option<&'o Value>,
    /// Whether the cluster's first list had the object.
    pub(crate) existed: bool,
}

/// Most pods of a group for which an event is written.
const EVENTS_MAX: usize = 32;

impl<'o> Pair<'o> {
    /// The objects of the cluster that an event is about: for a group, its pods.
    pub(crate) fn subjects(&self) -> Vec<&'o Value> {
        let is_workload = self.cluster.is_some_and(|object| object["kind"] == Kind::Workload.name());
        match self.cluster {
            Some(object) if !is_workload || self.members.is_empty() => vec![object],
            _ => self.members.iter().take(EVENTS_MAX).map(Arc::as_ref).collect(),
        }
    }

    /// Whether nothing is left of the object.
    pub(crate) fn is_empty(&self) -> bool {
        self.cluster.is_none() && self.manager.is_none() && self.members.is_empty()
    }
}

/// The next write, or when to look again.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Next {
    Do(Action),
    LookIn(Duration),
    Nothing,
}

/// Whether the write gives a job another `startTime` than it has in the cluster.
pub(crate) fn changes_start(action: &Action, cluster: Option<&Value>) -> bool {
    let Action::WriteStatus { status } = action else { return false };
    let began = cluster.and_then(|object| object.pointer("/status/startTime"));
    began.is_some_and(|began| status["startTime"] != *began)
}

/// The fingerprint of what was written.
pub(crate) fn fingerprint(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}

/// Decides for one object.
pub(crate) fn next(resource: &Resource, pair: Pair<'_>, memory: &Memory) -> Next {
    match resource.flow {
        Flow::Workload => return next_for_workload(pair, memory),
        Flow::Group => return pods::next_for_group(resource, pair, memory),
        Flow::Job | Flow::Settings => {}
    }
    let taken = pair.cluster.filter(|object| manifest::is_taken(resource.kind, object));
    match (taken, pair.manager) {
        (None, Some(held)) if manifest::is_from_cluster(held) && !is_being_deleted(held) => {
            Next::Do(Action::Remove { uid: uid(held).filter(|_| resource.flow == Flow::Job) })
        }
        (None, None) => pair.cluster.map_or(Next::Nothing, |left| match resource.kind {
            Kind::Pod => pods::next_for_left(left, pair, memory),
            _ => next_for_left(resource, left, memory),
        }),
        (None, Some(_)) => Next::Nothing,
        (Some(wanted), held) => match resource.flow {
            Flow::Job => next_for_job(resource, wanted, held, pair.existed, memory),
            _ => next_for_settings(resource, wanted, held, memory),
        },
    }
}

/// A job that was taken and isn't any more, such as after its queue label was removed: its last status must
/// not stay.
fn next_for_left(resource: &Resource, left: &Value, memory: &Memory) -> Next {
    let kind = resource.kind.job().filter(|kind| manifest::is_ours(kind, left) && !is_being_deleted(left));
    match kind.and_then(|kind| status::of_left_job(kind, left)) {
        Some(status) => write_status(&left["status"], status, memory.status, None, Duration::ZERO),
        None => Next::Nothing,
    }
}

fn is_being_deleted(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Submits an object, unless that was done a moment ago and the watch is about to show it.
fn submit(manifest: Value, existed: bool, memory: &Memory) -> Next {
    match memory.sent.filter(|_| has_sent(memory, &manifest)) {
        Some((_, ago)) if ago < SEEN_WITHIN => Next::LookIn(SEEN_WITHIN.saturating_sub(ago)),
        _ => Next::Do(Action::Submit { manifest, existed }),
    }
}

fn has_sent(memory: &Memory, manifest: &Value) -> bool {
    memory.sent.is_some_and(|(hash, _)| hash == fingerprint(manifest))
}

fn next_for_settings(resource: &Resource, wanted: &Value, held: Option<&Value>, memory: &Memory) -> Next {
    let manifest = manifest::for_manager(resource.kind, wanted);
    let Some(held) = held else { return submit(manifest, false, memory) };
    if !has_sent(memory, &manifest) {
        return Next::Do(Action::Change { manifest });
    }
    match status::of_settings(resource.kind, held).filter(|_| resource.has_status) {
        Some(status) => write_status(&wanted["status"], status, memory.status, None, SETTINGS_EVERY),
        None => Next::Nothing,
    }
}

fn next_for_job(
    resource: &Resource,
    wanted: &Value,
    held: Option<&Value>,
    existed: bool,
    memory: &Memory,
) -> Next {
    let Some(kind) = resource.kind.job() else { return Next::Nothing };
    let manifest = || manifest::for_manager(resource.kind, wanted);
    let Some(held) = held else {
        // a job that has ended is never started again
        let is_over = kind.has_ended(wanted);
        return if is_over { Next::Nothing } else { submit(manifest(), existed, memory) };
    };
    if uid(held) != uid(wanted) {
        // deleted and created again in the cluster: the new one follows once the old one is gone
        let gone = Action::Remove { uid: uid(held) };
        return if is_being_deleted(held) { Next::Nothing } else { Next::Do(gone) };
    }
    if kind.has_ended(wanted) || is_being_deleted(held) {
        return Next::Nothing;
    }
    if !kind.has_ended(held) {
        let manifest = manifest();
        if !has_sent(memory, &manifest) {
            return Next::Do(Action::Change { manifest });
        }
    }
    if kind.is_pod_group() {
        // each of its pods has a status
        return Next::Nothing;
    }
    let pace = stage::pace_of_job(Stage::of_job(kind, held));
    if kind.is_of_pods() {
        let status = pod_status::of_job(kind, held);
        let has = pod_status::comparable(wanted, &status);
        return write_status(&has, status, memory.status, memory.sent, pace);
    }
    match status::of_job(kind, held, wanted, manifest::is_ours(kind, wanted), memory.start_is_fixed) {
        Some(status) => write_status(&wanted["status"], status, memory.status, memory.sent, pace),
        None => Next::Nothing,
    }
}

fn next_for_workload(pair: Pair<'_>, memory: &Memory) -> Next {
    let Some(held) = pair.manager else {
        // made by this manager, perhaps from a journal that was lost
        let stale = pair.cluster.filter(|object| manifest::is_from_cluster(object));
        return stale.map_or(Next::Nothing, |stale| Next::Do(Action::RemoveWorkload { uid: uid(stale) }));
    };
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
    object["metadata"]["annotations"] = json!({
        meridian_objects::job::SOURCE_ANNOTATION: meridian_objects::job::SOURCE_CLUSTER,
    });
    let applied = memory.applied.filter(|(hash, _)| *hash == fingerprint(&object)).map(|(_, ago)| ago);
    let Some(written) = pair.cluster else {
        // the watch may not have shown it yet
        let wait = applied.map(|ago| SEEN_WITHIN.saturating_sub(ago)).filter(|wait| !wait.is_zero());
        return wait.map_or(Next::Do(Action::ApplyWorkload { object }), Next::LookIn);
    };
    let has_ended = is_finished(&written["status"]);
    let mut repair_in = None;
    if !has_ended && !status::contains(written, &object) {
        // what was written a moment ago is about to be shown, or was changed by hand since
        repair_in = applied.map(|ago| REPAIR_EVERY.saturating_sub(ago)).filter(|wait| !wait.is_zero());
        if repair_in.is_none() {
            return Next::Do(Action::ApplyWorkload { object });
        }
    }
    let active = |object: &Value| object.pointer("/spec/active").and_then(Value::as_bool).unwrap_or(true);
    if active(written) != active(held) && !has_ended && !is_finished(&held["status"]) {
        return Next::Do(Action::SetActive(active(written)));
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

fn is_finished(status: &Value) -> bool {
    Stage::of_workload(status) == Stage::Ended
}

/// A fingerprint of what was written, and how long ago.
type Written = Option<(u64, Duration)>;

/// Writes a status that the cluster doesn't have yet, but not before `every` has passed since the last
/// status, or since the object itself was written. `has` is the cluster's status.
fn write_status(
    has: &Value,
    status: Value,
    last_status: Written,
    last_object: Written,
    every: Duration,
) -> Next {
    if status::contains(has, &status) {
        return Next::Nothing;
    }
    let differs = !status::contains(&status::without_texts(has), &status::without_texts(&status));
    let wait = match last_status {
        None => last_object.map_or(Duration::ZERO, |(_, ago)| every.saturating_sub(ago)),
        Some((written, ago)) => {
            let pause = match differs {
                true if written == fingerprint(&status) => REPAIR_EVERY,
                true => every,
                false => TEXTS_EVERY,
            };
            pause.saturating_sub(ago)
        }
    };
    if wait.is_zero() { Next::Do(Action::WriteStatus { status }) } else { Next::LookIn(wait) }
}

#[cfg(test)]
mod tests;
