//! What may change of a job that is there: its priority class, and of an elastic one (`kueue.x-k8s.io/elastic-job: "true"`) how
//! many pods it has.
//!
//! With another priority a job takes another place in its queue, and whoever runs may be displaced by others, or no longer.
//!
//! An elastic job that waits takes the new number at once and keeps its age. Who runs goes on with fewer: its agent ends the pods that are too
//! many, and quota comes back as the places are told to be empty, like that of pods that have succeeded. How it goes on with more
//! is in `growing`.
//!
//! Invariants: what was given stays charged until the agent has seen it empty, whatever the job says it wants; one change of
//! its size at a time is under way at an agent.

use crate::catalog::Catalog;
use crate::input::{Actor, Key, Rejection, RejectionReason, WriteResult};
use crate::outbox::Said;
use crate::queues::Place;
use crate::reading::ReadJob;
use crate::record::{Class, Record};
use crate::turn::Turn;
use crate::workload::Phase;
use crate::writes::reject;
use crate::{Workload, World};
use meridian_objects::Object;
use meridian_objects::applied::LAST_APPLIED;
use meridian_objects::job::{PRIORITY_LABEL, decides};
use meridian_objects::spec::workload::ELASTIC_ANNOTATION;
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, ContentHash, Fence, RecordNumber, Uid};
use meridian_shared::protocol::{Run, Size};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// That a job has another number of pods than the gang that runs of it had at first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Resized {
    /// What the gang that runs is to have.
    pub size: Size,
    /// What was given to it at most, by pod set.
    pub most: Vec<u32>,
    /// Pods of each pod set that it is to have; none stated by a record from before gangs could grow: what the job wants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<u32>,
    /// What the job wants, where that is something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wants: Option<Wants>,
    /// Quota is charged for more, and its agent isn't known to have the room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growing: Option<Growing>,
    /// The latest growth.
    #[serde(default)]
    pub last: RecordNumber,
}

/// Another size than a gang runs with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Wants {
    /// Which.
    pub size: Size,
    /// The record by which it was asked for: its place in the queue.
    pub asked: RecordNumber,
}

/// A growth that quota is charged for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Growing {
    /// The record by which it was charged.
    pub number: RecordNumber,
    /// Places of each pod set that were given before.
    pub before: Vec<u32>,
    /// Pods of each pod set that it is to have then.
    pub runs: Vec<u32>,
    /// The same, as its agent is told.
    pub size: Size,
}

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

