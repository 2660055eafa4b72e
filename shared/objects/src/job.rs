//! From a Job to the gang that must start together, and what running it needs to know.
//!
//! Counting follows Kueue: one pod set `main` of min(parallelism, completions) pods. A pod's effective requests follow
//! the Kubernetes scheduler: the larger of what all its containers ask for together and what any init container asks
//! for while it runs, where restartable init containers (sidecars) stay and count with everything after them; plus the
//! pod's overhead. A limit is also the request where no request is written. Requests for the whole pod, where they are
//! written, replace the sum for those resources.

use crate::field::{FieldError, FieldPath, Fields, Findings, Item};
use crate::object::Object;
use crate::quantity;
use crate::spec::Spec;
use crate::spec::scheduling::{MAX_RULES, amounts, labels, requirement, toleration};
use meridian_shared::gang::{Amounts, Gang, PodSet, Requirement, Toleration, add_scaled};
use meridian_shared::ids::Region;
use meridian_shared::time::Millis;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The label that names a job's local queue.
pub const QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";
/// The label that names a job's workload priority class.
pub const PRIORITY_LABEL: &str = "kueue.x-k8s.io/priority-class";
/// The label that bounds a job's run time in seconds.
pub const MAX_EXEC_LABEL: &str = "kueue.x-k8s.io/max-exec-time-seconds";
/// The annotation that bounds, in seconds, how long a provider gives the machines.
pub const MAX_RUN_ANNOTATION: &str = "provreq.kueue.x-k8s.io/maxRunDurationSeconds";
/// The annotation or label that narrows a job to regions, separated by commas.
pub const REGION_KEY: &str = "meridian.dev/region";
/// The name of a Job's pod set, as Kueue calls it.
pub const POD_SET: &str = "main";

/// Most pods of a gang: more than the largest cluster has nodes, and every sum stays far from overflow.
const MAX_PODS: i64 = 100_000;
/// Most containers of a pod that are read.
const MAX_CONTAINERS: usize = 100;
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
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobWorkload {
    /// What must start together.
    pub gang: Gang,
    /// The local queue.
    pub queue: String,
    /// The workload priority class, where one is named.
    pub priority_class: Option<String>,
    /// The pods' priority class, where one is named.
    pub pod_priority_class: Option<String>,
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
}

/// The workload of a Job object.
pub fn job_to_workload(object: &Object) -> Result<JobWorkload, Vec<FieldError>> {
    match &object.spec {
        Spec::Job(job) => Ok((**job).clone()),
        _ => Err(vec![FieldError::new(FieldPath::of("kind"), format!("a {} is not a Job", object.kind), "submit a Job")]),
    }
}

/// Reads a Job's spec.
pub(crate) fn read(root: &Fields<'_>, labels: &BTreeMap<String, String>, annotations: &BTreeMap<String, String>) -> JobWorkload {
    let findings = root.findings();
    let mut job = JobWorkload { backoff_limit: USUAL_BACKOFF_LIMIT, ..JobWorkload::default() };
    job.queue = queue(labels, annotations, findings);
    job.priority_class = labels.get(PRIORITY_LABEL).filter(|class| !class.is_empty()).cloned();
    job.regions = regions(labels, annotations, findings);
    let Some(spec) = root.require("spec").and_then(|item| item.fields()) else { return job };

    read_counts(&spec, &mut job);
    job.ttl_after_finished = seconds(&spec, "ttlSecondsAfterFinished", 0);
    job.suspend = spec.flag("suspend");
    if let Some(manager) = spec.text("managedBy").filter(|manager| !MANAGERS.contains(manager)) {
        spec.error("managedBy", format!("`{manager}` would run this job, not Meridian"), format!("remove it, or write `{}`", MANAGERS[1]));
    }
    let bounds = [
        seconds(&spec, "activeDeadlineSeconds", 1),
        seconds_in("metadata.annotations", MAX_RUN_ANNOTATION, annotations, findings),
        seconds_in("metadata.labels", MAX_EXEC_LABEL, labels, findings),
    ];
    job.gang.max_run = bounds.into_iter().flatten().min();
    spec.known(&["podFailurePolicy", "successPolicy", "backoffLimitPerIndex", "maxFailedIndexes", "podReplacementPolicy", "selector", "manualSelector"]);
    if let Some(template) = spec.require("template").and_then(|item| item.fields()) {
        template.known(&["metadata"]);
        if let Some(pod) = template.require("spec").and_then(|item| item.fields()) {
            read_pod(pod, &mut job);
        }
        template.finish();
    }
    spec.finish();
    job
}

