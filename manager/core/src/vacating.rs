//! What a cluster would have free if some of its workloads were gone, kept up while those who are to go are looked for.
//!
//! Reports say how many nodes have how much free and don't name them; agents tell on which nodes the pods of each run stand. Who
//! is known to stand on a node says how much of it is used, so that it is one of the block of which as much is used: whole nodes
//! come free where their last pod goes. Where an agent tells nothing, or what it tells doesn't go together, the fullest node that
//! could hold a pod is taken for its own. What it tells is believed for this only: a lie costs runs of its own cluster.

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
pub(crate) struct Standing(BTreeMap<String, Amounts>);

impl Standing {
    fn add(&mut self, node: &str, set: &PodSet, pods: i64) {
        match self.0.get_mut(node) {
            Some(used) => add_scaled(used, &set.per_pod, pods),
            None => {
                let mut used = Amounts::new();
                add_scaled(&mut used, &set.per_pod, pods);
                self.0.insert(node.to_owned(), used);
            }
        }
    }
}

/// A cluster without some of its workloads.
pub(crate) struct Vacated {
    standing: Standing,
    free: Vec<Block>,
    /// What those had who are gone.
    freed: Amounts,
    /// What is kept there for others. Its victims are gone from the start.
    kept: KeptRoom,
    /// How many others are gone.
    gone: usize,
}

impl Vacated {
    /// Without those who stop for others.
    pub(crate) fn new(world: &World, cluster: &ClusterName, standing: Standing, uid: Uid) -> Option<Self> {
        let free = world.live.clusters.get(cluster)?.rooms.estimate().to_vec();
        let kept = world.kept_room(cluster, uid);
        let mut this = Self { standing, free, freed: Amounts::new(), kept: KeptRoom::default(), gone: 0 };
        for victim in &kept.victims {
            this.change(world, *victim, true);
        }
        (this.kept, this.gone) = (kept, 0);
        Some(this)
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
        let mut known = true;
        for (at, set) in gang.pod_sets.iter().enumerate() {
            let mut left = set.count;
            for (node, pods) in placement.into_iter().flat_map(|placement| nodes(placement, at)) {
                for _ in 0..pods.min(left) {
                    left -= 1;
                    known &= self.change_pod(node, set, leaves);
                }
            }
            known &= left == 0;
            if leaves {
                (0..left).for_each(|_| packing::release(&mut self.free, set));
            }
        }
        known
    }

    fn change_pod(&mut self, node: &str, set: &PodSet, leaves: bool) -> bool {
        let known = self.standing.0.get(node).is_some_and(|used| packing::change(&mut self.free, set, used, leaves));
        if !known && leaves {
            packing::release(&mut self.free, set);
        }
        self.standing.add(node, set, if leaves { -1 } else { 1 });
        known
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
    pub(crate) fn standing_in(&self, cluster: &ClusterName) -> Standing {
        let mut standing = Standing::default();
        let here = self.loads.get(cluster).into_iter().flatten().map(|(uid, _)| *uid);
        for (uid, leg) in here.filter_map(|uid| Some((uid, World::right(self.state.workloads.get(&uid)?)?.1))) {
            let Some((gang, placement)) = self.gang_of(uid).zip(leg.placement.as_deref()).filter(|_| leg.cluster == *cluster) else { continue };
            for (at, set) in gang.pod_sets.iter().enumerate() {
                nodes(placement, at).for_each(|(node, pods)| standing.add(node, set, i64::from(pods)));
            }
        }
        standing
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
            let mut standing = Standing::default();
            pods.iter().for_each(|(node, gpus)| standing.add(&node.to_string(), &set(*gpus), 1));
            let (kept, freed) = Default::default();
            let mut vacated = Vacated { standing, free: nodes_free(&used.map(|used| 8 - used)), freed, kept, gone: 0 };
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
    fn what_does_not_go_together_is_guessed_and_said_so() {
        let mut standing = Standing::default();
        standing.add("a", &set(4), 1);
        let (kept, freed) = Default::default();
        let mut vacated = Vacated { standing, free: nodes_free(&[2, 6]), freed, kept, gone: 0 };
        assert!(!vacated.change_pod("a", &set(4), true), "no node has four used");
        assert_eq!(counted(&vacated.free), [(6, 2)].into(), "the fullest that could have had it");
        assert!(!vacated.change_pod("b", &set(1), true), "nobody is known to stand there");
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
