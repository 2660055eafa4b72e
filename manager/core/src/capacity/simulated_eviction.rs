//! What a cluster would have free if some of its workloads were gone, kept up while those who are to go are looked for.
//!
//! Reports say how many nodes have how much free and don't name them; agents tell on which nodes the pods of each run stand, and
//! of which kind those are. Who is known to stand on a node says how much of it is used, so that it is one of the block of its kind
//! of which as much is used: whole nodes come free where their last pod goes, each in its own domain. Of nodes that can't be told
//! apart, as where the kind isn't told or has changed since, the one of the least use is meant, in whatever domain, and of those that
//! the report doesn't show nothing comes free: nobody is to go in vain. The same goes for the nodes of a pod set of which some pods have
//! ended, for on which of them isn't told. Where an agent doesn't tell on which node pods stand, the fullest
//! node that could hold one is taken for its own, in the domain that they are in where that is told. What an agent tells is
//! believed for this only: a lie costs runs of its own cluster.

use crate::capacity::caps::{self, CapsWithout, Totals};
use crate::capacity::reserved;
use crate::capacity::topology::{self, Counted, Gone};
use crate::placement::capacity::HypotheticalCapacity;
use crate::placement::reservations::ReservedCapacity;
use crate::state::workload::Workload;
use crate::world::{World, gangs};
use meridian_shared::gang::{Amounts, Gang, PodSet, add_scaled};
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::packing::{self, Block, HOSTNAME_LABEL};
use meridian_shared::placement::{PlacedDomain, PlacedPodSet};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How much of each node of a cluster is used, by those who are known to stand there.
#[derive(Clone, Debug, Default)]
pub struct NodeUsage {
    nodes: BTreeMap<String, Node>,
    /// Kinds of nodes that the report shows, by what they are.
    kinds: BTreeMap<Block, u64>,
    /// How many nodes are of one kind, or of any, and have so much used.
    alike: BTreeMap<(Option<u64>, Amounts), u32>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    used: Amounts,
    /// None where it isn't told, or not by all alike.
    kind: Option<u64>,
    /// Some pods of those that stood there may have ended, and use nothing.
    unsure: bool,
}

impl NodeUsage {
    fn add(&mut self, named: Named<'_>, set: &PodSet) {
        let node = self
            .nodes
            .entry(named.node.to_owned())
            .or_insert_with(|| Node { kind: named.kind, ..Node::default() });
        node.kind = node.kind.filter(|kind| named.kind == Some(*kind));
        add_scaled(&mut node.used, &set.per_pod, i64::from(named.pods));
    }

    /// Adds the pods of a set that still run, where so many of it have ended.
    fn add_running(&mut self, placed: &PlacedPodSet, set: &PodSet, ended: u32) {
        let mut all = nodes(placed);
        match (all.next(), all.next()) {
            (Some(only), None) if placed.is_whole() => {
                self.add(Named { pods: only.pods.saturating_sub(ended), ..only }, set)
            }
            _ => nodes(placed).for_each(|named| {
                self.add(named, set);
                self.nodes.entry(named.node.to_owned()).and_modify(|node| node.unsure |= ended > 0);
            }),
        }
    }

    fn show(&mut self, report: &[Block]) {
        for block in report {
            self.kinds.entry(emptied(block)).or_insert_with(|| block.kind());
        }
    }

    fn count(&mut self) {
        self.alike.clear();
        for node in self.nodes.values_mut() {
            node.used.retain(|_, amount| *amount != 0);
            if !node.unsure {
                count_alike(&mut self.alike, node.kind, &node.used, 1);
            }
        }
    }
}

/// Counts nodes among those of their kind and among all.
fn count_alike(
    alike: &mut BTreeMap<(Option<u64>, Amounts), u32>,
    kind: Option<u64>,
    used: &Amounts,
    nodes: u32,
) {
    for kind in [None, kind].into_iter().take(if kind.is_some() { 2 } else { 1 }) {
        let count = alike.entry((kind, used.clone())).or_insert(0);
        *count = count.saturating_add(nodes);
    }
}

