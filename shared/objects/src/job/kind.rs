//! The table of job kinds: everything that Meridian must know about a kind of job, in one place.
//!
//! Other crates ask [`JobKind::of`] or [`Kind::job`] and never compare with one kind. A new kind of job is a
//! new row: paths within its manifest as data, and functions where paths are not enough.

use super::batch;
use super::keys::ELASTIC_ANNOTATION;
use crate::fields::Fields;
use crate::kind::Kind;
use meridian_shared::protocol::Size;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;

use super::JobWorkload;

/// Reads the content of a job: its root, its labels and its annotations.
type Read = fn(&Fields<'_>, &BTreeMap<String, String>, &BTreeMap<String, String>) -> JobWorkload;

/// Where a pod set is in the manifest of a job, as JSON pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodSetPaths {
    /// Name of the pod set in the workload.
    pub name: &'static str,
    pub template: &'static str,
    /// Number of pods that run at the same time.
    pub parallelism: &'static str,
    /// Number of pods that must succeed, for kinds that count them.
    pub completions: Option<&'static str>,
}

/// The conditions and counts by which a kind of job reports its state.
#[derive(Clone, Copy, Debug)]
pub(super) struct StateRules {
    /// Condition of a job that succeeded.
    pub(super) succeeded: &'static str,
    /// Condition of a job that failed.
    pub(super) failed: &'static str,
    /// JSON pointer to the number of running pods.
    pub(super) active: &'static str,
}

/// One kind of job.
pub struct JobKind {
    pub(super) kind: Kind,
    pub(super) pod_sets: &'static [PodSetPaths],
    /// JSON pointer to the switch that keeps the job's own controller from starting pods.
    pub(super) suspend: &'static str,
    /// JSON pointer to the name of the controller that may run the job.
    pub(super) managed_by: &'static str,
    /// Jobs of these controllers are taken.
    pub(super) managers: &'static [&'static str],
    pub(super) name_chars_max: usize,
    pub(super) states: StateRules,
    pub(super) read: Read,
}

/// The first row is assumed for a manifest that names no kind.
static KINDS: [&JobKind; 1] = [&batch::JOB];

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

    /// In the order of the workload's pod sets.
    pub fn pod_sets(&self) -> &'static [PodSetPaths] {
        self.pod_sets
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

    /// An owner reference to the job, as its workload and its pods carry it.
    pub fn owner_reference(&self, name: &str, uid: &str) -> Value {
        json!({"apiVersion": self.api_version(), "kind": self.name(), "name": name, "uid": uid,
            "controller": true})
    }

    /// Whether a manifest with these annotations may be scaled while it runs.
    pub fn is_elastic(&self, annotations: &BTreeMap<String, String>) -> bool {
        annotations.get(ELASTIC_ANNOTATION).is_some_and(|value| value == "true")
    }

    /// The number of pods of a manifest. `completions` is set where every pod is one completion, so that the
    /// two change together. `None` for unreadable numbers.
    pub fn size(&self, manifest: &Value) -> Option<Size> {
        let paths = self.pod_sets.first()?;
        let number = |pointer: &str| {
            manifest.pointer(pointer).map(|value| value.as_u64().and_then(|value| u32::try_from(value).ok()))
        };
        let parallelism = number(paths.parallelism).unwrap_or(Some(1))?;
        let indexed = manifest.pointer("/spec/completionMode").is_some_and(|mode| mode == "Indexed");
        let completions = paths.completions.and_then(|pointer| number(pointer).flatten());
        Some(Size {
            parallelism,
            completions: completions.filter(|completions| indexed && *completions == parallelism),
        })
    }

    /// Writes a size into a manifest. Where the size has no completions, those of the manifest stay.
    pub fn set_size(&self, manifest: &mut Value, size: Size) {
        let Some(paths) = self.pod_sets.first() else { return };
        put(manifest, paths.parallelism, size.parallelism.into());
        if let (Some(pointer), Some(completions)) = (paths.completions, size.completions) {
            put(manifest, pointer, completions.into());
        }
    }

    /// JSON pointers to the fields that may change while the job exists: its size and its suspend switch.
    pub fn mutable_fields(&self) -> Vec<&'static str> {
        let sizes =
            self.pod_sets.iter().flat_map(|set| std::iter::once(set.parallelism).chain(set.completions));
        sizes.chain([self.suspend]).collect()
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
        if is_true(job, self.states.succeeded) {
            return "Finished";
        }
        if is_true(job, self.states.failed) {
            return "Failed";
        }
        let written = job.pointer("/status/meridian/state").and_then(Value::as_str).unwrap_or_default();
        if !written.is_empty() {
            return written;
        }
        let active = job.pointer(self.states.active).and_then(Value::as_u64);
        if active.is_some_and(|active| active > 0) { "Running" } else { "Pending" }
    }

    /// Type of the condition by which a job says that it has ended.
    pub fn end_condition(&self, succeeded: bool) -> &'static str {
        if succeeded { self.states.succeeded } else { self.states.failed }
    }

    pub fn has_ended(&self, job: &Value) -> bool {
        is_true(job, self.states.succeeded) || is_true(job, self.states.failed)
    }
}

