//! The kinds of Kubeflow's training operator and MPI operator: named roles of pods, and a run policy.

use super::keys::MULTIKUEUE_MANAGER;
use super::kind::{JobKind, Switch, WriteProgress};
use super::pod_set_paths::{PodSetName, PodSetPaths};
use super::regular;
use super::status::{PodProgress, StateRules, StateSign, new_condition};
use crate::fields::names;
use crate::fields::schema::{Shape, Type};
use crate::kind::Kind;
use serde_json::{Map, Value, json};

/// Longest name, because pods and their services are named after the job.
const NAME_CHARS_MAX: usize = names::MAX_LABEL_CHARS;

/// Rules for the conditions of all these kinds.
const fn states(active: &'static str) -> StateRules {
    let (succeeded, failed) = (StateSign::Condition("Succeeded"), StateSign::Condition("Failed"));
    StateRules { succeeded, failed, active }
}

/// The pods of one role. Their pod set has the role's name in lower case, as in Kueue.
const fn role(at: &'static str, name: &'static str) -> PodSetPaths {
    let name = PodSetName::Fixed(name);
    PodSetPaths { at, name, template: "/template", counts: &["/replicas"], completions: None }
}

/// A kind with these roles, whose operator has this name.
const fn row(
    kind: Kind,
    pod_sets: &'static [PodSetPaths],
    managers: &'static [&'static str],
    spec: &'static Shape,
    active: &'static str,
    write_progress: WriteProgress,
) -> JobKind {
    JobKind {
        kind,
        pod_sets,
        find: None,
        size: None,
        suspend: Switch::Flag("/spec/runPolicy/suspend"),
        managed_by: "/spec/runPolicy/managedBy",
        managers,
        name_chars_max: NAME_CHARS_MAX,
        ttl: "/spec/runPolicy/ttlSecondsAfterFinished",
        deadline: Some("/spec/runPolicy/activeDeadlineSeconds"),
        spec,
        check: |_| {},
        complete: |_| {},
        ignored: &[],
        states: states(active),
        read: regular::read,
        write_progress,
    }
}

pub(super) static PYTORCH_JOB: JobKind = row(
    Kind::PyTorchJob,
    &[role("/spec/pytorchReplicaSpecs/Master", "master"), role("/spec/pytorchReplicaSpecs/Worker", "worker")],
    &["kubeflow.org/training-operator", MULTIKUEUE_MANAGER],
    &PYTORCH_SPEC,
    "/status/replicaStatuses/Worker/active",
    |status, progress, manifest| write_roles(status, progress, manifest, "/spec/pytorchReplicaSpecs"),
);

pub(super) static MPI_JOB: JobKind = row(
    Kind::MPIJob,
    &[role("/spec/mpiReplicaSpecs/Launcher", "launcher"), role("/spec/mpiReplicaSpecs/Worker", "worker")],
    &["kubeflow.org/mpi-operator", MULTIKUEUE_MANAGER],
    &MPI_SPEC,
    "/status/replicaStatuses/Worker/active",
    |status, progress, manifest| write_roles(status, progress, manifest, "/spec/mpiReplicaSpecs"),
);

/// Writes the conditions and the counts of each role, like the operators. `roles` is the path of the roles in
/// the manifest; all of them start together.
fn write_roles(status: &mut Map<String, Value>, progress: &PodProgress, manifest: &Value, roles: &str) {
    regular::write_progress_and_start(status, progress, manifest);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&manifest["kind"]), text(&manifest["metadata"]["name"]));
    let condition = |state: &str, holds: bool, verb: &str, since: &Value| {
        let (reason, message) = (format!("{kind}{state}"), format!("{kind} {name} is {verb}."));
        let mut condition = new_condition(state, holds, &reason, &message, since);
        condition["lastUpdateTime"] = since.clone();
        condition
    };
    let created = &manifest["metadata"]["creationTimestamp"];
    let mut conditions = vec![condition("Created", true, "created", created)];
    if let Some(started) = &progress.started {
        conditions.push(condition("Running", progress.is_seen_running(), "running", &json!(started)));
    }
    status.insert("conditions".to_owned(), Value::Array(conditions));
    if let Some(succeeded) = &progress.succeeded {
        status.insert("completionTime".to_owned(), json!(succeeded));
    }
    if progress.is_seen_running() {
        let roles = manifest.pointer(roles).and_then(Value::as_object).into_iter().flatten();
        let active = |spec: &Value| json!({"active": spec["replicas"].as_u64().unwrap_or(1)});
        let counts = roles.map(|(role, spec)| (role.clone(), active(spec))).collect();
        status.insert("replicaStatuses".to_owned(), Value::Object(counts));
    }
}

static PYTORCH_SPEC: Shape = Shape::of(&[
    ("elasticPolicy", Type::Any),
    ("nprocPerNode", Type::Any),
    ("pytorchReplicaSpecs", Type::Object(&PYTORCH_ROLES)),
    ("runPolicy", Type::Object(&RUN_POLICY)),
]);
static PYTORCH_ROLES: Shape = Shape::of(&[("Master", Type::Object(&ROLE)), ("Worker", Type::Object(&ROLE))]);
static MPI_SPEC: Shape = Shape::of(&[
    ("launcherCreationPolicy", Type::Any),
    ("mpiImplementation", Type::Any),
    ("mpiReplicaSpecs", Type::Object(&MPI_ROLES)),
    ("runLauncherAsWorker", Type::Any),
    ("runPolicy", Type::Object(&RUN_POLICY)),
    ("slotsPerWorker", Type::Any),
    ("sshAuthMountPath", Type::Any),
]);
static MPI_ROLES: Shape = Shape::of(&[("Launcher", Type::Object(&ROLE)), ("Worker", Type::Object(&ROLE))]);
/// Fields of a role. The reader of the template checks it.
static ROLE: Shape = Shape::of(&[
    ("replicas", Type::Any),
    ("restartPolicy", Type::Word(&["Always", "ExitCode", "Never", "OnFailure"])),
    ("template", Type::Any),
]);
static RUN_POLICY: Shape = Shape::of(&[
    ("activeDeadlineSeconds", Type::Any),
    ("backoffLimit", Type::Any),
    ("cleanPodPolicy", Type::Any),
    ("managedBy", Type::Any),
    ("schedulingPolicy", Type::Any),
    ("suspend", Type::Flag),
    ("ttlSecondsAfterFinished", Type::Any),
]);