/// Pods of one set on a node.
#[derive(Clone, Copy, Debug)]
struct Named<'a> {
    node: &'a str,
    kind: Option<u64>,
    pods: u32,
}

/// What is used of each node of a block.
fn used(block: &Block) -> Amounts {
    let of = |(resource, all): (&String, &i64)| {
        (resource.clone(), all.saturating_sub(block.free.get(resource).copied().unwrap_or(0)))
    };
    block.capacity.iter().map(of).filter(|(_, amount)| *amount != 0).collect()
}

/// Who stands where in a cluster, and what they have together where the cluster has bounds.
pub(crate) type ClusterUsage = (Arc<NodeUsage>, Option<Arc<Totals>>);

/// A cluster without some of its workloads.
pub(crate) struct SimulatedEviction {
    standing: Arc<NodeUsage>,
    free: Vec<Block>,
    /// How many nodes are of one kind, or of any, and have so much used before anybody goes.
    alike: BTreeMap<(Option<u64>, Amounts), u32>,
    /// What has become of each node from which somebody went; none where it can't be told which of the report's it is.
    nodes: BTreeMap<String, Option<Block>>,
    /// How many of those are as these.
    touched: BTreeMap<Block, u32>,
    /// Some pods were guessed to be somewhere: what their coming back changes isn't known.
    guessed: bool,
    /// Nor in which domain what they leave is.
    anywhere: bool,
    /// Some domain could hold it if nobody were there.
    has_domains: bool,
    /// By domain how much of it would have room, where that alone decides and is known.
    counted: Option<Counted>,
    /// For whom.
    wanted: Arc<Gang>,
    /// What those had who are gone.
    freed: Amounts,
    /// What is kept there for others. Its victims are gone from the start.
    kept: ReservedCapacity,
    /// How many others are gone.
    gone: usize,
    /// What is left under the cluster's bounds, if it has any.
    caps: Option<CapsWithout>,
}

impl SimulatedEviction {
    /// Without those who stop for others.
    pub(crate) fn new(
        world: &World,
        cluster: &ClusterName,
        (standing, totals): ClusterUsage,
        uid: Uid,
        wanted: Arc<Gang>,
    ) -> Option<Self> {
        let kept = reserved::reserved_capacity(world, cluster, uid);
        let mut this = Self::of(world.live.clusters.get(cluster)?.capacity.estimate(), standing, wanted);
        for victim in &kept.victims {
            this.change(world, *victim, true);
        }
        this.has_domains = topology::has_domains(world, &this.wanted, cluster, Gone::All);
        let decides =
            kept.uids.is_empty() && !world.live.clusters.get(cluster)?.capacity.could_grow(&this.wanted);
        this.counted =
            Some(()).filter(|()| decides).and_then(|()| Counted::of(world, &this.wanted, &this.free));
        (this.kept, this.gone, this.freed) = (kept, 0, Amounts::new());
        this.caps = totals.and_then(|totals| caps::caps_without(world, uid, cluster, &totals));
        Some(this)
    }

    fn of(free: &[Block], standing: Arc<NodeUsage>, wanted: Arc<Gang>) -> Self {
        let (mut alike, mut counted) = (BTreeMap::new(), BTreeMap::new());
        for block in free {
            let count = counted.entry(Block { nodes: 1, ..block.clone() }).or_insert(0_u32);
            *count = count.saturating_add(block.nodes);
        }
        let free: Vec<Block> = counted.into_iter().map(|(block, nodes)| Block { nodes, ..block }).collect();
        for block in &free {
            let kind = standing.kinds.get(&emptied(block)).copied();
            count_alike(&mut alike, kind, &used(block), block.nodes);
        }
        let (nodes, touched, freed, kept) = Default::default();
        Self {
            standing,
            free,
            alike,
            nodes,
            touched,
            guessed: false,
            anywhere: false,
            has_domains: true,
            counted: None,
            wanted,
            freed,
            kept,
            gone: 0,
            caps: None,
        }
    }

