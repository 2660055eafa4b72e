//! The objects of a fleet, and jobs as their users write them.

use crate::sim::clusters::{GPU, cluster_manifest};
use crate::sim::fleet::job::SimulatedJob;
use crate::sim::fleet::queues::{DeclaredQueues, PRIORITIES, UsualQueue};
use crate::sim::fleet::tolerations::toleration_manifests;
use crate::sim::fleet::topology::TopologyRequest;
use crate::sim::scenario::Scenario;
use meridian_manager_core::facts::key::Key;
use meridian_objects::Object;
use meridian_shared::ids::{ContentHash, Uid};
use meridian_shared::protocol::OnLoss;
use meridian_shared::time::Millis;
use serde_json::{Value, json};
use std::sync::Arc;

/// A queue, and the dispatch policy of its jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuePolicy {
    pub(crate) name: &'static str,
    /// Quota where queues share none.
    pub(crate) quota: i64,
    mode: &'static str,
    pub(crate) on_loss: OnLoss,
    pub(crate) term: Millis,
    strategy: &'static str,
}

/// Every queue of a simulation.
pub(crate) const QUEUES: [QueuePolicy; 3] = [
    QueuePolicy {
        name: "race",
        quota: 12,
        mode: "Race",
        on_loss: OnLoss::Fence,
        term: Millis::secs(8),
        strategy: "BestEffortFIFO",
    },
    QueuePolicy {
        name: "direct",
        quota: 8,
        mode: "Direct",
        on_loss: OnLoss::Fence,
        term: TERM_LONGEST,
        strategy: "StrictFIFO",
    },
    QueuePolicy {
        name: "wait",
        quota: 8,
        mode: "Race",
        on_loss: OnLoss::Wait,
        term: Millis::secs(8),
        strategy: "BestEffortFIFO",
    },
];
/// The longest lease term of any queue.
pub(crate) const TERM_LONGEST: Millis = Millis::secs(12);

/// The object of a manifest.
pub(crate) fn object(manifest: &Value) -> Box<Object> {
    Box::new(Object::from_value(manifest.clone()).expect("the simulation's own objects are valid").0)
}

/// The key of a manifest's object.
pub(crate) fn key_of(manifest: &Value) -> Key {
    let object = object(manifest);
    let namespace = object.namespace_or_default().map(Arc::from);
    Key { scope: None, kind: object.kind, namespace, name: Arc::from(object.name.as_str()) }
}

/// The cluster queues and cohorts of a scenario.
pub(crate) fn declared_queues(scenario: &Scenario) -> DeclaredQueues {
    let usual =
        QUEUES.map(|queue| UsualQueue { name: queue.name, quota: queue.quota, strategy: queue.strategy });
    DeclaredQueues::of(scenario, &usual)
}

fn policies() -> Vec<Value> {
    let dispatch = |queue: &QueuePolicy| {
        let on_loss = if queue.on_loss == OnLoss::Wait { "Wait" } else { "Fence" };
        let term = format!("{}s", queue.term.0 / 1_000);
        json!({
            "apiVersion": "meridian.dev/v1alpha1", "kind": "DispatchPolicy", "metadata": {"name": queue.name},
            "spec": {
                "applies": {"queues": [queue.name]}, "mode": queue.mode, "startTimeout": "15s",
                "onClusterLoss": {"mode": on_loss, "term": term, "requires": "Supervised"},
            },
        })
    };
    let mut all: Vec<Value> = QUEUES.iter().map(dispatch).collect();
    all.push(json!({
        "apiVersion": "meridian.dev/v1alpha1", "kind": "ResidencyPolicy", "metadata": {"name": "eu-only"},
        "spec": {
            "applies": {"namespaceSelector": {"matchLabels": {"data": "personal"}}},
            "allow": {"jurisdictions": ["EU"]}, "onChange": "Evict",
        },
    }));
    all
}

/// Every object that a fleet of these clusters needs before its first job.
pub(crate) fn fleet_manifests(declared: &DeclaredQueues, clusters: &[usize]) -> Vec<Value> {
    let mut all = declared.manifests();
    all.push(json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "personal", "labels": {"data": "personal"}},
    }));
    for name in declared.names() {
        for namespace in ["open", "personal"] {
            all.push(json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
                "metadata": {"name": name, "namespace": namespace}, "spec": {"clusterQueue": name},
            }));
        }
    }
    all.extend(policies());
    all.extend(clusters.iter().map(|cluster| cluster_manifest(*cluster, declared.limits[*cluster])));
    all
}

/// A job with this number of pods, as its user wrote it.
pub(crate) fn job_manifest(job: &SimulatedJob, pods: usize) -> Value {
    let SimulatedJob {
        name, namespace, queue, min_pods, gpus, priority, elastic, topology, tolerates, ..
    } = job;
    let mut labels = json!({"kueue.x-k8s.io/queue-name": queue});
    if let Some((class, _)) = PRIORITIES.iter().find(|(_, value)| value == priority) {
        labels["kueue.x-k8s.io/priority-class"] = json!(class);
    }
    let mut annotations = min_pods
        .map_or_else(|| json!({}), |pods| json!({"kueue.x-k8s.io/job-min-parallelism": pods.to_string()}));
    if *elastic {
        annotations["kueue.x-k8s.io/elastic-job"] = json!("true");
    }
    let mode = if *elastic { "Indexed" } else { "NonIndexed" };
    // Only an elastic job's completions may change with its pods.
    let completions = if *elastic { pods } else { job.pods };
    let pod_annotations = topology.map_or_else(|| json!({}), TopologyRequest::annotations);
    let container = json!({
        "name": "c", "image": "secret-image", "command": ["work"],
        "resources": {"requests": {GPU: gpus}, "limits": {GPU: gpus}},
    });
    let mut manifest = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations},
        "spec": {
            "parallelism": pods, "completions": completions, "completionMode": mode, "suspend": true,
            "template": {
                "metadata": {"annotations": pod_annotations},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    });
    if let Some(deadline) = job.deadline {
        manifest["spec"]["activeDeadlineSeconds"] = json!(deadline.0 / 1_000);
    }
    if !tolerates.is_empty() {
        manifest["spec"]["template"]["spec"]["tolerations"] = toleration_manifests(tolerates);
    }
    manifest
}

/// The job of an orphan, of the size that was granted; an operator adopts the orphan with it.
pub(crate) fn orphaned_job(job: &SimulatedJob, uid: Uid, granted: ContentHash) -> Box<Object> {
    let of_size = |pods: &usize| object(&job_manifest(job, *pods));
    let is_granted = |object: &Object| {
        let mut manifest = object.stored.clone();
        manifest["metadata"]["uid"] = json!(uid.to_string());
        ContentHash::of(manifest.to_string().as_bytes()) == granted
    };
    job.sizes.iter().map(of_size).find(|object| is_granted(object)).unwrap_or_else(|| of_size(&job.pods))
}
