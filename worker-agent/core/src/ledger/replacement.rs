//! Lost nodes under allocations, and new nodes for the pods on them; added pods of a gang that scales up.

use super::{Allocation, Arrival, Ledger, Node, placement_of, toleration};
use crate::placing::{self, NodePods, NodeView, Obstacle, RemainingPods};
use crate::runtime::PodPlacement;
use meridian_shared::gang::Gang;
use meridian_shared::ids::OfferId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

impl Ledger {
    /// Nodes of the allocation of `gang` that are gone, have failed, or evict one of its pods, at once or
    /// because a toleration ended.
    pub fn lost_nodes(&self, offer: OfferId, gang: &Gang) -> BTreeSet<String> {
        let is_lost = |pod: &&PodPlacement| {
            self.nodes.get(&pod.node).is_none_or(|node| {
                node.spec.unready || node.evicts(gang, &pod.pod_set) || self.is_toleration_over(offer, pod)
            })
        };
        let pods =
            self.allocations.get(&offer).into_iter().flat_map(Allocation::standing).map(|(_, pod)| pod);
        pods.filter(is_lost).map(|pod| pod.node.clone()).collect()
    }

    /// Gives the pods on `lost` nodes new nodes. The old ones stay charged until [`Self::finish_move`]; all
    /// other pods stay. Nodes that the gang tolerates for a limited time only are used last, and only if the
    /// lost nodes have failed. Fails if the pods fit nowhere; then nothing changes.
    pub(crate) fn replace(
        &mut self,
        offer: OfferId,
        gang: &Gang,
        lost: &BTreeSet<String>,
    ) -> Result<(), Obstacle> {
        let limited = gang
            .pod_sets
            .iter()
            .flat_map(|set| &set.tolerations)
            .any(|toleration| toleration.seconds.is_some());
        let failed = !lost.iter().any(|node| self.is_ready(node));
        if limited {
            match self.replace_within(offer, &toleration::without_limited_tolerations(gang), lost) {
                Err(_) if failed => {}
                result => return result.map(|()| self.count_new_pods(offer, gang)),
            }
        }
        self.replace_within(offer, gang, lost).map(|()| self.count_new_pods(offer, gang))
    }

    fn count_new_pods(&mut self, offer: OfferId, gang: &Gang) {
        self.count_toleration(offer, gang, Arrival::Pods);
    }

    fn replace_within(
        &mut self,
        offer: OfferId,
        gang: &Gang,
        lost: &BTreeSet<String>,
    ) -> Result<(), Obstacle> {
        let Some(allocation) = self.allocations.get(&offer) else { return Ok(()) };
        let standing = standing(gang, allocation, lost);
        // Reclaimed pods need no node, and none in a topology either.
        let left: Vec<u32> = standing.iter().map(RemainingPods::pods).collect();
        let gang = &if allocation.reclaimed.is_empty() { gang.clone() } else { gang.with_counts(&left) };
        let open: Vec<(&String, &Node)> =
            self.nodes.usable_by(offer).filter(|(name, _)| !lost.contains(*name)).collect();
        let views = self.views(&open);
        let name = lost.first().map_or("", String::as_str);
        let placed_pods = placing::replace(&views, gang, &standing, name)?;
        let mut targets = targets(&placed_pods, gang, &open);
        let (mut moved, mut leaving) = (Vec::new(), Vec::new());
        for (at, pod) in allocation.standing().filter(|(_, pod)| lost.contains(&pod.node)) {
            let node = targets
                .get_mut(pod.pod_set.as_str())
                .and_then(VecDeque::pop_front)
                .expect("every pod that lost its node has a new one");
            leaving.push(pod.clone());
            moved.push((
                at,
                PodPlacement { node: node.to_owned(), accelerators: BTreeMap::new(), ..pod.clone() },
            ));
        }
        let (at, mut pods): (Vec<usize>, Vec<PodPlacement>) = moved.into_iter().unzip();
        self.nodes.assign_accelerators(&mut pods, &allocation.per_pod);
        let allocation = self.allocations.get_mut(&offer).expect("found above");
        for (at, pod) in at.into_iter().zip(pods) {
            self.nodes.charge(&pod, &allocation.per_pod);
            allocation.placement[at] = pod;
        }
        allocation.leaving.extend(leaving);
        self.revision += 1;
        Ok(())
    }