fn queue(labels: &BTreeMap<String, String>, annotations: &BTreeMap<String, String>, findings: &Findings) -> String {
    match labels.get(QUEUE_LABEL).filter(|queue| !queue.is_empty()) {
        Some(queue) => queue.clone(),
        None => {
            let remedy = match annotations.get(QUEUE_LABEL) {
                Some(queue) => format!("move it from the annotations to the labels: `{QUEUE_LABEL}: {queue}`"),
                None => format!("name the job's local queue: `{QUEUE_LABEL}: QUEUE`"),
            };
            findings.error(FieldPath::of("metadata.labels").key(QUEUE_LABEL), "is missing, so the job has no queue", remedy);
            String::new()
        }
    }
}

fn regions(labels: &BTreeMap<String, String>, annotations: &BTreeMap<String, String>, findings: &Findings) -> BTreeSet<Region> {
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
    let all: BTreeSet<Region> = wish.split(',').map(str::trim).filter(|region| !region.is_empty()).map(Region::new).collect();
    // an empty wish must not read as "anywhere": somebody meant to narrow
    if all.is_empty() {
        findings.error(at, "names no region", "name regions, separated by commas, or remove it");
    } else if all.len() > MAX_REGIONS {
        findings.error(at, format!("names {} regions", all.len()), format!("the most is {MAX_REGIONS}"));
    }
    all
}

fn read_counts(spec: &Fields<'_>, job: &mut JobWorkload) {
    let count = |name: &'static str, min: i64| spec.int(name, min, MAX_PODS).and_then(|count| u32::try_from(count).ok());
    job.parallelism = count("parallelism", 1).unwrap_or(1);
    job.completions = count("completions", 1);
    if job.completions.is_none() && spec.get("parallelism").is_none() {
        // Kubernetes defaults both to one only when neither is written
        job.completions = Some(1);
    }
    let modes = [("NonIndexed", CompletionMode::NonIndexed), ("Indexed", CompletionMode::Indexed)];
    job.completion_mode = spec.get("completionMode").and_then(|item| item.word(&modes)).unwrap_or_default();
    if job.completion_mode == CompletionMode::Indexed && job.completions.is_none() {
        spec.error("completions", "is missing", "an `Indexed` job needs `completions`");
    }
    if let Some(limit) = spec.int("backoffLimit", 0, i64::from(i32::MAX)).and_then(|limit| u32::try_from(limit).ok()) {
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
            findings.error(at, format!("`{text}` is not a number of seconds"), "write a positive whole number in quotes, such as \"600\"");
            None
        }
    }
}

