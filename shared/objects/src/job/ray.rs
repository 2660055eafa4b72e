//! The kinds of KubeRay: a cluster of a head and groups of workers, and a job in such a cluster.

use super::keys::MULTIKUEUE_MANAGER;
use super::kind::{JobKind, Switch};
use super::pod_set_paths::{PodSetName, PodSetPaths};
use super::regular;
use super::status::{PodProgress, StateRules, StateSign};
use crate::fields::schema::{Shape, Type};
use crate::fields::{FieldPath, Fields};
use crate::kind::Kind;
use serde_json::{Map, Value, json};

/// Meridian takes jobs that name one of these controllers.
const MANAGERS: [&str; 2] = ["ray.io/kuberay-operator", MULTIKUEUE_MANAGER];
/// Longest name: the operator adds up to 16 characters for services and pods.
const NAME_CHARS_MAX: usize = 47;
/// Default submission mode of a RayJob: by a separate pod.
const USUAL_SUBMISSION: &str = "K8sJobMode";

/// Paths of the head of the cluster at this path.
const fn head(at: &'static str) -> PodSetPaths {
    let name = PodSetName::Fixed("head");
    PodSetPaths { at, name, template: "/template", counts: &[], completions: None }
}

/// Paths of the worker groups of the cluster at this path.
const fn workers(at: &'static str) -> PodSetPaths {
    let name = PodSetName::At("/groupName");
    PodSetPaths { at, name, template: "/template", counts: &["/replicas", "/numOfHosts"], completions: None }
}

pub(super) static RAY_JOB: JobKind = JobKind {
    kind: Kind::RayJob,
    pod_sets: &[
        head("/spec/rayClusterSpec/headGroupSpec"),
        workers("/spec/rayClusterSpec/workerGroupSpecs/*"),
        PodSetPaths {
            at: "/spec/submitterPodTemplate",
            name: PodSetName::Fixed("submitter"),
            template: "",
            counts: &[],
            completions: None,
        },
    ],
    ttl: "/spec/ttlSecondsAfterFinished",
    deadline: Some("/spec/activeDeadlineSeconds"),
    spec: &JOB_SPEC,
    check: check_job,
    complete: add_submitter,
    states: StateRules {
        succeeded: StateSign::Fields(&[("jobStatus", "SUCCEEDED")]),
        // A job that is complete without success has failed or was stopped.
        failed: StateSign::Fields(&[("jobDeploymentStatus", "Failed"), ("jobDeploymentStatus", "Complete")]),
        active: "/status/rayClusterStatus/readyWorkerReplicas",
    },
    write_progress: write_job_progress,
    ..RAY_CLUSTER_ROW
};

/// Writes the states of the job and of its cluster, like KubeRay's operator.
fn write_job_progress(status: &mut Map<String, Value>, progress: &PodProgress, manifest: &Value) {
    regular::write_progress_and_start(status, progress, manifest);
    let deployment = match (&progress.succeeded, &progress.started) {
        (Some(at), _) => {
            status.insert("endTime".to_owned(), json!(at));
            "Complete"
        }
        (None, Some(_)) => "Running",
        (None, None) => "Suspended",
    };
    status.insert("jobDeploymentStatus".to_owned(), json!(deployment));
    if progress.is_seen_running() {
        status.insert("jobStatus".to_owned(), json!("RUNNING"));
    }
    let sets = RAY_JOB.pod_sets(manifest);
    let of_workers = sets.iter().filter(|set| !["head", "submitter"].contains(&set.name.as_str()));
    let workers = of_workers.filter_map(|set| set.count).fold(0, u32::saturating_add);
    let mut cluster = Map::new();
    write_workers(&mut cluster, progress.is_seen_running(), workers);
    status.insert("rayClusterStatus".to_owned(), Value::Object(cluster));
}

/// A RayCluster runs until it is deleted.
pub(super) static RAY_CLUSTER: JobKind =
    JobKind { write_progress: write_cluster_progress, ..RAY_CLUSTER_ROW };

const RAY_CLUSTER_ROW: JobKind = JobKind {
    kind: Kind::RayCluster,
    pod_sets: &[head("/spec/headGroupSpec"), workers("/spec/workerGroupSpecs/*")],
    find: None,
    size: None,
    suspend: Switch::Flag("/spec/suspend"),
    managed_by: "/spec/managedBy",
    managers: &MANAGERS,
    name_chars_max: NAME_CHARS_MAX,
    ttl: "",
    deadline: None,
    spec: &CLUSTER_SPEC,
    check: |root| check_cluster(root, "/spec"),
    complete: |_| {},
    ignored: &[],
    states: StateRules {
        succeeded: StateSign::Condition("Succeeded"),
        failed: StateSign::Condition("Failed"),
        active: "/status/readyWorkerReplicas",
    },
    read: regular::read,
    write_progress: regular::write_progress,
};

/// Writes the state and the counts of workers, like KubeRay's operator. A cluster has one head, and runs
/// whole or not at all.
fn write_cluster_progress(status: &mut Map<String, Value>, progress: &PodProgress, manifest: &Value) {
    regular::write_progress(status, progress, manifest);
    write_workers(status, progress.is_seen_running(), progress.pods.saturating_sub(1));
}

fn write_workers(status: &mut Map<String, Value>, is_running: bool, workers: u32) {
    let ready = if is_running { workers } else { 0 };
    status.insert("state".to_owned(), json!(if is_running { "ready" } else { "suspended" }));
    status.insert("desiredWorkerReplicas".to_owned(), json!(workers));
    for count in ["availableWorkerReplicas", "readyWorkerReplicas"] {
        status.insert(count.to_owned(), json!(ready));
    }
}

