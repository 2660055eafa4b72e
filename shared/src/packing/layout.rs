//! Best fit of all pod sets of a gang, without changing the blocks.

use super::block::pods_that_fit;
use super::{BlockView, Misfit};
use crate::gang::{Amounts, Gang, PodSet};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Pods of one pod set on equal nodes of one block.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PackedPods {
    /// Index into the gang's pod sets.
    pub pod_set: usize,
    pub pods_per_node: u32,
    pub nodes: u32,
}

/// A placement and the remaining nodes: first the input blocks without the used nodes, then the used nodes.
pub(super) struct Layout<'a> {
    pub(super) groups: Vec<NodeGroup<'a>>,
    pub(super) parts: Vec<(usize, PackedPods)>,
}

/// Nodes of one input block with the same free amounts.
pub(super) struct NodeGroup<'a> {
    pub(super) origin: usize,
    pub(super) nodes: u32,
    pub(super) free: Cow<'a, Amounts>,
}

/// A group of nodes that can take pods of a set.
struct Taker {
    /// Number of pods that one node takes, at most that of the set.
    each: u32,
    /// Free amounts of a node as one number, to compare nodes.
    free: i64,
    /// Index of the group.
    at: usize,
}

impl Layout<'_> {
    fn take(&mut self, index: usize, set: &PodSet, at: usize, each: u32, nodes: u32) {
        let NodeGroup { origin, nodes: left, free } = &mut self.groups[at];
        *left -= nodes;
        let (origin, free) = (*origin, after_placing(free, set, each));
        self.groups.push(NodeGroup { origin, nodes, free: Cow::Owned(free) });
        self.parts.push((origin, PackedPods { pod_set: index, pods_per_node: each, nodes }));
    }
}

pub(super) fn lay_out<'a>(nodes: &[BlockView<'a>], gang: &Gang) -> Result<Layout<'a>, Misfit> {
    let groups = nodes
        .iter()
        .enumerate()
        .map(|(origin, n)| NodeGroup { origin, nodes: n.nodes, free: Cow::Borrowed(n.free) })
        .collect();
    let mut layout = Layout { groups, parts: Vec::new() };
    let mut order: Vec<usize> = (0..gang.pod_sets.len()).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(weight(&gang.pod_sets[*i].per_pod)), *i));
    for index in order {
        let set = &gang.pod_sets[index];
        let mut left = set.count;
        // Best fit: nearly full nodes first, so that empty nodes stay empty.
        let mut takers: Vec<Taker> = Vec::new();
        for (at, group) in layout.groups.iter().enumerate() {
            if group.nodes > 0 && nodes[group.origin].accepts(set) {
                let each = pods_that_fit(&group.free, &set.per_pod).min(set.count);
                if each > 0 {
                    takers.push(Taker { each, free: weight(&group.free), at });
                }
            }
        }
        takers.sort_unstable_by_key(|taker| (std::cmp::Reverse(taker.each), taker.free, taker.at));
        // Prefer one node that takes all remaining pods to several smaller nodes; of such nodes, the fullest.
        let takes_all = takers.iter().filter(|taker| taker.each >= left && left > 0);
        if let Some(taker) = takes_all.min_by_key(|taker| (taker.free, taker.at)) {
            layout.take(index, set, taker.at, left, 1);
            left = 0;
        }
        for &Taker { each, at, .. } in &takers {
            if left == 0 {
                break;
            }
            let whole = (left / each).min(layout.groups[at].nodes);
            if whole > 0 {
                layout.take(index, set, at, each, whole);
                left -= whole * each;
            }
            if left > 0 && left < each && layout.groups[at].nodes > 0 {
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

/// Free amounts after placing `pods` pods.
pub(super) fn after_placing(free: &Amounts, set: &PodSet, pods: u32) -> Amounts {
    let mut free = free.clone();
    for (resource, asks) in &set.per_pod {
        if let Some(free) = free.get_mut(resource) {
            *free -= asks.saturating_mul(i64::from(pods));
        }
    }
    free
}

/// Weight of free amounts: the largest amount other than memory. An accelerator weighs more than a core.
pub(super) fn weight(amounts: &Amounts) -> i64 {
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

/// The first label that the pod set selects and no node has.
fn unmet_label(nodes: &[BlockView<'_>], set: &PodSet) -> Option<String> {
    let has = |label: &String, value: &String| {
        nodes.iter().any(|block| block.nodes > 0 && block.labels.get(label) == Some(value))
    };
    let (label, value) = set.node_selector.iter().find(|(label, value)| !has(label, value))?;
    Some(format!("{label}={value}"))
}

fn misfit(nodes: &[BlockView<'_>], gang: &Gang, set: &PodSet, fit: u32) -> Misfit {
    let matching: Vec<&BlockView<'_>> = nodes.iter().filter(|n| n.nodes > 0 && n.accepts(set)).collect();
    if matching.is_empty() {
        return Misfit::NoSuchNode { pod_set: set.name.clone(), label: unmet_label(nodes, set) };
    }
    if matching.iter().all(|n| pods_that_fit(n.capacity, &set.per_pod) == 0) {
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
    let empty: Vec<BlockView<'_>> = nodes.iter().map(|n| BlockView { free: n.capacity, ..*n }).collect();
    let fits_empty = !all_free && lay_out(&empty, gang).is_ok();
    Misfit::NotEnoughCapacity { pod_set: set.name.clone(), fit, count: set.count, fits_empty }
}
