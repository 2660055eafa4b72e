//! Whole-gang placement over nodes: the one function that the agent's ledger decides by and that the manager estimates with.
//!
//! Alike nodes are kept as [`Block`]s (same labels, taints and free room; a count), so a pool of a thousand equal nodes costs
//! as much as one. Pod sets are placed one after another, the one with the largest pods first; a pod goes where the least
//! room is left over (best fit). For a gang of one pod set the answer is exact. For several it is a heuristic (vector bin
//! packing is NP-hard): it can miss a placement that exists, and never claims one that doesn't.

use crate::gang::{Amounts, Gang, PodSet, Taint, TaintEffect, Tolerance};
use crate::ids::ContentHash;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

/// The label by which Kubernetes names a node. Reported blocks leave it out: with it no two nodes would be alike.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

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
    /// It must be in one domain of a topology, and none has the room.
    NoDomain {
        /// The pod set.
        pod_set: String,
        /// The level.
        level: String,
        /// Pods of a slice, where each slice must be in one and all of them need not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        slice: Option<u32>,
        /// Pods that the one with the most room takes, or all of them in slices; where that could never be enough, with nothing
        /// else there.
        fit: u32,
        /// Pods of the set.
        count: u32,
        /// Whether one would hold it if nothing else ran here.
        #[serde(default)]
        fits_empty: bool,
    },
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchNode { pod_set } => {
                write!(f, "no node matches the selectors and tolerations of pod set `{pod_set}`")
            }
            Self::PodTooLarge { pod_set, resource, asks, largest } => {
                write!(
                    f,
                    "one pod of `{pod_set}` asks for {asks} `{resource}`, the largest matching node has {largest}"
                )
            }
            Self::NotEnoughRoom { pod_set, fit, count, fits_empty: true } => {
                write!(f, "room for {fit} of {count} pods of `{pod_set}` now")
            }
            Self::NoDomain { pod_set, level, slice, fit, count, fits_empty } => {
                match slice {
                    None => write!(f, "pod set `{pod_set}` must be in one `{level}`, and ")?,
                    Some(size) => write!(
                        f,
                        "each slice of {size} pods of pod set `{pod_set}` must be in one `{level}`, and "
                    )?,
                }
                match (slice, fits_empty) {
                    (None, true) => {
                        write!(f, "the one with the most room has it for {fit} of its {count} pods now")
                    }
                    (None, false) => write!(
                        f,
                        "the largest takes {fit} of its {count} pods even with nothing else running"
                    ),
                    (Some(_), true) => write!(f, "there is such room for {fit} of its {count} pods now"),
                    (Some(_), false) => write!(
                        f,
                        "there is such room for {fit} of its {count} pods even with nothing else running"
                    ),
                }
            }
            Self::NotEnoughRoom { pod_set, fit, count, fits_empty: false } => {
                write!(
                    f,
                    "room for {fit} of {count} pods of `{pod_set}` now, and not for all even with nothing else running"
                )
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

/// Alike nodes as a plan looks at them: nothing is copied, so that asking costs little.
#[derive(Clone, Copy, Debug)]
pub struct Nodes<'a> {
    /// How many.
    pub nodes: u32,
    /// What each has free.
    pub free: &'a Amounts,
    /// What each has in all.
    pub capacity: &'a Amounts,
    /// Labels of each.
    pub labels: &'a BTreeMap<String, String>,
    /// Taints of each.
    pub taints: &'a [Taint],
}

