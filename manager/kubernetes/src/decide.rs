//! Decides on the next write for one object, from its state on both sides. Pure.

mod pods;
mod stage;
mod workload;

use crate::events::{self, EventText};
use crate::manifest;
use crate::pod_status;
use crate::resources::{Flow, Resource};
use crate::sides::uid;
use crate::status;
use meridian_objects::Kind;
use meridian_objects::job::JobKind;
use serde_json::Value;
use stage::Stage;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
pub(crate) use workload::DEACTIVATED;

/// Shortest time between two writes of a status that differ only in texts.
const TEXTS_EVERY: Duration = Duration::from_secs(60);
/// How often a status is written again if the cluster stores it in another form.
const REPAIR_EVERY: Duration = Duration::from_secs(30);
/// Time within which a watch shows a written object. If it doesn't, the object was deleted again.
const SEEN_WITHIN: Duration = Duration::from_secs(2);
/// How often a change of a job that the manager refused is tried again.
const CHANGE_AGAIN: Duration = Duration::from_secs(5);
/// Shortest time between two statuses of one settings object, because the status of a queue changes with
/// every job.
const SETTINGS_EVERY: Duration = Duration::from_secs(2);

/// A write to one of the two API servers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Create the object at the manager. `existed`: the job may have run before the manager started.
    /// `inactive`: the job doesn't start until somebody activates it.
    Submit { manifest: Value, existed: bool, inactive: bool },
    /// Replace the object at the manager.
    Change { manifest: Value },
    /// Delete the object at the manager.
    Remove { uid: Option<String> },
    /// Set `spec.active` of the Workload at the manager.
    SetActive(bool),
    /// Create or change the Workload in the cluster.
    ApplyWorkload { object: Value },
    /// Create the Workload of an inactive job in the cluster, with its `spec.active`.
    CreateWorkload { object: Value },
    /// Set `spec.active: false` of the Workload in the cluster, if it still has this version, because the
    /// manager deactivated it at the time `mark`.
    Deactivate { mark: String, version: Value },
    /// Write a status in the cluster.
    WriteStatus { status: Value },
    /// Delete the Workload in the cluster, if it still has this uid.
    RemoveWorkload { uid: Option<String> },
    /// Write an event in the cluster that says why the manager doesn't have the object.
    Explain { text: EventText },
}

/// Earlier writes for an object. Lost at a restart, after which all objects are compared again.
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
    /// How long the controller has known the object.
    pub(crate) known: Duration,
    /// The API server refused another `startTime` for the job. Releases before 1.35 may, for a job that isn't
    /// suspended in its spec.
    pub(crate) start_is_fixed: bool,
    /// Fingerprint of the last manifest that the manager refused to change the job to, and how long ago.
    pub(crate) refused: Option<(u64, Duration)>,
}

/// Both sides' versions of one object.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pair<'o> {
    pub(crate) cluster: Option<&'o Value>,
    pub(crate) manager: Option<&'o Value>,
    /// For a group, one of its pods, or its Workload: the pods of the group that the manager takes.
    pub(crate) members: &'o [Arc<Value>],
    /// For a pod in a group: the group at the manager.
    pub(crate) group: Option<&'o Value>,
    /// Whether the cluster's first list had the object.
    pub(crate) existed: bool,
    /// For a job or a group: somebody stopped it by `spec.active: false` of its Workload.
    pub(crate) is_stopped: bool,
    /// For a Workload that only the cluster has: its job exists and is about to be submitted.
    pub(crate) awaits_job: bool,
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

    /// Whether the object is gone on both sides.
    pub(crate) fn is_empty(&self) -> bool {
        self.cluster.is_none() && self.manager.is_none() && self.members.is_empty()
    }
}

/// The next write, or the time of the next look.
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

/// Decides what is done for one object.
pub(crate) fn next(resource: &Resource, pair: Pair<'_>, memory: &Memory) -> Next {
    match resource.flow {
        Flow::Workload => return workload::next_for_workload(pair, memory),
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
            _ => next_for_left(resource, left, pair.existed, memory),
        }),
        (None, Some(_)) => Next::Nothing,
        (Some(wanted), held) => match resource.flow {
            Flow::Job => next_for_job(resource, wanted, pair, memory),
            _ => next_for_settings(resource, wanted, held, memory),
        },
    }
}

/// The next step for a job that the manager doesn't take. If the manager took it earlier (its queue label was
/// removed since), its last status must not stay. If it has a queue, an event warns that its own operator may
/// run it outside of that queue.
fn next_for_left(resource: &Resource, left: &Value, existed: bool, memory: &Memory) -> Next {
    let Some(kind) = resource.kind.job().filter(|_| !is_being_deleted(left)) else { return Next::Nothing };
    if manifest::is_ours(kind, left) {
        return match status::of_left_job(kind, left) {
            Some(status) => write_status(&left["status"], status, memory.status, None, Duration::ZERO),
            None => Next::Nothing,
        };
    }
    // no event about jobs that are older than this manager process
    let text = manifest::refusal(kind, left).filter(|_| !existed);
    text.map_or(Next::Nothing, |text| explain(text, memory))
}

