//! Everything that Meridian must know about one kind of job, in one place.
//!
//! Other crates use [`Kind::job`] and never compare with a certain kind. A new kind of job is a new row:
//! paths within its manifest as data, and functions where paths aren't enough. [`super::table`] has all rows.

use super::JobWorkload;
use super::keys::{ADMISSION_GATES, ELASTIC_ANNOTATION};
use super::pod_set_paths::{FoundPodSet, PodSetPaths, resolve};
use super::pod_shapes::{self, GroupPod};
use super::status::{JobFinish, PodProgress, StateRules};
use crate::fields::Fields;
use crate::fields::schema::Shape;
use crate::kind::Kind;
use meridian_shared::protocol::Size;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// Reads the content of a job: its root, its labels and its annotations.
type Read = fn(&JobKind, &Fields<'_>, &BTreeMap<String, String>, &BTreeMap<String, String>) -> JobWorkload;

/// Writes the progress of a job's pods into its status, in the kind's fields. The last argument is the
/// manifest.
pub(super) type WriteProgress = fn(&mut Map<String, Value>, &PodProgress, &Value);

/// Fields with the number of pods, for a kind that can be scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizePaths {
    /// JSON pointer to the number of pods that run at the same time.
    pub parallelism: &'static str,
    /// JSON pointer to the number of pods that must succeed.
    pub completions: &'static str,
    /// JSON pointer to the field that says whether each pod has its own index, and the value that says so.
    pub indexed: (&'static str, &'static str),
}