    /// What is free by now.
    pub(crate) fn free(&self) -> &[Block] {
        &self.free
    }

    /// Whether it is kept up for this gang.
    pub(crate) fn is_for(&self, wanted: &Arc<Gang>) -> bool {
        self.wanted == *wanted
    }

    /// Whether anybody is gone who doesn't stop anyway.
    pub(crate) fn any_gone(&self) -> bool {
        self.gone > 0
    }

    /// A workload goes, or is back. False where it isn't known what that changes.
    pub(crate) fn change(&mut self, world: &World, uid: Uid, leaves: bool) -> bool {
        if self.kept.victims.contains(&uid) {
            self.gone = if leaves { self.gone + 1 } else { self.gone.saturating_sub(1) };
            return true;
        }
        let Some(gang) = gangs::asked_gang(world, uid) else { return true };
        let expected = self.kept.expected.contains(&uid);
        self.caps.iter_mut().for_each(|caps| caps.change(world, uid, leaves, expected));
        let placement = world
            .state
            .workloads()
            .get(&uid)
            .and_then(Workload::right)
            .and_then(|(_, leg)| leg.placement.as_deref());
        add_scaled(&mut self.freed, &gang.total(), if leaves { 1 } else { -1 });
        self.gone = if leaves { self.gone + 1 } else { self.gone.saturating_sub(1) };
        let mut known = leaves || !self.guessed;
        for (at, set) in gang.pod_sets.iter().enumerate() {
            let mut left = set.count;
            let placed = placement.and_then(|placement| placement.pod_sets.get(at));
            // On which of its nodes pods have ended isn't told: those that are left are taken to be on the fullest that could hold one.
            let sure =
                |named: &Named<'_>| !self.standing.nodes.get(named.node).is_some_and(|node| node.unsure);
            let known_nodes: Vec<Named<'_>> = placed.into_iter().flat_map(nodes).filter(sure).collect();
            for named in known_nodes {
                for _ in 0..named.pods.min(left) {
                    left -= 1;
                    known &= self.change_pod(named.node, set, leaves);
                }
            }
            if leaves && left > 0 {
                (self.guessed, self.counted) = (true, None);
                for (domain, pods) in placed.into_iter().flat_map(domains) {
                    let may_be = |block: &Block| {
                        domain
                            .iter()
                            .all(|(level, value)| block.labels.get(*level).map(String::as_str) == Some(value))
                    };
                    (0..pods.min(left)).for_each(|_| packing::release_where(&mut self.free, set, may_be));
                    left -= pods.min(left);
                }
                self.anywhere |= left > 0;
                (0..left).for_each(|_| packing::release(&mut self.free, set));
            }
        }
        known
    }

    /// A pod goes from a node or is back there. Nothing comes free where it isn't clear which of the report's nodes that is. False
    /// where what was done can't be undone.
    fn change_pod(&mut self, node: &str, set: &PodSet, leaves: bool) -> bool {
        if !self.nodes.contains_key(node) {
            let found = self.find(node, set);
            found.iter().for_each(|block| *self.touched.entry(block.clone()).or_insert(0) += 1);
            self.nodes.insert(node.to_owned(), found);
        }
        let Some(before) = self.nodes.get(node).cloned().flatten() else { return true };
        let Some(after) = packing::change(&mut self.free, &before, set, leaves) else {
            (self.guessed, self.counted) = (true, None);
            return false;
        };
        self.counted.iter_mut().for_each(|counted| counted.change(&before, &after));
        if let Some(touched) = self.touched.get_mut(&before) {
            *touched = touched.saturating_sub(1);
        }
        *self.touched.entry(after.clone()).or_insert(0) += 1;
        self.nodes.insert(node.to_owned(), Some(after));
        true
    }

