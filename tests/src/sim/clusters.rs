//! The clusters of a simulation, and what is declared about them.

use serde_json::{Value, json};

/// The resource that all jobs request.
pub(crate) const GPU: &str = "nvidia.com/gpu";
/// Accelerators of one node.
pub(crate) const NODE_GPUS: i64 = 4;

/// Name, region and jurisdiction of each cluster.
pub(crate) const CLUSTERS: [(&str, &str, &str); 5] = [
    ("eu", "europe-west4", "EU"),
    ("us", "us-east4", "US"),
    ("asia", "asia-southeast1", "SG"),
    ("north", "europe-north1", "EU"),
    ("liar", "us-west1", "US"),
];
/// Index of the cluster that joins late.
pub(crate) const LATE: usize = 3;
/// Index of the cluster with a hostile agent.
pub(crate) const HOSTILE: usize = 4;

/// The most accelerators that each cluster may be believed to have, if that is bounded.
pub(crate) type GpuLimits = [Option<i64>; CLUSTERS.len()];

/// The index of the cluster with this name.
pub(crate) fn cluster_index(name: &str) -> Option<usize> {
    CLUSTERS.iter().position(|(known, ..)| *known == name)
}

/// Whether this is the cluster with the hostile agent.
pub(crate) fn is_hostile(name: &str) -> bool {
    name == CLUSTERS[HOSTILE].0
}

/// The `Cluster` object of a cluster.
pub(crate) fn cluster_manifest(cluster: usize, limit: Option<i64>) -> Value {
    let (name, region, jurisdiction) = CLUSTERS[cluster];
    let limits = limit.map_or_else(|| json!({}), |limit| json!({GPU: limit.to_string()}));
    let spec = json!({"region": region, "jurisdiction": jurisdiction, "limits": limits});
    json!({
        "apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": name}, "spec": spec,
    })
}
