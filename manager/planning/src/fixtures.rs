//! Objects for tests: namespace `n`, cluster queue `q` with 9 CPUs of flavor `f`, local queue `l`.

use crate::load::{LoadOptions, Loaded, load};
use crate::report::WaitingWorkload;
use crate::{CycleLimits, PlanReport, decide};
use meridian_objects::plan::PlanObject;
use meridian_queueing::capacity_model::UnlimitedCapacity;
use meridian_queueing::model::{Moment, Workload};
use serde_json::{Value, json};

/// 2026-06-01T12:00:00Z. Workloads are created an hour earlier, conditions change half an hour earlier.
pub(crate) const NOW: Moment = 1_780_315_200_000;

pub(crate) fn kueue(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// `resourceGroups` with CPU quota of one flavor.
pub(crate) fn cpu_quota(flavor: &str, nominal: &str) -> Value {
    let resources = json!([{"name": "cpu", "nominalQuota": nominal}]);
    json!([{"coveredResources": ["cpu"], "flavors": [{"name": flavor, "resources": resources}]}])
}

pub(crate) fn cluster_queue(name: &str, more: Value) -> Value {
    let mut spec = json!({
        "namespaceSelector": {},
        "resourceGroups": cpu_quota("f", "9"),
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    kueue("ClusterQueue", name, spec)
}

pub(crate) fn local_queue(name: &str, cluster_queue: &str) -> Value {
    let mut queue = kueue("LocalQueue", name, json!({"clusterQueue": cluster_queue}));
    queue["metadata"]["namespace"] = json!("n");
    queue
}

pub(crate) fn workload(name: &str, queue: &str, status: Value) -> Value {
    let template = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
    let mut workload = kueue(
        "Workload",
        name,
        json!({"queueName": queue, "podSets": [{"name": "main", "count": 3, "template": template}]}),
    );
    workload["metadata"]["namespace"] = json!("n");
    workload["metadata"]["creationTimestamp"] = json!("2026-06-01T11:00:00Z");
    workload["status"] = status;
    workload
}

pub(crate) fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": "",
        "lastTransitionTime": "2026-06-01T11:30:00Z",
    })
}

pub(crate) fn base() -> Vec<Value> {
    vec![kueue("ResourceFlavor", "f", json!({})), cluster_queue("q", json!({})), local_queue("l", "q")]
}

pub(crate) fn read_with(more: Vec<Value>, options: &LoadOptions) -> Loaded {
    let objects: Vec<PlanObject> =
        base().iter().chain(&more).map(|object| PlanObject::lenient(object).unwrap()).collect();
    load(&objects, &LoadOptions { now: NOW, ..options.clone() })
}

pub(crate) fn read(more: Vec<Value>) -> Loaded {
    read_with(more, &LoadOptions::default())
}

pub(crate) fn planned(more: Vec<Value>) -> PlanReport {
    let mut loaded = read(more);
    let decisions = decide(&mut loaded, &mut UnlimitedCapacity, &CycleLimits::default());
    PlanReport::new(&loaded, &decisions)
}

pub(crate) fn waiting<'a>(report: &'a PlanReport, workload: &str) -> &'a WaitingWorkload {
    report.waiting.iter().find(|w| w.workload == workload).expect("the workload is pending")
}

pub(crate) fn found<'a>(loaded: &'a Loaded, key: &str) -> &'a Workload {
    let id = loaded.state.find(key).expect("the workload was loaded");
    loaded.state.workload(id).expect("the workload was loaded")
}

/// Status of an admitted workload with this many pods of one CPU.
pub(crate) fn admitted_status(cluster_queue: &str, flavor: &str, pods: u32) -> Value {
    let pod_set = json!({
        "name": "main", "count": pods, "flavors": {"cpu": flavor}, "resourceUsage": {"cpu": pods.to_string()},
    });
    json!({
        "admission": {"clusterQueue": cluster_queue, "podSetAssignments": [pod_set]},
        "conditions": [condition("QuotaReserved", "True", "R"), condition("Admitted", "True", "R")],
    })
}

/// A workload of three pods that holds quota of `q` and runs.
pub(crate) fn running(name: &str, queue: &str) -> Value {
    workload(name, queue, admitted_status("q", "f", 3))
}
