//! The LeaderWorkerSet: groups of pods, each with a leader. It runs until it is deleted.
//!
//! It has no suspend flag, so a suspended LeaderWorkerSet has no groups.

use super::kind::{JobKind, Switch};
use super::pod_set_paths::{FoundPodSet, PodSetName, PodSetPaths};
use super::status::{PodProgress, StateRules, StateSign, new_condition};
use super::{MAX_PODS, POD_SET, regular};
use crate::fields::schema::{Shape, Type};
use crate::fields::{Item, names};
use crate::kind::Kind;
use serde_json::{Map, Value, json};

/// Longest name, because pods have a label with the name and two numbers.
const NAME_CHARS_MAX: usize = names::MAX_LABEL_CHARS - 10;
const GROUP: &str = "/spec/leaderWorkerTemplate";
const WORKERS: &str = "/spec/leaderWorkerTemplate/workerTemplate";
const LEADERS: &str = "/spec/leaderWorkerTemplate/leaderTemplate";

pub(super) static LEADER_WORKER_SET: JobKind = JobKind {
    kind: Kind::LeaderWorkerSet,
    pod_sets: &[PodSetPaths {
        at: GROUP,
        name: PodSetName::Fixed(POD_SET),
        template: "/workerTemplate",
        counts: &["/size"],
        completions: None,
    }],
    find: Some(find),
    size: None,
    suspend: Switch::Replicas("/spec/replicas"),
    managed_by: "",
    managers: &[],
    name_chars_max: NAME_CHARS_MAX,
    ttl: "",
    deadline: None,
    spec: &SPEC,
    check: |root| {
        root.at_pointer("/spec/replicas", &mut |item: &Item<'_>| {
            item.int(0, i64::from(MAX_PODS));
        });
    },
    complete: |_| {},
    ignored: &[],
    states: StateRules {
        succeeded: StateSign::Condition("Succeeded"),
        failed: StateSign::Condition("Failed"),
        active: "/status/readyReplicas",
    },
    read: regular::read,
    write_progress,
};

/// Writes the counts of groups, like the kind's own controller. A set runs whole or not at all.
fn write_progress(status: &mut Map<String, Value>, progress: &PodProgress, manifest: &Value) {
    regular::write_progress(status, progress, manifest);
    let groups = manifest.pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(1);
    let running = if progress.is_seen_running() { groups } else { 0 };
    for count in ["replicas", "readyReplicas", "updatedReplicas"] {
        status.insert(count.to_owned(), json!(running));
    }
    if let Some(started) = &progress.started {
        let holds = progress.is_seen_running();
        let (reason, message) = match holds {
            true => ("AllGroupsReady", "All replicas are ready"),
            false => ("GroupsNotReady", "It isn't known that all groups run"),
        };
        let available = new_condition("Available", holds, reason, message, &json!(started));
        status.insert("conditions".to_owned(), json!([available]));
    }
}

static SPEC: Shape = Shape::of(&[
    ("leaderWorkerTemplate", Type::Object(&TEMPLATE)),
    ("networkConfig", Type::Any),
    ("replicas", Type::Any),
    ("rolloutStrategy", Type::Any),
    ("startupPolicy", Type::Any),
]);
/// Fields of the template. The reader of pod templates checks these.
static TEMPLATE: Shape = Shape::of(&[
    ("leaderTemplate", Type::Any),
    ("persistentVolumeClaimRetentionPolicy", Type::Any),
    ("resizePolicy", Type::Any),
    ("restartPolicy", Type::Any),
    ("size", Type::Any),
    ("subGroupPolicy", Type::Any),
    ("volumeClaimTemplates", Type::Any),
    ("workerTemplate", Type::Any),
]);

/// Finds the pod sets. The leader is one of a group's pods. As in Kueue, a leader with a separate template is
/// a separate pod set.
fn find(manifest: &Value) -> Vec<FoundPodSet> {
    let number = |at: &str| match manifest.pointer(at) {
        None | Some(Value::Null) => Some(1),
        Some(number) => number.as_u64().and_then(|number| u32::try_from(number).ok()),
    };
    let (groups, size) = (number("/spec/replicas"), number("/spec/leaderWorkerTemplate/size"));
    let set = |name: &str, template: &str, of_group: Option<u32>| FoundPodSet {
        at: GROUP.to_owned(),
        name: name.to_owned(),
        template: template.to_owned(),
        count: groups.zip(of_group).and_then(|(groups, of_group)| groups.checked_mul(of_group)),
    };
    if manifest.pointer(LEADERS).is_none_or(Value::is_null) {
        return vec![set(POD_SET, WORKERS, size)];
    }
    vec![set("leader", LEADERS, Some(1)), set("workers", WORKERS, size.map(|size| size.saturating_sub(1)))]
}
