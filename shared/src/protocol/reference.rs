//! Objects that the pods of a job refer to, and that must exist in the cluster that runs the pods.

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
    /// Name of the kind in manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ServiceAccount => "ServiceAccount",
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::PriorityClass => "PriorityClass",
        }
    }

    /// The API server's resource of a kind that can be copied into a worker cluster; `None` for others.
    pub const fn copied_plural(self) -> Option<&'static str> {
        match self {
            Self::ConfigMap => Some("configmaps"),
            Self::Secret => Some("secrets"),
            Self::ServiceAccount | Self::PersistentVolumeClaim | Self::PriorityClass => None,
        }
    }
}

/// An object by its kind and name. An object of a namespaced kind is in the job's namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Reference {
    pub kind: ReferenceKind,
    pub name: Arc<str>,
}