    /// Adds `added` pods to each set of an allocation, all or none; `scaled_up` is the resulting gang. The
    /// other pods stay. Fails if the added pods don't fit; then nothing changes.
    pub(crate) fn scale_up(
        &mut self,
        offer: OfferId,
        scaled_up: &Gang,
        added: &[u32],
    ) -> Result<(), Obstacle> {
        let Some(allocation) = self.allocations.get(&offer) else { return Ok(()) };
        let mut standing = standing(scaled_up, allocation, &BTreeSet::new());
        standing.iter_mut().zip(added).for_each(|(standing, added)| standing.missing = *added);
        let needed: Vec<u32> = standing.iter().map(RemainingPods::pods).collect();
        let open: Vec<(&String, &Node)> = self.nodes.usable_by(offer).collect();
        let views = self.views(&open);
        // The added pods are placed like pods of a lost node without a name.
        let placed_pods = placing::replace(&views, &scaled_up.with_counts(&needed), &standing, "")?;
        let count = |set: &str| allocation.placement.iter().filter(|pod| pod.pod_set == set).count();
        let next: Vec<u32> = scaled_up
            .pod_sets
            .iter()
            .map(|set| u32::try_from(count(&set.name)).unwrap_or(u32::MAX))
            .collect();
        let mut pods = placement_of(&placed_pods, scaled_up, &open, next);
        self.nodes.assign_accelerators(&mut pods, &allocation.per_pod);
        let allocation = self.allocations.get_mut(&offer).expect("found above");
        for pod in pods {
            self.nodes.charge(&pod, &allocation.per_pod);
            allocation.placement.push(pod);
        }
        self.revision += 1;
        self.count_new_pods(offer, scaled_up);
        Ok(())
    }

    /// The nodes as a replacement sees them. Pods that stay on an unschedulable node are counted there.
    fn views<'a>(&self, open: &[(&'a String, &'a Node)]) -> Vec<NodeView<'a>> {
        let full = |name: &str, node: &Node| node.spec.unschedulable || self.is_closed(name);
        open.iter().map(|(name, node)| node.view(name, full(name, node))).collect()
    }

    /// Former placements of moved pods that were not yet seen ended there.
    pub(crate) fn leaving(&self, offer: OfferId) -> &[PodPlacement] {
        self.allocations.get(&offer).map(|allocation| allocation.leaving.as_slice()).unwrap_or_default()
    }

    /// Frees the former placements: the moved pods were seen ended there.
    pub(crate) fn finish_move(&mut self, offer: OfferId) {
        let Some(allocation) = self.allocations.get_mut(&offer) else { return };
        for pod in std::mem::take(&mut allocation.leaving) {
            self.nodes.discharge(&pod, &allocation.per_pod);
        }
        self.revision += 1;
    }
}

/// One node name per pod of `placed_pods`, by pod set.
fn targets<'a>(
    placed_pods: &[NodePods],
    gang: &'a Gang,
    nodes: &[(&'a String, &Node)],
) -> BTreeMap<&'a str, VecDeque<&'a str>> {
    let mut targets: BTreeMap<&str, VecDeque<&str>> = BTreeMap::new();
    for placed in placed_pods {
        let (set, node) = (gang.pod_sets[placed.pod_set].name.as_str(), nodes[placed.node].0.as_str());
        let pods = usize::try_from(placed.pods).unwrap_or(0);
        targets.entry(set).or_default().extend(std::iter::repeat_n(node, pods));
    }
    targets
}

/// For each pod set: the pods that stay, and the number that need a new node.
fn standing<'a>(gang: &Gang, allocation: &'a Allocation, lost: &BTreeSet<String>) -> Vec<RemainingPods<'a>> {
    let of = |name: &str| {
        let mut standing = RemainingPods::default();
        for (_, pod) in allocation.standing().filter(|(_, pod)| pod.pod_set == name) {
            if lost.contains(&pod.node) {
                standing.missing += 1;
            } else {
                *standing.kept.entry(pod.node.as_str()).or_insert(0) += 1;
            }
        }
        standing
    };
    gang.pod_sets.iter().map(|set| of(&set.name)).collect()
}
