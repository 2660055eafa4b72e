//! The job that is created in the cluster: the user's manifest, without what belongs to the manager's API,
//! suspended, marked, and sized as granted. A group of pods has no object of its own; its first pod stands
//! for it.

use super::notes::Notes;
use crate::facts::PodFacts;
use crate::hub::Booking;
use crate::labels::{
    self, ATTEMPT, CONSUMED_CLASS, CONSUMES, FENCE, GATE, GROUP, GROUP_SIZE, MANAGED_BY, NOTES, OFFER,
    ORIGIN, OWNED, POD_SET, RunKey, UID,
};
use crate::shape;
use meridian_agent_core::runtime::Start;
use meridian_objects::job::{self, CONTROLLER_LABELS, JobKind};
use meridian_shared::time::Millis;
use serde_json::{Map, Value, json};

/// Kubernetes' default for `backoffLimit`.
const BACKOFF_LIMIT_DEFAULT: u64 = 6;
/// Labels and annotations with this prefix are meant for Kueue in the management cluster.
const KUEUE_PREFIX: &str = "kueue.x-k8s.io/";
/// Kueue's annotation that keeps completions equal to parallelism.
const COMPLETIONS_FOLLOW: &str = "kueue.x-k8s.io/job-completions-equal-parallelism";

/// The job to create, and the patch that starts it later.
#[derive(Clone, Debug)]
pub(super) struct Built {
    pub(super) kind: &'static JobKind,
    pub(super) manifest: Value,
    /// The pods of a group except the first one.
    pub(super) others: Vec<Value>,
    pub(super) notes: Notes,
    /// The patch that resumes the job.
    pub(super) resume: Value,
}

/// Limits a start to the time that is left on its machines. The time counts since they were provisioned. At
/// its end the provider takes the machines back, even if a gang runs on them.
pub(super) fn within(start: Start, machine_time_left: Millis) -> Start {
    let run_left = start.run_left.map_or(machine_time_left, |left| left.min(machine_time_left));
    Start { run_left: Some(run_left), ..start }
}

