//! Paths of the pod sets in a job's manifest, as data.
//!
//! A path is a JSON pointer in which `*` stands for every entry of a list, so that one row describes one pod
//! set or a list of them.

use crate::fields::FieldPath;
use serde_json::Value;

/// Largest product of counts of a pod set; a larger product is an unreadable count.
const PODS_MAX: u64 = u32::MAX as u64;

/// The name of a pod set in the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodSetName {
    Fixed(&'static str),
    /// A pointer to the name, below the pod set.
    At(&'static str),
}

/// Paths of pod sets. All paths except `at` are relative to `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodSetPaths {
    /// Path of the pod set, or with `*`, of a list of pod sets. If a manifest lacks the path, it has no such
    /// pod set.
    pub at: &'static str,
    pub name: PodSetName,
    pub template: &'static str,
    /// Numbers whose product is the number of pods; a missing number counts as 1.
    pub counts: &'static [&'static str],
    /// Number of pods that must succeed, an upper bound of the last of `counts`.
    pub completions: Option<&'static str>,
}

/// A pod set of one manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPodSet {
    /// JSON pointer to the pod set.
    pub at: String,
    /// Empty if the manifest lacks the name.
    pub name: String,
    /// JSON pointer to the pod template.
    pub template: String,
    /// Pods that run at the same time; `None` if a count isn't a number.
    pub count: Option<u32>,
}

impl PodSetPaths {
    /// The pod sets of a manifest that this row describes, in the order of the manifest.
    pub(super) fn find(&self, manifest: &Value) -> Vec<FoundPodSet> {
        let found = |at: String| {
            let set = manifest.pointer(&at)?;
            let name = match self.name {
                PodSetName::Fixed(name) => name.to_owned(),
                PodSetName::At(pointer) => text(set, pointer).to_owned(),
            };
            let (template, count) = (format!("{at}{}", self.template), self.count(set));
            Some(FoundPodSet { at, name, template, count })
        };
        resolve(manifest, self.at).into_iter().filter_map(found).collect()
    }

    fn count(&self, set: &Value) -> Option<u32> {
        let number = |pointer: &str| set.pointer(pointer).map_or(Some(1), Value::as_u64);
        let most = match self.completions.and_then(|pointer| set.pointer(pointer)) {
            Some(completions) => completions.as_u64()?,
            None => PODS_MAX,
        };
        let mut pods: u64 = 1;
        for (place, pointer) in self.counts.iter().enumerate() {
            let count = number(pointer)?;
            let count = if place + 1 == self.counts.len() { count.min(most) } else { count };
            pods = pods.checked_mul(count).filter(|pods| *pods <= PODS_MAX)?;
        }
        u32::try_from(pods).ok()
    }

    /// Whether a pod set at this pointer is described by this row.
    pub(super) fn describes(&self, at: &str) -> bool {
        match self.at.split_once("/*") {
            Some((list, rest)) => at.strip_prefix(list).is_some_and(|at| {
                at.strip_prefix('/')
                    .is_some_and(|at| at.trim_start_matches(|c: char| c.is_ascii_digit()) == rest)
            }),
            None => at == self.at,
        }
    }

    /// The field with all pod sets of this row, such as `spec.replicatedJobs`.
    pub(super) fn field(&self) -> FieldPath {
        match self.at.split_once("/*") {
            Some((list, _)) => path_of(list),
            None => path_of(self.at.rsplit_once('/').map_or("", |(parent, _)| parent)),
        }
    }

    /// Path of the template for messages, such as `spec.template`.
    pub(super) fn template_field(&self) -> String {
        field_path(&format!("{}{}", self.at, self.template))
    }
}

impl FoundPodSet {
    /// Path of the pod template for problems.
    pub(crate) fn template_path(&self) -> FieldPath {
        path_of(&self.template)
    }
}

/// Converts a JSON pointer to a path for problems.
pub(super) fn path_of(pointer: &str) -> FieldPath {
    pointer.split('/').skip(1).fold(FieldPath::of(""), |path, segment| match segment.parse() {
        Ok(index) => path.index(index),
        Err(_) => path.key(segment),
    })
}

/// Converts a path for messages: `/spec/jobs/*/template` becomes `spec.jobs[*].template`.
fn field_path(path: &str) -> String {
    path.trim_start_matches('/').replace("/*", "[*]").replace('/', ".")
}

/// The pointers that match a path in a manifest, in the order of the manifest.
pub(super) fn resolve(manifest: &Value, path: &str) -> Vec<String> {
    let Some((list, rest)) = path.split_once("/*") else { return vec![path.to_owned()] };
    let entries = manifest.pointer(list).and_then(Value::as_array).map_or(0, Vec::len);
    (0..entries).flat_map(|entry| resolve(manifest, &format!("{list}/{entry}{rest}"))).collect()
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
