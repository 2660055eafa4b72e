//! The nodes, and what is free on each: a cache over the allocations.

use crate::placing::{NodeView, PODS_UNSTATED};
use crate::runtime::{NodeSpec, PodPlacement};
use meridian_shared::gang::{Amounts, Gang, TaintEffect, Tolerance};
use meridian_shared::ids::OfferId;
use meridian_topology::PODS;
use std::collections::{BTreeMap, BTreeSet};

/// One node with what is free on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) spec: NodeSpec,
    pub(super) free: Amounts,
    /// Pods of allocations on this node.
    pub(super) pods: i64,
    /// Accelerator indexes in use, per extended resource.
    taken: BTreeMap<String, BTreeSet<u32>>,
    /// A node that was provided for one offer is released with it.
    pub(super) only_for: Option<OfferId>,
}

impl Node {
    fn new(spec: NodeSpec, only_for: Option<OfferId>) -> Self {
        let mut free = spec.capacity.clone();
        for (resource, free) in &mut free {
            *free -= spec.foreign_use.get(resource).copied().unwrap_or(0);
        }
        Self { free, spec, pods: 0, taken: BTreeMap::new(), only_for }
    }

    /// The node as the placing sees it. `full`: no pod may be placed on it now.
    pub(super) fn view<'a>(&'a self, name: &'a str, full: bool) -> NodeView<'a> {
        const NOTHING: &Amounts = &Amounts::new();
        let NodeSpec { labels, taints, capacity, .. } = &self.spec;
        if full {
            return NodeView { name, labels, taints, capacity, free: NOTHING, pods_free: 0 };
        }
        let pods_free = self.free.get(PODS).copied().unwrap_or(PODS_UNSTATED) - self.pods;
        NodeView { name, labels, taints, capacity, free: &self.free, pods_free }
    }

    /// Whether a taint of the node evicts pods of this set at once.
    pub(super) fn evicts(&self, gang: &Gang, pod_set: &str) -> bool {
        let mut taints =
            self.spec.taints.iter().filter(|taint| taint.effect == TaintEffect::NoExecute).peekable();
        if taints.peek().is_none() {
            return false;
        }
        let tolerations = gang
            .pod_sets
            .iter()
            .find(|set| set.name == pod_set)
            .map(|set| set.tolerations.as_slice())
            .unwrap_or_default();
        taints.any(|taint| !Tolerance::of(tolerations, taint).is_some())
    }
}

/// All nodes, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Nodes {
    by_name: BTreeMap<String, Node>,
    /// Offers that nodes were provided for. For most offers this saves a search through all nodes.
    provided_for: BTreeSet<OfferId>,
}

impl Nodes {
    /// Replaces the inventory; nodes that were provided for one offer stay. Allocations must be charged again
    /// afterwards.
    pub(super) fn replace(&mut self, nodes: Vec<NodeSpec>) {
        let provided: Vec<Node> =
            self.iter().filter(|(_, n)| n.only_for.is_some()).map(|(_, n)| n.clone()).collect();
        self.by_name = nodes
            .into_iter()
            .map(|spec| (spec.name.clone(), Node::new(spec, None)))
            .chain(provided.into_iter().map(|n| (n.spec.name.clone(), Node::new(n.spec, n.only_for))))
            .collect();
    }

    /// Adds nodes that were provided for one offer.
    pub(super) fn add_provided(&mut self, offer: OfferId, nodes: Vec<NodeSpec>) {
        self.provided_for.insert(offer);
        for spec in nodes {
            self.by_name.insert(spec.name.clone(), Node::new(spec, Some(offer)));
        }
    }

    /// Drops the nodes that were provided for an offer. Returns whether there were any.
    pub(super) fn drop_provided(&mut self, offer: OfferId) -> bool {
        if !self.provided_for.remove(&offer) {
            return false;
        }
        let before = self.by_name.len();
        self.by_name.retain(|_, node| node.only_for != Some(offer));
        self.by_name.len() < before
    }

    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        self.by_name.get(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Node)> {
        self.by_name.iter()
    }

    /// The nodes that a gang of this offer may use.
    pub(super) fn usable_by(&self, offer: OfferId) -> impl Iterator<Item = (&String, &Node)> {
        self.iter().filter(move |(_, n)| !n.spec.unready && n.only_for.is_none_or(|o| o == offer))
    }

    /// Charges a pod to its node. A node that is gone is charged nothing.
    pub(super) fn charge(&mut self, pod: &PodPlacement, per_pod: &BTreeMap<String, Amounts>) {
        let Some(node) = self.by_name.get_mut(&pod.node) else { return };
        node.pods += 1;
        for (resource, amount) in &per_pod[&pod.pod_set] {
            if let Some(free) = node.free.get_mut(resource) {
                *free -= amount;
            }
        }
        for (resource, indexes) in &pod.accelerators {
            node.taken.entry(resource.clone()).or_default().extend(indexes);
        }
    }

    /// The reverse of [`Self::charge`].
    pub(super) fn discharge(&mut self, pod: &PodPlacement, per_pod: &BTreeMap<String, Amounts>) {
        let Some(node) = self.by_name.get_mut(&pod.node) else { return };
        node.pods -= 1;
        for (resource, amount) in &per_pod[&pod.pod_set] {
            if let Some(free) = node.free.get_mut(resource) {
                *free += amount;
            }
        }
        for (resource, indexes) in &pod.accelerators {
            if let Some(taken) = node.taken.get_mut(resource) {
                indexes.iter().for_each(|i| {
                    taken.remove(i);
                });
            }
        }
    }

    /// Gives each pod the lowest free indexes of its extended resources (those with a `/` in the name).
    pub(super) fn assign_accelerators(
        &self,
        placement: &mut [PodPlacement],
        per_pod: &BTreeMap<String, Amounts>,
    ) {
        let mut taken: BTreeMap<(String, String), BTreeSet<u32>> = BTreeMap::new();
        for pod in placement {
            for (resource, amount) in per_pod[&pod.pod_set].iter().filter(|(r, a)| r.contains('/') && **a > 0)
            {
                let used = taken.entry((pod.node.clone(), resource.clone())).or_insert_with(|| {
                    self.by_name[&pod.node].taken.get(resource).cloned().unwrap_or_default()
                });
                let chosen: Vec<u32> =
                    (0..).filter(|i| !used.contains(i)).take(usize::try_from(*amount).unwrap_or(0)).collect();
                used.extend(&chosen);
                pod.accelerators.insert(resource.clone(), chosen);
            }
        }
    }
}
