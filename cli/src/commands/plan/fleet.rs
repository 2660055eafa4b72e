//! What a running manager has, as the objects of a plan; and other objects laid over them.
//!
//! The manager shows a workload's pod sets by name and count only. What a pod asks for is in the job behind it, and so is
//! filled in from there.

use super::identity;
use crate::client::{Client, Selection};
use crate::error::Error;
use meridian_objects::plan::{PlanObject, PlannedObject};
use meridian_objects::spec::workload::WorkloadObject;
use meridian_objects::{JobWorkload, Kind, Object, Spec, job_to_workload, quantity};
use meridian_planning::what_if::{Change, Kind as ChangeKind};
use meridian_shared::gang::{Amounts, add_scaled};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What decisions on queues look at, in an order in which others are referred to first.
const KINDS: [Kind; 16] = [
    Kind::Namespace,
    Kind::PriorityClass,
    Kind::RuntimeClass,
    Kind::LimitRange,
    Kind::WorkloadPriorityClass,
    Kind::Topology,
    Kind::ResourceFlavor,
    Kind::MultiKueueCluster,
    Kind::MultiKueueConfig,
    Kind::ProvisioningRequestConfig,
    Kind::AdmissionCheck,
    Kind::Cohort,
    Kind::ClusterQueue,
    Kind::LocalQueue,
    Kind::Job,
    Kind::Workload,
];
/// The label of objects that are a worker cluster's own.
const CLUSTER_LABEL: &str = "/metadata/labels/meridian.dev~1cluster";

/// What is there.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    pub(super) objects: Vec<PlanObject>,
    /// Jobs whose workloads are among the objects, and so are not.
    jobs: Vec<PlanObject>,
    /// What could not be taken as it is.
    pub(super) notes: Vec<String>,
}

/// Asks the manager for everything that decisions look at.
pub(super) async fn fetch(client: &Client) -> Result<Fleet, Error> {
    let mut fleet = Fleet::default();
    let mut jobs: BTreeMap<String, Value> = BTreeMap::new();
    let mut owned: BTreeSet<String> = BTreeSet::new();
    for kind in KINDS {
        let selection = Selection { kind, namespace: None, labels: String::new(), name: None };
        let items = match client.list(&selection).await {
            Ok(list) => list.items,
            Err(error) if error.is_not_found() => {
                fleet.notes.push(format!("the manager knows no {}: none are looked at", kind.plural()));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        for mut item in items.into_iter().filter(|item| item.pointer(CLUSTER_LABEL).is_none() && !is_over(item)) {
            match kind {
                Kind::Job => {
                    jobs.insert(text(&item, "/metadata/uid").to_owned(), item);
                    continue;
                }
                Kind::Workload => {
                    let owner = text(&item, "/metadata/ownerReferences/0/uid").to_owned();
                    if let Some(job) = jobs.get(&owner) {
                        complete(&mut item, job);
                        owned.insert(owner);
                    }
                }
                _ => {}
            }
            fleet.take(&item);
        }
    }
    for (uid, job) in &jobs {
        if !owned.contains(uid) {
            fleet.take(job);
        } else if let Ok(job) = PlanObject::lenient(job) {
            fleet.jobs.push(job);
        }
    }
    Ok(fleet)
}

impl Fleet {
    fn take(&mut self, item: &Value) {
        match PlanObject::lenient(item) {
            Ok(object) => self.objects.push(object),
            Err(why) => {
                let (kind, namespace, name) = (text(item, "/kind"), text(item, "/metadata/namespace"), text(item, "/metadata/name"));
                self.notes.push(format!("{kind} {namespace}/{name} of the manager can't be read and is left out: {why}"));
            }
        }
    }
}

fn text<'v>(value: &'v Value, path: &str) -> &'v str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a job or workload has ended.
fn is_over(item: &Value) -> bool {
    let conditions = item.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|c| c["status"] == "True" && (c["type"] == "Finished" || ((c["type"] == "Complete" || c["type"] == "Failed") && item["kind"] == "Job")))
}

