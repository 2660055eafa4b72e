//! The `batch/v1` Job.
//!
//! Counting follows Kueue: one pod set `main` of min(parallelism, completions) pods. [`crate::pod`] reads the
//! pod template, [`super::topology`] its topology request.

use super::keys::{MIN_PARALLELISM_ANNOTATION, REMOTE_MANAGERS};
use super::kind::{JobKind, SizePaths, Switch};
use super::metadata::read_metadata;
use super::pod_set_paths::{PodSetName, PodSetPaths};
use super::schema::{self, JOB_SPEC};
use super::status::{PodProgress, StateRules, StateSign};
use super::{CompletionMode, JobWorkload, MAX_PODS, POD_SET, pod_set_reader, topology};
use crate::fields::{FieldPath, Fields, Findings, names, scheduling};
use crate::kind::Kind;
use crate::pod;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Default of `backoffLimit`, as in Kubernetes.
const USUAL_BACKOFF_LIMIT: u32 = 6;

/// Meridian takes jobs that name one of these controllers.
const MANAGERS: [&str; 3] = ["kubernetes.io/job-controller", REMOTE_MANAGERS[0], REMOTE_MANAGERS[1]];
/// Longest name, in characters: pods carry it as a label.
const NAME_CHARS_MAX: usize = names::MAX_LABEL_CHARS;

pub(super) static JOB: JobKind = JobKind {
    kind: Kind::Job,
    pod_sets: &[PodSetPaths {
        at: "",
        name: PodSetName::Fixed(POD_SET),
        template: "/spec/template",
        counts: &["/spec/parallelism"],
        completions: Some("/spec/completions"),
    }],
    find: None,
    size: Some(SizePaths {
        parallelism: "/spec/parallelism",
        completions: "/spec/completions",
        indexed: ("/spec/completionMode", "Indexed"),
    }),
    suspend: Switch::Flag("/spec/suspend"),
    managed_by: "/spec/managedBy",
    managers: &MANAGERS,
    name_chars_max: NAME_CHARS_MAX,
    ttl: "/spec/ttlSecondsAfterFinished",
    deadline: Some("/spec/activeDeadlineSeconds"),
    spec: &JOB_SPEC,
    check: |_| {},
    complete: |_| {},
    ignored: IGNORED,
    states: StateRules {
        succeeded: StateSign::Condition("Complete"),
        failed: StateSign::Condition("Failed"),
        active: "/status/active",
    },
    read,
    write_progress,
};

/// Warning that a security context has no effect if a job runs as processes. It applies to containers.
pub(crate) const SECURITY_CONTEXT: &str = "processes run with the rights of the agent's user, and the \
    process runner refuses a job with `runAsUser`, `runAsGroup` or `runAsNonRoot`";

/// Fields without effect, and what happens instead.
const IGNORED: &[(&str, &str)] = &[
    (
        "spec.podFailurePolicy",
        "every failed pod counts against `backoffLimit`, and the process runner refuses the job",
    ),
    ("spec.successPolicy", "the job succeeds when all completions have, and the process runner refuses it"),
    (
        "spec.backoffLimitPerIndex",
        "failures are counted for the whole job, against `backoffLimit`, and the process runner refuses it",
    ),
    ("spec.maxFailedIndexes", "failures are counted for the whole job, against `backoffLimit`"),
    ("spec.podReplacementPolicy", "a failed pod is replaced when it has ended"),
    ("spec.template.spec.nodeName", "the cluster's agent chooses the nodes"),
    ("spec.template.spec.schedulingGates", "pods start although gates remain"),
    ("spec.template.spec.securityContext", SECURITY_CONTEXT),
    ("spec.template.spec.resourceClaims", "resource claims are not counted"),
    ("spec.template.spec.affinity.podAffinity", "pods are placed without regard to other pods"),
    ("spec.template.spec.affinity.podAntiAffinity", "pods are placed without regard to other pods"),
    ("spec.template.spec.topologySpreadConstraints", "pods are placed without regard to other pods"),
    (
        "spec.template.spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution",
        "the preference is ignored",
    ),
];

fn write_progress(status: &mut Map<String, Value>, progress: &PodProgress, manifest: &Value) {
    status.insert("failed".to_owned(), json!(progress.failed));
    if let Some(started) = &progress.started {
        status.insert("startTime".to_owned(), json!(started));
    }
    if progress.lost {
        status.insert("ready".to_owned(), json!(0));
    } else if progress.running {
        status.insert("active".to_owned(), json!(progress.pods));
        status.insert("ready".to_owned(), json!(progress.pods));
    }
    let (mut succeeded, mut indexes) = (u64::from(progress.completed.len()), progress.completed.to_string());
    if let Some(at) = &progress.succeeded {
        status.insert("completionTime".to_owned(), json!(at));
        // After a partial admission, fewer completions than in the spec may be enough.
        let is_partial = progress.reduced && progress.completed.is_empty();
        let completions = JOB.completions(manifest).and_then(Value::as_u64).filter(|_| !is_partial);
        succeeded = completions.unwrap_or_else(|| progress.pods.into());
        indexes = match succeeded {
            0 | 1 => "0".to_owned(),
            2 => "0,1".to_owned(),
            many => format!("0-{}", many - 1),
        };
    }
    if succeeded > 0 {
        status.insert("succeeded".to_owned(), json!(succeeded));
        if manifest.pointer("/spec/completionMode").is_some_and(|mode| mode == "Indexed") {
            status.insert("completedIndexes".to_owned(), json!(indexes));
        }
    }
}

