//! The TrainJob of Kubeflow Trainer: equal nodes that train together.
//!
//! The template of its pods is in a TrainingRuntime of the cluster, and not in the job. The TrainJob sets the
//! number and the requests of the pods of the runtime's job [`NODE`], and patches their template. A TrainJob
//! that leaves one of these to the runtime is refused, because its quota isn't known, as is a TrainJob with
//! pods of other jobs of the runtime. Pods and requests that a runtime adds by itself aren't visible here,
//! which causes a warning.

use super::keys::{MULTIKUEUE_MANAGER, REMOTE_MANAGERS};
use super::kind::{JobKind, Switch};
use super::metadata::check_template_keys;
use super::pod_set_paths::{FoundPodSet, PodSetName, PodSetPaths, path_of};
use super::status::{PodProgress, StateRules, StateSign, new_condition};
use super::{JobWorkload, MAX_PODS, pod_set_reader, regular, topology};
use crate::fields::schema::{Shape, Type};
use crate::fields::{FieldPath, Fields, Item, names, scheduling};
use crate::kind::Kind;
use crate::pod::{self, Container, PodTemplate};
use meridian_shared::gang::PodSet;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The runtime's job with the training nodes, and the name of its container, by Trainer's convention.
const NODE: &str = "node";
/// Longest name. The operator appends `-node-` and two numbers to the names of the pods.
const NAME_CHARS_MAX: usize = names::MAX_LABEL_CHARS - "-node-0-00000".len();
/// Meridian takes jobs that name one of these controllers.
const MANAGERS: [&str; 2] = ["trainer.kubeflow.org/trainjob-controller", MULTIKUEUE_MANAGER];
/// Patches of the runtime, from Trainer 2.2.
const PATCHES: &str = "runtimePatches";
/// Patches of the runtime, in Trainer 2.1.
const OVERRIDES: &str = "podTemplateOverrides";
/// JSON pointer to the jobs below a patch of Trainer 2.2.
const JOBS_OF_PATCH: &str = "/trainingRuntimeSpec/template/spec/replicatedJobs";
const TEMPLATE_OF_JOB: &str = "/template/spec/template";

pub(super) static TRAIN_JOB: JobKind = JobKind {
    kind: Kind::TrainJob,
    pod_sets: &[PodSetPaths {
        at: "/spec/trainer",
        name: PodSetName::Fixed(NODE),
        template: "",
        counts: &["/numNodes"],
        completions: None,
    }],
    find: Some(find),
    size: None,
    suspend: Switch::Flag("/spec/suspend"),
    managed_by: "/spec/managedBy",
    managers: &MANAGERS,
    name_chars_max: NAME_CHARS_MAX,
    ttl: "",
    deadline: Some("/spec/activeDeadlineSeconds"),
    spec: &SPEC,
    check,
    complete: add_patch,
    ignored: &[],
    states: StateRules {
        succeeded: StateSign::Condition("Complete"),
        failed: StateSign::Condition("Failed"),
        active: "/status/jobsStatus/*/active",
    },
    read,
    write_progress,
};

/// Writes whether the job is suspended, and the counts of its only Job, like Trainer's controller.
fn write_progress(status: &mut Map<String, Value>, progress: &PodProgress, manifest: &Value) {
    regular::write_progress(status, progress, manifest);
    let condition = match &progress.started {
        Some(started) => new_condition("Suspended", false, "Resumed", "TrainJob is resumed", &json!(started)),
        None => {
            let created = &manifest["metadata"]["creationTimestamp"];
            new_condition("Suspended", true, "Suspended", "TrainJob is suspended", created)
        }
    };
    status.insert("conditions".to_owned(), json!([condition]));
    let (runs, succeeded) = (progress.is_seen_running(), progress.succeeded.is_some());
    let of_nodes = json!({
        "name": NODE, "active": u8::from(runs), "ready": u8::from(runs), "failed": 0,
        "succeeded": u8::from(succeeded), "suspended": 0,
    });
    status.insert("jobsStatus".to_owned(), json!([of_nodes]));
}

static SPEC: Shape = Shape::of(&[
    ("activeDeadlineSeconds", Type::Any),
    ("annotations", Type::Any),
    ("initializer", Type::Any),
    ("labels", Type::Any),
    ("managedBy", Type::Any),
    (OVERRIDES, Type::List(&Type::Any)),
    ("runtimeRef", Type::Object(&RUNTIME)),
    (PATCHES, Type::List(&Type::Object(&PATCH))),
    ("suspend", Type::Flag),
    ("trainer", Type::Object(&TRAINER)),
]);
static RUNTIME: Shape =
    Shape::of(&[("apiGroup", Type::Text), ("kind", Type::Text), ("name", Type::Text)]).required(&["name"]);
