//! The agent's nodes and who has room on them: all or nothing per gang.
//!
//! A room is the placement of a whole gang, held under its offer's id from hold to grave. What a node has free is a cache
//! over the rooms; [`Ledger::check`] recounts it.

use crate::placing::{self, Misfit, PODS_UNSTATED, Site};
use meridian_shared::gang::{Amounts, Gang, Taint};
use meridian_shared::ids::{Fence, OfferId, Uid};
use meridian_shared::packing::{self, Block, HOSTNAME_LABEL};
use meridian_shared::time::Wall;
use meridian_topology::PODS;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

mod losses;
mod stays;

pub(crate) use stays::{Arrival, Stay};

/// Most nodes of a placement that a log names.
const NODES_NAMED_MAX: usize = 16;

/// One node as it is found.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Its name, unique in the cluster.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// When some of the taints appeared; of the others nobody says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<(Taint, Wall)>,
    /// What it has for pods.
    pub capacity: Amounts,
    /// It has failed: nothing is placed on it, and what is there needs another place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unready: bool,
    /// Nothing new is placed on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unschedulable: bool,
}

/// Where one pod of a gang goes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodPlacement {
    /// Name of its pod set.
    pub pod_set: String,
    /// Its number within the pod set.
    pub index: u32,
    /// The node.
    pub node: String,
    /// Indexes of the accelerators it may see, per extended resource.
    pub accelerators: BTreeMap<String, Vec<u32>>,
}

/// Where pods go, in words for a log: `node-1 4, node-2 4`.
pub fn in_words(placement: &[PodPlacement]) -> String {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for pod in placement {
        *counts.entry(&pod.node).or_default() += 1;
    }
    let mut words: Vec<String> =
        counts.iter().take(NODES_NAMED_MAX).map(|(node, pods)| format!("{node} {pods}")).collect();
    if counts.len() > NODES_NAMED_MAX {
        words.push(format!("and {} more", counts.len() - NODES_NAMED_MAX));
    }
    words.join(", ")
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Node {
    spec: NodeSpec,
    free: Amounts,
    /// Pods of rooms that are on it.
    pods: i64,
    taken: BTreeMap<String, BTreeSet<u32>>,
    /// Provided for one offer only, and gone with it.
    only_for: Option<OfferId>,
}

/// What one gang holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Room {
    /// Where its pods go.
    pub(crate) placement: Vec<PodPlacement>,
    /// What one pod of each pod set takes.
    pub(crate) per_pod: BTreeMap<String, Amounts>,
    /// Where pods were that have another place now, while they aren't seen ended there.
    pub(crate) leaving: Vec<PodPlacement>,
    /// Which of the placement have succeeded and take nothing any more.
    pub(crate) spare: BTreeSet<usize>,
}

impl Room {
    /// Its pods that still need a place, as the placement counts them.
    fn standing(&self) -> impl Iterator<Item = (usize, &PodPlacement)> {
        self.placement.iter().enumerate().filter(|(at, _)| !self.spare.contains(at))
    }

    /// All that takes room.
    fn there(&self) -> impl Iterator<Item = &PodPlacement> {
        self.standing().map(|(_, pod)| pod).chain(&self.leaving)
    }
}

/// Nodes, rooms, and pools that could grow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ledger {
    nodes: BTreeMap<String, Node>,
    rooms: BTreeMap<OfferId, Room>,
    /// Nodes on which gangs stand that nobody remembers; none named means that it can't be told which.
    closed: BTreeMap<(Uid, Fence), BTreeSet<String>>,
    pools: Vec<Block>,
    /// How long whom is still tolerated where.
    stays: BTreeMap<OfferId, Vec<Stay>>,
    /// What time it is.
    now: Wall,
    /// Whether anybody has said yet which nodes there are.
    told: bool,
    revision: u64,
}