impl Nodes<'_> {
    /// The same with nothing on them.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Self { free: self.capacity, ..*self }
    }

    /// One of them.
    #[must_use]
    pub fn one(self) -> Self {
        Self { nodes: self.nodes.min(1), ..self }
    }

    /// How many pods of a set each of them takes.
    pub fn takes(&self, set: &PodSet) -> u32 {
        if self.accept(set) { pods(self.free, &set.per_pod) } else { 0 }
    }

    /// Whether pods of `set` may be placed on these nodes at all.
    fn accept(&self, set: &PodSet) -> bool {
        set.node_selector.iter().all(|(k, v)| self.unnamed(k) || self.labels.get(k) == Some(v))
            && (set.affinity.is_empty()
                || set
                    .affinity
                    .iter()
                    .any(|term| term.iter().all(|r| self.unnamed(&r.key) || r.matches(self.labels))))
            && self.taints.iter().all(|t| {
                t.effect == TaintEffect::PreferNoSchedule || Tolerance::of(&set.tolerations, t).is_some()
            })
    }

    /// Blocks stand for many nodes and don't say their names: which of them is meant is for the agent to judge, who knows.
    fn unnamed(&self, key: &str) -> bool {
        key == HOSTNAME_LABEL && !self.labels.contains_key(key)
    }
}

impl Block {
    /// As a plan looks at it.
    pub fn view(&self) -> Nodes<'_> {
        let Self { nodes, free, capacity, labels, taints } = self;
        Nodes { nodes: *nodes, free, capacity, labels, taints }
    }

    /// How many bytes it takes as JSON, with its comma.
    pub fn weight(&self) -> usize {
        // Of strings and numbers, which always have a text.
        serde_json::to_vec(self).unwrap_or_default().len() + 1
    }

    /// What its nodes are, whatever is free of them: a short name of their capacity, labels and taints, which the agent and the
    /// manager each come to by themselves.
    pub fn kind(&self) -> u64 {
        kind(&self.capacity, &self.labels, &self.taints)
    }

    /// The order of blocks, whatever their count; equal ones are alike.
    fn order(&self, other: &Self) -> Ordering {
        (&self.free, &self.capacity, &self.labels, &self.taints).cmp(&(
            &other.free,
            &other.capacity,
            &other.labels,
            &other.taints,
        ))
    }
}

/// The kind of nodes with this capacity and these taints and labels, among which their name doesn't count.
pub fn kind(capacity: &Amounts, labels: &BTreeMap<String, String>, taints: &[Taint]) -> u64 {
    let labels: BTreeMap<&String, &String> =
        labels.iter().filter(|(key, _)| *key != HOSTNAME_LABEL).collect();
    // Of strings and numbers, which always have a text.
    let text = serde_json::to_vec(&(capacity, labels, taints)).unwrap_or_default();
    u64::try_from(ContentHash::of(&text).0 >> 64).unwrap_or(u64::MAX)
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
    if let Some(at) = on_one_node(blocks, gang) {
        take_one_node(blocks, at, &gang.pod_sets[0]);
        return Ok(vec![(at, Part { pod_set: 0, pods_per_node: gang.pod_sets[0].count, nodes: 1 })]);
    }
    let views: Vec<Nodes<'_>> = blocks.iter().map(Block::view).collect();
    let Layout { mut heaps, parts } = lay_out(&views, gang)?;
    let used: Vec<(usize, u32, Amounts)> =
        heaps.drain(views.len()..).map(|heap| (heap.origin, heap.nodes, heap.free.into_owned())).collect();
    let untouched: Vec<u32> = heaps.iter().map(|heap| heap.nodes).collect();
    blocks.iter_mut().zip(untouched).for_each(|(block, nodes)| block.nodes = nodes);
    for (origin, nodes, free) in used.into_iter().filter(|(_, nodes, _)| *nodes > 0) {
        let of = &mut blocks[origin];
        if of.nodes == 0 {
            // Nothing is left of it as it was.
            (of.nodes, of.free) = (nodes, free);
        } else {
            let (capacity, labels, taints) = (of.capacity.clone(), of.labels.clone(), of.taints.clone());
            blocks.push(Block { nodes, free, capacity, labels, taints });
        }
    }
    put_in_order(blocks);
    Ok(parts)
}

/// What was in order stays so, and costs next to nothing to sort; alike nodes become one block again.
fn put_in_order(blocks: &mut Vec<Block>) {
    blocks.retain(|block| block.nodes > 0);
    blocks.sort_by(Block::order);
    blocks.dedup_by(|next, block| {
        let alike = next.order(block).is_eq();
        // An agent may claim any number of nodes.
        block.nodes = block.nodes.saturating_add(if alike { next.nodes } else { 0 });
        alike
    });
}