static PATCH: Shape =
    Shape::of(&[("manager", Type::Text), ("time", Type::Any), ("trainingRuntimeSpec", Type::Any)])
        .required(&["manager"]);
static TRAINER: Shape = Shape::of(&[
    ("args", Type::List(&Type::Text)),
    ("command", Type::List(&Type::Text)),
    ("env", Type::Any),
    ("image", Type::Text),
    ("numNodes", Type::Any),
    ("numProcPerNode", Type::Any),
    ("resourcesPerNode", Type::Any),
]);
/// The fields of pods that a patch may have.
static PATCHED_POD: Shape = Shape::of(&[
    ("affinity", Type::Any),
    ("containers", Type::Any),
    ("imagePullSecrets", Type::Any),
    ("initContainers", Type::Any),
    ("nodeSelector", Type::Any),
    ("schedulingGates", Type::Any),
    ("securityContext", Type::Any),
    ("serviceAccountName", Type::Text),
    ("tolerations", Type::Any),
    ("volumes", Type::Any),
]);

/// A patch of one job of the runtime.
struct Patch {
    job: String,
    /// JSON pointer to the patched pod template.
    template: String,
}

/// All patches of a manifest, in its order.
fn patches(manifest: &Value) -> Vec<Patch> {
    let entries = |at: &str| manifest.pointer(at).and_then(Value::as_array).map_or(0, Vec::len);
    let name = |at: String| manifest.pointer(&at).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut all = Vec::new();
    for patch in 0..entries(&format!("/spec/{PATCHES}")) {
        let jobs = format!("/spec/{PATCHES}/{patch}{JOBS_OF_PATCH}");
        all.extend((0..entries(&jobs)).map(|job| Patch {
            job: name(format!("{jobs}/{job}/name")),
            template: format!("{jobs}/{job}{TEMPLATE_OF_JOB}"),
        }));
    }
    for patch in 0..entries(&format!("/spec/{OVERRIDES}")) {
        let at = format!("/spec/{OVERRIDES}/{patch}");
        let jobs = format!("{at}/targetJobs");
        all.extend(
            (0..entries(&jobs))
                .map(|job| Patch { job: name(format!("{jobs}/{job}/name")), template: at.clone() }),
        );
    }
    all
}

fn find(manifest: &Value) -> Vec<FoundPodSet> {
    let Some(patch) = patches(manifest).into_iter().find(|patch| patch.job == NODE) else {
        return Vec::new();
    };
    let nodes = manifest.pointer("/spec/trainer/numNodes").and_then(Value::as_u64);
    vec![FoundPodSet {
        at: "/spec/trainer".to_owned(),
        name: NODE.to_owned(),
        template: patch.template,
        count: nodes.and_then(|nodes| u32::try_from(nodes).ok()),
    }]
}

/// Adds the patch into which an agent writes the marks and gates of the pods, in the form that the job uses.
fn add_patch(manifest: &mut Value) {
    let Some(spec) = manifest.get("spec").filter(|spec| spec.is_object()) else { return };
    let uses_overrides = spec.get(OVERRIDES).is_some_and(Value::is_array);
    if let Some(found) = patches(manifest).into_iter().find(|patch| patch.job == NODE) {
        if manifest.pointer(&found.template).is_none_or(Value::is_null)
            && let Some(job) = found.template.strip_suffix(TEMPLATE_OF_JOB)
            && let Some(job) = manifest.pointer_mut(job)
        {
            job["template"] = json!({"spec": {"template": {}}});
        }
        return;
    }
    let (list, patch) = if uses_overrides {
        (OVERRIDES, json!({"targetJobs": [{"name": NODE}]}))
    } else {
        let jobs = json!([{"name": NODE, "template": {"spec": {"template": {}}}}]);
        let of_runtime = json!({"template": {"spec": {"replicatedJobs": jobs}}});
        (PATCHES, json!({"manager": REMOTE_MANAGERS[1], "trainingRuntimeSpec": of_runtime}))
    };
    let spec = &mut manifest["spec"];
    match spec.get_mut(list) {
        None | Some(Value::Null) => spec[list] = json!([patch]),
        Some(Value::Array(all)) => all.push(patch),
        // A wrong type is reported by the reader of the spec.
        Some(_) => {}
    }
}

