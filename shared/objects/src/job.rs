//! From a Job to the gang that must start together, and what running it needs to know.
//!
//! Counting follows Kueue: one pod set `main` of min(parallelism, completions) pods. What one pod asks for is counted in
//! [`crate::pod`], how near its pods want to be is read in [`topology`].

pub mod simulated;
mod state;
pub mod topology;

use self::simulated::Wrong;
pub use self::simulated::{
    SIMULATED_DURATION, SIMULATED_EXIT_CODE, SIMULATED_FAIL_FIRST, SIMULATED_STAGGER, Simulated,
};
pub use self::state::state;

use crate::field::{FieldError, FieldPath, Fields, Findings};
use crate::object::Object;
use crate::pod::{self, PodTemplate};
use crate::quantity;
use crate::spec::Spec;
use crate::suggest;
use meridian_shared::gang::{Gang, PodSet};
use meridian_shared::ids::Region;
use meridian_shared::time::Millis;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The label that names a job's local queue.
pub const QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";
/// The label that names a job's workload priority class.
pub const PRIORITY_LABEL: &str = "kueue.x-k8s.io/priority-class";
/// The workload priority class of jobs that name none.
pub const USUAL_PRIORITY_CLASS: &str = "default";
/// Priority classes that every Kubernetes cluster has.
pub const SYSTEM_PRIORITIES: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];
/// The label that bounds a job's run time in seconds.
pub const MAX_EXEC_LABEL: &str = "kueue.x-k8s.io/max-exec-time-seconds";
/// The annotation that bounds, in seconds, how long a provider gives the machines.
pub const MAX_RUN_ANNOTATION: &str = "provreq.kueue.x-k8s.io/maxRunDurationSeconds";
/// The annotation that says how few pods at a time will do.
pub const MIN_PARALLELISM_ANNOTATION: &str = "kueue.x-k8s.io/job-min-parallelism";
/// The annotation or label that narrows a job to regions, separated by commas.
pub const REGION_KEY: &str = "meridian.dev/region";
/// The annotation by which a submission that is sent again is known.
pub const SUBMISSION_ANNOTATION: &str = "meridian.dev/submission";
/// The label that is shown on what belongs to one cluster.
pub const CLUSTER_LABEL: &str = "meridian.dev/cluster";
/// The name of a Job's pod set, as Kueue calls it.
pub const POD_SET: &str = "main";

/// Domains of our own keys.
const OUR_DOMAINS: [&str; 2] = ["meridian.dev", "simulated.meridian.dev"];
/// Domains of the labels and annotations by which something is decided, and of those below them.
const DECIDING_DOMAINS: [&str; 2] = ["kueue.x-k8s.io", "meridian.dev"];
/// Our own annotations of a job.
const OUR_ANNOTATIONS: [&str; 6] = [
    REGION_KEY,
    SUBMISSION_ANNOTATION,
    SIMULATED_DURATION,
    SIMULATED_STAGGER,
    SIMULATED_EXIT_CODE,
    SIMULATED_FAIL_FIRST,
];
/// Our own labels of a job.
const OUR_LABELS: [&str; 2] = [REGION_KEY, CLUSTER_LABEL];
/// Most pods of a gang: more than the largest cluster has nodes, and every sum stays far from overflow.
pub const MAX_PODS: u32 = 100_000;
/// Most regions that a job may name.
const MAX_REGIONS: usize = 100;
/// Retries of a Job that states none, as in Kubernetes.
const USUAL_BACKOFF_LIMIT: u32 = 6;
/// Who may manage a job: nobody in particular, Kubernetes itself, or MultiKueue, which we stand in for.
const MANAGERS: [&str; 2] = ["kubernetes.io/job-controller", "kueue.x-k8s.io/multikueue"];

/// How a Job counts its pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CompletionMode {
    /// Any `completions` successes.
    #[default]
    NonIndexed,
    /// One success for every index.
    Indexed,
}

