//! What a cluster would have free if some of its workloads were gone, kept up while those who are to go are looked for.
//!
//! Reports say how many nodes have how much free and don't name them; agents tell on which nodes the pods of each run stand. Who
//! is known to stand on a node says how much of it is used, so that it is one of the block of which as much is used: whole nodes
//! come free where their last pod goes. Of nodes that can't be told apart the one of the least use is meant, and of those that
//! the report doesn't show nothing comes free: nobody is to go in vain. Where an agent doesn't tell where pods stand, the fullest
//! node that could hold one is taken for its own. What it tells is believed for this only: a lie costs runs of its own cluster.

use crate::World;
use crate::giving_way::KeptRoom;
use crate::rooms::Free;
use meridian_shared::gang::{Amounts, Gang, PodSet, add_scaled};
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::packing::{self, Block, HOSTNAME_LABEL};
use meridian_shared::placement::{PlacedPodSet, Placement};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How much of each node of a cluster is used, by those who are known to stand there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing {
    used: BTreeMap<String, Amounts>,
    /// How many nodes have so much used.
    alike: BTreeMap<Amounts, u32>,
}

impl Standing {
    fn add(&mut self, node: &str, set: &PodSet, pods: i64) {
        add_scaled(self.used.entry(node.to_owned()).or_default(), &set.per_pod, pods);
    }

    fn count(&mut self) {
        self.alike.clear();
        for used in self.used.values_mut() {
            used.retain(|_, amount| *amount != 0);
            *self.alike.entry(used.clone()).or_insert(0) += 1;
        }
    }
}

/// What is used of each node of a block.
fn used(block: &Block) -> Amounts {
    let of = |(resource, all): (&String, &i64)| (resource.clone(), all.saturating_sub(block.free.get(resource).copied().unwrap_or(0)));
    block.capacity.iter().map(of).filter(|(_, amount)| *amount != 0).collect()
}

/// A cluster without some of its workloads.
pub(crate) struct Vacated {
    standing: Arc<Standing>,
    free: Vec<Block>,
    /// How many nodes have so much used before anybody goes.
    alike: BTreeMap<Amounts, u32>,
    /// What has become of each node from which somebody went; none where it can't be told which of the report's it is.
    nodes: BTreeMap<String, Option<Block>>,
    /// How many of those are as these.
    touched: BTreeMap<Block, u32>,
    /// Some pods were guessed to be somewhere: what their coming back changes isn't known.
    guessed: bool,
    /// For whom.
    wanted: Arc<Gang>,
    /// What those had who are gone.
    freed: Amounts,
    /// What is kept there for others. Its victims are gone from the start.
    kept: KeptRoom,
    /// How many others are gone.
    gone: usize,
}

impl Vacated {
    /// Without those who stop for others.
    pub(crate) fn new(world: &World, cluster: &ClusterName, standing: Arc<Standing>, uid: Uid, wanted: Arc<Gang>) -> Option<Self> {
        let kept = world.kept_room(cluster, uid);
        let mut this = Self::of(world.live.clusters.get(cluster)?.rooms.estimate(), standing, wanted);
        for victim in &kept.victims {
            this.change(world, *victim, true);
        }
        (this.kept, this.gone) = (kept, 0);
        Some(this)
    }

