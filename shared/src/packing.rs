//! Whole-gang placement over nodes: the one function that the agent's ledger decides by and that the manager estimates with.
//!
//! Alike nodes are kept as [`Block`]s (same labels, taints and free room; a count), so a pool of a thousand equal nodes costs
//! as much as one. Pod sets are placed one after another, the one with the largest pods first; a pod goes where the least
//! room is left over (best fit). For a gang of one pod set the answer is exact. For several it is a heuristic (vector bin
//! packing is NP-hard): it can miss a placement that exists, and never claims one that doesn't.

use crate::gang::{Amounts, Gang, PodSet, Taint, TaintEffect};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Nodes that are alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Block {
    /// How many.
    pub nodes: u32,
    /// What each has free.
    pub free: Amounts,
    /// What each has in all.
    pub capacity: Amounts,
    /// Labels of each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Taints of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
}

/// Why a gang does not fit. The first obstacle, in words a person can act on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "reason")]
pub enum Misfit {
    /// No node has the labels and taints that the pod set accepts.
    NoSuchNode {
        /// The pod set.
        pod_set: String,
    },
    /// Even an empty node is too small for one pod.
    PodTooLarge {
        /// The pod set.
        pod_set: String,
        /// The resource that is short.
        resource: String,
        /// What one pod asks for.
        asks: i64,
        /// The most that any matching node has.
        largest: i64,
    },
    /// The nodes would do, but not enough of them are free together.
    NotEnoughRoom {
        /// The pod set.
        pod_set: String,
        /// Pods that fit now.
        fit: u32,
        /// Pods of the set.
        count: u32,
        /// Whether the whole gang would fit if nothing else ran here.
        fits_empty: bool,
    },
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchNode { pod_set } => write!(f, "no node matches the selectors and tolerations of pod set `{pod_set}`"),
            Self::PodTooLarge { pod_set, resource, asks, largest } => {
                write!(f, "one pod of `{pod_set}` asks for {asks} `{resource}`, the largest matching node has {largest}")
            }
            Self::NotEnoughRoom { pod_set, fit, count, fits_empty: true } => write!(f, "room for {fit} of {count} pods of `{pod_set}` now"),
            Self::NotEnoughRoom { pod_set, fit, count, fits_empty: false } => {
                write!(f, "room for {fit} of {count} pods of `{pod_set}` now, and not for all even with nothing else running")
            }
        }
    }
}

/// Pods of one set on nodes of one block: `(pod set index, block index, pods per node, nodes)`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Part {
    /// Index into the gang's pod sets.
    pub pod_set: usize,
    /// Pods that one node takes.
    pub pods_per_node: u32,
    /// How many nodes take that many.
    pub nodes: u32,
}

impl Block {
    /// Whether pods of `set` may be placed on these nodes at all.
    pub fn accepts(&self, set: &PodSet) -> bool {
        set.node_selector.iter().all(|(k, v)| self.labels.get(k) == Some(v))
            && (set.affinity.is_empty() || set.affinity.iter().any(|term| term.iter().all(|r| r.matches(&self.labels))))
            && self.taints.iter().all(|t| t.effect == TaintEffect::PreferNoSchedule || set.tolerations.iter().any(|tol| tol.covers(t)))
    }

    /// How many pods of `set` one of these nodes still takes.
    pub fn pods(&self, set: &PodSet) -> u32 {
        pods(&self.free, &set.per_pod).min(set.count)
    }
}

fn pods(free: &Amounts, each: &Amounts) -> u32 {
    let mut most = u32::MAX;
    for (resource, asks) in each.iter().filter(|(_, a)| **a > 0) {
        let has = free.get(resource).copied().unwrap_or(0).max(0);
        most = most.min(u32::try_from(has / asks).unwrap_or(u32::MAX));
    }
    most
}

