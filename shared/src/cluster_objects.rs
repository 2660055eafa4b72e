//! Message by which an agent gets the objects that were applied for its cluster, so that it needs no files.
//!
//! ```text
//! agent                                   manager
//!   │ GET CLUSTER_OBJECTS_PATH ─────────────▶│  at its start, and then regularly
//!   │◀──────────────────── ClusterObjects    │  of the cluster that its certificate names
//! ```
//!
//! A separate request and never part of a sync, because settings must not delay a lease.

use serde::{Deserialize, Serialize};

pub const CLUSTER_OBJECTS_PATH: &str = "/agent/v1/cluster-objects";

/// The `Cluster` of an agent and the ProvisioningRequestConfigs that were applied for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterObjects {
    /// The objects as manifests in JSON, without status.
    pub objects: Vec<String>,
}
