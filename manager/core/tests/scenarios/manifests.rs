//! Manifests of the objects that the scenarios apply.

use super::{Fleet, GPU};
use meridian_objects::Object;
use serde_json::{Value, json};

pub(super) fn object(value: Value) -> Box<Object> {
    Box::new(Object::from_value(value).expect("the test's own objects are right").0)
}

pub(super) fn kueue_object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

pub(super) fn meridian_object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "meridian.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

pub(super) fn cluster_object(name: &str, region: &str, jurisdiction: &str) -> Value {
    meridian_object("Cluster", name, json!({"region": region, "jurisdiction": jurisdiction}))
}

pub(super) fn resource_flavor(name: &str) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name}})
}

pub(super) fn priority_class(name: &str, value: i64) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name},
        "value": value,
    })
}

/// The quota for GPUs in one flavor of a resource group.
pub(super) fn flavor_quota(flavor: &str, nominal: impl Into<i64>) -> Value {
    let nominal: i64 = nominal.into();
    json!({"name": flavor, "resources": [{"name": GPU, "nominalQuota": nominal}]})
}

/// Resource groups that cover GPUs in the flavor `any` only.
pub(super) fn gpu_quota(nominal: impl Into<i64>) -> Value {
    json!([{"coveredResources": [GPU], "flavors": [flavor_quota("any", nominal)]}])
}

/// A cluster queue with quota for GPUs in the flavor `any`, and more fields of its spec.
pub(super) fn cluster_queue(name: &str, nominal: impl Into<i64>, more: &Value) -> Value {
    let mut spec = json!({"namespaceSelector": {}, "resourceGroups": gpu_quota(nominal)});
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    kueue_object("ClusterQueue", name, spec)
}

/// A local queue in the namespace `default`.
pub(super) fn local_queue(name: &str, cluster_queue: &str) -> Value {
    local_queue_in("default", name, cluster_queue)
}

pub(super) fn local_queue_in(namespace: &str, name: &str, cluster_queue: &str) -> Value {
    let mut queue = kueue_object("LocalQueue", name, json!({"clusterQueue": cluster_queue}));
    queue["metadata"]["namespace"] = json!(namespace);
    queue
}

/// A job of pods that request one GPU each.
pub(super) fn job(namespace: &str, name: &str, pods: u32, labels: &Value, argument: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"parallelism": pods, "completions": pods, "template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{
                "name": "c", "image": "i", "args": [argument],
                "resources": {"requests": {GPU: 1}, "limits": {GPU: 1}},
            }],
        }}},
    })
}

/// Two teams in the cohort `all`: queues `team-a` and `team-b` with their own GPU quotas, and local queues
/// `a` and `b`.
pub(super) fn teams(f: &mut Fleet, quotas: [i64; 2], preemption: &Value) {
    let more = json!({"cohortName": "all", "preemption": preemption});
    f.apply(vec![
        cluster_queue("team-a", quotas[0], &more),
        cluster_queue("team-b", quotas[1], &more),
        local_queue("a", "team-a"),
        local_queue("b", "team-b"),
    ]);
}
