//! Number of nodes excluded from a search, by reason.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Number of nodes excluded from a search, by reason. Each node counts once, for the first reason that
/// applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Exclusions {
    /// Nodes (or lowest domains) considered.
    pub total: u32,
    /// Excluded by the node selector.
    pub node_selector: u32,
    /// Excluded by the required node affinity.
    pub affinity: u32,
    /// Outside the domain that a replacement must stay in.
    pub topology_domain: u32,
    /// Nodes by untolerated taint.
    pub taints: BTreeMap<String, u32>,
    /// Nodes by the resource that is insufficient for one pod.
    pub resources: BTreeMap<String, u32>,
}

impl Exclusions {
    /// Whether any node was excluded.
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