fn read_pod(pod: Fields<'_>, job: &mut JobWorkload) {
    pod.known(KNOWN_POD_FIELDS);
    let containers = pod.list("containers", MAX_CONTAINERS, |item| read_container(&item));
    if containers.is_empty() && !pod.findings().has_errors() {
        pod.error("containers", "is missing", "list at least one container");
    }
    let init = pod.list("initContainers", MAX_CONTAINERS, |item| read_container(&item));
    let mut names = BTreeSet::new();
    for container in init.iter().chain(&containers).filter(|container| !names.insert(container.name.as_str())) {
        pod.error("containers", format!("the name `{}` is there twice", container.name), "give every container a name of its own");
    }
    let whole_pod = pod.fields("resources").map(read_resources);
    let overhead = amounts(&pod, "overhead");

    job.restarts_in_place = pod.get("restartPolicy").and_then(|item| item.word(&[("Never", false), ("OnFailure", true)])).unwrap_or(false);
    if pod.get("restartPolicy").is_none() {
        pod.warn("restartPolicy", "is missing and read as `Never`", "write `restartPolicy: Never`; Kubernetes refuses a Job without");
    }
    job.grace_period = seconds(&pod, "terminationGracePeriodSeconds", 0);
    job.pod_priority_class = pod.text("priorityClassName").filter(|class| !class.is_empty()).map(str::to_owned);
    job.containers = u32::try_from(containers.len()).unwrap_or(u32::MAX);
    job.has_command = !containers.is_empty() && containers.iter().all(|container| container.has_command);

    let count = job.completions.map_or(job.parallelism, |completions| completions.min(job.parallelism));
    job.gang.pod_sets = vec![PodSet {
        name: POD_SET.to_owned(),
        count,
        per_pod: effective_requests(&containers, &init, whole_pod.as_ref(), &overhead),
        node_selector: labels(&pod, "nodeSelector"),
        affinity: read_affinity(&pod),
        tolerations: pod.list("tolerations", MAX_RULES, |item: Item<'_>| -> Option<Toleration> { toleration(&item) }),
    }];
    for (resource, amount) in &job.gang.pod_sets[0].per_pod {
        if amount.checked_mul(i64::from(count)).is_none() {
            let each = quantity::format(resource, *amount);
            pod.error("containers", format!("{count} pods of `{each}` `{resource}` are too much to count"), "ask for less");
        }
    }
    pod.finish();
}

/// Pod fields that the cluster's runner gives meaning to, and that nothing here looks at.
const KNOWN_POD_FIELDS: &[&str] = &[
    "activeDeadlineSeconds",
    "automountServiceAccountToken",
    "dnsConfig",
    "dnsPolicy",
    "enableServiceLinks",
    "ephemeralContainers",
    "hostAliases",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostUsers",
    "hostname",
    "hostnameOverride",
    "imagePullSecrets",
    "nodeName",
    "os",
    "preemptionPolicy",
    "priority",
    "readinessGates",
    "resourceClaims",
    "runtimeClassName",
    "schedulerName",
    "schedulingGates",
    "securityContext",
    "serviceAccount",
    "serviceAccountName",
    "setHostnameAsFQDN",
    "shareProcessNamespace",
    "subdomain",
    "topologySpreadConstraints",
    "volumes",
];

/// Container fields of the same sort.
const KNOWN_CONTAINER_FIELDS: &[&str] = &[
    "args",
    "env",
    "envFrom",
    "image",
    "imagePullPolicy",
    "lifecycle",
    "livenessProbe",
    "ports",
    "readinessProbe",
    "resizePolicy",
    "restartPolicyRules",
    "securityContext",
    "startupProbe",
    "stdin",
    "stdinOnce",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "tty",
    "volumeDevices",
    "volumeMounts",
    "workingDir",
];

struct Container {
    name: String,
    requests: Amounts,
    has_command: bool,
    /// An init container that goes on running (`restartPolicy: Always`).
    sidecar: bool,
}

fn read_container(item: &Item<'_>) -> Option<Container> {
    let fields = item.fields()?;
    fields.known(KNOWN_CONTAINER_FIELDS);
    let name = fields.require_text("name").unwrap_or_default().to_owned();
    let requests = fields.fields("resources").map(read_resources).unwrap_or_default();
    let command = fields.list("command", usize::MAX, |item| item.text().map(|_| ()));
    let words = [("Always", true), ("Never", false), ("OnFailure", false)];
    let sidecar = fields.get("restartPolicy").and_then(|item| item.word(&words)).unwrap_or(false);
    fields.finish();
    Some(Container { name, requests, has_command: !command.is_empty(), sidecar })
}

/// Requests, with limits where no request is written.
fn read_resources(resources: Fields<'_>) -> Amounts {
    resources.known(&["claims"]);
    let limits = amounts(&resources, "limits");
    let mut requests = amounts(&resources, "requests");
    for (resource, request) in &requests {
        let Some(limit) = limits.get(resource) else { continue };
        // devices and huge pages cannot be overcommitted, so Kubernetes wants both alike
        let alike = resource.starts_with("hugepages-") || resource.contains('/');
        let at = || resources.path().key("requests").key(resource);
        if alike && request != limit {
            resources.findings().error(at(), format!("must equal the limit of `{resource}`"), "write the same amount in both places");
        } else if request > limit {
            let most = quantity::format(resource, *limit);
            resources.findings().error(at(), format!("is more than the limit of `{resource}`"), format!("write at most `{most}`"));
        }
    }
    for (resource, limit) in limits {
        requests.entry(resource).or_insert(limit);
    }
    resources.finish();
    requests
}

fn effective_requests(containers: &[Container], init: &[Container], whole_pod: Option<&Amounts>, overhead: &Amounts) -> Amounts {
    let mut sidecars = Amounts::new();
    let mut while_starting = Amounts::new();
    for container in init {
        let mut now = sidecars.clone();
        add_scaled(&mut now, &container.requests, 1);
        for (resource, amount) in &now {
            let most = while_starting.entry(resource.clone()).or_insert(0);
            *most = (*most).max(*amount);
        }
        if container.sidecar {
            sidecars = now;
        }
    }
    let mut total = sidecars;
    for container in containers {
        add_scaled(&mut total, &container.requests, 1);
    }
    for (resource, amount) in while_starting {
        let most = total.entry(resource).or_insert(0);
        *most = (*most).max(amount);
    }
    if let Some(whole_pod) = whole_pod {
        total.extend(whole_pod.iter().map(|(resource, amount)| (resource.clone(), *amount)));
    }
    add_scaled(&mut total, overhead, 1);
    // nothing of a resource is the same as not naming it, and must not ask a queue to cover it
    total.retain(|_, amount| *amount > 0);
    total
}

/// The required terms of the pod's node affinity.
fn read_affinity(pod: &Fields<'_>) -> Vec<Vec<Requirement>> {
    let Some(affinity) = pod.fields("affinity") else { return Vec::new() };
    affinity.known(&["podAffinity", "podAntiAffinity"]);
    let terms = affinity.fields("nodeAffinity").map(|node| {
        node.known(&["preferredDuringSchedulingIgnoredDuringExecution"]);
        let terms = node.fields("requiredDuringSchedulingIgnoredDuringExecution").map(|required| {
            let terms = required.list("nodeSelectorTerms", MAX_RULES, |item| {
                let term = item.fields()?;
                let mut requirements = term.list("matchExpressions", MAX_RULES, |item| requirement(&item, true));
                // names of nodes are a label to whoever packs: every Kubernetes node carries its own
                for mut field in term.list("matchFields", MAX_RULES, |item| requirement(&item, true)) {
                    if field.key != "metadata.name" {
                        item.error(format!("`{}` cannot be matched", field.key), "`metadata.name` is the only field");
                    }
                    "kubernetes.io/hostname".clone_into(&mut field.key);
                    requirements.push(field);
                }
                term.finish();
                Some(requirements)
            });
            if terms.is_empty() && !required.findings().has_errors() {
                required.error("nodeSelectorTerms", "is missing", "list at least one term");
            }
            required.finish();
            // Kubernetes: a term without requirements matches nothing, so it adds nothing to the alternatives
            let written = terms.len();
            let terms: Vec<_> = terms.into_iter().filter(|term| !term.is_empty()).collect();
            if terms.is_empty() && written > 0 {
                node.error("requiredDuringSchedulingIgnoredDuringExecution", "matches no node", "give a term at least one requirement");
            }
            terms
        });
        node.finish();
        terms.unwrap_or_default()
    });
    affinity.finish();
    terms.unwrap_or_default()
}

#[cfg(test)]
mod tests;
