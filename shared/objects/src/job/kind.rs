//! The table of job kinds: everything that Meridian must know about a kind of job, in one place.
//!
//! Other crates ask [`Kind::job`] and never compare with one kind. A new kind of job is a new row: paths
//! within its manifest as data, and functions where paths are not enough.

use super::JobWorkload;
use super::batch;
use super::keys::ELASTIC_ANNOTATION;
use super::pod_set_paths::{FoundPodSet, PodSetPaths, resolve};
use super::status::{JobFinish, PodProgress, StateRules};
use crate::fields::Fields;
use crate::kind::Kind;
use meridian_shared::protocol::Size;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// Reads the content of a job: its root, its labels and its annotations.
type Read = fn(&Fields<'_>, &BTreeMap<String, String>, &BTreeMap<String, String>) -> JobWorkload;

/// Writes what the pods of a job do into its status, in the fields of the kind. The last argument is the
/// manifest.
type WriteProgress = fn(&mut Map<String, Value>, &PodProgress, &Value);

/// Where the number of pods of a kind is that can be scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizePaths {
    /// JSON pointer to the number of pods that run at the same time.
    pub parallelism: &'static str,
    /// JSON pointer to the number of pods that must succeed.
    pub completions: &'static str,
    /// JSON pointer to the field that says whether each pod has an index of its own, and how it says so.
    pub indexed: (&'static str, &'static str),
}

/// One kind of job.
pub struct JobKind {
    pub(super) kind: Kind,
    pub(super) pod_sets: &'static [PodSetPaths],
    /// `None` for a kind whose jobs can't be scaled.
    pub(super) size: Option<SizePaths>,
    /// JSON pointer to the switch that keeps the job's own controller from starting pods.
    pub(super) suspend: &'static str,
    /// JSON pointer to the name of the controller that may run the job.
    pub(super) managed_by: &'static str,
    /// Jobs of these controllers are taken.
    pub(super) managers: &'static [&'static str],
    pub(super) name_chars_max: usize,
    /// Fields without effect, and what happens instead.
    pub(super) ignored: &'static [(&'static str, &'static str)],
    pub(super) states: StateRules,
    pub(super) read: Read,
    pub(super) write_progress: WriteProgress,
}

/// The first row is assumed for a manifest that names no kind.
static KINDS: [&JobKind; 1] = [&batch::JOB];

/// The pattern of all kinds of jobs, for a `match` over [`Kind`] that names every kind.
#[macro_export]
macro_rules! any_job {
    () => {
        $crate::Kind::Job
    };
}

/// The kind of the jobs that `meridian submit` makes.
pub const SUBMITTED_KIND: Kind = Kind::Job;

impl Kind {
    /// The row of this kind, if it is a kind of job.
    pub fn job(self) -> Option<&'static JobKind> {
        JobKind::of(self)
    }

    /// Whether objects of this kind are jobs: each is run as one workload.
    pub fn is_job(self) -> bool {
        self.job().is_some()
    }
}