/// Places the whole gang on `blocks`, or says why not. On success `blocks` are what is left; on failure they are unchanged.
///
/// The result lists, per pod set, how many nodes of which former block (by index into the *input*) take how many pods.
pub fn place(blocks: &mut Vec<Block>, gang: &Gang) -> Result<Vec<(usize, Part)>, Misfit> {
    let mut work: Vec<(usize, Block)> = blocks.iter().cloned().enumerate().collect();
    let mut parts = Vec::new();
    let mut order: Vec<usize> = (0..gang.pod_sets.len()).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(weight(&gang.pod_sets[*i].per_pod)), *i));
    for index in order {
        let set = &gang.pod_sets[index];
        let mut left = set.count;
        // Best fit: nodes that are nearly full first, so that whole nodes stay whole.
        let mut takers: Vec<(u32, i64, usize)> = Vec::new();
        for (at, (_, block)) in work.iter().enumerate() {
            if block.nodes > 0 && block.accepts(set) {
                let each = block.pods(set);
                if each > 0 {
                    takers.push((each, weight(&block.free), at));
                }
            }
        }
        takers.sort_unstable_by_key(|&(each, room, at)| (std::cmp::Reverse(each), room, at));
        // One node that takes all that is left beats several smaller ones: the tightest such node first.
        if let Some(&(_, _, at)) = takers.iter().filter(|(each, _, _)| *each >= left && left > 0).min_by_key(|(_, room, at)| (*room, *at)) {
            take(&mut work, &mut parts, index, set, at, left, 1);
            left = 0;
        }
        for &(each, _, at) in &takers {
            if left == 0 {
                break;
            }
            let whole = (left / each).min(work[at].1.nodes);
            if whole > 0 {
                take(&mut work, &mut parts, index, set, at, each, whole);
                left -= whole * each;
            }
            if left > 0 && left < each && work[at].1.nodes > 0 {
                take(&mut work, &mut parts, index, set, at, left, 1);
                left = 0;
            }
        }
        if left > 0 {
            return Err(misfit(blocks, gang, set, set.count - left));
        }
    }
    // Alike nodes are one block again: the same node with no count is the key.
    let mut merged: BTreeMap<Block, u32> = BTreeMap::new();
    for (_, block) in work.into_iter().filter(|(_, b)| b.nodes > 0) {
        let nodes = block.nodes;
        let count = merged.entry(Block { nodes: 0, ..block }).or_insert(0);
        *count = count.saturating_add(nodes);
    }
    *blocks = merged.into_iter().map(|(block, nodes)| Block { nodes, ..block }).collect();
    Ok(parts)
}

/// The resource with the largest figure that isn't memory decides; accelerators outweigh cores.
fn weight(amounts: &Amounts) -> i64 {
    amounts
        .iter()
        .map(|(name, amount)| {
            if name.contains('/') {
                amount.saturating_mul(1_000_000)
            } else if name == "cpu" {
                *amount
            } else {
                0
            }
        })
        .max()
        .unwrap_or(0)
}

fn take(work: &mut Vec<(usize, Block)>, parts: &mut Vec<(usize, Part)>, index: usize, set: &PodSet, at: usize, each: u32, nodes: u32) {
    let (origin, block) = &mut work[at];
    let origin = *origin;
    block.nodes -= nodes;
    let mut used = block.clone();
    used.nodes = nodes;
    for (resource, asks) in &set.per_pod {
        if let Some(free) = used.free.get_mut(resource) {
            *free -= asks.saturating_mul(i64::from(each));
        }
    }
    work.push((origin, used));
    parts.push((origin, Part { pod_set: index, pods_per_node: each, nodes }));
}