    fn of(free: &[Block], standing: Arc<Standing>, wanted: Arc<Gang>) -> Self {
        let (mut alike, mut counted) = (BTreeMap::new(), BTreeMap::new());
        for block in free {
            let count = counted.entry(Block { nodes: 1, ..block.clone() }).or_insert(0_u32);
            *count = count.saturating_add(block.nodes);
        }
        let free: Vec<Block> = counted.into_iter().map(|(block, nodes)| Block { nodes, ..block }).collect();
        for block in &free {
            let nodes = alike.entry(used(block)).or_insert(0_u32);
            *nodes = nodes.saturating_add(block.nodes);
        }
        let (nodes, touched, freed, kept) = Default::default();
        Self { standing, free, alike, nodes, touched, guessed: false, wanted, freed, kept, gone: 0 }
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
        let Some(gang) = world.asked_gang(uid) else { return true };
        let placement = world.state.workloads.get(&uid).and_then(World::right).and_then(|(_, leg)| leg.placement.as_deref());
        add_scaled(&mut self.freed, &gang.total(), if leaves { 1 } else { -1 });
        self.gone = if leaves { self.gone + 1 } else { self.gone.saturating_sub(1) };
        let mut known = leaves || !self.guessed;
        for (at, set) in gang.pod_sets.iter().enumerate() {
            let mut left = set.count;
            for (node, pods) in placement.into_iter().flat_map(|placement| nodes(placement, at)) {
                for _ in 0..pods.min(left) {
                    left -= 1;
                    known &= self.change_pod(node, set, leaves);
                }
            }
            if leaves && left > 0 {
                (0..left).for_each(|_| packing::release(&mut self.free, set));
                self.guessed = true;
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
            self.guessed = true;
            return false;
        };
        if let Some(touched) = self.touched.get_mut(&before) {
            *touched = touched.saturating_sub(1);
        }
        *self.touched.entry(after.clone()).or_insert(0) += 1;
        self.nodes.insert(node.to_owned(), Some(after));
        true
    }

    /// Which of the report's nodes one is: as much of it is used, and of no more nodes of the report than are known to be like that.
    /// Of several that differ the one that would be of the least use is meant, so that nobody goes in vain.
    fn find(&self, node: &str, set: &PodSet) -> Option<Block> {
        let uses = self.standing.used.get(node)?;
        if self.standing.alike.get(uses) > self.alike.get(uses) {
            return None;
        }
        let untouched = |block: &Block| block.nodes > self.touched.get(&Block { nodes: 1, ..block.clone() }).copied().unwrap_or(0);
        let able = self.free.iter().filter(|block| used(block) == *uses && packing::accepts(block, set) && untouched(block));
        let use_for = |block: &&Block| {
            let empty = Block { free: block.capacity.clone(), ..(*block).clone() };
            self.wanted.pod_sets.iter().map(|set| packing::takes(&empty, set)).fold(0, u32::saturating_add)
        };
        able.min_by_key(use_for).map(|block| Block { nodes: 1, ..block.clone() })
    }

    /// Whether a gang would fit beside what is kept for others, and leaves what is kept for who waits too long.
    pub(crate) fn fits(&self, world: &World, cluster: &ClusterName, wanted: &Arc<Gang>) -> bool {
        let fits = if self.kept.uids.is_empty() {
            packing::fits(&self.free, wanted).is_ok()
        } else {
            let mut free = self.free.clone();
            // What doesn't fit anyway can't be kept.
            self.kept.gangs.iter().for_each(|other| drop(packing::place(&mut free, other)));
            let expected: Vec<Arc<Gang>> = self.kept.expected.iter().filter_map(|uid| world.asked_gang(*uid)).collect();
            // What is expected to end isn't gone for this one, only for who waits too long.
            packing::fits(&free, wanted).is_ok() && (self.kept.starving.is_empty() || Free(free).leaves(wanted, &expected, &self.kept.starving))
        };
        fits && world.judge_domains(wanted, cluster, crate::domains::Gone::Having(&self.freed)).is_ok()
    }
}

/// On which nodes how many pods of a set stand, where that is told.
fn nodes(placement: &Placement, at: usize) -> impl Iterator<Item = (&str, u32)> {
    let set = placement.pod_sets.get(at).filter(|set| names_nodes(set));
    set.into_iter().flat_map(|set| &set.domains).filter_map(|domain| Some((domain.values.last()?.as_str(), domain.pods)))
}

fn names_nodes(set: &PlacedPodSet) -> bool {
    set.levels.last().is_none_or(|level| level == HOSTNAME_LABEL)
}

impl World {
    /// How much of each node of a cluster is used, as far as it is known who stands there.
    pub(crate) fn standing_in(&self, cluster: &ClusterName) -> Arc<Standing> {
        let mut standing = Standing::default();
        let here = self.loads.get(cluster).into_iter().flatten().map(|(uid, _)| *uid);
        for (uid, leg) in here.filter_map(|uid| Some((uid, World::right(self.state.workloads.get(&uid)?)?.1))) {
            let Some((gang, placement)) = self.gang_of(uid).zip(leg.placement.as_deref()).filter(|_| leg.cluster == *cluster) else { continue };
            for (at, set) in gang.pod_sets.iter().enumerate() {
                nodes(placement, at).for_each(|(node, pods)| standing.add(node, set, i64::from(pods)));
            }
        }
        standing.count();
        Arc::new(standing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rooms::Rooms;
    use meridian_shared::backoff::splitmix;
    use meridian_shared::placement::PlacedDomain;

    const GPU: &str = "nvidia.com/gpu";

    fn set(gpus: i64) -> PodSet {
        PodSet { name: "main".into(), count: 1, per_pod: Amounts::from([(GPU.into(), gpus)]), ..PodSet::default() }
    }

    fn nodes_free(free: &[i64]) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        for free in free {
            blocks.push(Block { nodes: 1, free: Amounts::from([(GPU.into(), *free)]), capacity: Amounts::from([(GPU.into(), 8)]), ..Block::default() });
        }
        Rooms::of(blocks).estimate().to_vec()
    }

    /// Pods of so many accelerators on numbered nodes.
    fn standing(pods: &[(usize, i64)]) -> Arc<Standing> {
        let mut standing = Standing::default();
        pods.iter().for_each(|(node, gpus)| standing.add(&node.to_string(), &set(*gpus), 1));
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
            let mut vacated = Vacated::of(&nodes_free(&used.map(|used| 8 - used)), standing(&pods), Arc::default());
            let mut there = vec![true; pods.len()];
            for _ in 0..60 {
                let at = usize::try_from(roll(pods.len() as u64)).unwrap();
                let (node, gpus) = pods[at];
                assert!(vacated.change_pod(&node.to_string(), &set(gpus), there[at]), "seed {seed}");
                used[node] += if there[at] { -gpus } else { gpus };
                there[at] = !there[at];
                assert_eq!(counted(&vacated.free), counted(&nodes_free(&used.map(|used| 8 - used))), "seed {seed}");
            }
        }
    }

