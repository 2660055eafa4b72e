//! Nodes that are equal for packing, as one counted block.

use crate::gang::{Amounts, PodSet, Taint, TaintEffect, Tolerance};
use crate::ids::ContentHash;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The label with a node's name in Kubernetes. Reported blocks omit it, because it makes every node
/// different.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// A number of equal nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Block {
    pub nodes: u32,
    /// Free amounts of each node.
    pub free: Amounts,
    /// Total amounts of each node.
    pub capacity: Amounts,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
}

/// A borrowed [`Block`].
#[derive(Clone, Copy, Debug)]
pub struct BlockView<'a> {
    pub nodes: u32,
    /// Free amounts of each node.
    pub free: &'a Amounts,
    /// Total amounts of each node.
    pub capacity: &'a Amounts,
    pub labels: &'a BTreeMap<String, String>,
    pub taints: &'a [Taint],
}

impl BlockView<'_> {
    /// The block as if nothing ran on its nodes.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Self { free: self.capacity, ..*self }
    }

    /// A single node of the block.
    #[must_use]
    pub fn one(self) -> Self {
        Self { nodes: self.nodes.min(1), ..self }
    }

    /// Number of pods of a set for which each node has capacity.
    pub fn takes(&self, set: &PodSet) -> u32 {
        if self.accepts(set) { pods_that_fit(self.free, &set.per_pod) } else { 0 }
    }

    /// Whether pods of `set` may be placed on these nodes at all.
    pub(super) fn accepts(&self, set: &PodSet) -> bool {
        set.node_selector.iter().all(|(k, v)| self.is_unnamed(k) || self.labels.get(k) == Some(v))
            && (set.affinity.is_empty()
                || set
                    .affinity
                    .iter()
                    .any(|term| term.iter().all(|r| self.is_unnamed(&r.key) || r.matches(self.labels))))
            && self.taints.iter().all(|t| {
                t.effect == TaintEffect::PreferNoSchedule || Tolerance::of(&set.tolerations, t).is_some()
            })
    }

    /// Whether a requirement is about a node's name, which blocks don't have. Only the agent knows nodes by
    /// name, so such a requirement counts as met here.
    fn is_unnamed(&self, key: &str) -> bool {
        key == HOSTNAME_LABEL && !self.labels.contains_key(key)
    }
}

impl Block {
    pub fn view(&self) -> BlockView<'_> {
        let Self { nodes, free, capacity, labels, taints } = self;
        BlockView { nodes: *nodes, free, capacity, labels, taints }
    }

    /// Size as JSON with a comma, in bytes.
    pub fn weight(&self) -> usize {
        // Strings and numbers always serialize.
        serde_json::to_vec(self).unwrap_or_default().len() + 1
    }

    /// Identifies the kind of the block's nodes by a hash of their capacity, labels and taints, independent
    /// of free amounts. Agent and manager each compute it.
    pub fn node_kind(&self) -> u64 {
        node_kind(&self.capacity, &self.labels, &self.taints)
    }

    /// Sort order of blocks. Blocks of equal nodes compare equal, even if their numbers of nodes differ.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        (&self.free, &self.capacity, &self.labels, &self.taints).cmp(&(
            &other.free,
            &other.capacity,
            &other.labels,
            &other.taints,
        ))
    }
}

/// The hash of nodes with this capacity and these labels and taints. The node's name doesn't count.
pub fn node_kind(capacity: &Amounts, labels: &BTreeMap<String, String>, taints: &[Taint]) -> u64 {
    let labels: BTreeMap<&String, &String> =
        labels.iter().filter(|(key, _)| *key != HOSTNAME_LABEL).collect();
    // Strings and numbers always serialize.
    let text = serde_json::to_vec(&(capacity, labels, taints)).unwrap_or_default();
    u64::try_from(ContentHash::of(&text).0 >> 64).unwrap_or(u64::MAX)
}

/// How many pods with these requests fit into free amounts.
pub(super) fn pods_that_fit(free: &Amounts, each: &Amounts) -> u32 {
    let mut most = u32::MAX;
    for (resource, asks) in each.iter().filter(|(_, a)| **a > 0) {
        let has = free.get(resource).copied().unwrap_or(0).max(0);
        most = most.min(u32::try_from(has / asks).unwrap_or(u32::MAX));
    }
    most
}