/// Field that keeps the controller of a kind from creating pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// JSON pointer to a flag.
    Flag(&'static str),
    /// JSON pointer to a number of replicas, which is 0 while the job is suspended. For kinds without a flag.
    Replicas(&'static str),
    /// A scheduling gate of pods that have no controller. Such a job is stopped by their deletion.
    Gates {
        /// JSON pointer to the pod, or with `*` to all pods.
        pods: &'static str,
    },
}

/// One kind of job.
pub struct JobKind {
    pub(super) kind: Kind,
    pub(super) pod_sets: &'static [PodSetPaths],
    /// Finds the pod sets of a kind that paths can't describe, in place of `pod_sets`.
    pub(super) find: Option<fn(&Value) -> Vec<FoundPodSet>>,
    /// `None` for a kind whose jobs can't be scaled.
    pub(super) size: Option<SizePaths>,
    pub(super) suspend: Switch,
    /// JSON pointer to the name of the controller that may run the job; empty for a kind without this field.
    pub(super) managed_by: &'static str,
    /// Meridian takes jobs that name one of these controllers.
    pub(super) managers: &'static [&'static str],
    pub(super) name_chars_max: usize,
    /// JSON pointer to the time for which a finished job is kept, in seconds; empty for a kind without this
    /// field.
    pub(super) ttl: &'static str,
    /// JSON pointer to the longest run time of the job, in seconds, which the kind's controller enforces.
    pub(super) deadline: Option<&'static str>,
    /// Known fields of the spec. A cluster's API server checks their content.
    pub(super) spec: &'static Shape,
    /// Rules of the kind beyond those of its pod sets.
    pub(super) check: fn(&Fields<'_>),
    /// Writes the kind's defaults for missing fields that matter for pod sets.
    pub(super) complete: fn(&mut Value),
    /// Fields without effect, with a description of what happens instead.
    pub(super) ignored: &'static [(&'static str, &'static str)],
    pub(super) states: StateRules,
    pub(super) read: Read,
    pub(super) write_progress: WriteProgress,
}

/// JSON pointer to the number of running pods, for kinds whose own status doesn't count pods.
const RUNNING_PODS: &str = "/status/meridian/runningPods";

impl JobKind {
    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// The `apiVersion` in which manifests are stored, such as `batch/v1`.
    pub fn api_version(&self) -> String {
        self.kind.api_version(self.kind.storage_version())
    }

    /// The pod sets of a manifest, in the order of the workload's pod sets.
    pub fn pod_sets(&self, manifest: &Value) -> Vec<FoundPodSet> {
        match self.find {
            Some(find) => find(manifest),
            None => self.pod_sets.iter().flat_map(|paths| paths.find(manifest)).collect(),
        }
    }

    /// Number of pods of a manifest that run at the same time; `None` if a count isn't a number.
    pub fn pods(&self, manifest: &Value) -> Option<u32> {
        self.pod_sets(manifest).iter().try_fold(0_u32, |pods, set| pods.checked_add(set.count?))
    }

    /// The pod templates of a manifest, in the order of the workload's pod sets.
    pub fn templates<'m>(&self, manifest: &'m Value) -> Vec<&'m Value> {
        let sets = self.pod_sets(manifest);
        sets.iter().map(|set| manifest.pointer(&set.template).unwrap_or(&Value::Null)).collect()
    }

    /// Path of the first pod template for messages, such as `spec.template`.
    pub fn template_field(&self) -> String {
        self.pod_sets.first().map(PodSetPaths::template_field).unwrap_or_default()
    }

    /// Path of a field of the pods' spec in the first pod template, for messages.
    pub fn pod_field(&self, field: &str) -> String {
        format!("{}.spec{field}", self.template_field()).trim_start_matches('.').to_owned()
    }

    /// Fields without effect, each with a description of what happens instead.
    pub(crate) fn ignored(&self) -> &'static [(&'static str, &'static str)] {
        self.ignored
    }

    /// Longest name of such a job, in characters.
    pub fn name_chars_max(&self) -> usize {
        self.name_chars_max
    }

    pub(crate) fn read(
        &self,
        root: &Fields<'_>,
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
    ) -> JobWorkload {
        (self.read)(self, root, labels, annotations)
    }

    /// A manifest without content, for a job whose manifest is lost.
    pub fn empty_manifest(&self) -> Value {
        json!({"apiVersion": self.api_version(), "kind": self.name(), "metadata": {}, "spec": {}})
    }

    /// An owner reference to the job, as its workload and its pods carry it.
    pub fn owner_reference(&self, name: &str, uid: &str) -> Value {
        json!({"apiVersion": self.api_version(), "kind": self.name(), "name": name, "uid": uid,
            "controller": true})
    }

    /// Whether a manifest with these annotations may be scaled while it runs.
    pub fn is_elastic(&self, annotations: &BTreeMap<String, String>) -> bool {
        self.size.is_some() && annotations.get(ELASTIC_ANNOTATION).is_some_and(|value| value == "true")
    }

    /// The number of pods of a manifest. `completions` is set if every pod is one completion, so that the two
    /// change together. `None` for unreadable numbers.
    pub fn size(&self, manifest: &Value) -> Option<Size> {
        let Some(paths) = self.size else {
            return Some(Size { parallelism: self.pods(manifest)?, completions: None });
        };
        let number = |pointer: &str| {
            manifest.pointer(pointer).map(|value| value.as_u64().and_then(|value| u32::try_from(value).ok()))
        };
        let parallelism = number(paths.parallelism).unwrap_or(Some(1))?;
        let indexed = manifest.pointer(paths.indexed.0).is_some_and(|mode| mode == paths.indexed.1);
        let completions = number(paths.completions).flatten();
        Some(Size {
            parallelism,
            completions: completions.filter(|completions| indexed && *completions == parallelism),
        })
    }

    /// The number of pods that must succeed, as written, for a kind that can be scaled.
    pub fn completions<'m>(&self, manifest: &'m Value) -> Option<&'m Value> {
        manifest.pointer(self.size?.completions)
    }

    /// Writes a size into a manifest. If the size has no completions, those of the manifest stay.
    pub fn set_size(&self, manifest: &mut Value, size: Size) {
        let Some(paths) = self.size else { return };
        put(manifest, paths.parallelism, size.parallelism.into());
        if let Some(completions) = size.completions {
            put(manifest, paths.completions, completions.into());
        }
    }

    /// Whether the job's own controller is kept from starting pods.
    pub fn is_suspended(&self, manifest: &Value) -> bool {
        match self.suspend {
            Switch::Flag(pointer) => manifest.pointer(pointer).and_then(Value::as_bool).unwrap_or(false),
            Switch::Replicas(pointer) => manifest.pointer(pointer).is_some_and(|replicas| *replicas == 0),
            Switch::Gates { pods } => {
                let pods = resolve(manifest, pods);
                let mut pods = pods.iter().filter_map(|at| manifest.pointer(at));
                pods.any(|pod| gates(pod).iter().any(is_of_admission))
            }
        }
    }

    /// For a job without a suspend flag: whether all its templates have the admission gate, so that the pods
    /// that its own controller makes aren't scheduled.
    pub fn is_gated(&self, manifest: &Value) -> bool {
        let has_gate = |set: &FoundPodSet| {
            manifest.pointer(&set.template).is_some_and(|pod| gates(pod).iter().any(is_of_admission))
        };
        let sets = self.gated_sets(manifest);
        !sets.is_empty() && sets.iter().all(has_gate)
    }

    /// Removes the gates of [`Self::is_gated`].
    pub fn remove_template_gates(&self, manifest: &mut Value) {
        for set in self.gated_sets(manifest) {
            if let Some(pod) = manifest.pointer_mut(&set.template) {
                set_gate(pod, false);
            }
        }
    }

    /// The pod sets whose templates may have admission gates: those of kinds without a suspend flag.
    fn gated_sets(&self, manifest: &Value) -> Vec<FoundPodSet> {
        match self.suspend {
            Switch::Replicas(_) => self.pod_sets(manifest),
            Switch::Flag(_) | Switch::Gates { .. } => Vec::new(),
        }
    }

    /// Whether the job consists of pods without a controller. Such pods are held back by their gates, and
    /// stopped by deletion.
    pub fn is_of_pods(&self) -> bool {
        matches!(self.suspend, Switch::Gates { .. })
    }

    /// Whether the job is a group of pods without a controller.
    pub fn is_pod_group(&self) -> bool {
        self.kind == Kind::PodGroup
    }

    /// The pods of a group of pods, in the order of the manifest; none for other kinds.
    pub fn group_pods(&self, manifest: &Value) -> Vec<GroupPod> {
        if self.is_pod_group() { pod_shapes::pods(manifest) } else { Vec::new() }
    }

    /// The kind of the object that a worker cluster gets for the job, and under which an agent records it.
    pub fn cluster_kind(&self) -> Kind {
        if self.is_of_pods() { Kind::Pod } else { self.kind }
    }

    /// Suspends or resumes a manifest. A kind without a flag for it stays as it is.
    pub fn set_suspended(&self, manifest: &mut Value, suspended: bool) {
        match self.suspend {
            Switch::Flag(pointer) => put(manifest, pointer, suspended.into()),
            Switch::Replicas(_) => {}
            Switch::Gates { pods } => set_gates(manifest, pods, suspended),
        }
    }

    /// The object that a worker cluster gets: suspended, and without fields that apply only in the cluster of
    /// the submission.
    pub fn for_cluster(&self, mut manifest: Value) -> Value {
        for pointer in [self.managed_by, self.ttl] {
            remove(&mut manifest, pointer);
        }
        match self.suspend {
            Switch::Flag(pointer) => put(&mut manifest, pointer, true.into()),
            Switch::Replicas(pointer) => put(&mut manifest, pointer, 0.into()),
            // Remove the gate, because the agent adds its own.
            Switch::Gates { pods } => set_gates(&mut manifest, pods, false),
        }
        manifest
    }

    /// Number of seconds for which a finished object is kept, if the user set it.
    pub fn ttl_seconds(&self, manifest: &Value) -> Option<u64> {
        manifest.pointer(self.ttl)?.as_u64()
    }

    /// The merge patch that suspends an object of a worker cluster.
    pub fn suspending_patch(&self) -> Value {
        match self.suspend {
            Switch::Flag(pointer) => patch(pointer, true.into()),
            Switch::Replicas(pointer) => patch(pointer, 0.into()),
            Switch::Gates { .. } => json!({}),
        }
    }

    /// The merge patch that resumes an object of a worker cluster. `manifest` is the submitted manifest.
    pub fn resuming_patch(&self, manifest: &Value) -> Value {
        match self.suspend {
            Switch::Flag(pointer) => patch(pointer, false.into()),
            Switch::Replicas(pointer) => {
                patch(pointer, manifest.pointer(pointer).cloned().unwrap_or_else(|| 1.into()))
            }
            Switch::Gates { .. } => json!({}),
        }
    }

    /// Whether the number of pods can change: at a partial admission, or while the job runs.
    pub fn can_be_scaled(&self) -> bool {
        self.size.is_some()
    }

    /// Writes the kind's defaults for missing fields that matter for pod sets.
    pub(crate) fn complete(&self, manifest: &mut Value) {
        (self.complete)(manifest);
    }

    /// The controller that the manifest names, if it names one.
    pub fn manager<'m>(&self, manifest: &'m Value) -> Option<&'m str> {
        manifest.pointer(self.managed_by).and_then(Value::as_str)
    }

    /// The field that names the controller, such as `spec.managedBy`; `None` if the kind has none.
    pub fn manager_field(&self) -> Option<String> {
        self.managed_by.strip_prefix('/').map(|pointer| pointer.replace('/', "."))
    }

    /// Whether Meridian takes jobs that name this controller.
    pub fn takes_over_from(&self, manager: &str) -> bool {
        self.managers.contains(&manager)
    }

    /// The state of a job in one word; `Finished` or `Failed` once it has ended.
    ///
    /// The manager writes the state into `status.meridian`, next to the kind's own conditions and counts. For
    /// a job that another program runs, the state follows from the kind's conditions and counts.
    pub fn state<'m>(&self, job: &'m Value) -> &'m str {
        if self.states.succeeded.is_set_in(&job["status"]) {
            return "Finished";
        }
        if self.states.failed.is_set_in(&job["status"]) {
            return "Failed";
        }
        let written = job.pointer("/status/meridian/state").and_then(Value::as_str).unwrap_or_default();
        if !written.is_empty() {
            return written;
        }
        if self.active(job) > 0 { "Running" } else { "Pending" }
    }

    /// Number of running pods, by the job's status: as Meridian counts them, or as the kind's own controller
    /// does.
    pub fn active(&self, job: &Value) -> u64 {
        if let Some(running) = job.pointer(RUNNING_PODS).and_then(Value::as_u64) {
            return running;
        }
        let counts = resolve(job, self.states.active);
        counts.iter().filter_map(|at| job.pointer(at)?.as_u64()).fold(0, u64::saturating_add)
    }

    pub fn has_succeeded(&self, job: &Value) -> bool {
        self.states.succeeded.is_set_in(&job["status"])
    }

    pub fn has_ended(&self, job: &Value) -> bool {
        self.status_has_ended(&job["status"])
    }

    /// Whether a job with this status has ended.
    pub fn status_has_ended(&self, status: &Value) -> bool {
        self.states.succeeded.is_set_in(status) || self.states.failed.is_set_in(status)
    }

    /// How and when a job ended; `None` if it hasn't ended.
    pub fn end<'m>(&self, job: &'m Value) -> Option<JobFinish<'m>> {
        let status = &job["status"];
        self.states.succeeded.end(status, true).or_else(|| self.states.failed.end(status, false))
    }

    /// Reason and message of a failed job; `None` if it hasn't failed.
    pub fn failure<'m>(&self, job: &'m Value) -> Option<[&'m str; 2]> {
        // Some kinds have the same sign of an end after a success.
        self.states.failed.reason_and_message(&job["status"]).filter(|_| !self.has_succeeded(job))
    }

    /// Writes the progress of the job's pods into its status.
    pub fn write_progress(&self, status: &mut Map<String, Value>, progress: &PodProgress, manifest: &Value) {
        (self.write_progress)(status, progress, manifest);
    }

    /// Writes the end of a job into its status.
    pub fn write_finish(&self, status: &mut Map<String, Value>, finish: &JobFinish<'_>) {
        let sign = if finish.succeeded { self.states.succeeded } else { self.states.failed };
        sign.write(status, finish);
        match self.kind {
            // Only conditions of Jobs have `lastProbeTime`.
            Kind::Job => {
                let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
                if let Some(last) = conditions.and_then(|all| all.last_mut()) {
                    last["lastProbeTime"] = json!(finish.at);
                }
            }
            // A word for the column that kubectl prints.
            Kind::JobSet => {
                let state = if finish.succeeded { "Completed" } else { "Failed" };
                status.insert("terminalState".to_owned(), json!(state));
            }
            _ => {}
        }
    }
}

