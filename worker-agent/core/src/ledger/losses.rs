//! Rooms on nodes that are lost: which they are, and another place for the pods that stood there.

use super::{Arrival, Ledger, Node, NodeSpec, PodPlacement, Room, stays};
use crate::placing::{self, Site, Standing, Why};
use meridian_shared::gang::{Amounts, Gang, TaintEffect, Tolerance};
use meridian_shared::ids::OfferId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

impl Ledger {
    /// Whether it is known which nodes there are.
    pub(crate) fn is_told(&self) -> bool {
        self.told
    }

    /// Nodes of the room that `gang` has under this offer that are gone, have failed, or drive one of its pods away, at once or
    /// after it was tolerant for long enough.
    pub fn lost(&self, offer: OfferId, gang: &Gang) -> BTreeSet<String> {
        let is_lost = |pod: &&PodPlacement| {
            let unfit = |node: &Node| {
                node.spec.unready || node.spec.drives_away(gang, &pod.pod_set) || self.outstays(offer, pod)
            };
            self.nodes.get(&pod.node).is_none_or(unfit)
        };
        let pods = self.rooms.get(&offer).into_iter().flat_map(Room::standing).map(|(_, pod)| pod);
        pods.filter(is_lost).map(|pod| pod.node.clone()).collect()
    }

    /// Whether a node is there and well, whomever it drives away.
    pub(crate) fn is_well(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(|node| !node.spec.unready)
    }

    /// Gives the pods on `lost` nodes other places, and keeps the old ones charged until [`Self::left`]. Every other pod stays.
    /// Where they may stay for a while only is as good as nowhere, unless it is failed nodes that they leave: then it is better.
    pub(crate) fn replace(
        &mut self,
        offer: OfferId,
        gang: &Gang,
        lost: &BTreeSet<String>,
    ) -> Result<(), Why> {
        let timed = gang
            .pod_sets
            .iter()
            .flat_map(|set| &set.tolerations)
            .any(|toleration| toleration.seconds.is_some());
        let failed = !lost.iter().any(|node| self.is_well(node));
        if timed {
            match self.replace_as(offer, &stays::impatient(gang), lost) {
                Err(_) if failed => {}
                answer => return answer.map(|()| self.come(offer, gang)),
            }
        }
        self.replace_as(offer, gang, lost).map(|()| self.come(offer, gang))
    }

    /// Pods have just come to where they are.
    fn come(&mut self, offer: OfferId, gang: &Gang) {
        self.count_stays(offer, gang, Arrival::Pods);
    }

    fn replace_as(&mut self, offer: OfferId, gang: &Gang, lost: &BTreeSet<String>) -> Result<(), Why> {
        let Some(room) = self.rooms.get(&offer) else { return Ok(()) };
        let standing = standing(gang, room, lost);
        // Pods that have succeeded need no place, and none in a topology either.
        let left: Vec<u32> = standing.iter().map(Standing::pods).collect();
        let gang = &if room.spare.is_empty() { gang.clone() } else { gang.of_counts(&left) };
        let open: Vec<(&String, &Node)> =
            self.open(offer).filter(|(name, _)| !lost.contains(*name)).collect();
        // Pods that stand on a node that takes nothing new count where they are.
        let nothing = Amounts::new();
        let full = |name: &str, node: &Node| node.spec.unschedulable || self.is_closed(name);
        let sites: Vec<Site<'_>> =
            open.iter().map(|(name, n)| n.site(name, full(name, n).then_some(&nothing))).collect();
        let name = lost.first().map_or("", String::as_str);
        let shares = placing::replace(&sites, gang, &standing, name)?;
        let mut places: BTreeMap<&str, VecDeque<&str>> = BTreeMap::new();
        for share in &shares {
            let (set, node) = (gang.pod_sets[share.pod_set].name.as_str(), open[share.node].0.as_str());
            places
                .entry(set)
                .or_default()
                .extend(std::iter::repeat_n(node, usize::try_from(share.pods).unwrap_or(0)));
        }
        let (mut moved, mut leaving) = (Vec::new(), Vec::new());
        for (at, pod) in room.standing().filter(|(_, pod)| lost.contains(&pod.node)) {
            let node = places
                .get_mut(pod.pod_set.as_str())
                .and_then(VecDeque::pop_front)
                .expect("every pod that lost its place has a new one");
            leaving.push(pod.clone());
            moved.push((
                at,
                PodPlacement { node: node.to_owned(), accelerators: BTreeMap::new(), ..pod.clone() },
            ));
        }
        let (at, mut pods): (Vec<usize>, Vec<PodPlacement>) = moved.into_iter().unzip();
        self.assign_accelerators(&mut pods, &room.per_pod);
        let mut room = self.rooms.remove(&offer).expect("found above");
        for (at, pod) in at.into_iter().zip(pods) {
            super::charge(&mut self.nodes, &pod, &room.per_pod);
            room.placement[at] = pod;
        }
        room.leaving.extend(leaving);
        self.rooms.insert(offer, room);
        self.revision += 1;
        Ok(())
    }

