//! How many nodes were left out of a search, and why.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// How many nodes were left out of a search, and why. Each node counts once, for the first thing that was against it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Exclusions {
    /// Nodes (or lowest domains) that were looked at.
    pub total: u32,
    /// Not selected by the node selector.
    pub node_selector: u32,
    /// Not matched by the required affinity.
    pub affinity: u32,
    /// Outside the domain in which a replacement must be.
    pub topology_domain: u32,
    /// By the taint that isn't tolerated.
    pub taints: BTreeMap<String, u32>,
    /// By the resource of which there is too little for a single pod.
    pub resources: BTreeMap<String, u32>,
}

impl Exclusions {
    /// Whether some node was left out.
    pub fn any(&self) -> bool {
        self.node_selector > 0
            || self.affinity > 0
            || self.topology_domain > 0
            || !self.taints.is_empty()
            || !self.resources.is_empty()
    }
}

impl fmt::Display for Exclusions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.any() {
            return Ok(());
        }
        let plain = [
            ("nodeSelector", self.node_selector),
            ("affinity", self.affinity),
            ("topologyDomain", self.topology_domain),
        ];
        let mut reasons: Vec<String> = plain
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{name}: {count}"))
            .collect();
        reasons.extend(self.taints.iter().map(|(taint, count)| format!("taint {taint:?}: {count}")));
        reasons
            .extend(self.resources.iter().map(|(resource, count)| format!("resource {resource:?}: {count}")));
        reasons.sort();
        write!(f, ". Total nodes: {}; excluded: {}", self.total, reasons.join(", "))
    }
}
