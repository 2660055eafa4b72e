//! The JobSet of `jobset.x-k8s.io`: several Jobs that run together.

use super::keys::MULTIKUEUE_MANAGER;
use super::kind::{JobKind, Switch};
use super::pod_set_paths::{PodSetName, PodSetPaths};
use super::regular;
use super::status::{PodProgress, StateRules, StateSign};
use crate::fields::schema::{Shape, Type};
use crate::fields::{FieldPath, Fields, names};
use crate::kind::Kind;
use serde_json::{Map, Value, json};

/// Meridian takes jobs that name one of these controllers.
const MANAGERS: [&str; 2] = ["jobset.sigs.k8s.io/jobset-controller", MULTIKUEUE_MANAGER];
/// Longest name, because names of its Jobs and their pods begin with it.
const NAME_CHARS_MAX: usize = names::MAX_LABEL_CHARS;

pub(super) static JOB_SET: JobKind = JobKind {
    kind: Kind::JobSet,
    pod_sets: &[PodSetPaths {
        at: "/spec/replicatedJobs/*",
        name: PodSetName::At("/name"),
        template: "/template/spec/template",
        counts: &["/replicas", "/template/spec/parallelism"],
        completions: Some("/template/spec/completions"),
    }],
    find: None,
    size: None,
    suspend: Switch::Flag("/spec/suspend"),
    managed_by: "/spec/managedBy",
    managers: &MANAGERS,
    name_chars_max: NAME_CHARS_MAX,
    ttl: "/spec/ttlSecondsAfterFinished",
    deadline: None,
    spec: &SPEC,
    check,
    complete: |_| {},
    ignored: &[],
    states: StateRules {
        succeeded: StateSign::Condition("Completed"),
        failed: StateSign::Condition("Failed"),
        active: "/status/replicatedJobsStatus/*/active",
    },
    read: regular::read,
    write_progress,
};

static SPEC: Shape = Shape::of(&[
    ("coordinator", Type::Any),
    ("failurePolicy", Type::Any),
    ("managedBy", Type::Any),
    ("network", Type::Any),
    ("replicatedJobs", Type::List(&Type::Object(&REPLICATED_JOB))),
    ("startupPolicy", Type::Any),
    ("successPolicy", Type::Any),
    ("suspend", Type::Flag),
    ("ttlSecondsAfterFinished", Type::Any),
    ("volumeClaimPolicies", Type::Any),
]);
static REPLICATED_JOB: Shape = Shape::of(&[
    ("dependsOn", Type::Any),
    ("groupName", Type::Text),
    ("name", Type::Text),
    ("replicas", Type::Any),
    ("template", Type::Object(&JOB_TEMPLATE)),
]);
static JOB_TEMPLATE: Shape = Shape::of(&[("metadata", Type::Any), ("spec", Type::Object(&JOB_SPEC))]);
/// Fields of a Job's spec. The reader of pod templates checks these.
static JOB_SPEC: Shape = Shape::of(&[
    ("activeDeadlineSeconds", Type::Any),
    ("backoffLimit", Type::Any),
    ("backoffLimitPerIndex", Type::Any),
    ("completionMode", Type::Word(&["Indexed", "NonIndexed"])),
    ("completions", Type::Any),
    ("managedBy", Type::Any),
    ("manualSelector", Type::Any),
    ("maxFailedIndexes", Type::Any),
    ("parallelism", Type::Any),
    ("podFailurePolicy", Type::Any),
    ("podReplacementPolicy", Type::Any),
    ("selector", Type::Any),
    ("successPolicy", Type::Any),
    ("suspend", Type::Flag),
    ("template", Type::Any),
    ("ttlSecondsAfterFinished", Type::Any),
]);

/// A Job of a JobSet is named after the JobSet, its replicated job and its number, and its pods after the
/// Job: the longest name must fit a label.
fn check(root: &Fields<'_>) {
    let written = root.written();
    let name = written.get("metadata").and_then(|metadata| metadata["name"].as_str()).unwrap_or_default();
    let spec = written.get("spec");
    let jobs = spec.and_then(|spec| spec["replicatedJobs"].as_array()).into_iter().flatten();
    for (index, job) in jobs.enumerate() {
        let number = |pointer: &str| job.pointer(pointer).and_then(Value::as_u64).unwrap_or(1);
        let last = |count: u64| count.saturating_sub(1);
        let pods = number("/template/spec/parallelism").max(number("/template/spec/completions"));
        let set = job["name"].as_str().unwrap_or_default();
        let longest = format!("{name}-{set}-{}-{}", last(number("/replicas")), last(pods));
        if longest.len() > NAME_CHARS_MAX {
            let at = FieldPath::of("spec.replicatedJobs").index(index).key("name");
            root.findings().error(
                at,
                format!("pods would be named `{longest}`, which is longer than {NAME_CHARS_MAX} characters"),
                "shorten it, or the name of the JobSet",
            );
        }
        let policy = job.pointer("/template/spec/template/spec/restartPolicy");
        if policy.is_some_and(|policy| policy == "Always") {
            let at = FieldPath::of("spec.replicatedJobs").index(index);
            let at = at.key("template").key("spec").key("template").key("spec").key("restartPolicy");
            root.findings().error(at, "`Always` is not for Jobs", "write `Never` or `OnFailure`");
        }
    }
}

fn write_progress(status: &mut Map<String, Value>, progress: &PodProgress, manifest: &Value) {
    regular::write_progress(status, progress, manifest);
    let (running, succeeded) = (progress.is_seen_running(), progress.succeeded.is_some());
    let jobs = manifest.pointer("/spec/replicatedJobs").and_then(Value::as_array).into_iter().flatten();
    let one = |job: &Value| {
        let replicas = job["replicas"].as_u64().unwrap_or(1);
        let counted = |when: bool| if when { replicas } else { 0 };
        json!({
            "name": job["name"], "active": counted(running), "ready": counted(running), "failed": 0,
            "succeeded": counted(succeeded), "suspended": 0,
        })
    };
    status.insert("replicatedJobsStatus".to_owned(), jobs.map(one).collect());
}