    /// Gives the gang of this room as many more pods of each set as `added` says, all of them or none; it is `grown` then. Every
    /// other pod stays.
    pub(crate) fn grow(&mut self, offer: OfferId, grown: &Gang, added: &[u32]) -> Result<(), Why> {
        let Some(room) = self.rooms.get(&offer) else { return Ok(()) };
        let mut standing = standing(grown, room, &BTreeSet::new());
        standing.iter_mut().zip(added).for_each(|(standing, added)| standing.missing = *added);
        let needed: Vec<u32> = standing.iter().map(Standing::pods).collect();
        let open: Vec<(&String, &Node)> = self.open(offer).collect();
        let nothing = Amounts::new();
        let full = |name: &str, node: &Node| node.spec.unschedulable || self.is_closed(name);
        let sites: Vec<Site<'_>> =
            open.iter().map(|(name, n)| n.site(name, full(name, n).then_some(&nothing))).collect();
        // As if they had stood on a node that is gone.
        let shares = placing::replace(&sites, &grown.of_counts(&needed), &standing, "")?;
        let count = |set: &str| room.placement.iter().filter(|pod| pod.pod_set == set).count();
        let mut next: Vec<u32> =
            grown.pod_sets.iter().map(|set| u32::try_from(count(&set.name)).unwrap_or(u32::MAX)).collect();
        let mut pods = Vec::new();
        for share in &shares {
            let (set, node) = (&grown.pod_sets[share.pod_set], open[share.node].0);
            for _ in 0..share.pods {
                pods.push(PodPlacement {
                    pod_set: set.name.clone(),
                    index: next[share.pod_set],
                    node: node.clone(),
                    accelerators: BTreeMap::new(),
                });
                next[share.pod_set] += 1;
            }
        }
        self.assign_accelerators(&mut pods, &room.per_pod);
        let mut room = self.rooms.remove(&offer).expect("found above");
        for pod in pods {
            super::charge(&mut self.nodes, &pod, &room.per_pod);
            room.placement.push(pod);
        }
        self.rooms.insert(offer, room);
        self.revision += 1;
        self.come(offer, grown);
        Ok(())
    }

    /// Where pods of this room still may be that have another place.
    pub(crate) fn leaving(&self, offer: OfferId) -> &[PodPlacement] {
        self.rooms.get(&offer).map(|room| room.leaving.as_slice()).unwrap_or_default()
    }

    /// Nothing is left any more of the pods that had to leave.
    pub(crate) fn left(&mut self, offer: OfferId) {
        let Some(room) = self.rooms.get_mut(&offer) else { return };
        for pod in std::mem::take(&mut room.leaving) {
            super::discharge(&mut self.nodes, &pod, &room.per_pod);
        }
        self.revision += 1;
    }

    /// Nodes that were provided for this offer only.
    pub(crate) fn provided(&self, offer: OfferId) -> Vec<NodeSpec> {
        self.nodes
            .values()
            .filter(|node| node.only_for == Some(offer))
            .map(|node| node.spec.clone())
            .collect()
    }
}

impl NodeSpec {
    /// Whether a taint of the node ends pods of this set that run there.
    fn drives_away(&self, gang: &Gang, pod_set: &str) -> bool {
        let mut taints = self.taints.iter().filter(|taint| taint.effect == TaintEffect::NoExecute).peekable();
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

/// What of each pod set stays, and how much of it needs another place.
fn standing<'a>(gang: &Gang, room: &'a Room, lost: &BTreeSet<String>) -> Vec<Standing<'a>> {
    let of = |name: &str| {
        let mut standing = Standing::default();
        for (_, pod) in room.standing().filter(|(_, pod)| pod.pod_set == name) {
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
