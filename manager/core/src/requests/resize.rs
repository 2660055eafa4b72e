//! Changes of an existing job, as Kueue makes them.
//!
//! A waiting job may change its queue, pod counts, labels, annotations, and the fields that direct its pods
//! to nodes, and keeps its age. A job that runs or stops may change its priority class, and labels and
//! annotations that don't affect admission. An elastic job is scaled while it runs. Any other gang whose pod
//! counts change is stopped and requeued, so that old and new pods never run together.

use crate::dispatch::{offers, priority, sizes, stops};
use crate::facts::actor::Actor;
use crate::facts::key::Key;
use crate::facts::outcome::{Rejection, RejectionReason, WriteResult};
use crate::facts::read_job::ReadJob;
use crate::facts::record::WorkloadFact;
use crate::facts::submission::Class;
use crate::requests::rejection;
use crate::state::workload::phase::Phase;
use crate::world::gangs;
use crate::world::turn::Turn;
use meridian_objects::job::{JobKind, PRIORITY_LABEL, affects_admission};
use meridian_objects::last_applied::LAST_APPLIED;
use meridian_objects::spec::workload::ELASTIC_ANNOTATION;
use meridian_shared::ids::{ContentHash, Uid};
use meridian_shared::protocol::{Size, StopReason};
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A permitted change of a job.
struct Change {
    /// The new size, as an agent would get it.
    size: Size,
    /// The manifest as it will be stored.
    manifest: Value,
    /// Whether the number of pods changes.
    resized: bool,
    /// Whether the priority class changes.
    priority_changed: bool,
    /// Whether labels or annotations change that don't affect admission.
    metadata_changed: bool,
    /// Whether something changes that may change only while the job waits.
    requirements_changed: bool,
}

/// Checks whether an existing job may get this manifest. The caller also makes the checks of new jobs.
pub(crate) fn check_resize(turn: &Turn<'_>, read: &ReadJob, uid: Uid, key: &Key) -> Result<(), Rejection> {
    let invalid =
        |field: &str, message: String| rejection::reject(RejectionReason::Invalid, Some(field), message);
    let workload = turn.workload(uid).expect("every name has a workload");
    let Some(Change { resized, priority_changed, requirements_changed, .. }) = change_of(turn, read, uid)
    else {
        return invalid(
            "spec",
            format!(
                "{key} exists with another spec. Of an existing job only the label `{PRIORITY_LABEL}`, \
                 labels and annotations of other domains, and pod counts can be changed, and while it waits \
                 also its queue, all labels and annotations, and the node selectors, node affinity and \
                 tolerations of its pods: delete it and create it again"
            ),
        );
    };
    let class = turn.world.queues().class(workload.class());
    let ends = workload.deletion().is_some() || workload.phase() == Phase::Finished;
    if ends && (priority_changed || resized || requirements_changed) {
        let what = if priority_changed { "priority" } else { "spec" };
        return rejection::reject(
            RejectionReason::Conflict,
            None,
            format!("{key} has ended or is being deleted: its {what} can't be changed any more"),
        );
    }
    if requirements_changed && workload.phase().granted() {
        let name = &key.name;
        return rejection::reject(
            RejectionReason::Conflict,
            None,
            format!(
                "{key} has been dispatched: its queue, the labels and annotations that affect admission, and \
                 the node selectors, node affinity and tolerations of its pods can be changed only while it \
                 waits. Use `meridian stop workload {name}`, change it once it has stopped, and `meridian \
                 resume workload {name}`"
            ),
        );
    }
    if !resized || !class.elastic || !matches!(workload.phase(), Phase::Granted | Phase::Running) {
        return Ok(());
    }
    let pods: u32 = workload.runs_with(class).iter().sum();
    let requested: u32 = read.job.gang.pod_sets.iter().map(|set| set.count).sum();
    let Some((_, leg)) = workload.right() else { return Ok(()) };
    let Some(live) = turn.world.live().cluster(leg.cluster()) else { return Ok(()) };
    let cluster = leg.cluster();
    let old_agent = format!(
        "{key} runs in cluster `{cluster}`, and its agent is of an older version that can't scale a gang"
    );
    match requested.cmp(&pods) {
        Ordering::Less if !live.features().scale_down() => {
            invalid("spec.parallelism", format!("{old_agent} down: update the agent first"))
        }
        Ordering::Greater if !live.features().scale_up() => {
            let name = &key.name;
            let restart =
                format!("`meridian stop workload {name}`, change it, and `meridian resume workload {name}`");
            invalid(
                "spec.parallelism",
                format!("{old_agent} up from {pods} pods: update the agent first, or use {restart}"),
            )
        }
        _ => Ok(()),
    }
}