impl Ledger {
    /// Takes the nodes that exist now. Rooms on a node that is gone stay charged until their gang ends.
    pub fn set_nodes(&mut self, nodes: Vec<NodeSpec>, pools: Vec<Block>) {
        let provided: Vec<Node> = self.nodes.values().filter(|n| n.only_for.is_some()).cloned().collect();
        self.nodes = nodes
            .into_iter()
            .map(|spec| (spec.name.clone(), node(spec, None)))
            .chain(provided.into_iter().map(|n| (n.spec.name.clone(), node(n.spec, n.only_for))))
            .collect();
        (self.pools, self.told) = (pools, true);
        let rooms = std::mem::take(&mut self.rooms);
        for (offer, room) in rooms {
            self.charge(offer, room);
        }
        self.revision += 1;
    }

    /// Adds nodes that a provider made for one offer.
    pub fn add_provided(&mut self, offer: OfferId, nodes: Vec<NodeSpec>) {
        for spec in nodes {
            self.nodes.insert(spec.name.clone(), node(spec, Some(offer)));
        }
        self.revision += 1;
    }

    /// Places the whole gang and holds its room, or says why not.
    pub fn hold(&mut self, offer: OfferId, gang: &Gang) -> Result<(), Misfit> {
        if self.rooms.contains_key(&offer) {
            return Ok(());
        }
        let open: Vec<(&String, &Node)> = self.open(offer).filter(|(_, n)| !n.spec.unschedulable).collect();
        let nothing = Amounts::new();
        let sites: Vec<Site<'_>> =
            open.iter().map(|(name, n)| n.site(name, self.is_closed(name).then_some(&nothing))).collect();
        let shares = placing::place(&sites, gang)?;
        let mut placement = Vec::new();
        let mut next = vec![0_u32; gang.pod_sets.len()];
        for share in shares {
            let set = &gang.pod_sets[share.pod_set];
            for _ in 0..share.pods {
                let index = next[share.pod_set];
                next[share.pod_set] += 1;
                placement.push(PodPlacement {
                    pod_set: set.name.clone(),
                    index,
                    node: open[share.node].0.clone(),
                    accelerators: BTreeMap::new(),
                });
            }
        }
        let per_pod: BTreeMap<String, Amounts> =
            gang.pod_sets.iter().map(|s| (s.name.clone(), s.per_pod.clone())).collect();
        self.assign_accelerators(&mut placement, &per_pod);
        self.charge(offer, Room { placement, per_pod, leaving: Vec::new(), spare: BTreeSet::new() });
        self.revision += 1;
        Ok(())
    }

    /// Nodes that a gang of this offer may stand on.
    fn open(&self, offer: OfferId) -> impl Iterator<Item = (&String, &Node)> {
        self.nodes.iter().filter(move |(_, n)| !n.spec.unready && n.only_for.is_none_or(|o| o == offer))
    }

    /// Takes back a room that an earlier session placed.
    pub(crate) fn adopt(&mut self, offer: OfferId, room: Room) {
        self.charge(offer, room);
        self.revision += 1;
    }

    /// Holds nothing on these nodes while a gang stands there that has no room; on no node at all where none is named.
    pub(crate) fn close(&mut self, uid: Uid, fence: Fence, nodes: Vec<String>) {
        self.closed.insert((uid, fence), nodes.into_iter().collect());
        self.revision += 1;
    }

    /// That gang is gone.
    pub(crate) fn reopen(&mut self, uid: Uid, fence: Fence) {
        if self.closed.remove(&(uid, fence)).is_some() {
            self.revision += 1;
        }
    }

    fn is_closed(&self, node: &str) -> bool {
        self.closed.values().any(|nodes| nodes.is_empty() || nodes.contains(node))
    }