/// Where a gang of one pod set goes that fits on one node as a whole, as most do: what [`lay_out`] comes to, without laying out.
fn on_one_node(blocks: &[Block], gang: &Gang) -> Option<usize> {
    let [set] = &*gang.pod_sets else { return None };
    let takes_all = |block: &Block| {
        block.nodes > 0 && pods(&block.free, &set.per_pod) >= set.count && block.view().accept(set)
    };
    let able = blocks.iter().enumerate().filter(|(_, block)| set.count > 0 && takes_all(block));
    able.min_by_key(|(at, block)| (weight(&block.free), *at)).map(|(at, _)| at)
}

/// Takes what all pods of a set ask for from one node of a block.
fn take_one_node(blocks: &mut Vec<Block>, at: usize, set: &PodSet) {
    let ordered = blocks.iter().all(|block| block.nodes > 0)
        && blocks.is_sorted_by(|one, next| one.order(next).is_lt());
    let of = &mut blocks[at];
    of.nodes -= 1;
    let mut node = Block { nodes: 1, free: less(&of.free, set, set.count), ..Block::default() };
    if of.nodes == 0 {
        (node.capacity, node.labels, node.taints) = (
            std::mem::take(&mut of.capacity),
            std::mem::take(&mut of.labels),
            std::mem::take(&mut of.taints),
        );
        blocks.remove(at);
    } else {
        (node.capacity, node.labels, node.taints) =
            (of.capacity.clone(), of.labels.clone(), of.taints.clone());
    }
    if !ordered {
        blocks.push(node);
        return put_in_order(blocks);
    }
    match blocks.binary_search_by(|block| block.order(&node)) {
        Ok(alike) => blocks[alike].nodes = blocks[alike].nodes.saturating_add(1),
        Err(place) => blocks.insert(place, node),
    }
}

/// What is left where so many pods were placed.
fn less(free: &Amounts, set: &PodSet, pods: u32) -> Amounts {
    let mut free = free.clone();
    for (resource, asks) in &set.per_pod {
        if let Some(free) = free.get_mut(resource) {
            *free -= asks.saturating_mul(i64::from(pods));
        }
    }
    free
}

/// Takes one pod of `set` from the fullest node that could have it; nothing happens where none could.
pub fn release(blocks: &mut Vec<Block>, set: &PodSet) {
    release_where(blocks, set, |_| true);
}

/// The same, of the nodes that it may be on.
pub fn release_where(blocks: &mut Vec<Block>, set: &PodSet, may_be: impl Fn(&Block) -> bool) {
    let held = |b: &Block| {
        let used = |r: &String| {
            b.capacity.get(r).copied().unwrap_or(0).saturating_sub(b.free.get(r).copied().unwrap_or(0))
        };
        b.nodes > 0
            && may_be(b)
            && b.view().accept(set)
            && set.per_pod.iter().all(|(r, asks)| used(r) >= *asks)
    };
    let fullest = blocks
        .iter()
        .enumerate()
        .filter(|(_, b)| held(b))
        .min_by(|(_, a), (_, b)| a.free.cmp(&b.free))
        .map(|(at, _)| at);
    if let Some(at) = fullest {
        change_one(blocks, at, set, 1);
    }
}

/// Takes one pod of `set` from one node of exactly this block, or puts it back there; says what has become of the node. `None` where
/// there is no such node, or the pod can't be or have been there: then nothing happens.
pub fn change(blocks: &mut Vec<Block>, of: &Block, set: &PodSet, leaves: bool) -> Option<Block> {
    let has = |amounts: &Amounts, r: &str| amounts.get(r).copied().unwrap_or(0);
    let able = |(r, asks): (&String, &i64)| match leaves {
        true => has(&of.capacity, r).saturating_sub(has(&of.free, r)) >= *asks,
        false => has(&of.free, r) >= *asks,
    };
    let found = blocks.binary_search_by(|b| b.order(of)).ok().filter(|at| blocks[*at].nodes > 0);
    // They may be in no order.
    let found = found.or_else(|| blocks.iter().position(|b| b.nodes > 0 && b.order(of).is_eq()));
    let at = found.filter(|_| set.per_pod.iter().all(able))?;
    Some(change_one(blocks, at, set, if leaves { 1 } else { -1 }))
}