    /// Which of the report's nodes one is: as much of it is used, and of no more nodes of the report than are known to be like that.
    /// Of several that differ the one that would be of the least use is meant, so that nobody goes in vain.
    fn find(&mut self, node: &str, set: &PodSet) -> Option<Block> {
        let Node { used: uses, kind, .. } = self.standing.nodes.get(node).filter(|node| !node.unsure)?;
        let fewer = |kind: Option<u64>| {
            self.alike.get(&(kind, uses.clone())) < self.standing.alike.get(&(kind, uses.clone()))
        };
        if fewer(None) {
            return None;
        }
        // Of its kind the report has fewer than were told: the labels or taints of some have changed since.
        let is_sure = kind.is_some_and(|kind| !fewer(Some(kind)));
        let untouched = |block: &Block| {
            block.nodes > self.touched.get(&Block { nodes: 1, ..block.clone() }).copied().unwrap_or(0)
        };
        let of_kind =
            |block: &Block| kind.is_some() && self.standing.kinds.get(&emptied(block)) == kind.as_ref();
        let may_be = |block: &&Block| {
            used(block) == *uses
                && (!is_sure || of_kind(block))
                && packing::accepts(block, set)
                && untouched(block)
        };
        let able: Vec<&Block> = self.free.iter().filter(may_be).collect();
        let use_for = |block: &&Block| {
            let empty = emptied(block);
            self.wanted.pod_sets.iter().map(|set| packing::takes(&empty, set)).fold(0, u32::saturating_add)
        };
        let found = able
            .iter()
            .min_by_key(|block| (!of_kind(block), use_for(block)))
            .map(|block| Block { nodes: 1, ..(*block).clone() });
        self.anywhere |= able.iter().any(|block| block.labels != able[0].labels);
        found
    }

    /// Whether a gang would fit beside what is kept for others, and leaves what is kept for who waits too long.
    pub(crate) fn fits(&self, world: &World, cluster: &ClusterName, wanted: &Arc<Gang>) -> bool {
        if !self.has_domains || self.caps.as_ref().is_some_and(|caps| !caps.fits(wanted)) {
            return false;
        }
        if let Some(counted) = self.counted.as_ref().filter(|_| !self.anywhere) {
            let any = counted.any();
            debug_assert_eq!(
                any,
                packing::fits(&self.free, wanted).is_ok()
                    && topology::has_domains(world, wanted, cluster, Gone::Leaving(&self.free))
            );
            return any;
        }
        // What a guess frees may be in another domain.
        let gone = |free| {
            if self.anywhere { Gone::Having(&self.freed) } else { Gone::Leaving(free) }
        };
        if self.kept.uids.is_empty() {
            return packing::fits(&self.free, wanted).is_ok()
                && topology::has_domains(world, wanted, cluster, gone(&self.free));
        }
        let mut free = self.free.clone();
        // What doesn't fit anyway can't be kept.
        self.kept
            .gangs
            .iter()
            .zip(&self.kept.domains)
            .for_each(|(other, domains)| topology::place(&mut free, other, domains));
        if packing::fits(&free, wanted).is_err()
            || !topology::has_domains(world, wanted, cluster, gone(&free))
        {
            return false;
        }
        let expected: Vec<Arc<Gang>> =
            self.kept.expected.iter().filter_map(|uid| gangs::asked_gang(world, *uid)).collect();
        // What is expected to end isn't gone for this one, only for who waits too long.
        self.kept.starving.is_empty()
            || HypotheticalCapacity(free).leaves(wanted, &expected, &self.kept.starving)
    }
}

/// One node of a block with nothing on it.
fn emptied(block: &Block) -> Block {
    Block { nodes: 1, free: block.capacity.clone(), ..block.clone() }
}

