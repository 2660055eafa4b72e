//! What Kueue's Workloads say about the jobs that own them. Pure.

use meridian_objects::Kind;
use serde_json::Value;
use std::collections::BTreeMap;

/// Kueue's progress with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Waits,
    /// The Workload has quota, so a worker cluster may run the job even if the job's status doesn't show it.
    Started,
    Ended,
}

/// The Workloads among objects, by the jobs that own them.
#[derive(Debug, Default)]
pub(super) struct Workloads {
    /// By namespace, API group, kind and name, each with the owner's uid.
    by_owner: BTreeMap<[String; 4], Vec<(String, Stage)>>,
}

impl Workloads {
    pub(super) fn of(objects: &[Value]) -> Self {
        let mut this = Self::default();
        for workload in objects.iter().filter(|object| is_workload(object)) {
            let stage = stage(workload);
            let owners = workload["metadata"]["ownerReferences"].as_array();
            for owner in owners.into_iter().flatten() {
                let namespace = text(&workload["metadata"], "namespace");
                let key = key(namespace, owner, text(owner, "name"));
                this.by_owner.entry(key).or_default().push((text(owner, "uid").to_owned(), stage));
            }
        }
        this
    }

    /// Kueue's progress with a job. A job without a Workload among the objects waits.
    pub(super) fn stage(&self, job: &Value) -> Stage {
        let metadata = &job["metadata"];
        let key = key(text(metadata, "namespace"), job, text(metadata, "name"));
        let uid = text(metadata, "uid");
        // A job that was deleted and created again has another uid than its old Workload's owner.
        let stages: Vec<Stage> = self
            .by_owner
            .get(&key)
            .into_iter()
            .flatten()
            .filter(|(of, _)| uid.is_empty() || of.is_empty() || of == uid)
            .map(|(_, stage)| *stage)
            .collect();
        if stages.contains(&Stage::Started) {
            Stage::Started
        } else if !stages.is_empty() && stages.iter().all(|stage| *stage == Stage::Ended) {
            // A resized job has an ended Workload beside its current one.
            Stage::Ended
        } else {
            Stage::Waits
        }
    }
}

/// Whether it is an object of Kueue's kind Workload.
pub(super) fn is_workload(object: &Value) -> bool {
    let kind = Kind::from_gvk(text(object, "apiVersion"), text(object, "kind"));
    kind.is_some_and(|(kind, _)| kind == Kind::Workload)
}

fn stage(workload: &Value) -> Stage {
    let conditions = workload["status"]["conditions"].as_array();
    let is = |wanted: &str| {
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|condition| condition["type"] == wanted && condition["status"] == "True")
    };
    if is("Finished") {
        Stage::Ended
    } else if is("Admitted") || is("QuotaReserved") {
        Stage::Started
    } else {
        Stage::Waits
    }
}

/// The key of a job. `typed` has its version and kind: the job itself, or a reference to it.
fn key(namespace: &str, typed: &Value, name: &str) -> [String; 4] {
    [namespace, group(typed), text(typed, "kind"), name].map(str::to_owned)
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// The API group of an object or a reference; empty for the core group.
fn group(value: &Value) -> &str {
    text(value, "apiVersion").rsplit_once('/').map_or("", |(group, _)| group)
}
