//! Nodes, and the check whether a node belongs to a topology.

use meridian_shared::gang::{Amounts, Taint};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Name of the node, by which pods outside topologies are counted.
    pub name: String,
    /// Labels. Those of the levels locate the node in the tree.
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// The node reports that it can run pods.
    pub ready: bool,
    /// An operator cordoned the node.
    #[serde(default)]
    pub unschedulable: bool,
    /// Amounts available to pods, in base units.
    pub allocatable: Amounts,
}

impl Node {
    /// Whether pods may be placed on the node at all, given the levels and labels of a flavor.
    pub(crate) fn belongs_to(&self, levels: &[String], flavor_labels: &BTreeMap<String, String>) -> bool {
        // A label that the flavor requires to be empty may be absent.
        let value = |key: &String| self.labels.get(key).map_or("", String::as_str);
        self.ready
            && !self.unschedulable
            && levels.iter().all(|level| self.labels.contains_key(level))
            && flavor_labels.iter().all(|(key, wanted)| value(key) == wanted)
    }
}