/// On which nodes how many pods of a set stand, where that is told.
fn nodes(placed: &PlacedPodSet) -> impl Iterator<Item = Named<'_>> {
    let named = if names_nodes(placed) { &*placed.domains } else { &[] };
    named.iter().filter_map(|domain| {
        Some(Named { node: domain.values.last()?, kind: placed.kind(domain), pods: domain.pods })
    })
}

/// In which domains, by level and value, how many pods of a set stand, where those aren't nodes.
fn domains<'a>(placed: &'a PlacedPodSet) -> impl Iterator<Item = (Vec<(&'a str, &'a str)>, u32)> {
    let told = if names_nodes(placed) { &[] } else { &*placed.domains };
    let named = |domain: &'a PlacedDomain| {
        placed
            .levels
            .iter()
            .zip(&domain.values)
            .map(|(level, value)| (level.as_str(), value.as_str()))
            .collect()
    };
    told.iter().map(move |domain| (named(domain), domain.pods))
}

fn names_nodes(set: &PlacedPodSet) -> bool {
    set.levels.last().is_none_or(|level| level == HOSTNAME_LABEL)
}

/// Whether a gang would fit in a cluster without some of those who are there.
pub(crate) fn would_fit_without(
    world: &World,
    cluster: &ClusterName,
    there: ClusterUsage,
    (uid, gang): (Uid, &Arc<Gang>),
    gone: &[Uid],
) -> bool {
    let Some(mut evicted_here) = SimulatedEviction::new(world, cluster, there, uid, gang.clone()) else {
        return false;
    };
    for other in gone {
        evicted_here.change(world, *other, true);
    }
    evicted_here.fits(world, cluster, gang)
}