    /// Gives back the room of these pods of a gang; whether any of them had any left.
    pub fn leave(&mut self, offer: OfferId, places: &[(String, u32)]) -> bool {
        let Some(room) = self.rooms.get_mut(&offer) else { return false };
        let leaving: BTreeSet<(&str, u32)> =
            places.iter().map(|(pod_set, index)| (pod_set.as_str(), *index)).collect();
        let leaves = |pod: &PodPlacement| leaving.contains(&(pod.pod_set.as_str(), pod.index));
        let gone: Vec<usize> = (0..room.placement.len())
            .filter(|at| !room.spare.contains(at) && leaves(&room.placement[*at]))
            .collect();
        for at in &gone {
            discharge(&mut self.nodes, &room.placement[*at], &room.per_pod);
        }
        room.spare.extend(&gone);
        self.revision += u64::from(!gone.is_empty());
        !gone.is_empty()
    }

    /// Which pods of this room's placement gave back their room.
    pub(crate) fn spare(&self, offer: OfferId) -> &BTreeSet<usize> {
        const NONE: &BTreeSet<usize> = &BTreeSet::new();
        self.rooms.get(&offer).map_or(NONE, |room| &room.spare)
    }

    /// How many they are of each pod set.
    pub(crate) fn spare_pods(&self, offer: OfferId) -> BTreeMap<String, u32> {
        let mut pods = BTreeMap::new();
        for pod in self
            .rooms
            .get(&offer)
            .into_iter()
            .flat_map(|room| room.spare.iter().filter_map(|at| room.placement.get(*at)))
        {
            *pods.entry(pod.pod_set.clone()).or_default() += 1;
        }
        pods
    }

    /// Gives a room back, and forgets nodes that were provided for it.
    pub fn release(&mut self, offer: OfferId) {
        self.stays.remove(&offer);
        if let Some(room) = self.rooms.remove(&offer) {
            for pod in room.there() {
                discharge(&mut self.nodes, pod, &room.per_pod);
            }
            self.revision += 1;
        }
        if self.nodes.values().any(|n| n.only_for == Some(offer)) {
            self.nodes.retain(|_, n| n.only_for != Some(offer));
            self.revision += 1;
        }
    }

    /// Whether a room is held under this offer.
    pub fn has_room(&self, offer: OfferId) -> bool {
        self.rooms.contains_key(&offer)
    }

    /// Pods that the room under this offer has.
    pub fn pods(&self, offer: OfferId) -> usize {
        self.rooms.get(&offer).map_or(0, |r| r.placement.len())
    }

    /// Where the pods of the room under this offer go.
    pub fn placement(&self, offer: OfferId) -> Vec<PodPlacement> {
        self.rooms.get(&offer).map(|r| r.placement.clone()).unwrap_or_default()
    }

    /// Labels of a node that is there.
    pub(crate) fn labels(&self, node: &str) -> Option<&BTreeMap<String, String>> {
        self.nodes.get(node).map(|n| &n.spec.labels)
    }

    /// Of which kind a node is that is there: as [`Self::blocks`] shows it.
    pub(crate) fn kind(&self, node: &str) -> Option<u64> {
        self.nodes.get(node).map(|n| packing::kind(&n.spec.capacity, &n.spec.labels, &n.spec.taints))
    }

    pub(crate) fn per_pod(&self, offer: OfferId) -> BTreeMap<String, Amounts> {
        self.rooms.get(&offer).map(|r| r.per_pod.clone()).unwrap_or_default()
    }

    /// Whether the gang would fit on nodes that the pools can still grow, alone or beside what is free.
    pub fn provisionable(&self, gang: &Gang) -> bool {
        !self.pools.is_empty() && packing::fits(&self.pools, gang).is_ok()
    }

    /// Pools that could grow, as they are reported.
    pub fn pools(&self) -> &[Block] {
        &self.pools
    }