static JOB_SPEC: Shape = Shape::of(&[
    ("activeDeadlineSeconds", Type::Any),
    ("backoffLimit", Type::Any),
    ("clusterSelector", Type::Any),
    ("deletionPolicy", Type::Any),
    ("deletionStrategy", Type::Any),
    ("entrypoint", Type::Text),
    ("entrypointNumCpus", Type::Any),
    ("entrypointNumGpus", Type::Any),
    ("entrypointResources", Type::Any),
    ("jobId", Type::Any),
    ("managedBy", Type::Any),
    ("metadata", Type::Any),
    ("preRunningDeadlineSeconds", Type::Any),
    ("rayClusterSpec", Type::Object(&CLUSTER_SPEC)),
    ("runtimeEnvYAML", Type::Any),
    ("shutdownAfterJobFinishes", Type::Flag),
    ("submissionMode", Type::Any),
    ("submitterConfig", Type::Any),
    ("submitterPodTemplate", Type::Any),
    ("suspend", Type::Flag),
    ("ttlSecondsAfterFinished", Type::Any),
]);
static CLUSTER_SPEC: Shape = Shape::of(&[
    ("authOptions", Type::Any),
    ("autoscalerOptions", Type::Any),
    ("enableInTreeAutoscaling", Type::Flag),
    ("gcsFaultToleranceOptions", Type::Any),
    ("headGroupSpec", Type::Any),
    ("headServiceAnnotations", Type::Any),
    ("managedBy", Type::Any),
    ("rayVersion", Type::Any),
    ("suspend", Type::Flag),
    ("upgradeStrategy", Type::Any),
    ("workerGroupSpecs", Type::List(&Type::Object(&WORKER_GROUP))),
]);
/// Fields of a worker group. The reader of the template checks it.
static WORKER_GROUP: Shape = Shape::of(&[
    ("groupName", Type::Text),
    ("idleTimeoutSeconds", Type::Any),
    ("labels", Type::Any),
    ("maxReplicas", Type::Any),
    ("minReplicas", Type::Any),
    ("numOfHosts", Type::Any),
    ("rayStartParams", Type::Any),
    ("replicas", Type::Any),
    ("resources", Type::Any),
    ("scaleStrategy", Type::Any),
    ("suspend", Type::Any),
    ("template", Type::Any),
]);

fn check_job(root: &Fields<'_>) {
    check_cluster(root, "/spec/rayClusterSpec");
    let spec = root.written().get("spec").unwrap_or(&Value::Null);
    let error = |field: &str, message: &str, remedy: &str| {
        root.findings().error(FieldPath::of("spec").key(field), message, remedy);
    };
    if spec["shutdownAfterJobFinishes"] != true {
        let remedy = "write `shutdownAfterJobFinishes: true`";
        error(
            "shutdownAfterJobFinishes",
            "must be set, because otherwise the cluster of a finished job keeps its pods",
            remedy,
        );
    }
    if spec.get("clusterSelector").is_some_and(|selector| !selector.is_null()) {
        let remedy = "describe the cluster in `rayClusterSpec`";
        error("clusterSelector", "names an existing cluster, for whose pods this job has no quota", remedy);
    }
    if !submits_by_pod(spec) && spec.get("submitterPodTemplate").is_some_and(|pod| !pod.is_null()) {
        let remedy = "remove it, or write `submissionMode: K8sJobMode`";
        error("submitterPodTemplate", "has no effect with this `submissionMode`", remedy);
    }
}

/// Checks a cluster. The number of its pods must not change while it runs, because its quota is fixed.
fn check_cluster(root: &Fields<'_>, at: &str) {
    let written = Value::Object(root.written().clone());
    let Some(cluster) = written.pointer(at) else { return };
    let path = || at.split('/').skip(1).fold(FieldPath::of(""), FieldPath::key);
    if cluster["enableInTreeAutoscaling"] == true {
        root.findings().error(
            path().key("enableInTreeAutoscaling"),
            "would change the number of pods, but quota is for a fixed number",
            "remove it, and write the number of pods into `replicas`",
        );
    }
    if cluster.get("headGroupSpec").is_none_or(Value::is_null) {
        root.findings().error(path().key("headGroupSpec"), "is missing", "add the head of the cluster");
    }
    for (index, group) in cluster["workerGroupSpecs"].as_array().into_iter().flatten().enumerate() {
        if group.get("replicas").is_none_or(Value::is_null) {
            let at = path().key("workerGroupSpecs").index(index).key("replicas");
            root.findings().error(at, "is missing", "write the number of workers of the group");
        }
    }
}

fn submits_by_pod(spec: &Value) -> bool {
    spec["submissionMode"].as_str().filter(|mode| !mode.is_empty()).unwrap_or(USUAL_SUBMISSION)
        == USUAL_SUBMISSION
}

/// Adds the pod that submits the job, as the operator would make it, because this pod needs quota and a node
/// too.
fn add_submitter(manifest: &mut Value) {
    let Some(spec) = manifest.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    let is_written = spec.get("submitterPodTemplate").is_some_and(|template| !template.is_null());
    if is_written || !submits_by_pod(spec) {
        return;
    }
    let image = spec.pointer("/rayClusterSpec/headGroupSpec/template/spec/containers/0/image");
    let Some(image) = image.cloned() else { return };
    let resources = json!({
        "requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"},
    });
    let container = json!({"name": "ray-job-submitter", "image": image, "resources": resources});
    spec["submitterPodTemplate"] = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
}