    #[test]
    fn what_does_not_go_together_frees_nothing() {
        // Three nodes are said to have four used, of which the report shows two: one is closed, and which isn't known.
        let mut vacated = Vacated::of(&nodes_free(&[4, 4, 8]), standing(&[(0, 4), (1, 4), (2, 4)]), Arc::default());
        assert!(vacated.change_pod("0", &set(4), true) && vacated.change_pod("9", &set(1), true));
        assert_eq!(counted(&vacated.free), [(4, 2), (8, 1)].into());
        assert!(vacated.change_pod("0", &set(4), false), "nor does its coming back change anything");
        assert_eq!(counted(&vacated.free), [(4, 2), (8, 1)].into());
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
        let mut vacated = Vacated::of(&[node(0, 8, "x"), node(0, 8, "y")], standing(&[(0, 8), (1, 8)]), wanted(8, "x"));
        assert!(vacated.change_pod("0", &set(8), true));
        assert!(packing::fits(&vacated.free, &wanted(8, "x")).is_err() && packing::fits(&vacated.free, &wanted(8, "y")).is_ok());
        assert!(vacated.change_pod("1", &set(8), true));
        assert!(packing::fits(&vacated.free, &wanted(8, "x")).is_ok(), "with both gone it is free");
        // A larger node of which as much is used isn't taken for one that somebody went from before.
        let mut vacated = Vacated::of(&[node(2, 8, "x"), node(14, 16, "x")], standing(&[(0, 4), (0, 2), (1, 2)]), wanted(7, "x"));
        assert!(vacated.change_pod("0", &set(4), true));
        assert!(vacated.change_pod("0", &set(4), false));
        assert_eq!(counted(&vacated.free), [(2, 1), (14, 1)].into());
    }

    #[test]
    fn only_names_of_nodes_are_taken_for_such() {
        let placed = |levels: &[&str]| PlacedPodSet {
            levels: levels.iter().map(|level| (*level).to_owned()).collect(),
            domains: vec![PlacedDomain { values: vec!["x".into()], pods: 3 }],
            ..PlacedPodSet::default()
        };
        let placement = Placement { pod_sets: vec![placed(&[]), placed(&[HOSTNAME_LABEL]), placed(&["rack"])], ..Placement::default() };
        let told: Vec<usize> = (0..4).map(|at| nodes(&placement, at).count()).collect();
        assert_eq!(told, [1, 1, 0, 0]);
    }
}