    /// Alike nodes, counted: what the manager is told. Their names are not part of it, or no two would be alike. Nodes provided
    /// for one gang are not offered to others.
    pub fn blocks(&self) -> Vec<Block> {
        let mut counted: BTreeMap<Block, u32> = BTreeMap::new();
        for (name, n) in self
            .nodes
            .iter()
            .filter(|(_, n)| n.only_for.is_none() && !n.spec.unready && !n.spec.unschedulable)
        {
            let closed = self.is_closed(name);
            let free =
                n.free.iter().map(|(r, f)| (r.clone(), if closed { 0 } else { (*f).max(0) })).collect();
            let mut labels = n.spec.labels.clone();
            labels.remove(HOSTNAME_LABEL);
            let alike = Block {
                nodes: 0,
                free,
                capacity: n.spec.capacity.clone(),
                labels,
                taints: n.spec.taints.clone(),
            };
            *counted.entry(alike).or_insert(0) += 1;
        }
        counted.into_iter().map(|(b, nodes)| Block { nodes, ..b }).collect()
    }

    /// Grows with every change of what [`Self::blocks`] or [`Self::pools`] would say.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Recounts every node's free room from the rooms.
    pub fn check(&self) -> Result<(), String> {
        self.check_stays()?;
        let mut used: BTreeMap<&str, Amounts> = BTreeMap::new();
        let mut pods: BTreeMap<&str, i64> = BTreeMap::new();
        let mut seen: BTreeMap<(&str, &str), BTreeSet<u32>> = BTreeMap::new();
        for (offer, room) in &self.rooms {
            for pod in room.there() {
                *pods.entry(&pod.node).or_default() += 1;
                meridian_shared::gang::add_scaled(
                    used.entry(&pod.node).or_default(),
                    &room.per_pod[&pod.pod_set],
                    1,
                );
                for (resource, indexes) in &pod.accelerators {
                    for index in indexes {
                        if !seen.entry((&pod.node, resource)).or_default().insert(*index) {
                            return Err(format!(
                                "offer {offer}: accelerator {index} of `{resource}` on node `{}` is given twice",
                                pod.node
                            ));
                        }
                    }
                }
            }
        }
        for (name, node) in &self.nodes {
            let there = pods.get(name.as_str()).copied().unwrap_or(0);
            if there != node.pods {
                return Err(format!("node `{name}`: {} pods counted, but {there} are there", node.pods));
            }
            for (resource, capacity) in &node.spec.capacity {
                let taken = used.get(name.as_str()).and_then(|u| u.get(resource)).copied().unwrap_or(0);
                let free = node.free.get(resource).copied().unwrap_or(0);
                if capacity - taken != free {
                    return Err(format!(
                        "node `{name}`: {free} `{resource}` counted free, but {capacity} less {taken} is something else"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whether any node gives more than it has. Only the removal of capacity under running gangs may cause it.
    pub fn overcommitted(&self) -> bool {
        self.nodes.values().any(|n| n.free.values().any(|f| *f < 0))
    }

    fn charge(&mut self, offer: OfferId, room: Room) {
        for pod in room.there() {
            charge(&mut self.nodes, pod, &room.per_pod);
        }
        self.rooms.insert(offer, room);
    }

    /// Extended resources (those with a `/`) are devices with numbers; each pod gets the lowest that are free.
    fn assign_accelerators(&self, placement: &mut [PodPlacement], per_pod: &BTreeMap<String, Amounts>) {
        let mut taken: BTreeMap<(String, String), BTreeSet<u32>> = BTreeMap::new();
        for pod in placement {
            for (resource, amount) in per_pod[&pod.pod_set].iter().filter(|(r, a)| r.contains('/') && **a > 0)
            {
                let used = taken.entry((pod.node.clone(), resource.clone())).or_insert_with(|| {
                    self.nodes[&pod.node].taken.get(resource).cloned().unwrap_or_default()
                });
                let chosen: Vec<u32> =
                    (0..).filter(|i| !used.contains(i)).take(usize::try_from(*amount).unwrap_or(0)).collect();
                used.extend(&chosen);
                pod.accelerators.insert(resource.clone(), chosen);
            }
        }
    }
}

impl Node {
    /// As the placing looks at it; `closed` is what a node has free on which nothing may be held.
    fn site<'a>(&'a self, name: &'a str, closed: Option<&'a Amounts>) -> Site<'a> {
        let NodeSpec { name: _, labels, taints, added: _, capacity, unready: _, unschedulable: _ } =
            &self.spec;
        let pods_free = if closed.is_some() {
            0
        } else {
            self.free.get(PODS).copied().unwrap_or(PODS_UNSTATED) - self.pods
        };
        Site { name, labels, taints, capacity, free: closed.unwrap_or(&self.free), pods_free }
    }
}

/// Takes of its node what a pod takes.
fn charge(nodes: &mut BTreeMap<String, Node>, pod: &PodPlacement, per_pod: &BTreeMap<String, Amounts>) {
    let Some(node) = nodes.get_mut(&pod.node) else { return };
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

/// Gives it back.
fn discharge(nodes: &mut BTreeMap<String, Node>, pod: &PodPlacement, per_pod: &BTreeMap<String, Amounts>) {
    let Some(node) = nodes.get_mut(&pod.node) else { return };
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

fn node(spec: NodeSpec, only_for: Option<OfferId>) -> Node {
    Node { free: spec.capacity.clone(), spec, pods: 0, taken: BTreeMap::new(), only_for }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_shared::gang::PodSet;

    fn offer(counter: u64) -> OfferId {
        OfferId { epoch: 1, leadership: 1, counter }
    }

    fn ledger(nodes: usize, gpus: i64) -> Ledger {
        let mut l = Ledger::default();
        let spec = |i| NodeSpec {
            name: format!("n{i}"),
            capacity: Amounts::from([("nvidia.com/gpu".into(), gpus)]),
            ..NodeSpec::default()
        };
        l.set_nodes((0..nodes).map(spec).collect(), Vec::new());
        l
    }

    fn gang(count: u32, gpu: i64) -> Gang {
        Gang {
            pod_sets: vec![PodSet {
                name: "main".into(),
                count,
                per_pod: Amounts::from([("nvidia.com/gpu".into(), gpu)]),
                ..PodSet::default()
            }],
            max_run: None,
        }
    }

    #[test]
    fn rooms_are_whole_and_accelerators_are_given_once() {
        let mut l = ledger(2, 4);
        l.hold(offer(1), &gang(3, 2)).unwrap();
        l.check().unwrap();
        assert_eq!(l.pods(offer(1)), 3);
        assert_eq!(in_words(&l.placement(offer(1))), "n0 2, n1 1");
        assert!(l.hold(offer(2), &gang(2, 2)).is_err(), "only one pod of two fits");
        assert_eq!(l.pods(offer(2)), 0);
        l.hold(offer(3), &gang(2, 1)).unwrap();
        l.check().unwrap();
        l.release(offer(1));
        l.check().unwrap();
        assert_eq!(l.blocks().iter().map(|b| b.free["nvidia.com/gpu"] * i64::from(b.nodes)).sum::<i64>(), 6);
    }

    #[test]
    fn a_thousand_equal_nodes_are_one_block_and_a_named_one_is_found() {
        let mut l = Ledger::default();
        let spec = |i: u32| NodeSpec {
            name: format!("n{i}"),
            labels: BTreeMap::from([(HOSTNAME_LABEL.into(), format!("n{i}")), ("pool".into(), "a".into())]),
            capacity: Amounts::from([("nvidia.com/gpu".into(), 8)]),
            ..NodeSpec::default()
        };
        l.set_nodes((0..1_000).map(spec).collect(), Vec::new());
        assert_eq!(l.blocks().iter().map(|b| (b.nodes, b.labels.len())).collect::<Vec<_>>(), [(1_000, 1)]);
        let mut named = gang(1, 1);
        named.pod_sets[0].node_selector.insert(HOSTNAME_LABEL.into(), "n700".into());
        l.hold(offer(1), &named).unwrap();
        assert_eq!(l.placement(offer(1))[0].node, "n700");
        assert_eq!(l.blocks().len(), 2);
    }

    #[test]
    fn nothing_is_held_beside_a_gang_that_nobody_remembers() {
        let mut l = ledger(2, 4);
        let (one, other) =
            (Fence { epoch: 1, leadership: 1, counter: 1 }, Fence { epoch: 1, leadership: 1, counter: 2 });
        l.close(Uid(1), one, vec!["n0".into()]);
        l.hold(offer(1), &gang(1, 4)).unwrap();
        assert_eq!(l.placement(offer(1))[0].node, "n1");
        let refused = l.hold(offer(2), &gang(1, 4)).unwrap_err();
        assert!(refused.fits_empty, "{refused:?}");
        l.release(offer(1));
        assert_eq!(l.blocks().iter().map(|b| b.free["nvidia.com/gpu"] * i64::from(b.nodes)).sum::<i64>(), 4);
        l.close(Uid(2), other, Vec::new());
        assert_eq!(
            l.blocks().iter().map(|b| b.free["nvidia.com/gpu"]).max(),
            Some(0),
            "it may stand anywhere"
        );
        l.reopen(Uid(2), other);
        l.reopen(Uid(1), one);
        l.hold(offer(3), &gang(2, 4)).unwrap();
        l.check().unwrap();
    }

    #[test]
    fn pods_that_leave_give_back_exactly_their_own_and_once() {
        let mut l = ledger(2, 4);
        l.hold(offer(1), &gang(3, 2)).unwrap();
        let free = |l: &Ledger| {
            l.blocks().iter().map(|b| b.free["nvidia.com/gpu"] * i64::from(b.nodes)).sum::<i64>()
        };
        let main = |indexes: &[u32]| -> Vec<(String, u32)> {
            indexes.iter().map(|i| ("main".to_owned(), *i)).collect()
        };
        let before = l.revision();
        assert!(l.leave(offer(1), &main(&[1])));
        assert!(l.revision() > before, "it is reported");
        l.check().unwrap();
        assert_eq!(
            (free(&l), l.pods(offer(1)), l.spare_pods(offer(1))),
            (4, 3, BTreeMap::from([("main".into(), 1)]))
        );
        let before = l.revision();
        assert!(
            !l.leave(offer(1), &main(&[1]))
                && !l.leave(offer(9), &main(&[0]))
                && !l.leave(offer(1), &main(&[7]))
        );
        assert_eq!((free(&l), l.revision()), (4, before));
        // Another gang gets those very accelerators.
        l.hold(offer(2), &gang(1, 2)).unwrap();
        l.check().unwrap();
        assert!(l.leave(offer(1), &main(&[0, 1, 2])));
        assert_eq!(l.spare_pods(offer(1)), BTreeMap::from([("main".into(), 3)]));
        l.check().unwrap();
        assert!(l.has_room(offer(1)), "its name is kept until it has ended");
        l.release(offer(1));
        l.release(offer(2));
        l.check().unwrap();
        assert_eq!(free(&l), 8);
    }

    #[test]
    fn nodes_that_vanish_leave_their_rooms_charged() {
        let mut l = ledger(2, 4);
        l.hold(offer(1), &gang(2, 4)).unwrap();
        l.set_nodes(
            vec![NodeSpec {
                name: "n0".into(),
                capacity: Amounts::from([("nvidia.com/gpu".into(), 2)]),
                ..NodeSpec::default()
            }],
            Vec::new(),
        );
        l.check().unwrap();
        assert!(l.overcommitted());
        assert_eq!(l.blocks()[0].free["nvidia.com/gpu"], 0, "never reported below zero");
        l.release(offer(1));
        l.check().unwrap();
        assert!(!l.overcommitted());
    }
}