/// Builds the job for a start, on the nodes that were booked for it, if any were. Fails if the manifest is
/// not that of a job.
pub(super) fn build(start: &Start, cluster: &str, booking: Option<&Booking>) -> Result<Built, String> {
    let job: Value = serde_json::from_str(&start.spec).map_err(|error| format!("it is not JSON: {error}"))?;
    let kind = job::of_object(&job);
    if !job.get("spec").is_some_and(Value::is_object) {
        return Err("it has no spec".to_owned());
    }
    let resume = kind.resuming_patch(&job);
    let ttl = kind.ttl_seconds(&job).map(Millis::secs);
    let notes = Notes { ttl, ..Notes::of(start) };
    let mut made = kind.for_cluster(job);
    if kind.can_be_scaled() {
        fit_to_grant(&mut made, start);
    }
    let key = (start.uid, start.fence);
    if kind.is_pod_group() {
        let (manifest, others) = group(start, kind, &mut made, cluster, booking, &notes)?;
        return Ok(Built { kind, manifest, others, notes, resume });
    }
    let sets = kind.pod_sets(&made);
    if sets.is_empty() {
        return Err("it has no pod template".to_owned());
    }
    for set in sets {
        let template = made.pointer_mut(&set.template).and_then(Value::as_object_mut);
        let template = template.ok_or("it has no pod template")?;
        mark_template(template, key, cluster, &set.name);
        consume(template, &set.name, booking);
    }
    let mut labels = kept(made.pointer("/metadata/labels"));
    mark(&mut labels, key, cluster);
    let mut annotations = kept(made.pointer("/metadata/annotations"));
    mark_job(&mut labels, &mut annotations, start, &notes);
    let manifest = json!({
        "apiVersion": kind.api_version(),
        "kind": kind.name(),
        "metadata": {
            "name": &*start.name,
            "namespace": &*start.namespace,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": made["spec"].take(),
    });
    Ok(Built { kind, manifest, others: Vec::new(), notes, resume })
}

/// The pods of a group: the first one, which is marked as the job, and the others.
fn group(
    start: &Start,
    kind: &JobKind,
    made: &mut Value,
    cluster: &str,
    booking: Option<&Booking>,
    notes: &Notes,
) -> Result<(Value, Vec<Value>), String> {
    let mut pods = Vec::new();
    let members = kind.group_pods(made);
    let size = members.len();
    for member in members {
        let pod = made.pointer_mut(&member.at).and_then(Value::as_object_mut);
        let pod = pod.ok_or("a pod of the group is not a JSON object")?;
        mark_template(pod, (start.uid, start.fence), cluster, &member.pod_set);
        consume(pod, &member.pod_set, booking);
        let metadata = pod.get("metadata");
        let mut labels = kept(metadata.and_then(|metadata| metadata.get("labels")));
        labels.insert(GROUP.to_owned(), json!(&*start.name));
        let mut annotations = kept(metadata.and_then(|metadata| metadata.get("annotations")));
        if pods.is_empty() {
            annotations.insert(GROUP_SIZE.to_owned(), json!(size.to_string()));
            mark_job(&mut labels, &mut annotations, start, notes);
        }
        pods.push(json!({
            "apiVersion": "v1",
            "kind": kind.cluster_kind().name(),
            "metadata": {
                "name": metadata.and_then(|metadata| metadata.get("name")),
                "namespace": &*start.namespace,
                "labels": labels,
                "annotations": annotations,
            },
            "spec": pod.get("spec"),
        }));
    }
    let others = pods.split_off(pods.len().min(1));
    Ok((pods.pop().ok_or("it has no pods")?, others))
}

/// Sends the pods of a set onto the nodes that were booked for them, if any were.
fn consume(template: &mut Map<String, Value>, pod_set: &str, booking: Option<&Booking>) {
    let Some(Booking { request, class, .. }) = booking.filter(|booking| booking.pod_sets.contains(pod_set))
    else {
        return;
    };
    let annotations = object(object(template, "metadata"), "annotations");
    annotations.insert(CONSUMES.to_owned(), json!(request));
    annotations.insert(CONSUMED_CLASS.to_owned(), json!(class));
}

/// Marks the object that stands for the job.
fn mark_job(
    labels: &mut Map<String, Value>,
    annotations: &mut Map<String, Value>,
    start: &Start,
    notes: &Notes,
) {
    labels.insert(ATTEMPT.to_owned(), json!(start.attempt.to_string()));
    labels.insert(OFFER.to_owned(), json!(start.offer.to_string()));
    annotations.insert(NOTES.to_owned(), json!(notes.to_text()));
}

/// Sizes a Job as granted, with the failures and the time that earlier attempts left it.
fn fit_to_grant(job: &mut Value, start: &Start) {
    let follows = job
        .pointer("/metadata/annotations")
        .and_then(|all| all.get(COMPLETIONS_FOLLOW))
        .is_some_and(|value| value == "true");
    let Some(spec) = job.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if spec.remove("manualSelector") != Some(Value::Bool(true)) {
        spec.remove("selector");
    }
    let pods = start.placement.len() as u64;
    let parallelism = spec.get("parallelism").and_then(Value::as_u64).unwrap_or(1);
    let left = spec.get("completions").and_then(Value::as_u64).unwrap_or(parallelism);
    let left = left.saturating_sub(u64::from(start.completed.len()));
    if pods < parallelism.min(left) {
        spec.insert("parallelism".to_owned(), json!(pods));
        if follows && start.completed.is_empty() {
            spec.insert("completions".to_owned(), json!(pods));
        }
    }
    let limit = spec.get("backoffLimit").and_then(Value::as_u64).unwrap_or(BACKOFF_LIMIT_DEFAULT);
    spec.insert("backoffLimit".to_owned(), json!(limit.saturating_sub(u64::from(start.pod_failures))));
    if let Some(left) = start.run_left {
        let written = spec.get("activeDeadlineSeconds").and_then(Value::as_u64).unwrap_or(u64::MAX);
        spec.insert("activeDeadlineSeconds".to_owned(), json!(written.min(seconds(left))));
    }
}

/// A deadline in whole seconds, at least one: the API refuses zero.
fn seconds(left: Millis) -> u64 {
    left.0.div_ceil(1_000).max(1)
}

/// A map of labels or annotations without those that mean something only at the manager.
fn kept(map: Option<&Value>) -> Map<String, Value> {
    let mut map = map.and_then(Value::as_object).cloned().unwrap_or_default();
    map.retain(|name, _| {
        !name.starts_with(KUEUE_PREFIX) && name != "kubectl.kubernetes.io/last-applied-configuration"
    });
    map
}

fn mark(labels: &mut Map<String, Value>, (uid, fence): RunKey, cluster: &str) {
    labels.insert(MANAGED_BY.0.to_owned(), json!(MANAGED_BY.1));
    labels.insert(ORIGIN.to_owned(), json!(labels::origin(cluster)));
    labels.insert(UID.to_owned(), json!(uid.to_string()));
    labels.insert(FENCE.to_owned(), json!(fence.to_string()));
}

/// Marks the pods, gates them until their node is known, and makes them tolerate the taints of reserved
/// nodes.
fn mark_template(template: &mut Map<String, Value>, key: RunKey, cluster: &str, pod_set: &str) {
    let labels = object(template, "metadata");
    let labels = object(labels, "labels");
    for name in CONTROLLER_LABELS {
        labels.remove(name);
    }
    labels.retain(|name, _| !name.starts_with(KUEUE_PREFIX));
    mark(labels, key, cluster);
    labels.insert(POD_SET.to_owned(), json!(pod_set));
    let pod = object(template, "spec");
    list(pod, "schedulingGates").push(json!({"name": GATE}));
    list(pod, "tolerations").push(json!({"key": OWNED, "operator": "Exists"}));
}

fn object<'m>(map: &'m mut Map<String, Value>, name: &str) -> &'m mut Map<String, Value> {
    let value = map.entry(name).or_insert_with(|| json!({}));
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().expect("it was made an object above")
}

fn list<'m>(map: &'m mut Map<String, Value>, name: &str) -> &'m mut Vec<Value> {
    let value = map.entry(name).or_insert_with(|| json!([]));
    if !value.is_array() {
        *value = json!([]);
    }
    value.as_array_mut().expect("it was made a list above")
}

/// The patch of a pod that lets it go to its node.
pub(super) fn place(node: &str, position: usize, pod: &PodFacts) -> Value {
    let others: Vec<Value> =
        pod.gates.iter().filter(|gate| *gate != GATE).map(|gate| json!({"name": gate})).collect();
    json!({
        "metadata": {"annotations": {labels::POSITION: position.to_string()}},
        "spec": {
            "affinity": shape::only_on(node, &pod.node_terms),
            "schedulingGates": if others.is_empty() { Value::Null } else { Value::Array(others) },
        },
    })
}
