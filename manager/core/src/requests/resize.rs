//! Changes of an existing job: pod counts, priority class, labels and annotations.

use crate::dispatch::{offers, priority, sizes};
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
use meridian_shared::protocol::Size;
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
}

/// Checks whether an existing job may get this manifest. The checks of new jobs apply too, and are made
/// elsewhere.
pub(crate) fn check_resize(turn: &Turn<'_>, read: &ReadJob, uid: Uid, key: &Key) -> Result<(), Rejection> {
    let invalid =
        |field: &str, message: String| rejection::reject(RejectionReason::Invalid, Some(field), message);
    let workload = turn.workload(uid).expect("every name has a workload");
    let Some(Change { resized, priority_changed, .. }) = change_of(turn, read, uid) else {
        return invalid(
            "spec",
            format!(
                "{key} exists with another spec. Of an existing job only the label `{PRIORITY_LABEL}`, \
                 labels and annotations of other domains, and an elastic job's `parallelism` can be \
                 changed: delete it and create it again"
            ),
        );
    };
    let class = turn.world.queues.class(workload.class());
    if priority_changed && (workload.deletion().is_some() || workload.phase() == Phase::Finished) {
        return rejection::reject(
            RejectionReason::Conflict,
            None,
            format!("{key} has ended or is being deleted: its priority can't be changed any more"),
        );
    }
    if !resized {
        return Ok(());
    }
    if !class.elastic {
        return invalid(
            "spec.parallelism",
            format!(
                "{key} exists with another `parallelism`, which can be changed only if the job was \
                 submitted with the annotation `{ELASTIC_ANNOTATION}: \"true\"`: delete it and create it \
                 again"
            ),
        );
    }
    if workload.deletion().is_some() || workload.phase() == Phase::Finished {
        return rejection::reject(
            RejectionReason::Conflict,
            None,
            format!("{key} has ended or is being deleted: its `parallelism` can't be changed any more"),
        );
    }
    if !matches!(workload.phase(), Phase::Granted | Phase::Running) {
        return Ok(());
    }
    let pods: u32 = workload.runs_with(class).iter().sum();
    let requested: u32 = read.job.gang.pod_sets.iter().map(|set| set.count).sum();
    let Some((_, leg)) = workload.right() else { return Ok(()) };
    let Some(live) = turn.world.live.clusters.get(&leg.cluster) else { return Ok(()) };
    let cluster = &leg.cluster;
    let old_agent = format!(
        "{key} runs in cluster `{cluster}`, and its agent is of an older version that can't scale a gang"
    );
    match requested.cmp(&pods) {
        Ordering::Less if !live.supports_scale_down => {
            invalid("spec.parallelism", format!("{old_agent} down: update the agent first"))
        }
        Ordering::Greater if !live.supports_scale_up => {
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

/// Fails if the stored manifest can't be read, as a change can't be compared with it then.
pub(crate) fn check_stored_manifest(turn: &Turn<'_>, uid: Uid, key: &Key) -> Result<(), Rejection> {
    if !turn.world.live.damaged.contains(&uid) {
        return Ok(());
    }
    let message = format!(
        "the stored manifest of {key} is damaged: apply it exactly as it was submitted, or delete the job \
         and create it again"
    );
    rejection::reject(RejectionReason::Invalid, Some("spec"), message)
}

/// Makes a change that [`check_resize`] accepted. Open offers are withdrawn, because they carry the previous
/// gang.
pub(crate) fn resize(
    turn: &mut Turn<'_>,
    read: &ReadJob,
    class: Option<Class>,
    uid: Uid,
    by: &Actor,
    dry_run: bool,
) -> WriteResult {
    let change = change_of(turn, read, uid)
        .filter(|change| change.resized || change.priority_changed || change.metadata_changed);
    let Some((Change { size, manifest, resized, priority_changed, .. }, class)) = change.zip(class) else {
        return WriteResult::Unchanged;
    };
    if dry_run {
        return WriteResult::Configured;
    }
    offers::withdraw_open(turn, uid);
    let body: Arc<str> = Arc::from(manifest.to_string());
    let hash = ContentHash::of(body.as_bytes());
    turn.new_bodies.insert(hash, body);
    turn.record_workload(
        uid,
        WorkloadFact::Resized { class: Box::new(class), body: hash, size, at: turn.now.wall, by: by.clone() },
    );
    if let Some((cluster, fence)) = gangs::right_to_run(turn.world, uid).filter(|_| resized) {
        sizes::send_scale_down(turn, &cluster, uid, fence);
    }
    let priority = turn.world.state.catalog().job_priority(&read.job);
    if let Some(priority) = priority
        .filter(|priority| priority_changed && turn.workload(uid).is_some_and(|w| w.priority() != *priority))
    {
        priority::reprioritize(turn, uid, priority, by);
    }
    turn.capacity_changed();
    WriteResult::Configured
}

/// The change from the stored manifest to the one in `read`; `None` if anything differs that can't be
/// changed. `completions` may change only together with `parallelism`, in jobs where both are equal and each
/// index succeeds once.
fn change_of(turn: &Turn<'_>, read: &ReadJob, uid: Uid) -> Option<Change> {
    let kind = read.kind;
    let mut manifest: Value = serde_json::from_str(&turn.body(turn.workload(uid)?.body())?).ok()?;
    let written = read.manifest();
    if immutable_part(kind, &manifest) != immutable_part(kind, &written) {
        return None;
    }
    let (old, new) = (kind.size(&manifest)?, kind.size(&written)?);
    let (before, after) = (kind.completions(&manifest).cloned(), kind.completions(&written).cloned());
    let completions_follow = old.completions.is_some() && new.completions.is_some();
    if before != after && !completions_follow {
        return None;
    }
    let resized = old.parallelism != new.parallelism || before != after;
    let class = |manifest: &Value| manifest["metadata"]["labels"].get(PRIORITY_LABEL).cloned();
    let priority_changed = class(&manifest) != class(&written);
    let metadata_changed = informative_metadata(&manifest) != informative_metadata(&written);
    let new_maps = written["metadata"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(part, _)| METADATA_MAPS.contains(&part.as_str()));
    if let Some(metadata) = manifest["metadata"].as_object_mut() {
        metadata.retain(|part, _| !METADATA_MAPS.contains(&part.as_str()));
        metadata.extend(new_maps.map(|(part, entries)| (part.clone(), entries.clone())));
    }
    let size = Size { completions: new.completions.filter(|_| before != after), ..new };
    if resized {
        kind.set_size(&mut manifest, size);
    }
    Some(Change { size, manifest, resized, priority_changed, metadata_changed })
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

/// A manifest without the parts that may change, and without those that the submitter doesn't set.
fn immutable_part(kind: &JobKind, manifest: &Value) -> Value {
    let mut manifest = manifest.clone();
    kind.remove_mutable_fields(&mut manifest);
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