impl JobKind {
    /// The kind that a name stands for if a request names no kind.
    pub fn usual() -> &'static Self {
        KINDS[0]
    }

    /// The kind of job whose objects come first in the order of [`Kind`].
    pub fn first() -> Kind {
        Self::all().map(Self::kind).min().unwrap_or(KINDS[0].kind)
    }

    pub fn all() -> impl Iterator<Item = &'static Self> {
        KINDS.into_iter()
    }

    /// The row of a kind; `None` for a kind that is no job.
    pub fn of(kind: Kind) -> Option<&'static Self> {
        Self::all().find(|job| job.kind == kind)
    }

    /// The row of the kind that a manifest names by `apiVersion` and `kind`.
    pub fn of_manifest(manifest: &Value) -> Option<&'static Self> {
        let text = |name: &str| manifest.get(name).and_then(Value::as_str);
        Self::of(Kind::from_gvk(text("apiVersion")?, text("kind")?)?.0)
    }

    /// The row of a kind's name, as offers carry it.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        Self::all().find(|job| job.name() == name)
    }

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
        self.pod_sets.iter().flat_map(|paths| paths.find(manifest)).collect()
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

    /// The first pod template as messages name it, such as `spec.template`.
    pub fn template_field(&self) -> String {
        self.pod_sets.first().map(PodSetPaths::template_field).unwrap_or_default()
    }

    /// Fields without effect, each with what happens instead.
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
        (self.read)(root, labels, annotations)
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

    /// The number of pods of a manifest. `completions` is set where every pod is one completion, so that the
    /// two change together. `None` for unreadable numbers.
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

    /// Writes a size into a manifest. Where the size has no completions, those of the manifest stay.
    pub fn set_size(&self, manifest: &mut Value, size: Size) {
        let Some(paths) = self.size else { return };
        put(manifest, paths.parallelism, size.parallelism.into());
        if let Some(completions) = size.completions {
            put(manifest, paths.completions, completions.into());
        }
    }

    /// Removes the fields that may change while the job exists: its size and its suspend switch.
    pub fn remove_mutable_fields(&self, manifest: &mut Value) {
        let sizes = self.size.map(|paths| [paths.parallelism, paths.completions]);
        for pointer in sizes.into_iter().flatten().chain([self.suspend]) {
            let Some((parent, field)) = pointer.rsplit_once('/') else { continue };
            if let Some(parent) = manifest.pointer_mut(parent).and_then(Value::as_object_mut) {
                parent.remove(field);
            }
        }
    }

    /// Whether the job's own controller is kept from starting pods.
    pub fn is_suspended(&self, manifest: &Value) -> bool {
        manifest.pointer(self.suspend).and_then(Value::as_bool).unwrap_or(false)
    }

    /// Suspends or resumes a manifest.
    pub fn set_suspended(&self, manifest: &mut Value, suspended: bool) {
        put(manifest, self.suspend, suspended.into());
    }

    /// The controller that the manifest names, if it names one.
    pub fn manager<'m>(&self, manifest: &'m Value) -> Option<&'m str> {
        manifest.pointer(self.managed_by).and_then(Value::as_str)
    }

    /// Whether Meridian takes jobs that name this controller.
    pub fn takes_over_from(&self, manager: &str) -> bool {
        self.managers.contains(&manager)
    }

    /// The state of a job in one word; `Finished` or `Failed` once it has ended.
    ///
    /// The manager writes the state into `status.meridian`, next to the kind's own conditions and counts. For
    /// a job of another program it follows from those.
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

    /// Number of running pods, by the job's status.
    pub fn active(&self, job: &Value) -> u64 {
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

    /// Reason and message of a job that failed; `None` if it didn't.
    pub fn failure<'m>(&self, job: &'m Value) -> Option<[&'m str; 2]> {
        self.states.failed.reason_and_message(&job["status"])
    }

    /// Writes what the job's pods do into its status.
    pub fn write_progress(&self, status: &mut Map<String, Value>, progress: &PodProgress, manifest: &Value) {
        (self.write_progress)(status, progress, manifest);
    }

    /// Writes the end of a job into its status.
    pub fn write_finish(&self, status: &mut Map<String, Value>, finish: &JobFinish<'_>) {
        let sign = if finish.succeeded { self.states.succeeded } else { self.states.failed };
        sign.write(status, finish);
    }
}

impl fmt::Debug for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobKind({})", self.kind)
    }
}

/// The row of a job's kind. A manifest that names no known kind is read as a `batch/v1` Job.
pub fn of_object(job: &Value) -> &'static JobKind {
    JobKind::of_manifest(job).unwrap_or_else(JobKind::usual)
}

/// The state of a job in one word; see [`JobKind::state`].
pub fn state(job: &Value) -> &str {
    of_object(job).state(job)
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