/// Warns of a change that stops the running gang.
pub(crate) fn restart_warning(turn: &Turn<'_>, read: &ReadJob, uid: Uid) -> Option<String> {
    let workload = turn.workload(uid).filter(|w| matches!(w.phase(), Phase::Granted | Phase::Running))?;
    let elastic = turn.world.queues().class(workload.class()).elastic;
    let resized = !elastic && change_of(turn, read, uid)?.resized;
    resized.then(|| {
        format!(
            "the number of pods changes, so the gang is stopped and queued again: a job with the annotation \
             `{ELASTIC_ANNOTATION}: \"true\"` is scaled while it runs"
        )
    })
}

/// Fails if the stored manifest can't be read, because the change can't be compared with it.
pub(crate) fn check_stored_manifest(turn: &Turn<'_>, uid: Uid, key: &Key) -> Result<(), Rejection> {
    if !turn.world.live().damaged().contains(uid) {
        return Ok(());
    }
    let message = format!(
        "the stored manifest of {key} is damaged: apply it exactly as it was submitted, or delete the job \
         and create it again"
    );
    rejection::reject(RejectionReason::Invalid, Some("spec"), message)
}

/// Makes a change that [`check_resize`] accepted. Open offers are withdrawn, because they carry the previous
/// gang. A gang that isn't elastic is stopped if its pod counts change, and is requeued with the new ones.
pub(crate) fn resize(
    turn: &mut Turn<'_>,
    read: &ReadJob,
    class: Option<Class>,
    uid: Uid,
    by: &Actor,
    dry_run: bool,
) -> WriteResult {
    let change = change_of(turn, read, uid).filter(Change::is_one);
    let Some((change, class)) = change.zip(class) else { return WriteResult::Unchanged };
    let Change { size, manifest, resized, priority_changed, requirements_changed, .. } = change;
    if dry_run {
        return WriteResult::Configured;
    }
    offers::withdraw_open(turn, uid);
    let elastic = class.elastic;
    let body: Arc<str> = Arc::from(manifest.to_string());
    let hash = ContentHash::of(body.as_bytes());
    turn.store_body(hash, body);
    turn.record_workload(
        uid,
        WorkloadFact::Resized { class: Box::new(class), body: hash, size, at: turn.now.wall, by: by.clone() },
    );
    if requirements_changed || resized {
        turn.world.live_mut().refusals_mut().requirements_changed(uid);
    }
    if let Some((cluster, fence)) = gangs::right_to_run(turn.world, uid).filter(|_| resized) {
        if elastic {
            sizes::send_scale_down(turn, &cluster, uid, fence);
        } else {
            // The protocol has no stop reason for it; agents treat it as an eviction.
            stops::order_stop(turn, uid, fence, StopReason::Evicted, by);
        }
    }
    let priority = turn.world.state().catalog().job_priority(&read.job);
    if let Some(priority) = priority
        .filter(|priority| priority_changed && turn.workload(uid).is_some_and(|w| w.priority() != *priority))
    {
        priority::reprioritize(turn, uid, priority, by);
    }
    turn.capacity_changed();
    WriteResult::Configured
}

impl Change {
    /// Whether the manifests differ at all.
    const fn is_one(&self) -> bool {
        self.resized || self.priority_changed || self.metadata_changed || self.requirements_changed
    }
}

