//! Placement of whole gangs on nodes. The agent's ledger uses it to decide, the manager to estimate.
//!
//! Equal nodes are counted in a [`Block`] (same labels, taints and free amounts), so a pool of a thousand
//! equal nodes costs as much as one node. Pod sets are placed one after another, the one with the largest
//! pods first. Each pod goes to the node on which it leaves the least capacity (best fit).
//!
//! For a gang of one pod set the answer is exact. For several pod sets it is a heuristic, because vector bin
//! packing is NP-hard: it may miss a possible placement, but never reports an impossible one.

mod block;
mod layout;
mod misfit;

pub use block::{Block, BlockView, HOSTNAME_LABEL, node_kind};
pub use layout::PackedPods;
pub use misfit::Misfit;

use crate::gang::{Amounts, Gang, PodSet};
use block::pods_that_fit;
use layout::{Layout, after_placing, lay_out, weight};

/// Places the whole gang on `blocks`. On success `blocks` have the remaining capacity; on failure they are
/// unchanged.
///
/// Each item of the result has the index of a block in the *input*, the number of its nodes, and the pods of
/// a pod set on each of them.
///
/// # Errors
/// The gang does not fit; the first obstacle is returned.
pub fn place(blocks: &mut Vec<Block>, gang: &Gang) -> Result<Vec<(usize, PackedPods)>, Misfit> {
    if let Some(at) = on_one_node(blocks, gang) {
        take_one_node(blocks, at, &gang.pod_sets[0]);
        return Ok(vec![(at, PackedPods { pod_set: 0, pods_per_node: gang.pod_sets[0].count, nodes: 1 })]);
    }
    let views: Vec<BlockView<'_>> = blocks.iter().map(Block::view).collect();
    let Layout { mut groups, parts } = lay_out(&views, gang)?;
    let used: Vec<(usize, u32, Amounts)> = groups
        .drain(views.len()..)
        .map(|group| (group.origin, group.nodes, group.free.into_owned()))
        .collect();
    let untouched: Vec<u32> = groups.iter().map(|group| group.nodes).collect();
    blocks.iter_mut().zip(untouched).for_each(|(block, nodes)| block.nodes = nodes);
    for (origin, nodes, free) in used.into_iter().filter(|(_, nodes, _)| *nodes > 0) {
        let of = &mut blocks[origin];
        if of.nodes == 0 {
            // No node of the block is unchanged.
            (of.nodes, of.free) = (nodes, free);
        } else {
            let (capacity, labels, taints) = (of.capacity.clone(), of.labels.clone(), of.taints.clone());
            blocks.push(Block { nodes, free, capacity, labels, taints });
        }
    }
    normalize(blocks);
    Ok(parts)
}

/// Sorts blocks and joins equal ones. Cheap if the blocks are already sorted.
fn normalize(blocks: &mut Vec<Block>) {
    blocks.retain(|block| block.nodes > 0);
    blocks.sort_by(Block::order);
    blocks.dedup_by(|next, block| {
        let alike = next.order(block).is_eq();
        // An agent may report any number of nodes.
        block.nodes = block.nodes.saturating_add(if alike { next.nodes } else { 0 });
        alike
    });
}

/// The block for a gang of one pod set that fits on one node, the most frequent case. Makes the same choice
/// as [`lay_out`], with less work.
fn on_one_node(blocks: &[Block], gang: &Gang) -> Option<usize> {
    let [set] = &*gang.pod_sets else { return None };
    let takes_all = |block: &Block| {
        block.nodes > 0 && pods_that_fit(&block.free, &set.per_pod) >= set.count && block.view().accepts(set)
    };
    let able = blocks.iter().enumerate().filter(|(_, block)| set.count > 0 && takes_all(block));
    able.min_by_key(|(at, block)| (weight(&block.free), *at)).map(|(at, _)| at)
}