impl Turn<'_> {
    /// Whether an existing job may have this manifest. Everything that new jobs are judged by is judged besides.
    pub(crate) fn judge_resize(&self, read: &ReadJob, uid: Uid, key: &Key) -> Result<(), Rejection> {
        let invalid = |field: &str, message: String| reject(RejectionReason::Invalid, Some(field), message);
        let workload = self.workload(uid).expect("names lead to workloads");
        let Some(Change { resized, reclassed, .. }) = self.change_of(read, uid) else {
            return invalid(
                "spec",
                format!(
                    "{key} exists with another spec, and nothing of a job can be changed but the label `{PRIORITY_LABEL}`, labels and annotations of other domains, and an elastic one's `parallelism`: delete it and create it again"
                ),
            );
        };
        let class = self.world.queues.class(workload.class);
        if reclassed && (workload.deletion.is_some() || workload.phase == Phase::Finished) {
            return reject(
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
        if workload.deletion.is_some() || workload.phase == Phase::Finished {
            return reject(
                RejectionReason::Conflict,
                None,
                format!("{key} has ended or is being deleted: its `parallelism` can't be changed any more"),
            );
        }
        if !matches!(workload.phase, Phase::Granted | Phase::Running) {
            return Ok(());
        }
        let has: u32 = workload.runs_with(class).iter().sum();
        let wants: u32 = read.job.gang.pod_sets.iter().map(|set| set.count).sum();
        let Some((_, leg)) = World::right(workload) else { return Ok(()) };
        let Some(live) = self.world.live.clusters.get(&leg.cluster) else { return Ok(()) };
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
                let anew = format!(
                    "`meridian stop workload {name}`, change it, and `meridian resume workload {name}`"
                );
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
        &mut self,
        (read, class): (&ReadJob, Option<Class>),
        uid: Uid,
        by: &Actor,
        dry_run: bool,
    ) -> WriteResult {
        let change =
            self.change_of(read, uid).filter(|change| change.resized || change.reclassed || change.remarked);
        let Some((Change { size, manifest, resized, reclassed, .. }, class)) = change.zip(class) else {
            return WriteResult::Unchanged;
        };
        if dry_run {
            return WriteResult::Configured;
        }
        self.withdraw_open(uid);
        let body: Arc<str> = Arc::from(manifest.to_string());
        let hash = ContentHash::of(body.as_bytes());
        self.new_bodies.insert(hash, body);
        self.record(Record::Resized {
            uid,
            class: Box::new(class),
            body: hash,
            size,
            at: self.now.wall,
            by: by.clone(),
        });
        if let Some((cluster, fence)) = self.right_to_run(uid).filter(|_| resized) {
            self.shrink(&cluster, uid, fence);
        }
        let priority = self.world.state.catalog.job_priority(&read.job);
        if let Some(priority) = priority
            .filter(|priority| reclassed && self.workload(uid).is_some_and(|w| w.priority != *priority))
        {
            self.reprioritize(uid, priority, by);
        }
        self.stir();
        WriteResult::Configured
    }

    pub(crate) fn right_to_run(&self, uid: Uid) -> Option<(ClusterName, Fence)> {
        let (_, leg) = World::right(self.workload(uid)?)?;
        Some((leg.cluster.clone(), leg.fence?))
    }

    /// Tells the agent of a gang how few pods it is to have, where that is fewer than it was given. Every inventory that shows it does
    /// so again.
    pub(crate) fn shrink(&mut self, cluster: &ClusterName, uid: Uid, fence: Fence) {
        let Some(workload) =
            self.workload(uid).filter(|w| matches!(w.phase, Phase::Granted | Phase::Running))
        else {
            return;
        };
        // Of pods that are gone it isn't known whether they had succeeded: it is told as long as any place was given up.
        let runs = workload.runs_with(self.world.queues.class(workload.class));
        let smaller = |resized: &&Resized| {
            resized.growing.is_none() && runs.iter().zip(&resized.most).any(|(runs, places)| runs < places)
        };
        if let Some(size) = workload.resized.as_deref().filter(smaller).map(|resized| resized.size)
            && self.world.live.clusters.get(cluster).is_some_and(|live| live.shrinks)
        {
            self.say(cluster, Said::Shrink(uid, fence, size));
        }
    }

    /// The stored manifest with this object's numbers, where nothing else differs. `completions` changes with the pods, where
    /// both are the same before and after and every index succeeds once.
    fn change_of(&self, read: &ReadJob, uid: Uid) -> Option<Change> {
        let mut manifest: Value = serde_json::from_str(&self.body(self.workload(uid)?.body)?).ok()?;
        let written = read.manifest();
        if essence(&manifest) != essence(&written) {
            return None;
        }
        let (old, new) = (size(&manifest)?, size(&written)?);
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
}

/// How many pods a manifest has; with completions where every pod is one of them.
fn size(manifest: &Value) -> Option<Size> {
    let number = |field: &str| {
        manifest["spec"].get(field).map(|value| value.as_u64().and_then(|value| u32::try_from(value).ok()))
    };
    let parallelism = number("parallelism").unwrap_or(Some(1))?;
    let indexed = manifest["spec"]["completionMode"] == "Indexed";
    Some(Size {
        parallelism,
        completions: number("completions")
            .flatten()
            .filter(|completions| indexed && *completions == parallelism),
    })
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
    let Some(metadata) = manifest.get_mut("metadata").and_then(Value::as_object_mut) else { return manifest };
    for part in MARKS {
        let Some(entries) = metadata.get_mut(part).and_then(Value::as_object_mut) else { continue };
        entries.retain(|key, _| decides(key) && key != PRIORITY_LABEL);
        if entries.is_empty() {
            metadata.remove(part);
        }
    }
    manifest
}

impl Workload {
    /// Its gang as an attempt of it has it that is taken over: where it has grown, what it was given with that; where its job was
    /// made smaller or larger, as many pods as its agent tells, if that can be, else the most that were given. Where a journal
    /// that doesn't know of the grant saw another size asked for, that is what the agent tells, too (simulation seed 6002742).
    pub(crate) fn adopted_gang(&self, class: &Class, run: &Run) -> Arc<Gang> {
        if let Some(grown) =
            run.grown.as_ref().filter(|grown| grown.places.len() == class.gang.pod_sets.len())
        {
            return Arc::new(class.gang.of_counts(&grown.places));
        }
        let placement = run.placement.as_deref();
        let told = placement.map(|placement| {
            placement
                .pod_sets
                .iter()
                .map(|set| u32::try_from(set.pods()).unwrap_or(u32::MAX))
                .collect::<Vec<_>>()
        });
        let Some(Resized { most, .. }) = self.resized.as_deref() else {
            let other = class.elastic && run.spec != self.body;
            let can_be = |told: &Vec<u32>| {
                told.len() == class.gang.pod_sets.len()
                    && told.iter().all(|told| (1..=meridian_objects::job::MAX_PODS).contains(told))
            };
            return told
                .filter(|told| other && can_be(told))
                .map_or_else(|| self.given_gang(class), |told| Arc::new(class.gang.of_counts(&told)));
        };
        let can_be = |told: &Vec<u32>| {
            told.len() == most.len() && told.iter().zip(most).all(|(told, most)| (1..=*most).contains(told))
        };
        Arc::new(class.gang.of_counts(&told.filter(can_be).unwrap_or_else(|| most.clone())))
    }

    /// Pods of each pod set that the gang which runs is to have, once nothing that was decided of it is under way.
    pub(crate) fn runs_with(&self, class: &Class) -> Vec<u32> {
        match self.resized.as_deref() {
            Some(Resized { growing: Some(growing), .. }) => growing.runs.clone(),
            Some(Resized { runs, .. }) if !runs.is_empty() => runs.clone(),
            Some(_) => counts_of(&class.gang),
            None => counts_of(&self.given_gang(class)),
        }
    }

    /// Pods that the gang isn't to have any more and that were ended, by pod set.
    pub(crate) fn no_longer_wanted(&self, class: &Class) -> Vec<u32> {
        let given = self.given_gang(class);
        let sets = given.pod_sets.iter().zip(self.runs_with(class)).enumerate();
        let spare = |at: usize| self.spare.as_ref().and_then(|spare| spare.get(at)).copied().unwrap_or(0);
        sets.map(|(at, (given, runs))| given.count.saturating_sub(runs).min(spare(at))).collect()
    }

    /// Pods that the gang isn't to have any more, of those that haven't given back what they had.
    pub(crate) fn pods_too_many(&self, class: &Class) -> u32 {
        let has = self.gang(class);
        has.pod_sets.iter().zip(self.runs_with(class)).map(|(has, runs)| has.count.saturating_sub(runs)).sum()
    }
}

/// Pods of each pod set.
pub(crate) fn counts_of(gang: &Gang) -> Vec<u32> {
    gang.pod_sets.iter().map(|set| set.count).collect()
}

impl Resized {
    /// Of a gang that was given so many places and has all its pods.
    pub(crate) fn of(places: Vec<u32>) -> Self {
        let size = Size { parallelism: places.iter().sum(), completions: None };
        Self { size, most: places.clone(), runs: places, wants: None, growing: None, last: RecordNumber(0) }
    }

    /// What is wanted follows at once where it isn't more and nothing else is under way.
    pub(crate) fn settle(&mut self, wanted: &[u32]) {
        let Some(Wants { size, .. }) = self.wants.filter(|_| self.growing.is_none()) else { return };
        if self.runs.iter().zip(wanted).all(|(runs, wanted)| wanted <= runs) {
            self.size = if self.runs == wanted { self.size } else { size };
            (self.runs, self.wants) = (wanted.to_vec(), None);
        }
    }
}

impl World {
    /// Moves a workload to the class of its new size or labels; returns the manifest that nobody needs any more. What was given stays.
    pub(crate) fn absorb_resized(
        &mut self,
        number: RecordNumber,
        uid: Uid,
        class: &Class,
        body: ContentHash,
        size: Size,
    ) -> Option<ContentHash> {
        let (old, place, waits) = {
            let w = self.state.workloads.get(&uid)?;
            (w.class, Place::new(w.priority, w.submitted, uid), w.waits())
        };
        self.tally_workload(uid, false);
        let before = &self.state.workloads[&uid];
        let (given, runs) =
            (counts_of(&before.given_gang(self.queues.class(old))), before.runs_with(self.queues.class(old)));
        let another_size = self.queues.class(old).gang != class.gang;
        // A gang has no more pods than its job has completions.
        let size = Size { parallelism: counts_of(&class.gang).iter().sum(), ..size };
        let new = self.queues.intern(class, &self.config.resources);
        if waits {
            self.queues.leave(old, place);
            self.queues.wait(new, place);
        }
        let workload = self.state.workloads.get_mut(&uid)?;
        (workload.class, workload.changed) = (new, number);
        workload.resizes += u32::from(another_size);
        if workload.phase.charged() && another_size {
            let mut resized = workload.resized.take().unwrap_or_else(|| Box::new(Resized::of(given.clone())));
            if resized.growing.is_none() {
                resized.runs = runs;
            }
            resized.most.clone_from(&given);
            resized.wants = Some(Wants { size, asked: number });
            resized.settle(&counts_of(&class.gang));
            workload.counts = Some(given);
            workload.resized = Some(resized);
        }
        let before = std::mem::replace(&mut workload.body, body);
        let clusters: Vec<ClusterName> = workload.legs.values().map(|leg| leg.cluster.clone()).collect();
        for cluster in clusters {
            self.loads.entry(cluster).or_default().insert(uid, new);
        }
        self.drop_member(old);
        self.tally_workload(uid, true);
        self.touch_queues(new, self.queues.charged_to(uid).cloned());
        self.deciding.touch(uid);
        Some(before).filter(|before| *before != body)
    }
}

impl Catalog {
    /// Whether a job says that its number of pods may change.
    pub(crate) fn is_elastic(object: &Object) -> bool {
        object.annotations.get(ELASTIC_ANNOTATION).is_some_and(|value| value == "true")
    }
}