/// What Meridian needs to know about a Job.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobWorkload {
    /// What must start together.
    pub gang: Gang,
    /// The local queue.
    pub queue: String,
    /// The workload priority class, where one is named.
    pub priority_class: Option<String>,
    /// The pods' priority class, where one is named.
    pub pod_priority_class: Option<String>,
    /// Once its run time is up it is deactivated and hasn't failed: its maximum execution time is shorter than any other bound.
    pub deactivates_when_up: bool,
    /// Pods that may fail before the job has failed.
    pub backoff_limit: u32,
    /// How long the finished job is kept; `None` leaves it to the manager.
    pub ttl_after_finished: Option<Millis>,
    /// Successes that end the job; `None` when any success does.
    pub completions: Option<u32>,
    /// Pods at a time, as written.
    pub parallelism: u32,
    /// How pods are counted.
    pub completion_mode: CompletionMode,
    /// Whether the job is written suspended. A queue starts it all the same, as in Kueue.
    pub suspend: bool,
    /// Time a pod is given to stop; `None` leaves it to the cluster.
    pub grace_period: Option<Millis>,
    /// Containers of a pod, without init containers.
    pub containers: u32,
    /// Whether every container says what to run (`command`), which running it as a process needs.
    pub has_command: bool,
    /// Regions that the submitter narrows the job to; empty does not narrow.
    pub regions: BTreeSet<Region>,
    /// Whether pods restart in place (`restartPolicy: OnFailure`).
    pub restarts_in_place: bool,
    /// What its pods are made from, without their labels and annotations.
    pub template: PodTemplate,
}

