//! Kueue's two served versions as views of one stored object.
//!
//! Objects are stored in v1beta2. Reading v1beta1 moves renamed fields; showing v1beta1 moves them back.
//!
//! - The old words `Borrow` and `Preempt` of `flavorFungibility` become `MayStopSearch`, as in Kueue.
//! - `AdmissionCheck.spec.retryDelayMinutes` does not exist in v1beta2. It is kept in an annotation, as
//!   Kubernetes' conversions do, and returns in the v1beta1 view.
//! - Admission checks without `onFlavors` are shown in v1beta1 as the plain list of names that most v1beta1
//!   files use.
//! - Topology assignments of Workloads are lists of domains in v1beta1, and slices of domains in v1beta2.
//!
//! A field under the other version's name is an error, not an unknown field, because it would have no effect.

mod kinds;
mod tree;

use crate::fields::{FieldPath, Findings};
use crate::kind::{Kind, V1BETA1, V1BETA2};
use serde_json::{Value, json};
use tree::{drop_if_empty, rename};

/// Annotation in which v1beta2 keeps `AdmissionCheck.spec.retryDelayMinutes`.
pub const RETRY_DELAY_ANNOTATION: &str = "v1beta1.meridian.dev/retry-delay-minutes";

/// Fields with another path in the other version: (kind, v1beta1 path, v1beta2 path).
const MOVED: &[(Kind, &str, &str)] = &[
    (Kind::ClusterQueue, "spec.cohort", "spec.cohortName"),
    (Kind::MultiKueueCluster, "spec.kubeConfig", "spec.clusterSource.kubeConfig"),
    (Kind::MultiKueueCluster, "spec.clusterProfileRef", "spec.clusterSource.clusterProfileRef"),
    (Kind::LocalQueue, "status.flavorUsage", "status.flavorsUsage"),
    (
        Kind::Workload,
        "status.accumulatedPastExexcutionTimeSeconds",
        "status.accumulatedPastExecutionTimeSeconds",
    ),
];

/// A stored object converted to `version`, with that version's `apiVersion`; unchanged if `version` isn't
/// served.
pub fn to_version(kind: Kind, stored: &Value, version: &str) -> Value {
    let mut object = stored.clone();
    if kind.storage_version() == V1BETA2 && version == V1BETA1 {
        downgrade(kind, &mut object);
        object["apiVersion"] = json!(kind.api_version(V1BETA1));
    }
    object
}

/// Converts an object that was written in `version` into the storage version.
pub(crate) fn to_storage(kind: Kind, version: &str, object: &mut Value, findings: &Findings) {
    if kind.storage_version() != V1BETA2 {
        return;
    }
    refuse_foreign_names(kind, version, object, findings);
    if version == V1BETA1 && !findings.has_errors() {
        upgrade(kind, object, findings);
        object["apiVersion"] = json!(kind.api_version(V1BETA2));
    }
}

/// Whether a v1beta1 object lists its admission checks by name only. Call it before the conversion.
pub(crate) fn has_plain_checks(written: &Value) -> bool {
    written.pointer("/spec/admissionChecks").is_some_and(|checks| !checks.is_null())
}

/// Converts a path of the storage version to the written `version`.
pub(crate) fn path_in_version(kind: Kind, version: &str, plain_checks: bool, path: &mut FieldPath) {
    if version != V1BETA1 || kind.storage_version() != V1BETA2 {
        return;
    }
    let moved =
        MOVED.iter().filter(|(of, ..)| *of == kind).any(|(_, old, new)| path.replace_prefix(new, old));
    if !moved && kind == Kind::ClusterQueue && plain_checks {
        // spec.admissionChecksStrategy.admissionChecks[i].name is spec.admissionChecks[i] in v1beta1.
        if path.replace_prefix("spec.admissionChecksStrategy.admissionChecks", "spec.admissionChecks") {
            path.0.truncate(3);
        }
    }
    if kind == Kind::Workload && !path.replace_prefix("spec.priorityClassRef.name", "spec.priorityClassName")
    {
        path.replace_prefix("spec.priorityClassRef", "spec.priorityClassSource");
    }
    if kind == Kind::MultiKueueCluster && path.replace_prefix("spec.clusterSource", "spec.kubeConfig") {
        path.0.truncate(2);
    }
}

fn refuse_foreign_names(kind: Kind, version: &str, object: &Value, findings: &Findings) {
    let written = |path: &str| {
        object.pointer(&format!("/{}", path.replace('.', "/"))).is_some_and(|value| !value.is_null())
    };
    let refuse = |path: &str, other: &str, right: &str| {
        findings.error(
            FieldPath::of(path),
            format!("is the {other} name of this field"),
            format!("write `{right}`, or apiVersion `{}`", kind.api_version(other)),
        );
    };
    for (of, old, new) in MOVED.iter().filter(|(of, old, _)| *of == kind && old.starts_with("spec.")) {
        debug_assert_eq!(*of, kind);
        if version == V1BETA2 && written(old) {
            refuse(old, V1BETA1, new);
        } else if version == V1BETA1 && written(new) {
            let foreign_root = if kind == Kind::MultiKueueCluster { "spec.clusterSource" } else { new };
            refuse(foreign_root, V1BETA2, old);
        }
    }
    if kind == Kind::ClusterQueue && version == V1BETA2 && written("spec.admissionChecks") {
        refuse("spec.admissionChecks", V1BETA1, "admissionChecksStrategy.admissionChecks[].name");
    }
    if kind == Kind::ClusterQueue
        && version == V1BETA1
        && written("spec.admissionChecks")
        && written("spec.admissionChecksStrategy")
    {
        findings.error(
            FieldPath::of("spec.admissionChecks"),
            "cannot be used together with `admissionChecksStrategy`",
            "keep one of them",
        );
    }
}

fn upgrade(kind: Kind, object: &mut Value, findings: &Findings) {
    for (_, old, new) in MOVED.iter().filter(|(of, ..)| *of == kind) {
        rename(object, old, new);
    }
    match kind {
        Kind::ClusterQueue => kinds::upgrade_cluster_queue(object, findings),
        Kind::AdmissionCheck => kinds::upgrade_admission_check(object, findings),
        Kind::Workload => kinds::upgrade_workload(object, findings),
        _ => {}
    }
}

fn downgrade(kind: Kind, object: &mut Value) {
    for (_, old, new) in MOVED.iter().filter(|(of, ..)| *of == kind) {
        rename(object, new, old);
    }
    match kind {
        Kind::ClusterQueue => kinds::downgrade_cluster_queue(object),
        Kind::AdmissionCheck => kinds::downgrade_admission_check(object),
        Kind::MultiKueueCluster => drop_if_empty(object, "spec.clusterSource"),
        Kind::Workload => kinds::downgrade_workload(object),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
