//! The nodes as they are reported to the manager, and facts for placement reports.

use super::Ledger;
use crate::runtime::NodeSpec;
use meridian_shared::ids::OfferId;
use meridian_shared::packing::{self, Block, HOSTNAME_LABEL};
use std::collections::{BTreeMap, BTreeSet};

impl Ledger {
    /// Equal nodes, counted. The host name is left out, because with it no two nodes would be equal. Nodes
    /// that were provided for one gang are left out, because no other gang can use them.
    pub fn blocks(&self) -> Vec<Block> {
        let mut counted: BTreeMap<Block, u32> = BTreeMap::new();
        let offered = |n: &super::Node| n.only_for.is_none() && !n.spec.unready && !n.spec.unschedulable;
        for (name, n) in self.nodes.iter().filter(|(_, n)| offered(n)) {
            let closed = self.is_closed(name);
            let free =
                n.free.iter().map(|(r, f)| (r.clone(), if closed { 0 } else { (*f).max(0) })).collect();
            let mut labels = n.spec.labels.clone();
            labels.remove(HOSTNAME_LABEL);
            let block = Block {
                nodes: 0,
                free,
                capacity: n.spec.capacity.clone(),
                labels,
                taints: n.spec.taints.clone(),
            };
            *counted.entry(block).or_insert(0) += 1;
        }
        counted.into_iter().map(|(b, nodes)| Block { nodes, ..b }).collect()
    }

    /// Pools that can grow.
    pub fn pools(&self) -> &[Block] {
        &self.pools
    }

    /// Labels of a node, if it exists.
    pub(crate) fn labels(&self, node: &str) -> Option<&BTreeMap<String, String>> {
        self.nodes.get(node).map(|n| &n.spec.labels)
    }

    /// The kind of a node, if it exists, as the manager computes it from [`Self::blocks`].
    pub(crate) fn kind(&self, node: &str) -> Option<u64> {
        self.nodes.get(node).map(|n| packing::node_kind(&n.spec.capacity, &n.spec.labels, &n.spec.taints))
    }

    /// Whether a node exists and is ready, whatever its taints.
    pub(crate) fn is_ready(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(|node| !node.spec.unready)
    }

    /// Nodes that were provided for this offer only.
    pub(crate) fn provided(&self, offer: OfferId) -> Vec<NodeSpec> {
        self.nodes
            .iter()
            .filter(|(_, node)| node.only_for == Some(offer))
            .map(|(_, node)| node.spec.clone())
            .collect()
    }

    /// The offers that nodes were provided for.
    pub(crate) fn provided_offers(&self) -> BTreeSet<OfferId> {
        self.nodes.iter().filter_map(|(_, node)| node.only_for).collect()
    }

    /// Whether any node gives more than it has. Only the loss of capacity under running gangs may cause it.
    pub fn overcommitted(&self) -> bool {
        self.nodes.iter().any(|(_, n)| n.free.values().any(|f| *f < 0))
    }
}
