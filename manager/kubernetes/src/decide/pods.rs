//! Decides on writes for groups of pods, and for pods that aren't jobs by themselves. Pure.

use super::stage::{self, Stage};
use super::{Action, Memory, Next, Pair, explain, is_being_deleted, next_for_job, write_status};
use crate::events;
use crate::groups::{self, Group};
use crate::resources::Resource;
use crate::sides::uid;
use crate::{manifest, pod_status, pods};
use meridian_objects::Kind;
use meridian_objects::job::JobFinish;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Time for the pods of a group to be created, before an event says that some are missing.
const GROUP_SETTLES: Duration = Duration::from_secs(5);

/// The next step for a group. The manager has a group only while all of its pods are in the cluster.
pub(super) fn next_for_group(resource: &Resource, pair: Pair<'_>, memory: &Memory) -> Next {
    let held = pair.manager;
    match groups::read(pair.members) {
        None => remove(held),
        Some(Group::Incomplete { .. }) if held.is_some() => remove(held),
        // keep it: some pods were deleted after the end of the group
        Some(Group::Incomplete { .. }) if groups::ended(pair.members).is_some() => Next::Nothing,
        Some(Group::Incomplete { here, total }) => {
            let wait = GROUP_SETTLES.saturating_sub(memory.known);
            let text = events::of_incomplete_group(here, total);
            if wait.is_zero() { explain(text, memory) } else { Next::LookIn(wait) }
        }
        Some(Group::Unfit(why)) => explain(events::of_refusal(&why), memory),
        Some(Group::Whole(wanted)) => match next_for_job(resource, &wanted, pair, memory) {
            Next::Nothing if held.is_none() => next_for_ended(pair.members, memory),
            next => next,
        },
    }
}

fn remove(held: Option<&Value>) -> Next {
    match held.filter(|held| manifest::is_from_cluster(held) && !is_being_deleted(held)) {
        Some(held) => Next::Do(Action::Remove { uid: uid(held) }),
        None => Next::Nothing,
    }
}

/// The next step for a group that the manager doesn't have and of which a pod has ended: it isn't started
/// again.
fn next_for_ended(members: &[Arc<Value>], memory: &Memory) -> Next {
    let new = members.iter().any(|pod| pod["status"]["phase"] == "Pending");
    match groups::ended(members).filter(|_| new) {
        Some(ended) => {
            let name = ended["metadata"]["name"].as_str().unwrap_or_default();
            let text = format!(
                "pod `{name}` of the group has ended, and a group starts only with all of its pods: delete \
                 them all, and create them again"
            );
            explain(events::of_refusal(&text), memory)
        }
        None => Next::Nothing,
    }
}

/// The next step for a pod that isn't a job by itself, because it is in a group or isn't taken.
pub(super) fn next_for_left(pod: &Value, pair: Pair<'_>, memory: &Memory) -> Next {
    if is_being_deleted(pod) || pods::has_ended(pod) {
        return Next::Nothing;
    }
    if !pods::is_taken(pod) {
        // no event about pods that are older than this manager process
        let text = pods::refusal(pod).filter(|_| !pair.existed);
        return text.map_or(Next::Nothing, |text| explain(text, memory));
    }
    let Some(kind) = Kind::PodGroup.job() else { return Next::Nothing };
    // the manager's group of this name may consist of pods that were replaced since
    let held = pair.group.filter(|held| uid(held).as_deref() == Some(&*groups::uid_of(pair.members)));
    let status = match held {
        Some(held) => pod_status::of_job(kind, held),
        None => without_group(pod, pair.members),
    };
    let pace = stage::pace_of_job(held.map_or(Stage::Waiting, |held| Stage::of_job(kind, held)));
    write_status(&pod_status::comparable(pod, &status), status, memory.status, None, pace)
}

/// The status of a pod whose group the manager doesn't have. If the pod still shows that it runs although
/// another pod of the group has ended, the journal was lost between the two writes.
fn without_group(pod: &Value, members: &[Arc<Value>]) -> Value {
    let ended = groups::ended(members).filter(|_| pod["status"]["phase"] == "Running");
    match (ended, Kind::Pod.job()) {
        (Some(ended), Some(kind)) => {
            let succeeded = kind.has_succeeded(ended);
            let [reason, message] = kind.failure(ended).unwrap_or_default();
            let finish = JobFinish { succeeded, reason, message, at: "" };
            pod_status::of_end(&finish, &pod["status"]["startTime"])
        }
        _ => pod_status::of_waiting(),
    }
}

/// Whether a Workload belongs to a group of pods.
pub(super) fn is_of_group(workload: &Value) -> bool {
    workload["metadata"]["ownerReferences"][0]["kind"] == Kind::PodGroup.name()
}

/// The owners of a group's Workload in the cluster: its pods, since the cluster has no object for the group.
pub(super) fn owner_references(members: &[Arc<Value>]) -> Value {
    let owners = members.iter().map(|pod| {
        let (name, uid) = (&pod["metadata"]["name"], &pod["metadata"]["uid"]);
        json!({"apiVersion": "v1", "kind": Kind::Pod.name(), "name": name, "uid": uid})
    });
    owners.collect()
}