impl fmt::Debug for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobKind({})", self.kind)
    }
}

/// The state of a job in one word; see [`JobKind::state`]. A manifest without a kind is read as a `batch/v1`
/// Job.
pub fn state(job: &Value) -> &str {
    JobKind::of_manifest(job).unwrap_or(KINDS[0]).state(job)
}

fn is_true(job: &Value, condition: &str) -> bool {
    let mut conditions = job.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    conditions.any(|found| found["type"] == condition && found["status"] == "True")
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
mod tests {
    use super::*;

    fn job() -> &'static JobKind {
        Kind::Job.job().unwrap()
    }

    #[test]
    fn kinds_are_found_by_each_name() {
        for job in JobKind::all() {
            assert_eq!(JobKind::of(job.kind()).unwrap().name(), job.name());
            assert_eq!(JobKind::by_name(job.name()).unwrap().kind(), job.kind());
            let manifest = json!({"apiVersion": job.api_version(), "kind": job.name()});
            assert_eq!(JobKind::of_manifest(&manifest).unwrap().kind(), job.kind());
        }
        assert!(Kind::ClusterQueue.job().is_none() && JobKind::by_name("Deployment").is_none());
        assert!(JobKind::of_manifest(&json!({"kind": "Job"})).is_none());
    }

    #[test]
    fn how_a_job_ended_comes_before_where_it_is() {
        let of = |status: Value| state(&json!({"status": status})).to_owned();
        let ended = |kind: &str| json!([{"type": kind, "status": "True"}]);
        assert_eq!(
            of(json!({"conditions": ended("Complete"), "meridian": {"state": "Finished"}})),
            "Finished"
        );
        assert_eq!(of(json!({"conditions": ended("Failed"), "meridian": {"state": "Finished"}})), "Failed");
        assert_eq!(
            of(json!({"conditions": ended("Suspended"), "meridian": {"state": "Running"}})),
            "Running"
        );
        assert_eq!(
            (of(json!({"active": 2})), of(json!({})), of(json!(null))),
            ("Running".into(), "Pending".into(), "Pending".into())
        );
        let failed = json!({"status": {"conditions": ended(job().end_condition(false))}});
        assert!(job().has_ended(&failed) && !job().has_ended(&json!({})));
    }

    #[test]
    fn sizes_are_read_and_written() {
        let size = |parallelism, completions| Some(Size { parallelism, completions });
        let of = |spec: Value| job().size(&json!({"spec": spec}));
        assert_eq!(of(json!({})), size(1, None));
        assert_eq!(of(json!({"parallelism": 3, "completions": 3})), size(3, None));
        assert_eq!(
            of(json!({"parallelism": 3, "completions": 3, "completionMode": "Indexed"})),
            size(3, Some(3))
        );
        assert_eq!(
            of(json!({"parallelism": 3, "completions": 9, "completionMode": "Indexed"})),
            size(3, None)
        );
        assert_eq!(of(json!({"parallelism": "3"})), None);
        let mut manifest = json!({"spec": {"parallelism": 2, "completions": 9}});
        job().set_size(&mut manifest, Size { parallelism: 4, completions: None });
        assert_eq!(manifest, json!({"spec": {"parallelism": 4, "completions": 9}}));
        job().set_size(&mut manifest, Size { parallelism: 5, completions: Some(5) });
        assert_eq!(manifest, json!({"spec": {"parallelism": 5, "completions": 5}}));
    }

    #[test]
    fn the_suspend_switch_is_read_and_written() {
        let mut manifest = json!({});
        assert!(!job().is_suspended(&manifest));
        job().set_suspended(&mut manifest, true);
        assert_eq!(manifest, json!({"spec": {"suspend": true}}));
        assert!(job().is_suspended(&manifest));
        assert_eq!(job().mutable_fields(), ["/spec/parallelism", "/spec/completions", "/spec/suspend"]);
    }

    #[test]
    fn only_jobs_of_known_controllers_are_taken() {
        let manifest = json!({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}});
        assert!(job().manager(&manifest).is_some_and(|manager| job().takes_over_from(manager)));
        assert!(!job().takes_over_from("example.com/mine"));
    }

    #[test]
    fn an_annotation_makes_a_job_elastic() {
        let annotated = |value: &str| BTreeMap::from([(ELASTIC_ANNOTATION.to_owned(), value.to_owned())]);
        assert!(job().is_elastic(&annotated("true")));
        assert!(!job().is_elastic(&annotated("yes")) && !job().is_elastic(&BTreeMap::new()));
    }
}
