//! Objects as a manager's API shows them, and a scripted manager that has them. One pod requests one CPU.

use crate::client::fake::{Fake, FakeAnswer};
use crate::commands::tests::run;
use meridian_objects::plan::PlanObject;
use serde_json::{Value, json};

/// Kinds in the order in which `plan --what-if` asks for them.
const KINDS: [&str; 25] = [
    "Namespace",
    "PriorityClass",
    "RuntimeClass",
    "LimitRange",
    "WorkloadPriorityClass",
    "Topology",
    "ResourceFlavor",
    "MultiKueueCluster",
    "MultiKueueConfig",
    "ProvisioningRequestConfig",
    "AdmissionCheck",
    "Cohort",
    "ClusterQueue",
    "LocalQueue",
    "Job",
    "JobSet",
    "PyTorchJob",
    "MPIJob",
    "RayJob",
    "RayCluster",
    "LeaderWorkerSet",
    "TrainJob",
    "Pod",
    "PodGroup",
    "Workload",
];

/// A manager with these objects.
pub(super) fn manager(objects: &[Value]) -> Fake {
    manager_asked_for(objects, &[])
}

/// A manager with these objects that is asked for `more` kinds: those of given objects that plans don't
/// evaluate.
pub(super) fn manager_asked_for(objects: &[Value], more: &[&str]) -> Fake {
    let items =
        |kind: &str| objects.iter().filter(|object| object["kind"] == kind).cloned().collect::<Vec<_>>();
    let answer = |kind: &&str| FakeAnswer::Json(200, json!({"metadata": {}, "items": items(kind)}));
    Fake::new(KINDS.iter().chain(more).map(|kind| ("GET ", answer(kind))))
}

/// What the given objects would change at a manager with the existing ones. Flavor `f` exists.
pub(super) async fn what_if(existing: &[Value], given: &[Value]) -> Value {
    let flavor = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "f"},
        "spec": {},
    });
    let existing: Vec<Value> = existing.iter().cloned().chain([flavor]).collect();
    let files = given.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n---\n");
    let line = ["plan", "--what-if", "-f", "-", "-o", "json", "--now", "2026-06-01T10:00:00Z"];
    let ran = run(&manager(&existing), &line, &files).await;
    serde_json::from_str(&ran.answers).unwrap_or_else(|error| panic!("{error}: {:?}", ran.result))
}

/// The workloads of a list in a comparison, each with the value at a JSON pointer.
pub(super) fn listed(report: &Value, list: &str, pointer: &str) -> Vec<(String, Value)> {
    let name = |item: &Value| {
        let names = ["/workload", "/waiting/workload"].iter().find_map(|path| item.pointer(path)?.as_str());
        names.unwrap_or_default().to_owned()
    };
    let all = report[list].as_array().unwrap_or_else(|| panic!("{report:#}"));
    all.iter().map(|item| (name(item), item.pointer(pointer).cloned().unwrap_or_default())).collect()
}

/// A cluster queue with CPU quota of flavor `f`; `more` is added to its spec.
pub(super) fn queue(name: &str, cpus: u32, more: &Value) -> Value {
    let resources = json!([{"name": "cpu", "nominalQuota": cpus}]);
    let mut spec = json!({"namespaceSelector": {}, "resourceGroups": [
        {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": resources}]},
    ]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name},
        "spec": spec,
    })
}

pub(super) fn local_queue(name: &str, cluster_queue: &str) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": "ml"}, "spec": {"clusterQueue": cluster_queue},
    })
}

/// The workload priority class `high`.
pub(super) fn high_priority() -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass",
        "metadata": {"name": "high"}, "value": 9,
    })
}

/// An elastic job.
pub(super) fn elastic(name: &str, local_queue: &str, pods: u32) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": name, "namespace": "ml", "uid": format!("j-{name}"),
            "labels": {"kueue.x-k8s.io/queue-name": local_queue},
            "annotations": {"kueue.x-k8s.io/elastic-job": "true"},
        },
        "spec": {
            "parallelism": pods, "completions": 100,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    })
}

/// The pending workload of an elastic job; `number` orders submissions.
pub(super) fn pending(job: &Value, number: u32) -> Value {
    let [name, uid] = ["name", "uid"].map(|field| job["metadata"][field].as_str().unwrap());
    let owner =
        json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": true});
    let queue_name = &job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"];
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {
            "name": format!("job-{name}"), "namespace": "ml", "uid": format!("w-{name}"),
            "creationTimestamp": "2026-06-01T09:00:00Z", "ownerReferences": [owner],
        },
        "spec": {
            "queueName": queue_name, "priority": 0, "active": true,
            "podSets": [{"name": "main", "count": job["spec"]["parallelism"]}],
        },
        "status": {"meridian": {"submitted": number.to_string()}},
    })
}

/// The workload of an elastic job, admitted with this many pods in a cluster queue.
pub(super) fn admitted(job: &Value, number: u32, pods: u32, cluster_queue: &str) -> Value {
    let mut workload = pending(job, number);
    let assignment = json!({
        "name": "main", "count": pods, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": pods.to_string()},
    });
    workload["status"]["admission"] =
        json!({"clusterQueue": cluster_queue, "podSetAssignments": [assignment]});
    let condition = |kind: &str| {
        let time = "2026-06-01T09:00:01Z";
        json!({"type": kind, "status": "True", "reason": kind, "lastTransitionTime": time})
    };
    workload["status"]["conditions"] = json!(["QuotaReserved", "Admitted"].map(condition));
    workload
}

/// A job of two pods with 500m CPUs and 4 GPUs each.
pub(in crate::commands::plan) fn job() -> Value {
    let requests = json!({"cpu": "500m", "nvidia.com/gpu": "4"});
    let container = json!({"name": "c", "image": "i", "resources": {"requests": requests}});
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": "train", "namespace": "ml", "uid": "j1", "labels": {"kueue.x-k8s.io/queue-name": "q"},
        },
        "spec": {
            "parallelism": 2, "completions": 2,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    })
}

/// The workload of [`job`] as the API shows it: without pod templates and usage.
pub(in crate::commands::plan) fn workload() -> Value {
    let owner =
        json!({"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "j1", "controller": true});
    let assignment = json!({"name": "main", "flavors": {"nvidia.com/gpu": "spot"}});
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": "job-train-00001", "namespace": "ml", "uid": "w1", "ownerReferences": [owner]},
        "spec": {
            "queueName": "q", "priority": 0, "active": true, "podSets": [{"name": "main", "count": 2}],
        },
        "status": {"admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]}},
    })
}

pub(in crate::commands::plan) fn plan_object(value: &Value) -> PlanObject {
    PlanObject::lenient(value).unwrap()
}
