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
use meridian_objects::applied::LAST_APPLIED;
use meridian_objects::job::{PRIORITY_LABEL, decides};
use meridian_objects::spec::workload::ELASTIC_ANNOTATION;
use meridian_shared::ids::{ContentHash, Uid};
use meridian_shared::protocol::Size;
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What may change of a job, where nothing else does.
struct Change {
    /// What an agent would be told.
    size: Size,
    /// The manifest as it will be stored.
    manifest: Value,
    /// It has another number of pods.
    resized: bool,
    /// It has another priority class.
    reclassed: bool,
    /// It has other labels or annotations by which nothing is decided.
    remarked: bool,
}

/// Whether an existing job may have this manifest. Everything that new jobs are judged by is judged besides.
pub(crate) fn judge_resize(turn: &Turn<'_>, read: &ReadJob, uid: Uid, key: &Key) -> Result<(), Rejection> {
    let invalid =
        |field: &str, message: String| rejection::reject(RejectionReason::Invalid, Some(field), message);
    let workload = turn.workload(uid).expect("names lead to workloads");
    let Some(Change { resized, reclassed, .. }) = change_of(turn, read, uid) else {
        return invalid(
            "spec",
            format!(
                "{key} exists with another spec, and nothing of a job can be changed but the label `{PRIORITY_LABEL}`, labels and annotations of other domains, and an elastic one's `parallelism`: delete it and create it again"
            ),
        );
    };
    let class = turn.world.queues.class(workload.class());
    if reclassed && (workload.deletion().is_some() || workload.phase() == Phase::Finished) {
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
                "{key} exists with another `parallelism`, and only a job that was submitted with the annotation `{ELASTIC_ANNOTATION}: \"true\"` can change it: delete it and create it again"
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
    let has: u32 = workload.runs_with(class).iter().sum();
    let wants: u32 = read.job.gang.pod_sets.iter().map(|set| set.count).sum();
    let Some((_, leg)) = workload.right() else { return Ok(()) };
    let Some(live) = turn.world.live.clusters.get(&leg.cluster) else { return Ok(()) };
    let cluster = &leg.cluster;
    let older = format!(
        "{key} runs in cluster `{cluster}`, whose agent is of an older version and can't let a gang go on with"
    );
    match wants.cmp(&has) {
        Ordering::Less if !live.shrinks => {
            invalid("spec.parallelism", format!("{older} fewer pods: update it first"))
        }
        Ordering::Greater if !live.grows => {
            let name = &key.name;
            let anew =
                format!("`meridian stop workload {name}`, change it, and `meridian resume workload {name}`");
            invalid(
                "spec.parallelism",
                format!("{older} more than {has} pods: update it first; or else {anew}"),
            )
        }
        _ => Ok(()),
    }
}

/// Takes a change that was judged before. What waits for answers asks anew.
pub(crate) fn resize(
    turn: &mut Turn<'_>,
    (read, class): (&ReadJob, Option<Class>),
    uid: Uid,
    by: &Actor,
    dry_run: bool,
) -> WriteResult {
    let change =
        change_of(turn, read, uid).filter(|change| change.resized || change.reclassed || change.remarked);
    let Some((Change { size, manifest, resized, reclassed, .. }, class)) = change.zip(class) else {
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
        sizes::shrink(turn, &cluster, uid, fence);
    }
    let priority = turn.world.state.catalog().job_priority(&read.job);
    if let Some(priority) =
        priority.filter(|priority| reclassed && turn.workload(uid).is_some_and(|w| w.priority() != *priority))
    {
        priority::reprioritize(turn, uid, priority, by);
    }
    turn.capacity_changed();
    WriteResult::Configured
}

/// The stored manifest with this object's numbers, where nothing else differs. `completions` changes with the pods, where
/// both are the same before and after and every index succeeds once.
fn change_of(turn: &Turn<'_>, read: &ReadJob, uid: Uid) -> Option<Change> {
    let mut manifest: Value = serde_json::from_str(&turn.body(turn.workload(uid)?.body())?).ok()?;
    let written = read.manifest();
    if essence(&manifest) != essence(&written) {
        return None;
    }
    let (old, new) = (sizes::size(&manifest)?, sizes::size(&written)?);
    let completions = |value: &Value| value["spec"].get("completions").cloned();
    let (before, after) = (completions(&manifest), completions(&written));
    let follow = old.completions.is_some() && new.completions.is_some();
    if before != after && !follow {
        return None;
    }
    let resized = old.parallelism != new.parallelism || before != after;
    let class = |manifest: &Value| manifest["metadata"]["labels"].get(PRIORITY_LABEL).cloned();
    let reclassed = class(&manifest) != class(&written);
    let remarked = remarks(&manifest) != remarks(&written);
    let marks = written["metadata"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(part, _)| MARKS.contains(&part.as_str()));
    if let Some(metadata) = manifest["metadata"].as_object_mut() {
        metadata.retain(|part, _| !MARKS.contains(&part.as_str()));
        metadata.extend(marks.map(|(part, entries)| (part.clone(), entries.clone())));
    }
    let size = Size { completions: new.completions.filter(|_| before != after), ..new };
    if resized {
        manifest["spec"]["parallelism"] = new.parallelism.into();
    }
    if let Some(after) = after {
        manifest["spec"]["completions"] = after;
    }
    Some(Change { size, manifest, resized, reclassed, remarked })
}

/// Parts of an object's metadata in which people put marks of their own.
const MARKS: [&str; 2] = ["annotations", "labels"];

/// The labels and annotations of a manifest by which nothing is decided, but for what a client noted for itself.
fn remarks(manifest: &Value) -> BTreeMap<(&str, &str), &Value> {
    let of = |part| {
        manifest["metadata"][part]
            .as_object()
            .into_iter()
            .flatten()
            .map(move |(key, value)| ((part, key.as_str()), value))
    };
    MARKS.into_iter().flat_map(of).filter(|((_, key), _)| !decides(key) && *key != LAST_APPLIED).collect()
}

/// A manifest without what may change and what isn't the submitter's.
fn essence(manifest: &Value) -> Value {
    let mut manifest = manifest.clone();
    for (part, fields) in [("spec", &["parallelism", "completions", "suspend"][..]), ("metadata", &["uid"])] {
        if let Some(part) = manifest.get_mut(part).and_then(Value::as_object_mut) {
            fields.iter().for_each(|field| drop(part.remove(*field)));
        }
    }
    let Some(metadata) = manifest.get_mut("metadata").and_then(Value::as_object_mut) else {
        return manifest;
    };
    for part in MARKS {
        let Some(entries) = metadata.get_mut(part).and_then(Value::as_object_mut) else { continue };
        entries.retain(|key, _| decides(key) && key != PRIORITY_LABEL);
        if entries.is_empty() {
            metadata.remove(part);
        }
    }
    manifest
}