/// Whether pods of a set may be on the nodes of a block at all.
pub fn accepts(block: &Block, set: &PodSet) -> bool {
    block.view().accept(set)
}

/// How many pods of a set the nodes of a block take each.
pub fn takes(block: &Block, set: &PodSet) -> u32 {
    block.view().takes(set)
}

/// One node of a block has as much more free as so many pods ask for.
fn change_one(blocks: &mut Vec<Block>, at: usize, set: &PodSet, pods: i64) -> Block {
    let mut changed = Block { nodes: 1, ..blocks[at].clone() };
    for (resource, asks) in &set.per_pod {
        if let Some(free) = changed.free.get_mut(resource) {
            *free = free.saturating_add(asks.saturating_mul(pods));
        }
    }
    blocks[at].nodes -= 1;
    if blocks[at].nodes == 0 {
        blocks.remove(at);
    }
    // What was in order stays so.
    match blocks.binary_search_by(|b| b.order(&changed)) {
        Ok(same) => blocks[same].nodes = blocks[same].nodes.saturating_add(1),
        Err(place) => blocks.insert(place, changed.clone()),
    }
    changed
}

/// Whether the whole gang fits on `blocks`, or why not.
pub fn fits(blocks: &[Block], gang: &Gang) -> Result<(), Misfit> {
    if on_one_node(blocks, gang).is_some() {
        return Ok(());
    }
    let views: Vec<Nodes<'_>> = blocks.iter().map(Block::view).collect();
    plan(&views, gang).map(drop)
}

/// How the whole gang would be placed: as [`place`] says it, with nothing changed.
pub fn plan(nodes: &[Nodes<'_>], gang: &Gang) -> Result<Vec<(usize, Part)>, Misfit> {
    lay_out(nodes, gang).map(|layout| layout.parts)
}

/// A plan and what it leaves: first the nodes of the input, less those that were used, then those.
struct Layout<'a> {
    heaps: Vec<Heap<'a>>,
    parts: Vec<(usize, Part)>,
}

/// Nodes of one origin with the same room left.
struct Heap<'a> {
    origin: usize,
    nodes: u32,
    free: Cow<'a, Amounts>,
}

impl Layout<'_> {
    fn take(&mut self, index: usize, set: &PodSet, at: usize, each: u32, nodes: u32) {
        let Heap { origin, nodes: left, free } = &mut self.heaps[at];
        *left -= nodes;
        let (origin, free) = (*origin, less(free, set, each));
        self.heaps.push(Heap { origin, nodes, free: Cow::Owned(free) });
        self.parts.push((origin, Part { pod_set: index, pods_per_node: each, nodes }));
    }
}

fn lay_out<'a>(nodes: &[Nodes<'a>], gang: &Gang) -> Result<Layout<'a>, Misfit> {
    let heaps = nodes
        .iter()
        .enumerate()
        .map(|(origin, n)| Heap { origin, nodes: n.nodes, free: Cow::Borrowed(n.free) })
        .collect();
    let mut layout = Layout { heaps, parts: Vec::new() };
    let mut order: Vec<usize> = (0..gang.pod_sets.len()).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(weight(&gang.pod_sets[*i].per_pod)), *i));
    for index in order {
        let set = &gang.pod_sets[index];
        let mut left = set.count;
        // Best fit: nodes that are nearly full first, so that whole nodes stay whole.
        let mut takers: Vec<(u32, i64, usize)> = Vec::new();
        for (at, heap) in layout.heaps.iter().enumerate() {
            if heap.nodes > 0 && nodes[heap.origin].accept(set) {
                let each = pods(&heap.free, &set.per_pod).min(set.count);
                if each > 0 {
                    takers.push((each, weight(&heap.free), at));
                }
            }
        }
        takers.sort_unstable_by_key(|&(each, room, at)| (std::cmp::Reverse(each), room, at));
        // One node that takes all that is left beats several smaller ones: the tightest such node first.
        if let Some(&(_, _, at)) = takers
            .iter()
            .filter(|(each, _, _)| *each >= left && left > 0)
            .min_by_key(|(_, room, at)| (*room, *at))
        {
            layout.take(index, set, at, left, 1);
            left = 0;
        }
        for &(each, _, at) in &takers {
            if left == 0 {
                break;
            }
            let whole = (left / each).min(layout.heaps[at].nodes);
            if whole > 0 {
                layout.take(index, set, at, each, whole);
                left -= whole * each;
            }
            if left > 0 && left < each && layout.heaps[at].nodes > 0 {
                layout.take(index, set, at, left, 1);
                left = 0;
            }
        }
        if left > 0 {
            return Err(misfit(nodes, gang, set, set.count - left));
        }
    }
    Ok(layout)
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

