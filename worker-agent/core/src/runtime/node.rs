//! Nodes, pools of nodes, and the node that each pod of a gang runs on.

use super::SimulatedPool;
use meridian_shared::gang::{Amounts, Taint};
use meridian_shared::time::Wall;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most nodes that [`placement_summary`] names.
const NODES_NAMED_MAX: usize = 16;

/// One node of the cluster, as an inventory source reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Unique in the cluster.
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    /// Time at which each taint appeared, if known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<(Taint, Wall)>,
    /// Total resources for pods (Kubernetes: allocatable), in base units.
    pub capacity: Amounts,
    /// The part of `capacity` used by pods that this agent did not start, in base units.
    #[serde(default, skip_serializing_if = "Amounts::is_empty")]
    pub foreign_use: Amounts,
    /// The node has failed: nothing is placed on it, and its pods need another node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unready: bool,
    /// Nothing new is placed on the node; its pods stay.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unschedulable: bool,
}

/// A pool of nodes that a provider can make, from zero up to `max_nodes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodePool {
    /// Unique in the cluster.
    pub name: String,
    /// How the capacity is bought: `reservation`, `flex-start`, `on-demand` or `spot`.
    pub capacity_class: Option<String>,
    /// Labels of every node of the pool.
    pub labels: BTreeMap<String, String>,
    /// Taints of every node of the pool.
    pub taints: Vec<Taint>,
    /// Resources of one node, in base units.
    pub per_node: Amounts,
    pub max_nodes: u32,
    /// Only for a simulated provider.
    pub simulated: SimulatedPool,
}

/// The node and the accelerators of one pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodPlacement {
    pub pod_set: String,
    /// Number within the pod set, from 0. Retries and later completions of a pod keep it.
    pub index: u32,
    pub node: String,
    /// Indexes of the accelerators that the pod may use, by extended resource.
    pub accelerators: BTreeMap<String, Vec<u32>>,
}

/// The number of pods per node, for logs: `node-1 4, node-2 4`.
pub fn placement_summary(placement: &[PodPlacement]) -> String {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for pod in placement {
        *counts.entry(&pod.node).or_default() += 1;
    }
    let mut parts: Vec<String> =
        counts.iter().take(NODES_NAMED_MAX).map(|(node, pods)| format!("{node} {pods}")).collect();
    if counts.len() > NODES_NAMED_MAX {
        parts.push(format!("and {} more", counts.len() - NODES_NAMED_MAX));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_names_sixteen_nodes_and_counts_the_others() {
        let on_nodes = |count: usize| -> String {
            let pod = |number| PodPlacement {
                pod_set: "main".into(),
                index: 0,
                node: format!("n{number:02}"),
                accelerators: BTreeMap::new(),
            };
            placement_summary(&(0..count).map(pod).collect::<Vec<_>>())
        };
        assert_eq!(on_nodes(2), "n00 1, n01 1");
        assert!(on_nodes(NODES_NAMED_MAX).ends_with("n15 1"));
        assert!(on_nodes(NODES_NAMED_MAX + 2).ends_with("n15 1, and 2 more"));
    }
}