/// Fills in what a workload's pods ask for, and what its quota is, from the job behind it.
fn complete(workload: &mut Value, job: &Value) {
    let template = job.pointer("/spec/template").cloned().unwrap_or_default();
    let sets = workload.pointer_mut("/spec/podSets").and_then(Value::as_array_mut);
    for set in sets.into_iter().flatten().filter(|set| set.get("template").is_none_or(Value::is_null)) {
        set["template"] = template.clone();
    }
    let mut unstatused = job.clone();
    if let Some(map) = unstatused.as_object_mut() {
        map.remove("status");
    }
    let read = Object::from_value(unstatused).ok().and_then(|(object, _)| job_to_workload(&object).ok());
    let gang = read.map(|job| job.gang).unwrap_or_default();
    let given = workload.pointer_mut("/status/admission/podSetAssignments").and_then(Value::as_array_mut);
    for (given, set) in given.into_iter().flatten().zip(&gang.pod_sets) {
        if given.get("resourceUsage").is_some() {
            continue;
        }
        let mut usage = Amounts::new();
        add_scaled(&mut usage, &set.per_pod, i64::from(set.count));
        let flavored = |resource: &str| given.pointer("/flavors").and_then(|f| f.get(resource)).is_some();
        let texts: Map<String, Value> = usage
            .iter()
            .filter(|(resource, _)| flavored(resource))
            .map(|(resource, amount)| (resource.clone(), json!(quantity::format(resource, *amount))))
            .collect();
        given["count"] = json!(set.count);
        given["resourceUsage"] = Value::Object(texts);
    }
}

/// Lays objects over those that are there: one of the same kind, namespace and name takes the other's place. A job takes the
/// place of the workload that stands for the job of its name.
pub(super) fn overlay(there: Fleet, given: Vec<PlanObject>) -> (Vec<PlanObject>, Vec<Change>) {
    let Fleet { mut objects, jobs, .. } = there;
    let mut changes = Vec::with_capacity(given.len());
    for object in given {
        let at = objects.iter().position(|other| identity(other) == identity(&object) || stands_for(other, &object));
        let change = match at {
            None => ChangeKind::Added,
            Some(at) if same(&objects[at], &object) => ChangeKind::Unchanged,
            Some(_) if jobs.iter().any(|job| identity(job) == identity(&object) && same(job, &object)) => ChangeKind::Unchanged,
            Some(_) => ChangeKind::Replaced,
        };
        changes.push(Change { object: object.title(), change });
        match at {
            None => objects.push(object),
            Some(at) if change == ChangeKind::Replaced => objects[at] = object,
            Some(_) => {}
        }
    }
    (objects, changes)
}

/// Whether `workload` is what became of `job`.
fn stands_for(workload: &PlanObject, job: &PlanObject) -> bool {
    let (PlanObject::Workload(workload), PlanObject::Object(job)) = (workload, job) else { return false };
    let WorkloadObject { meta, .. } = &**workload;
    let PlannedObject { object, .. } = &**job;
    let of = meta.controller().or(meta.owners.first());
    object.kind == Kind::Job && Some(meta.namespace.as_str()) == object.namespace_or_default() && of.is_some_and(|o| o.kind == "Job" && o.name == object.name)
}

/// Whether two objects of one identity say the same.
fn same(a: &PlanObject, b: &PlanObject) -> bool {
    match (a, b) {
        (PlanObject::Object(a), PlanObject::Object(b)) => {
            let (a, b) = (&a.object, &b.object);
            let specs = match (&a.spec, &b.spec) {
                // The manager says by `suspend` whether the job runs.
                (Spec::Job(a), Spec::Job(b)) => JobWorkload { suspend: b.suspend, ..(**a).clone() } == **b,
                (a, b) => a == b,
            };
            specs && a.labels == b.labels && a.annotations == b.annotations
        }
        _ => a == b,
    }
}