fn is_being_deleted(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Submits an object, unless that was just done and the watch will soon show it.
fn submit(manifest: Value, pair: Option<Pair<'_>>, memory: &Memory) -> Next {
    let (existed, inactive) = pair.map(|job| (job.existed, job.is_stopped)).unwrap_or_default();
    match memory.sent.filter(|_| has_sent(memory, &manifest)) {
        Some((_, ago)) if ago < SEEN_WITHIN => Next::LookIn(SEEN_WITHIN.saturating_sub(ago)),
        _ => Next::Do(Action::Submit { manifest, existed, inactive }),
    }
}

fn has_sent(memory: &Memory, manifest: &Value) -> bool {
    memory.sent.is_some_and(|(hash, _)| hash == fingerprint(manifest))
}

/// Whether the manager took a settings object as the cluster has it.
pub(crate) fn was_taken(kind: Kind, object: &Value, memory: &Memory) -> bool {
    !manifest::is_taken(kind, object) || has_sent(memory, &manifest::for_manager(kind, object))
}

fn next_for_settings(resource: &Resource, wanted: &Value, held: Option<&Value>, memory: &Memory) -> Next {
    let manifest = manifest::for_manager(resource.kind, wanted);
    let Some(held) = held else { return submit(manifest, None, memory) };
    if !has_sent(memory, &manifest) {
        return Next::Do(Action::Change { manifest });
    }
    match status::of_settings(resource.kind, held).filter(|_| resource.has_status) {
        Some(status) => write_status(&wanted["status"], status, memory.status, None, SETTINGS_EVERY),
        None => Next::Nothing,
    }
}

fn next_for_job(resource: &Resource, wanted: &Value, pair: Pair<'_>, memory: &Memory) -> Next {
    let Some(kind) = resource.kind.job() else { return Next::Nothing };
    let manifest = || manifest::for_manager(resource.kind, wanted);
    let Some(held) = pair.manager else {
        // a job that has ended must not start again
        let is_over = kind.has_ended(wanted);
        return if is_over { Next::Nothing } else { submit(manifest(), Some(pair), memory) };
    };
    if uid(held) != uid(wanted) {
        if !manifest::is_from_cluster(held) {
            let is_over = kind.has_ended(wanted);
            return if is_over { Next::Nothing } else { explain(events::of_taken_name(wanted), memory) };
        }
        // the job was deleted and created again in the cluster: remove the old one first
        let gone = Action::Remove { uid: uid(held) };
        return if is_being_deleted(held) { Next::Nothing } else { Next::Do(gone) };
    }
    if kind.has_ended(wanted) || is_being_deleted(held) {
        return Next::Nothing;
    }
    let mut try_again_in = None;
    if !kind.has_ended(held) {
        let manifest = manifest();
        if !has_sent(memory, &manifest) {
            try_again_in = refused_for(memory, &manifest);
            if try_again_in.is_none() {
                return Next::Do(Action::Change { manifest });
            }
        }
    }
    // Write the status even if a change of the job was refused, because the change may never be accepted.
    match (next_status_of_job(kind, wanted, held, memory), try_again_in) {
        (Next::Nothing, Some(wait)) => Next::LookIn(wait),
        (Next::LookIn(soon), Some(wait)) => Next::LookIn(soon.min(wait)),
        (next, _) => next,
    }
}

/// Time until a change that the manager refused may be tried again; `None` if it may be tried now.
fn refused_for(memory: &Memory, manifest: &Value) -> Option<Duration> {
    let (_, ago) = memory.refused.filter(|(refused, _)| *refused == fingerprint(manifest))?;
    Some(CHANGE_AGAIN.saturating_sub(ago)).filter(|wait| !wait.is_zero())
}

/// Writes the job's status.
fn next_status_of_job(kind: &JobKind, wanted: &Value, held: &Value, memory: &Memory) -> Next {
    if kind.is_pod_group() {
        // a group has no status object in the cluster; each pod gets its own status
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

/// Writes one event that says why the manager doesn't have the object.
fn explain(text: EventText, memory: &Memory) -> Next {
    match memory.explained {
        Some((said, _)) if said == fingerprint(&Value::from(text.message.as_str())) => Next::Nothing,
        Some((_, ago)) if ago < TEXTS_EVERY => Next::LookIn(TEXTS_EVERY.saturating_sub(ago)),
        _ => Next::Do(Action::Explain { text }),
    }
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