/// Takes the requests of all pods of a set from one node of a block.
fn take_one_node(blocks: &mut Vec<Block>, at: usize, set: &PodSet) {
    let ordered = blocks.iter().all(|block| block.nodes > 0)
        && blocks.is_sorted_by(|one, next| one.order(next).is_lt());
    let of = &mut blocks[at];
    of.nodes -= 1;
    let mut node = Block { nodes: 1, free: after_placing(&of.free, set, set.count), ..Block::default() };
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
        return normalize(blocks);
    }
    match blocks.binary_search_by(|block| block.order(&node)) {
        Ok(alike) => blocks[alike].nodes = blocks[alike].nodes.saturating_add(1),
        Err(place) => blocks.insert(place, node),
    }
}

/// Releases one pod of `set` from the fullest node that could hold it. Does nothing if none could.
pub fn release(blocks: &mut Vec<Block>, set: &PodSet) {
    release_where(blocks, set, |_| true);
}

/// Releases one pod of `set` from the fullest of the nodes that `may_be` accepts.
pub fn release_where(blocks: &mut Vec<Block>, set: &PodSet, may_be: impl Fn(&Block) -> bool) {
    let held = |b: &Block| {
        let used = |r: &String| {
            b.capacity.get(r).copied().unwrap_or(0).saturating_sub(b.free.get(r).copied().unwrap_or(0))
        };
        b.nodes > 0
            && may_be(b)
            && b.view().accepts(set)
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

/// Releases one pod of `set` from a node of exactly this block (`leaves`), or places one there, and returns
/// the changed node. Returns `None`, and changes nothing, if there is no such node or the pod can't be on it.
pub fn change(blocks: &mut Vec<Block>, of: &Block, set: &PodSet, leaves: bool) -> Option<Block> {
    let has = |amounts: &Amounts, r: &str| amounts.get(r).copied().unwrap_or(0);
    let able = |(r, asks): (&String, &i64)| match leaves {
        true => has(&of.capacity, r).saturating_sub(has(&of.free, r)) >= *asks,
        false => has(&of.free, r) >= *asks,
    };
    let found = blocks.binary_search_by(|b| b.order(of)).ok().filter(|at| blocks[*at].nodes > 0);
    // Blocks may be unsorted.
    let found = found.or_else(|| blocks.iter().position(|b| b.nodes > 0 && b.order(of).is_eq()));
    let at = found.filter(|_| set.per_pod.iter().all(able))?;
    Some(change_one(blocks, at, set, if leaves { 1 } else { -1 }))
}

/// Whether labels and taints of a block's nodes accept pods of a set.
pub fn accepts(block: &Block, set: &PodSet) -> bool {
    block.view().accepts(set)
}

/// Number of pods of a set for which each node of a block has capacity.
pub fn takes(block: &Block, set: &PodSet) -> u32 {
    block.view().takes(set)
}

/// Frees the requests of `pods` pods on one node of a block. A negative number takes them instead.
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
    // Sorted blocks stay sorted.
    match blocks.binary_search_by(|b| b.order(&changed)) {
        Ok(same) => blocks[same].nodes = blocks[same].nodes.saturating_add(1),
        Err(place) => blocks.insert(place, changed.clone()),
    }
    changed
}

/// Checks whether the whole gang fits on `blocks`. Fails with the first obstacle.
pub fn fits(blocks: &[Block], gang: &Gang) -> Result<(), Misfit> {
    if on_one_node(blocks, gang).is_some() {
        return Ok(());
    }
    let views: Vec<BlockView<'_>> = blocks.iter().map(Block::view).collect();
    plan(&views, gang).map(drop)
}

/// The placement that [`place`] would choose for the whole gang. Fails with the first obstacle.
pub fn plan(nodes: &[BlockView<'_>], gang: &Gang) -> Result<Vec<(usize, PackedPods)>, Misfit> {
    lay_out(nodes, gang).map(|layout| layout.parts)
}

#[cfg(test)]
mod tests;