fn check(root: &Fields<'_>) {
    let manifest = Value::Object(root.written().clone());
    let spec = manifest.get("spec").unwrap_or(&Value::Null);
    let error = |field: &str, message: &str, remedy: &str| {
        root.findings().error(FieldPath::of("spec").key(field), message, remedy);
    };
    let has = |field: &str| spec.get(field).is_some_and(|value| !value.is_null());
    if !has("runtimeRef") {
        error("runtimeRef", "is missing", "name the runtime of the job");
    } else {
        root.findings().warn(
            FieldPath::of("spec.runtimeRef.name"),
            format!(
                "the runtime isn't known here: only the pods of its job `{NODE}` are counted, as `trainer` \
                 describes them"
            ),
            "use a runtime without other jobs and sidecars, or submit a JobSet",
        );
    }
    if has("initializer") {
        let message = "has pods whose requests only the runtime knows";
        error("initializer", message, "let the training container load its data, or submit a JobSet");
    }
    if has(PATCHES) && has(OVERRIDES) {
        error(OVERRIDES, &format!("can't be combined with `{PATCHES}`"), "write all patches in one form");
    }
    let mut of_nodes = 0;
    for Patch { job, template } in patches(&manifest) {
        if job != NODE {
            root.findings().error(
                path_of(&template),
                format!("the pods of the runtime's job `{job}` have no quota"),
                format!("use a runtime with the job `{NODE}` only, or submit a JobSet"),
            );
            continue;
        }
        of_nodes += 1;
        if of_nodes > 1 {
            let message = format!("`{NODE}` is patched twice");
            root.findings().error(path_of(&template), message, "write all of it into the first patch");
        }
    }
}

fn read(
    kind: &JobKind,
    root: &Fields<'_>,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) -> JobWorkload {
    let (mut job, has_spec) = regular::read_outline(kind, root, labels, annotations);
    if !has_spec {
        return job;
    }
    (kind.check)(root);
    let manifest = Value::Object(root.written().clone());
    job.suspend = kind.is_suspended(&manifest);
    let Some((count, container)) = read_nodes(root) else { return job };
    let Some(set) = find(&manifest).into_iter().next() else { return job };
    let mut read = None;
    root.at_pointer(&set.template, &mut |item: &Item<'_>| read = read_patch(item, count, &container));
    if let Some((template, pod_set)) = read {
        job.gang.pod_sets = vec![pod_set];
        job.templates = vec![template];
        job.parallelism = count;
    }
    job
}

/// The number of nodes, and the container of each.
fn read_nodes(root: &Fields<'_>) -> Option<(u32, Container)> {
    let spec = root.fields("spec")?;
    let trainer = spec.require("trainer")?.fields()?;
    let missing = |name: &str, remedy: &str| {
        trainer.error(name, "is missing, and the runtime isn't known here", remedy);
    };
    let count = match trainer.get("numNodes") {
        Some(number) => number.int(1, i64::from(MAX_PODS)).and_then(|count| u32::try_from(count).ok()),
        None => {
            missing("numNodes", "write the number of nodes");
            None
        }
    };
    let resources = trainer.fields("resourcesPerNode");
    let resources = match &resources {
        Some(fields) => pod::read_container_resources(fields),
        None => {
            missing("resourcesPerNode", "write the requests of each node");
            return None;
        }
    };
    let command = trainer.written().get("command").and_then(Value::as_array);
    let has_command = command.is_some_and(|command| !command.is_empty());
    // If the job has no image, the runtime has one.
    let container =
        Container { name: NODE.to_owned(), resources, has_command, has_image: true, sidecar: false };
    Some((count?, container))
}

fn read_patch(item: &Item<'_>, count: u32, container: &Container) -> Option<(PodTemplate, PodSet)> {
    let patch = item.fields()?;
    check_template_keys(&patch);
    if let Some(metadata) = patch.fields("metadata") {
        scheduling::labels(&metadata, "labels");
        scheduling::annotations(&metadata);
    }
    let empty = serde_json::Map::new();
    let nothing = Fields::root(patch.findings(), &empty);
    let pod = patch.fields("spec").unwrap_or(nothing);
    pod.check(&PATCHED_POD);
    let template = PodTemplate { containers: vec![container.clone()], ..pod::read_placement(&pod) };
    let mut pod_set = pod_set_reader::pod_set(&pod, &template, NODE, count);
    (pod_set.topology, pod_set.group) = topology::read(&patch, count);
    Some((template, pod_set))
}