/// Whether something is decided by a label or annotation of this key: such a one is part of what a job asks for.
pub fn decides(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    DECIDING_DOMAINS
        .iter()
        .any(|of| domain.strip_suffix(of).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

/// The workload of a Job object.
pub fn job_to_workload(object: &Object) -> Result<JobWorkload, Vec<FieldError>> {
    match &object.spec {
        Spec::Job(job) => Ok((**job).clone()),
        _ => Err(vec![FieldError::new(
            FieldPath::of("kind"),
            format!("a {} is not a Job", object.kind),
            "submit a Job",
        )]),
    }
}

/// Reads a Job's spec.
pub(crate) fn read(
    root: &Fields<'_>,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) -> JobWorkload {
    let findings = root.findings();
    let mut job = JobWorkload { backoff_limit: USUAL_BACKOFF_LIMIT, ..JobWorkload::default() };
    job.queue = queue(labels, annotations, findings);
    job.priority_class = labels.get(PRIORITY_LABEL).filter(|class| !class.is_empty()).cloned();
    job.regions = regions(labels, annotations, findings);
    our_keys(root, findings);
    for (all, room, keys, right) in [
        (annotations, "metadata.annotations", [PRIORITY_LABEL, MAX_EXEC_LABEL], "metadata.labels"),
        (labels, "metadata.labels", [MAX_RUN_ANNOTATION, MIN_PARALLELISM_ANNOTATION], "metadata.annotations"),
    ] {
        for key in keys.into_iter().filter(|key| all.contains_key(*key)) {
            findings.warn(
                FieldPath::of(room).key(key),
                "is not read here",
                format!("write it into the job's `{right}`"),
            );
        }
    }
    for Wrong { key, written, wanted, remedy } in Simulated::read(annotations).1 {
        findings.error(
            FieldPath::of("metadata.annotations").key(key),
            format!("`{written}` is no {wanted}"),
            remedy,
        );
    }
    let Some(spec) = root.require("spec").and_then(|item| item.fields()) else { return job };

    read_counts(&spec, &mut job);
    let least = least_pods(annotations, job.parallelism, findings);
    job.ttl_after_finished = seconds(&spec, "ttlSecondsAfterFinished", 0);
    job.suspend = spec.flag("suspend");
    if let Some(manager) = spec.text("managedBy").filter(|manager| !MANAGERS.contains(manager)) {
        spec.error(
            "managedBy",
            format!("`{manager}` would run this job, not Meridian"),
            format!("remove it, or write `{}`", MANAGERS[1]),
        );
    }
    let fails = [
        seconds(&spec, "activeDeadlineSeconds", 1),
        seconds_in("metadata.annotations", MAX_RUN_ANNOTATION, annotations, findings),
    ];
    let fails = fails.into_iter().flatten().min();
    let deactivates = seconds_in("metadata.labels", MAX_EXEC_LABEL, labels, findings);
    job.gang.max_run = fails.into_iter().chain(deactivates).min();
    job.deactivates_when_up = deactivates.is_some_and(|up| fails.is_none_or(|end| up < end));
    spec.known(&[
        "podFailurePolicy",
        "successPolicy",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
        "podReplacementPolicy",
        "selector",
        "manualSelector",
    ]);
    if let Some(template) = spec.require("template").and_then(|item| item.fields()) {
        template.known(&["metadata"]);
        if let Some(pod) = template.require("spec").and_then(|item| item.fields()) {
            read_pod(pod, &mut job);
        }
        for set in &mut job.gang.pod_sets {
            (set.topology, set.group) = topology::read(&template, set.count);
            set.min_count = least.filter(|least| *least < set.count);
            if set.min_count.is_some()
                && set.topology.as_ref().is_some_and(|request| !request.slices.is_empty())
            {
                set.min_count = None;
                let at = FieldPath::of("metadata.annotations").key(MIN_PARALLELISM_ANNOTATION);
                findings.warn(
                    at,
                    "pods that lie in slices are not started in part",
                    "remove it, or the slices",
                );
            }
        }
        template.finish();
    }
    spec.finish();
    job
}

/// Fewest pods that do, where the job says so.
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

fn queue(
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
    findings: &Findings,
) -> String {
    match labels.get(QUEUE_LABEL).filter(|queue| !queue.is_empty()) {
        Some(queue) => queue.clone(),
        None => {
            let remedy = match annotations.get(QUEUE_LABEL) {
                Some(queue) => {
                    format!("move it from the annotations to the labels: `{QUEUE_LABEL}: {queue}`")
                }
                None => format!("name the job's local queue: `{QUEUE_LABEL}: QUEUE`"),
            };
            let at = FieldPath::of("metadata.labels").key(QUEUE_LABEL);
            if findings.is_lenient() {
                findings.warn(at, "is missing: no queue has this job, and it is left out", remedy);
            } else {
                findings.error(at, "is missing, so the job has no queue", remedy);
            }
            String::new()
        }
    }
}

fn regions(
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
    findings: &Findings,
) -> BTreeSet<Region> {
    let (Some(wish), at) = (match (annotations.get(REGION_KEY), labels.get(REGION_KEY)) {
        (Some(annotation), Some(label)) if annotation != label => {
            let at = FieldPath::of("metadata.labels").key(REGION_KEY);
            findings.error(at.clone(), "differs from the annotation of the same name", "keep one of them");
            (None, at)
        }
        (Some(annotation), _) => (Some(annotation), FieldPath::of("metadata.annotations").key(REGION_KEY)),
        (None, label) => (label, FieldPath::of("metadata.labels").key(REGION_KEY)),
    }) else {
        return BTreeSet::new();
    };
    let all: BTreeSet<Region> =
        wish.split(',').map(str::trim).filter(|region| !region.is_empty()).map(Region::new).collect();
    // an empty wish must not read as "anywhere": somebody meant to narrow
    if all.is_empty() {
        findings.error(at, "names no region", "name regions, separated by commas, or remove it");
    } else if all.len() > MAX_REGIONS {
        findings.error(at, format!("names {} regions", all.len()), format!("the most is {MAX_REGIONS}"));
    }
    all
}

/// A key of ours that is mistyped, or stands where nobody reads it, would narrow nothing: an error, as for unknown fields of our
/// own kinds.
fn our_keys(root: &Fields<'_>, findings: &Findings) {
    let keys = |top: &'static str, path: &[&str]| -> Vec<String> {
        let found = path
            .iter()
            .try_fold(root.get(top).map(|item| item.value()), |value, step| Some(value?.get(step)));
        found.flatten().and_then(Value::as_object).into_iter().flatten().map(|(key, _)| key.clone()).collect()
    };
    let ours = |key: &&String| {
        key.split_once('/')
            .is_some_and(|(domain, _)| OUR_DOMAINS.iter().any(|ours| domain.eq_ignore_ascii_case(ours)))
    };
    let places: [(&str, &[&str], &[&str]); 4] = [
        ("metadata", &["annotations"], &OUR_ANNOTATIONS),
        ("metadata", &["labels"], &OUR_LABELS),
        ("spec", &["template", "metadata", "annotations"], &[]),
        ("spec", &["template", "metadata", "labels"], &[]),
    ];
    for (top, path, known) in places {
        for key in keys(top, path).iter().filter(ours).filter(|key| !known.contains(&key.as_str())) {
            let at = path.iter().fold(FieldPath::of(top), |at, step| at.key(*step)).key(key);
            let (elsewhere, near) =
                (OUR_ANNOTATIONS.contains(&key.as_str()), suggest::nearest(key, OUR_ANNOTATIONS));
            let remedy = match near {
                _ if elsewhere => "write it into the job's own `metadata.annotations`".to_owned(),
                Some(near) => format!("did you mean the annotation `{near}`?"),
                None => format!(
                    "remove it; the annotations of a job that we know are {}",
                    OUR_ANNOTATIONS.join(", ")
                ),
            };
            let message = if elsewhere {
                "is not read here"
            } else {
                "is not a key that we know, and would do nothing"
            };
            findings.error(at, message, remedy);
        }
    }
}

fn read_counts(spec: &Fields<'_>, job: &mut JobWorkload) {
    let count = |name: &'static str, min: i64| {
        spec.int(name, min, i64::from(MAX_PODS)).and_then(|count| u32::try_from(count).ok())
    };
    // A job that is to have no pods is one that somebody has stopped, and it asks for nothing.
    let least = if spec.findings().is_lenient() { 0 } else { 1 };
    job.parallelism = count("parallelism", least).unwrap_or(1);
    job.completions = count("completions", 1);
    if job.completions.is_none() && spec.get("parallelism").is_none() {
        // Kubernetes defaults both to one only when neither is written
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

fn seconds(fields: &Fields<'_>, name: &'static str, min: i64) -> Option<Millis> {
    let seconds = fields.int(name, min, i64::from(i32::MAX))?;
    u64::try_from(seconds).ok().map(Millis::secs)
}

/// Seconds in a label or annotation, which can only hold text.
fn seconds_in(room: &str, key: &str, all: &BTreeMap<String, String>, findings: &Findings) -> Option<Millis> {
    let text = all.get(key)?;
    match text.parse::<i32>() {
        Ok(seconds) if seconds > 0 => Some(Millis::secs(u64::from(seconds.unsigned_abs()))),
        _ => {
            let at = FieldPath::of(room).key(key);
            findings.error(
                at,
                format!("`{text}` is not a number of seconds"),
                "write a positive whole number in quotes, such as \"600\"",
            );
            None
        }
    }
}

fn read_pod(pod: Fields<'_>, job: &mut JobWorkload) {
    let template = pod::read_spec(&pod);
    job.restarts_in_place = pod
        .get("restartPolicy")
        .and_then(|item| item.word(&[("Never", false), ("OnFailure", true)]))
        .unwrap_or(false);
    if pod.get("restartPolicy").is_none() {
        pod.warn(
            "restartPolicy",
            "is missing and read as `Never`",
            "write `restartPolicy: Never`; Kubernetes refuses a Job without",
        );
    }
    job.grace_period = seconds(&pod, "terminationGracePeriodSeconds", 0);
    job.pod_priority_class = template.priority_class.clone();
    job.containers = u32::try_from(template.containers.len()).unwrap_or(u32::MAX);
    job.has_command =
        !template.containers.is_empty() && template.containers.iter().all(|container| container.has_command);

    let count = job.completions.map_or(job.parallelism, |completions| completions.min(job.parallelism));
    let mut per_pod = template.requests();
    // nothing of a resource is the same as not naming it, and must not ask a queue to cover it
    per_pod.retain(|_, amount| *amount > 0);
    for (resource, amount) in &per_pod {
        if amount.checked_mul(i64::from(count)).is_none() {
            let each = quantity::format(resource, *amount);
            pod.error(
                "containers",
                format!("{count} pods of `{each}` `{resource}` are too much to count"),
                "ask for less",
            );
        }
    }
    job.gang.pod_sets = vec![PodSet {
        name: POD_SET.to_owned(),
        count,
        per_pod,
        node_selector: template.node_selector.clone(),
        affinity: template.affinity.clone(),
        tolerations: template.tolerations.clone(),
        ..PodSet::default()
    }];
    job.template = template;
    pod.finish();
}

#[cfg(test)]
mod tests;