fn misfit(blocks: &[Block], gang: &Gang, set: &PodSet, fit: u32) -> Misfit {
    let matching: Vec<&Block> = blocks.iter().filter(|b| b.nodes > 0 && b.accepts(set)).collect();
    if matching.is_empty() {
        return Misfit::NoSuchNode { pod_set: set.name.clone() };
    }
    if matching.iter().all(|b| pods(&b.capacity, &set.per_pod) == 0) {
        let short = set
            .per_pod
            .iter()
            .filter(|(_, a)| **a > 0)
            .map(|(r, asks)| (matching.iter().map(|b| b.capacity.get(r).copied().unwrap_or(0)).max().unwrap_or(0), r, *asks))
            .find(|(most, _, asks)| most < asks);
        if let Some((largest, resource, asks)) = short {
            return Misfit::PodTooLarge { pod_set: set.name.clone(), resource: resource.clone(), asks, largest };
        }
    }
    let mut empty: Vec<Block> = blocks.iter().map(|b| Block { free: b.capacity.clone(), ..b.clone() }).collect();
    let all_free = blocks.iter().all(|b| b.free == b.capacity);
    let fits_empty = !all_free && place(&mut empty, gang).is_ok();
    Misfit::NotEnoughRoom { pod_set: set.name.clone(), fit, count: set.count, fits_empty }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(gpu: i64) -> Amounts {
        Amounts::from([("cpu".into(), 8_000 * gpu.max(1)), ("nvidia.com/gpu".into(), gpu)])
    }

    fn block(nodes: u32, gpu: i64, free: i64) -> Block {
        Block { nodes, free: amounts(free), capacity: amounts(gpu), ..Block::default() }
    }

    fn gang(count: u32, gpu: i64) -> Gang {
        Gang {
            pod_sets: vec![PodSet { name: "main".into(), count, per_pod: Amounts::from([("nvidia.com/gpu".into(), gpu)]), ..PodSet::default() }],
            max_run: None,
        }
    }

    #[test]
    fn eight_gpu_pods_are_never_promised_from_scattered_gpus() {
        let mut scattered = vec![block(16, 8, 1)];
        assert!(matches!(place(&mut scattered, &gang(2, 8)), Err(Misfit::NotEnoughRoom { fit: 0, count: 2, fits_empty: true, .. })));
        assert_eq!(scattered, vec![block(16, 8, 1)], "a refusal changes nothing");
        let mut whole = vec![block(2, 8, 8)];
        place(&mut whole, &gang(2, 8)).unwrap();
        assert_eq!(whole.iter().map(|b| b.free["nvidia.com/gpu"]).sum::<i64>(), 0);
    }

    #[test]
    fn partial_nodes_are_used_before_whole_ones() {
        let mut blocks = vec![block(1, 8, 8), block(1, 8, 2)];
        place(&mut blocks, &gang(2, 1)).unwrap();
        assert!(blocks.iter().any(|b| b.free["nvidia.com/gpu"] == 8), "{blocks:?}");
    }

    #[test]
    fn reasons_name_the_first_obstacle() {
        assert!(matches!(place(&mut vec![block(4, 4, 4)], &gang(1, 8)), Err(Misfit::PodTooLarge { asks: 8, largest: 4, .. })));
        let mut picky = gang(1, 1);
        picky.pod_sets[0].node_selector.insert("a".into(), "b".into());
        assert!(matches!(place(&mut vec![block(4, 4, 4)], &picky), Err(Misfit::NoSuchNode { .. })));
    }

    #[test]
    fn placing_agrees_with_counting_for_one_pod_set() {
        // One pod set: the gang fits exactly when the nodes' own counts add up to it.
        for seed in 0..2_000_u64 {
            let r = |i: u64, n: u64| crate::backoff::splitmix(seed * 31 + i) % n;
            let mut blocks: Vec<Block> = (0..=r(1, 4)).map(|i| block(1 + r(10 + i, 3) as u32, 8, r(20 + i, 9) as i64)).collect();
            let asks = gang(1 + r(2, 12) as u32, 1 + r(3, 4) as i64);
            let room: u32 = blocks.iter().map(|b| b.nodes * pods(&b.free, &asks.pod_sets[0].per_pod)).sum();
            let before: i64 = blocks.iter().map(|b| i64::from(b.nodes) * b.free["nvidia.com/gpu"]).sum();
            let fits = place(&mut blocks, &asks);
            assert_eq!(fits.is_ok(), room >= asks.pod_sets[0].count, "seed {seed}");
            if let Ok(parts) = fits {
                let after: i64 = blocks.iter().map(|b| i64::from(b.nodes) * b.free["nvidia.com/gpu"]).sum();
                assert_eq!(before - after, asks.total()["nvidia.com/gpu"], "seed {seed}");
                assert_eq!(parts.iter().map(|(_, p)| p.nodes * p.pods_per_node).sum::<u32>(), asks.pod_sets[0].count);
                assert!(blocks.iter().all(|b| b.free.values().all(|f| *f >= 0)));
            }
        }
    }
}
