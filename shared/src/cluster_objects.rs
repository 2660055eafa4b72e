//! How an agent learns what was applied for its cluster, without files of its own.
//!
//! ```text
//! agent                                   manager
//!   │ GET CLUSTER_OBJECTS_PATH ─────────────▶│  at its start, and then regularly
//!   │◀──────────────────── ClusterObjects    │  of the cluster that its certificate names
//! ```
//!
//! A request of its own and never part of a sync: settings must not delay a lease.

use serde::{Deserialize, Serialize};

pub const CLUSTER_OBJECTS_PATH: &str = "/agent/v1/cluster-objects";

/// The `Cluster` of an agent and the ProvisioningRequestConfigs that were applied for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterObjects {
    /// Each as a manifest in JSON, without a status.
    pub objects: Vec<String>,
}