/// The change from the stored manifest to the one in `read`; `None` if anything differs that can't be
/// changed. `completions` may change only together with `parallelism`, in jobs where both are equal and each
/// index succeeds once.
fn change_of(turn: &Turn<'_>, read: &ReadJob, uid: Uid) -> Option<Change> {
    let kind = read.kind;
    let stored: Value = serde_json::from_str(&turn.body(turn.workload(uid)?.body())?).ok()?;
    let written = read.manifest();
    let requirements_changed =
        without(JobKind::remove_counts, kind, &stored) != without(JobKind::remove_counts, kind, &written);
    if requirements_changed && waiting_part(kind, &stored) != waiting_part(kind, &written) {
        return None;
    }
    let (old, new) = (kind.size(&stored)?, kind.size(&written)?);
    let (before, after) = (kind.completions(&stored).cloned(), kind.completions(&written).cloned());
    let completions_follow = old.completions.is_some() && new.completions.is_some();
    if before != after && !completions_follow {
        return None;
    }
    let counts = |manifest: &Value| kind.pod_sets(manifest).iter().map(|set| set.count).collect::<Vec<_>>();
    let resized =
        old.parallelism != new.parallelism || before != after || counts(&stored) != counts(&written);
    let class = |manifest: &Value| manifest["metadata"]["labels"].get(PRIORITY_LABEL).cloned();
    let priority_changed = class(&stored) != class(&written);
    let metadata_changed = informative_metadata(&stored) != informative_metadata(&written);
    let size = Size { completions: new.completions.filter(|_| before != after), ..new };
    let merged = merged(kind, stored, &written, size, resized);
    let manifest = match requirements_changed || counts(&merged) != counts(&written) {
        true => serde_json::from_str(&read.body_as(uid)).ok()?,
        false => merged,
    };
    Some(Change { size, manifest, resized, priority_changed, metadata_changed, requirements_changed })
}

/// The stored manifest with the labels, annotations and size of the written one.
fn merged(kind: &JobKind, stored: Value, written: &Value, size: Size, resized: bool) -> Value {
    let mut manifest = stored;
    let new_maps = written["metadata"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(part, _)| METADATA_MAPS.contains(&part.as_str()));
    if let Some(metadata) = manifest["metadata"].as_object_mut() {
        metadata.retain(|part, _| !METADATA_MAPS.contains(&part.as_str()));
        metadata.extend(new_maps.map(|(part, entries)| (part.clone(), entries.clone())));
    }
    if resized {
        kind.set_size(&mut manifest, size);
    }
    manifest
}

/// The maps in an object's metadata that users may add entries to.
const METADATA_MAPS: [&str; 2] = ["annotations", "labels"];

/// Labels and annotations that don't affect admission, without the one in which clients store the last
/// applied manifest.
fn informative_metadata(manifest: &Value) -> BTreeMap<(&str, &str), &Value> {
    let of = |part| {
        manifest["metadata"][part]
            .as_object()
            .into_iter()
            .flatten()
            .map(move |(key, value)| ((part, key.as_str()), value))
    };
    METADATA_MAPS
        .into_iter()
        .flat_map(of)
        .filter(|((_, key), _)| !affects_admission(key) && *key != LAST_APPLIED)
        .collect()
}

/// A manifest without the fields that `remove` removes, without the labels and annotations that may always
/// change, and without the uid, which the manager sets.
fn without(remove: fn(&JobKind, &mut Value), kind: &JobKind, manifest: &Value) -> Value {
    let mut manifest = manifest.clone();
    remove(kind, &mut manifest);
    let Some(metadata) = manifest.get_mut("metadata").and_then(Value::as_object_mut) else {
        return manifest;
    };
    metadata.remove("uid");
    for part in METADATA_MAPS {
        let Some(entries) = metadata.get_mut(part).and_then(Value::as_object_mut) else { continue };
        entries.retain(|key, _| affects_admission(key) && key != PRIORITY_LABEL);
        if entries.is_empty() {
            metadata.remove(part);
        }
    }
    manifest
}

/// A manifest without what may change while the job waits.
fn waiting_part(kind: &JobKind, manifest: &Value) -> Value {
    let mut manifest = without(JobKind::remove_fields_mutable_while_waiting, kind, manifest);
    if let Some(metadata) = manifest.get_mut("metadata").and_then(Value::as_object_mut) {
        METADATA_MAPS.iter().for_each(|part| drop(metadata.remove(*part)));
    }
    manifest
}
