//! The agent's nodes and their allocations: each gang holds resources for all its pods or for none.
//!
//! An allocation is the placement of a whole gang, kept under the id of its offer from the hold to the end of
//! the run. What a node has free is a cache over the allocations; [`Ledger::check`] recounts it.

use crate::placing::{self, Misfit, NodePods, NodeView};
use crate::runtime::{NodeSpec, PodPlacement};
use meridian_shared::gang::{Amounts, Gang};
use meridian_shared::ids::{Fence, OfferId, Uid};
use meridian_shared::managed::Division;
use meridian_shared::packing::Block;
use meridian_shared::time::Wall;
use std::collections::{BTreeMap, BTreeSet};

mod allocation;
mod check;
mod inventory;
mod nodes;
mod replacement;
#[cfg(test)]
mod tests;
mod toleration;
mod toleration_clock;

pub(crate) use allocation::Allocation;
use nodes::{Node, Nodes};
pub(crate) use toleration::{Arrival, TolerationDeadline};

/// Nodes, allocations, and pools that can grow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ledger {
    nodes: Nodes,
    allocations: BTreeMap<OfferId, Allocation>,
    /// Nodes of runs without an allocation here; an empty set means that the nodes of the run are unknown.
    closed: BTreeMap<(Uid, Fence), BTreeSet<String>>,
    pools: Vec<Block>,
    toleration: BTreeMap<OfferId, Vec<TolerationDeadline>>,
    now: Wall,
    /// Whether an inventory has arrived.
    known: bool,
    revision: u64,
}

impl Ledger {
    /// Takes the complete inventory. Allocations on a node that is gone stay charged until their gang ends.
    pub fn set_nodes(&mut self, nodes: Vec<NodeSpec>, pools: Vec<Block>) {
        self.nodes.replace(nodes);
        (self.pools, self.known) = (pools, true);
        for allocation in self.allocations.values() {
            for pod in allocation.charged() {
                self.nodes.charge(pod, &allocation.per_pod);
            }
        }
        self.revision += 1;
    }

    /// Adds nodes that a provider made for one offer.
    pub fn add_provided(&mut self, offer: OfferId, nodes: Vec<NodeSpec>) {
        self.nodes.add_provided(offer, nodes);
        self.revision += 1;
    }

    /// Allocates the whole gang. Fails if it does not fit; then nothing is allocated.
    pub fn hold(&mut self, offer: OfferId, gang: &Gang) -> Result<(), Misfit> {
        if self.allocations.contains_key(&offer) {
            return Ok(());
        }
        let allocation = self.allocate(gang, self.nodes.usable_by(offer))?;
        self.adopt(offer, allocation);
        Ok(())
    }

    /// Adds pod sets to an allocation of other pod sets of the same gang, on the nodes that were provided for
    /// the offer. Fails if they don't fit; then nothing changes.
    pub(crate) fn hold_provided(&mut self, offer: OfferId, more: &Gang) -> Result<(), Misfit> {
        let provided = self.nodes.usable_by(offer).filter(|(_, node)| node.only_for == Some(offer));
        let added = self.allocate(more, provided)?;
        for pod in added.charged() {
            self.nodes.charge(pod, &added.per_pod);
        }
        self.allocations.entry(offer).or_default().append(added);
        self.revision += 1;
        Ok(())
    }

    /// Checks whether pod sets fit now on the nodes that an offer may use. Fails with the obstacle.
    pub(crate) fn check_fits(&self, offer: OfferId, gang: &Gang) -> Result<(), Misfit> {
        self.allocate(gang, self.nodes.usable_by(offer)).map(drop)
    }