/// How much of each node of a cluster is used, as far as it is known who stands there.
pub(crate) fn node_usage_in(world: &World, cluster: &ClusterName) -> Arc<NodeUsage> {
    let mut standing = NodeUsage::default();
    world.live.clusters.get(cluster).into_iter().for_each(|live| standing.show(live.capacity.estimate()));
    let here = world.loads.get(cluster).into_iter().flatten().map(|(uid, _)| *uid);
    for (uid, leg) in here.filter_map(|uid| Some((uid, world.state.workloads().get(&uid)?.right()?.1))) {
        let Some((gang, placement)) =
            gangs::gang_of(world, uid).zip(leg.placement.as_deref()).filter(|_| leg.cluster == *cluster)
        else {
            continue;
        };
        let ended = world
            .state
            .workloads()
            .get(&uid)
            .and_then(|workload| workload.spare().cloned())
            .unwrap_or_default();
        let ended = ended.into_iter().chain(std::iter::repeat(0));
        // Who has nothing left stands nowhere.
        for ((set, placed), ended) in
            gang.pod_sets.iter().zip(&placement.pod_sets).zip(ended).filter(|((set, _), _)| set.count > 0)
        {
            standing.add_running(placed, set, ended);
        }
    }
    standing.count();
    Arc::new(standing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::capacity::ClusterCapacity;
    use meridian_shared::backoff::splitmix;

    const GPU: &str = "nvidia.com/gpu";

    fn set(gpus: i64) -> PodSet {
        PodSet {
            name: "main".into(),
            count: 1,
            per_pod: Amounts::from([(GPU.into(), gpus)]),
            ..PodSet::default()
        }
    }

    fn nodes_free(free: &[i64]) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        for free in free {
            blocks.push(Block {
                nodes: 1,
                free: Amounts::from([(GPU.into(), *free)]),
                capacity: Amounts::from([(GPU.into(), 8)]),
                ..Block::default()
            });
        }
        ClusterCapacity::of(blocks).estimate().to_vec()
    }

    /// Pods of so many accelerators on numbered nodes.
    fn standing(pods: &[(usize, i64)]) -> Arc<NodeUsage> {
        let mut standing = NodeUsage::default();
        pods.iter().for_each(|(node, gpus)| {
            standing.add(Named { node: &node.to_string(), kind: None, pods: 1 }, &set(*gpus))
        });
        standing.count();
        Arc::new(standing)
    }

    /// How many nodes have how much free.
    fn counted(blocks: &[Block]) -> BTreeMap<i64, u32> {
        let mut counted = BTreeMap::new();
        blocks.iter().for_each(|block| *counted.entry(block.free[GPU]).or_insert(0) += block.nodes);
        counted
    }

    #[test]
    fn who_is_back_leaves_everything_as_it_was_in_whatever_order() {
        for seed in 0..200 {
            let mut dice = seed;
            let mut roll = |sides: u64| {
                dice = splitmix(dice);
                dice % sides
            };
            let mut used = [0_i64; 5];
            let mut pods: Vec<(usize, i64)> = Vec::new();
            for _ in 0..20 {
                let (node, gpus) = (usize::try_from(roll(5)).unwrap(), 1 << roll(3));
                if used[node] + gpus <= 8 {
                    used[node] += gpus;
                    pods.push((node, gpus));
                }
            }
            let mut evicted_here = SimulatedEviction::of(
                &nodes_free(&used.map(|used| 8 - used)),
                standing(&pods),
                Arc::default(),
            );
            let mut there = vec![true; pods.len()];
            for _ in 0..60 {
                let at = usize::try_from(roll(pods.len() as u64)).unwrap();
                let (node, gpus) = pods[at];
                assert!(evicted_here.change_pod(&node.to_string(), &set(gpus), there[at]), "seed {seed}");
                used[node] += if there[at] { -gpus } else { gpus };
                there[at] = !there[at];
                assert_eq!(
                    counted(&evicted_here.free),
                    counted(&nodes_free(&used.map(|used| 8 - used))),
                    "seed {seed}"
                );
            }
        }
    }

    #[test]
    fn what_does_not_go_together_frees_nothing() {
        // Three nodes are said to have four used, of which the report shows two: one is closed, and which isn't known.
        let mut evicted_here = SimulatedEviction::of(
            &nodes_free(&[4, 4, 8]),
            standing(&[(0, 4), (1, 4), (2, 4)]),
            Arc::default(),
        );
        assert!(evicted_here.change_pod("0", &set(4), true) && evicted_here.change_pod("9", &set(1), true));
        assert_eq!(counted(&evicted_here.free), [(4, 2), (8, 1)].into());
        assert!(evicted_here.change_pod("0", &set(4), false), "nor does its coming back change anything");
        assert_eq!(counted(&evicted_here.free), [(4, 2), (8, 1)].into());
    }

    #[test]
    fn of_nodes_that_differ_the_one_of_less_use_is_meant_and_stays_meant() {
        let node = |free: i64, all: i64, zone: &str| Block {
            nodes: 1,
            free: Amounts::from([(GPU.into(), free)]),
            capacity: Amounts::from([(GPU.into(), all)]),
            labels: [("zone".to_owned(), zone.to_owned())].into(),
            ..Block::default()
        };
        let wanted = |each: i64, zone: &str| {
            let set = PodSet { node_selector: [("zone".to_owned(), zone.to_owned())].into(), ..set(each) };
            Arc::new(Gang { pod_sets: vec![set], max_run: None })
        };
        // Both are full; which of them is in the zone that is asked for isn't told.
        let mut evicted_here = SimulatedEviction::of(
            &[node(0, 8, "x"), node(0, 8, "y")],
            standing(&[(0, 8), (1, 8)]),
            wanted(8, "x"),
        );
        assert!(evicted_here.change_pod("0", &set(8), true));
        assert!(
            packing::fits(&evicted_here.free, &wanted(8, "x")).is_err()
                && packing::fits(&evicted_here.free, &wanted(8, "y")).is_ok()
        );
        assert!(evicted_here.change_pod("1", &set(8), true));
        assert!(packing::fits(&evicted_here.free, &wanted(8, "x")).is_ok(), "with both gone it is free");
        // A larger node of which as much is used isn't taken for one that somebody went from before.
        let mut evicted_here = SimulatedEviction::of(
            &[node(2, 8, "x"), node(14, 16, "x")],
            standing(&[(0, 4), (0, 2), (1, 2)]),
            wanted(7, "x"),
        );
        assert!(evicted_here.change_pod("0", &set(4), true));
        assert!(evicted_here.change_pod("0", &set(4), false));
        assert_eq!(counted(&evicted_here.free), [(2, 1), (14, 1)].into());
    }

    #[test]
    fn where_kinds_are_told_the_very_node_is_meant() {
        let node = |free: i64, rack: &str| Block {
            nodes: 1,
            free: Amounts::from([(GPU.into(), free)]),
            capacity: Amounts::from([(GPU.into(), 8)]),
            labels: [("rack".to_owned(), rack.to_owned())].into(),
            ..Block::default()
        };
        let report = [node(0, "a"), node(0, "a"), node(0, "b"), node(4, "b")];
        let kinds = [&report[0], &report[2]].map(Block::kind);
        let standing = |kinds: &[Option<u64>]| {
            let mut standing = NodeUsage::default();
            standing.show(&report);
            let pods = [8, 8, 8, 4].iter().enumerate().zip(kinds);
            pods.for_each(|((node, gpus), kind)| {
                standing.add(Named { node: &node.to_string(), kind: *kind, pods: 1 }, &set(*gpus))
            });
            standing.count();
            Arc::new(standing)
        };
        let free_in = |evicted_here: &SimulatedEviction, rack: &str| {
            let there = evicted_here.free.iter().filter(|block| block.labels["rack"] == rack);
            there.map(|block| i64::from(block.nodes) * block.free[GPU]).sum::<i64>()
        };
        let [a, b] = kinds.map(Some);
        let gone = |kinds: &[Option<u64>], node: &str| {
            let mut evicted_here = SimulatedEviction::of(&report, standing(kinds), Arc::default());
            assert!(evicted_here.change_pod(node, &set(8), true));
            assert_eq!(evicted_here.anywhere, kinds != [a, a, b, b], "it may be in either rack");
            (free_in(&evicted_here, "a"), free_in(&evicted_here, "b"))
        };
        assert_eq!(gone(&[a, a, b, b], "1"), (8, 4));
        assert_eq!(gone(&[a, a, b, b], "2"), (0, 12));
        // Where it has fewer of a kind some have changed; what it has never shown is as if it weren't told.
        assert_eq!(gone(&[a, b, b, b], "2"), (0, 12));
        let strange = Some(7);
        assert_eq!(
            gone(&[strange, strange, strange, strange], "2").0
                + gone(&[strange, strange, strange, strange], "2").1,
            12
        );
        // Two who stand there say different things of it.
        let mut both = NodeUsage::default();
        [a, b].into_iter().for_each(|kind| both.add(Named { node: "0", kind, pods: 1 }, &set(4)));
        assert_eq!(both.nodes["0"].kind, None);
    }

    #[test]
    fn only_names_of_nodes_are_taken_for_such() {
        let placed = |levels: &[&str]| PlacedPodSet {
            levels: levels.iter().map(|level| (*level).to_owned()).collect(),
            domains: vec![PlacedDomain { values: vec!["x".into()], pods: 3, kind: 0 }],
            ..PlacedPodSet::default()
        };
        let sets = [placed(&[]), placed(&[HOSTNAME_LABEL]), placed(&["rack"])];
        let told: Vec<(usize, usize)> =
            sets.iter().map(|set| (nodes(set).count(), domains(set).count())).collect();
        assert_eq!(told, [(1, 0), (1, 0), (0, 1)]);
    }
}

/// Who stands where in a cluster, and what they have together where it has bounds for anybody.
pub(crate) fn cluster_usage(world: &World, cluster: &ClusterName) -> ClusterUsage {
    (node_usage_in(world, cluster), Some(caps::totals_in(world, cluster)))
}