fn read(
    kind: &JobKind,
    root: &Fields<'_>,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) -> JobWorkload {
    let mut job = JobWorkload { backoff_limit: USUAL_BACKOFF_LIMIT, ..JobWorkload::default() };
    read_metadata(root, labels, annotations, &mut job);
    let Some(spec) = root.require("spec").and_then(|item| item.fields()) else { return job };

    read_counts(&spec, &mut job);
    job.gang.active_deadline = pod_set_reader::seconds(&spec, "activeDeadlineSeconds", 1);
    pod_set_reader::read_run_time(root, labels, annotations, &mut job);
    job.ttl_after_finished = pod_set_reader::seconds(&spec, "ttlSecondsAfterFinished", 0);
    job.suspend = spec.flag("suspend");
    pod_set_reader::check_manager(kind, root);
    read_template(&spec, annotations, &mut job);
    spec.findings().in_job_spec(|| spec.check(kind.spec));
    let metadata = root.written().get("metadata");
    schema::check(&spec, metadata.and_then(|metadata| metadata.get("name")).and_then(Value::as_str));
    job
}

/// Reads the pod template, its topology request, and the fewest pods that the job accepts.
fn read_template(spec: &Fields<'_>, annotations: &BTreeMap<String, String>, job: &mut JobWorkload) {
    let findings = spec.findings();
    let least = least_pods(annotations, job.parallelism, findings);
    let Some(template) = spec.require("template").and_then(|item| item.fields()) else { return };
    if let Some(metadata) = template.fields("metadata") {
        scheduling::labels(&metadata, "labels");
        scheduling::annotations(&metadata);
    }
    if let Some(pod) = template.require("spec").and_then(|item| item.fields()) {
        findings.in_job_spec(|| read_pod(&pod, job));
    }
    for set in &mut job.gang.pod_sets {
        (set.topology, set.group) = topology::read(&template, set.count);
        set.min_count = least.filter(|least| *least < set.count);
        let sliced = set.topology.as_ref().is_some_and(|request| !request.slices.is_empty());
        if set.min_count.is_some() && sliced {
            set.min_count = None;
            findings.warn(
                FieldPath::of("metadata.annotations").key(MIN_PARALLELISM_ANNOTATION),
                "has no effect: pods in slices are only started all together",
                "remove it, or the slices",
            );
        }
    }
}

/// Fewest pods that the job accepts, if it states them.
fn least_pods(annotations: &BTreeMap<String, String>, parallelism: u32, findings: &Findings) -> Option<u32> {
    let text = annotations.get(MIN_PARALLELISM_ANNOTATION)?;
    let least = text.trim().parse::<u32>().ok().filter(|least| (1..parallelism).contains(least));
    if least.is_none() {
        let at = FieldPath::of("metadata.annotations").key(MIN_PARALLELISM_ANNOTATION);
        let remedy = match parallelism {
            0 | 1 => "remove it: a job of one pod can't be started in part".to_owned(),
            all => format!("write a whole number from 1 to {}, in quotes, or remove it", all - 1),
        };
        findings.error(at, format!("`{text}` is not a number of pods below `parallelism`"), remedy);
    }
    least
}

fn read_counts(spec: &Fields<'_>, job: &mut JobWorkload) {
    let count = |name: &'static str, min: i64| {
        spec.int(name, min, i64::from(MAX_PODS)).and_then(|count| u32::try_from(count).ok())
    };
    // Accept zero pods when reading stored jobs: a user has stopped such a job, and it requests nothing.
    let least = if spec.findings().is_lenient() { 0 } else { 1 };
    job.parallelism = count("parallelism", least).unwrap_or(1);
    job.completions = count("completions", 1);
    if job.completions.is_none() && spec.get("parallelism").is_none() {
        // Kubernetes sets both to one only if neither is written.
        job.completions = Some(1);
    }
    let modes = [("NonIndexed", CompletionMode::NonIndexed), ("Indexed", CompletionMode::Indexed)];
    job.completion_mode = spec.get("completionMode").and_then(|item| item.word(&modes)).unwrap_or_default();
    if job.completion_mode == CompletionMode::Indexed
        && spec.get("completions").is_none()
        && job.completions.is_none()
    {
        spec.error("completions", "is missing", "an `Indexed` job needs `completions`");
    }
    if let Some(limit) =
        spec.int("backoffLimit", 0, i64::from(i32::MAX)).and_then(|limit| u32::try_from(limit).ok())
    {
        job.backoff_limit = limit;
    }
}

fn read_pod(pod: &Fields<'_>, job: &mut JobWorkload) {
    let template = pod::read_submitted(pod);
    job.restarts_in_place = pod
        .get("restartPolicy")
        .and_then(|item| item.word(&[("Never", false), ("OnFailure", true)]))
        .unwrap_or(false);
    if pod.get("restartPolicy").is_none() {
        let remedy = "write `Never` or `OnFailure`; the default, `Always`, is not for Jobs";
        match pod.findings().is_submission() {
            true => pod.error("restartPolicy", "is missing", remedy),
            false => pod.warn("restartPolicy", "is missing and read as `Never`", remedy),
        }
    }
    job.grace_period = pod_set_reader::seconds(pod, "terminationGracePeriodSeconds", 0);
    job.pod_priority_class = template.priority_class.clone();
    job.containers = u32::try_from(template.containers.len()).unwrap_or(u32::MAX);
    job.has_command =
        !template.containers.is_empty() && template.containers.iter().all(|container| container.has_command);

    let count = job.completions.map_or(job.parallelism, |completions| completions.min(job.parallelism));
    job.gang.pod_sets = vec![pod_set_reader::pod_set(pod, &template, POD_SET, count)];
    job.templates = vec![template];
}