fn misfit(nodes: &[Nodes<'_>], gang: &Gang, set: &PodSet, fit: u32) -> Misfit {
    let matching: Vec<&Nodes<'_>> = nodes.iter().filter(|n| n.nodes > 0 && n.accept(set)).collect();
    if matching.is_empty() {
        return Misfit::NoSuchNode { pod_set: set.name.clone() };
    }
    if matching.iter().all(|n| pods(n.capacity, &set.per_pod) == 0) {
        let short = set
            .per_pod
            .iter()
            .filter(|(_, a)| **a > 0)
            .map(|(r, asks)| {
                (
                    matching.iter().map(|n| n.capacity.get(r).copied().unwrap_or(0)).max().unwrap_or(0),
                    r,
                    *asks,
                )
            })
            .find(|(most, _, asks)| most < asks);
        if let Some((largest, resource, asks)) = short {
            return Misfit::PodTooLarge {
                pod_set: set.name.clone(),
                resource: resource.clone(),
                asks,
                largest,
            };
        }
    }
    let all_free = nodes.iter().all(|n| n.free == n.capacity);
    let empty: Vec<Nodes<'_>> = nodes.iter().map(|n| Nodes { free: n.capacity, ..*n }).collect();
    let fits_empty = !all_free && lay_out(&empty, gang).is_ok();
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
    fn eight_gpu_pods_are_never_promised_from_scattered_gpus() {
        let mut scattered = vec![block(16, 8, 1)];
        assert!(matches!(
            place(&mut scattered, &gang(2, 8)),
            Err(Misfit::NotEnoughRoom { fit: 0, count: 2, fits_empty: true, .. })
        ));
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
        assert!(matches!(
            place(&mut vec![block(4, 4, 4)], &gang(1, 8)),
            Err(Misfit::PodTooLarge { asks: 8, largest: 4, .. })
        ));
        let mut picky = gang(1, 1);
        picky.pod_sets[0].node_selector.insert("a".into(), "b".into());
        assert!(matches!(place(&mut vec![block(4, 4, 4)], &picky), Err(Misfit::NoSuchNode { .. })));
    }

    #[test]
    fn a_node_that_is_asked_for_by_name_is_looked_for_where_names_are_known() {
        let mut named = gang(1, 1);
        named.pod_sets[0].node_selector.insert(HOSTNAME_LABEL.into(), "b".into());
        let node = |name: &str| Block {
            labels: BTreeMap::from([(HOSTNAME_LABEL.into(), name.into())]),
            ..block(1, 4, 4)
        };
        let parts = place(&mut vec![node("a"), node("b")], &named).unwrap();
        assert_eq!(parts[0].0, 1);
        assert!(fits(&[node("a")], &named).is_err());
        fits(&[block(2, 4, 4)], &named).expect("one of them may be it");
    }

    #[test]
    fn what_is_left_is_in_order_and_alike_nodes_are_one_block() {
        for seed in 0..500_u64 {
            let r = |i: u64, n: u64| crate::backoff::splitmix(seed * 17 + i) % n;
            let mut blocks: Vec<Block> =
                (0..=r(1, 5)).map(|i| block(1 + r(10 + i, 3) as u32, 8, r(20 + i, 9) as i64)).collect();
            let nodes: u32 = blocks.iter().map(|b| b.nodes).sum();
            let asks = gang(1 + r(2, 6) as u32, 1 + r(3, 4) as i64);
            let fit = fits(&blocks, &asks);
            let placed = place(&mut blocks, &asks);
            assert_eq!(placed.as_ref().map(drop), fit.as_ref().map(drop), "seed {seed}");
            if placed.is_ok() {
                assert_eq!(blocks.iter().map(|b| b.nodes).sum::<u32>(), nodes, "seed {seed}");
                assert!(
                    blocks.iter().all(|b| b.nodes > 0) && blocks.is_sorted_by(|a, b| a.order(b).is_lt()),
                    "seed {seed}: {blocks:?}"
                );
            }
        }
    }

    #[test]
    fn a_gang_for_one_node_goes_where_laying_out_would_put_it() {
        for seed in 0..4_000_u64 {
            let r = |i: u64, n: u64| crate::backoff::splitmix(seed * 23 + i) % n;
            // Some of them are alike, out of order or empty, and some have no room or other labels.
            let labels = |i: u64| BTreeMap::from([("zone".to_owned(), r(40 + i, 2).to_string())]);
            let mut blocks: Vec<Block> = (0..=r(1, 6))
                .map(|i| Block { labels: labels(i), ..block(r(10 + i, 3) as u32, 8, r(20 + i, 9) as i64) })
                .collect();
            let mut asks = gang(r(2, 4) as u32, 1 + r(3, 4) as i64);
            asks.pod_sets[0].node_selector = if r(4, 3) == 0 { labels(0) } else { BTreeMap::new() };
            let views: Vec<_> = blocks.iter().map(Block::view).collect();
            let plan = plan(&views, &asks);
            let mut both = asks.clone();
            both.pod_sets.push(PodSet { count: 0, ..PodSet::default() });
            let mut laid_out = blocks.clone();
            let general = place(&mut laid_out, &both);
            let placed = place(&mut blocks, &asks);
            assert_eq!(
                (placed.as_ref().ok(), general.as_ref().ok()),
                (plan.as_ref().ok(), plan.as_ref().ok()),
                "seed {seed}"
            );
            assert_eq!(blocks, laid_out, "seed {seed}");
        }
    }

    #[test]
    fn placing_agrees_with_counting_for_one_pod_set() {
        // One pod set: the gang fits exactly when the nodes' own counts add up to it.
        for seed in 0..2_000_u64 {
            let r = |i: u64, n: u64| crate::backoff::splitmix(seed * 31 + i) % n;
            let mut blocks: Vec<Block> =
                (0..=r(1, 4)).map(|i| block(1 + r(10 + i, 3) as u32, 8, r(20 + i, 9) as i64)).collect();
            let asks = gang(1 + r(2, 12) as u32, 1 + r(3, 4) as i64);
            let room: u32 = blocks.iter().map(|b| b.nodes * pods(&b.free, &asks.pod_sets[0].per_pod)).sum();
            let before: i64 = blocks.iter().map(|b| i64::from(b.nodes) * b.free["nvidia.com/gpu"]).sum();
            let fits = place(&mut blocks, &asks);
            assert_eq!(fits.is_ok(), room >= asks.pod_sets[0].count, "seed {seed}");
            if let Ok(parts) = fits {
                let after: i64 = blocks.iter().map(|b| i64::from(b.nodes) * b.free["nvidia.com/gpu"]).sum();
                assert_eq!(before - after, asks.total()["nvidia.com/gpu"], "seed {seed}");
                assert_eq!(
                    parts.iter().map(|(_, p)| p.nodes * p.pods_per_node).sum::<u32>(),
                    asks.pod_sets[0].count
                );
                assert!(blocks.iter().all(|b| b.free.values().all(|f| *f >= 0)));
            }
        }
    }
}
