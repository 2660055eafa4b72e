//! Objects that the pods of a job name, and that must be in the cluster that runs them.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Kinds of objects without which pods don't start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ReferenceKind {
    ServiceAccount,
    ConfigMap,
    Secret,
    PersistentVolumeClaim,
    PriorityClass,
}

impl ReferenceKind {
    /// The kind as manifests write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ServiceAccount => "ServiceAccount",
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::PriorityClass => "PriorityClass",
        }
    }
}

/// An object by its kind and name. One of a namespaced kind is in the job's namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Reference {
    pub kind: ReferenceKind,
    pub name: Arc<str>,
}