    /// An allocation for all pods of `gang` on these nodes, which isn't charged yet.
    fn allocate<'n>(
        &self,
        gang: &Gang,
        nodes: impl Iterator<Item = (&'n String, &'n Node)>,
    ) -> Result<Allocation, Misfit> {
        let open: Vec<(&String, &Node)> = nodes.filter(|(_, n)| !n.spec.unschedulable).collect();
        let views: Vec<NodeView<'_>> =
            open.iter().map(|(name, n)| n.view(name, self.is_closed(name))).collect();
        let placed_pods = placing::place(&views, gang)?;
        let first = vec![0_u32; gang.pod_sets.len()];
        let mut placement = placement_of(&placed_pods, gang, &open, first);
        let per_pod: BTreeMap<String, Amounts> =
            gang.pod_sets.iter().map(|s| (s.name.clone(), s.per_pod.clone())).collect();
        self.nodes.assign_accelerators(&mut placement, &per_pod);
        Ok(Allocation::new(placement, per_pod))
    }

    /// Charges an allocation that was made before, for instance in an earlier session.
    pub(crate) fn adopt(&mut self, offer: OfferId, allocation: Allocation) {
        for pod in allocation.charged() {
            self.nodes.charge(pod, &allocation.per_pod);
        }
        self.allocations.insert(offer, allocation);
        self.revision += 1;
    }

    /// Closes the nodes of a run that has no allocation here; all nodes if its nodes are unknown.
    pub(crate) fn close(&mut self, uid: Uid, fence: Fence, nodes: Vec<String>) {
        self.closed.insert((uid, fence), nodes.into_iter().collect());
        self.revision += 1;
    }

    /// Opens the nodes again: the run was seen ended.
    pub(crate) fn reopen(&mut self, uid: Uid, fence: Fence) {
        if self.closed.remove(&(uid, fence)).is_some() {
            self.revision += 1;
        }
    }

    fn is_closed(&self, node: &str) -> bool {
        self.closed.values().any(|nodes| nodes.is_empty() || nodes.contains(node))
    }

    /// Frees the resources of these pods of a gang. Returns whether any of these pods still had resources.
    pub fn reclaim(&mut self, offer: OfferId, places: &[(String, u32)]) -> bool {
        let Some(allocation) = self.allocations.get_mut(&offer) else { return false };
        let gone = allocation.unreclaimed(places);
        for at in &gone {
            self.nodes.discharge(&allocation.placement[*at], &allocation.per_pod);
        }
        allocation.reclaimed.extend(&gone);
        self.revision += u64::from(!gone.is_empty());
        !gone.is_empty()
    }

    /// Number of reclaimed pods of an allocation, per pod set.
    pub(crate) fn reclaimed_pods(&self, offer: OfferId) -> BTreeMap<String, u32> {
        self.allocations.get(&offer).map(Allocation::reclaimed_counts).unwrap_or_default()
    }

    /// Indexes of the reclaimed pods in the placement of an allocation.
    pub(crate) fn reclaimed_indexes(&self, offer: OfferId) -> &BTreeSet<usize> {
        const NONE: &BTreeSet<usize> = &BTreeSet::new();
        self.allocations.get(&offer).map_or(NONE, |allocation| &allocation.reclaimed)
    }

    /// Frees an allocation, and drops the nodes that were provided for it.
    pub fn release(&mut self, offer: OfferId) {
        self.toleration.remove(&offer);
        if let Some(allocation) = self.allocations.remove(&offer) {
            for pod in allocation.charged() {
                self.nodes.discharge(pod, &allocation.per_pod);
            }
            self.revision += 1;
        }
        self.revision += u64::from(self.nodes.drop_provided(offer));
    }

    /// Whether the offer has an allocation.
    pub fn is_allocated(&self, offer: OfferId) -> bool {
        self.allocations.contains_key(&offer)
    }

    /// Number of pods in the allocation of an offer.
    pub fn pods(&self, offer: OfferId) -> usize {
        self.allocations.get(&offer).map_or(0, |allocation| allocation.placement.len())
    }

    /// Placement of the pods of an offer; empty without an allocation.
    pub fn placement(&self, offer: OfferId) -> Vec<PodPlacement> {
        self.allocations.get(&offer).map(|allocation| allocation.placement.clone()).unwrap_or_default()
    }

    /// The pods of an offer that use their resources, with their nodes and accelerators.
    pub(crate) fn standing_pods(&self, offer: OfferId) -> impl Iterator<Item = &PodPlacement> {
        self.allocations.get(&offer).into_iter().flat_map(|of| of.standing().map(|(_, pod)| pod))
    }

    /// The allocation of an offer, to be stored with its run.
    pub(crate) fn allocation(&self, offer: OfferId) -> Allocation {
        self.allocations.get(&offer).cloned().unwrap_or_default()
    }

    /// Whether pools can still make the nodes that a gang needs.
    pub(crate) fn can_provision(&self, division: &Division) -> bool {
        division.can_be_provisioned(&self.pools)
    }

    /// Increases with every change of [`Self::blocks`] or [`Self::pools`].
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether an inventory has arrived.
    pub(crate) fn is_known(&self) -> bool {
        self.known
    }
}

/// Writes out the pods of `placed_pods`. `next` is the first free index per pod set.
fn placement_of(
    placed_pods: &[NodePods],
    gang: &Gang,
    nodes: &[(&String, &Node)],
    mut next: Vec<u32>,
) -> Vec<PodPlacement> {
    let mut placement = Vec::new();
    for placed in placed_pods {
        for _ in 0..placed.pods {
            placement.push(PodPlacement {
                pod_set: gang.pod_sets[placed.pod_set].name.clone(),
                index: next[placed.pod_set],
                node: nodes[placed.node].0.clone(),
                accelerators: BTreeMap::new(),
            });
            next[placed.pod_set] += 1;
        }
    }
    placement
}