impl fmt::Debug for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobKind({})", self.kind)
    }
}

/// A merge patch that sets one value.
fn patch(pointer: &str, value: Value) -> Value {
    let mut patch = json!({});
    put(&mut patch, pointer, value);
    patch
}

fn gates(manifest: &Value) -> &[Value] {
    manifest.pointer("/spec/schedulingGates").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Whether a scheduling gate is an admission gate, which holds a pod back until its admission.
fn is_of_admission(gate: &Value) -> bool {
    gate["name"].as_str().is_some_and(|name| ADMISSION_GATES.contains(&name))
}

/// Adds the admission gate to the pods at a path, or removes it.
pub(super) fn set_gates(manifest: &mut Value, pods: &str, is_set: bool) {
    for at in resolve(manifest, pods) {
        if let Some(pod) = manifest.pointer_mut(&at) {
            set_gate(pod, is_set);
        }
    }
}

/// Adds or removes the admission gate of a pod.
fn set_gate(manifest: &mut Value, is_set: bool) {
    let mut gates = gates(manifest).to_vec();
    gates.retain(|found| !is_of_admission(found));
    gates.extend(is_set.then(|| json!({"name": ADMISSION_GATES[0]})));
    if gates.is_empty() {
        remove(manifest, "/spec/schedulingGates");
    } else {
        put(manifest, "/spec/schedulingGates", gates.into());
    }
}

/// Removes the value at a pointer of plain keys.
pub(super) fn remove(manifest: &mut Value, pointer: &str) {
    let Some((parent, field)) = pointer.rsplit_once('/') else { return };
    if let Some(parent) = manifest.pointer_mut(parent).and_then(Value::as_object_mut) {
        parent.remove(field);
    }
}

/// Sets the value at a pointer of plain keys; creates the mappings on the way.
fn put(manifest: &mut Value, pointer: &str, value: Value) {
    let mut at = manifest;
    for key in pointer.split('/').skip(1) {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[key];
    }
    *at = value;
}

#[cfg(test)]
mod tests;
