//! Single changes that would admit a workload.

use crate::amount::Amount;
use crate::model::{QueueId, WorkloadId};
use crate::names::{FlavorId, ResourceId};
use crate::queue_state::QueueState;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// Maximum number of holders evaluated, lowest priority first.
const WEIGHED_MAX: usize = 4_096;

/// The least important holder that blocks a queue: if it ended, `asks` of the flavor's resource would be
/// available to the queue. Ignores preemption policies. Stopping holders don't count.
pub fn blocking_holder(
    state: &QueueState,
    queue: QueueId,
    key: (FlavorId, ResourceId),
    asks: i64,
) -> Option<WorkloadId> {
    let (node, tree) = state.queue(queue).node.zip(state.queue(queue).tree)?;
    let cell = state.forest().find_cell(tree, key)?;
    let queues = state.forest().tree(tree).queues.iter().filter_map(|node| state.queue_at(*node));
    // The holders of each queue are sorted, so a heap of their heads merges them.
    let mut firsts: BinaryHeap<Reverse<(_, usize)>> = BinaryHeap::new();
    let mut rests: Vec<_> = queues.map(|queue| state.queue(queue).holders_by_priority()).collect();
    firsts.extend(rests.iter_mut().enumerate().filter_map(|(at, rest)| Some(Reverse((*rest.next()?, at)))));
    let next = || {
        let Reverse(((_, _, id), at)) = firsts.pop()?;
        firsts.extend(rests[at].next().map(|holder| Reverse((*holder, at))));
        Some(id)
    };
    let mut forest = state.forest().with_trees_only(&BTreeSet::from([tree]));
    std::iter::from_fn(next).take(WEIGHED_MAX).find(|id| {
        let Some(holding) = state.get(id).holding.as_ref().filter(|h| !h.evicted) else {
            return false;
        };
        let Some(at) = state.node_of(*id) else { return false };
        let held =
            holding.charge.iter().find(|(of, _)| *of == cell).map_or(Amount::ZERO, |(_, amount)| *amount);
        if held == Amount::ZERO {
            return false;
        }
        forest.remove(at, cell, held);
        let fits = Amount(asks) <= forest.available(node, cell);
        forest.add(at, cell, held);
        fits
    })
}

/// Requests of a workload and of `others` for which quota is short now: `key`, every other shortage in the
/// same flavor, and resources that are short in every flavor of another group.
pub fn needed(
    state: &QueueState,
    id: WorkloadId,
    key: (FlavorId, ResourceId),
    others: impl Fn((FlavorId, ResourceId)) -> i64,
) -> Vec<((FlavorId, ResourceId), i64)> {
    let Some(of) = state.workload(id) else { return Vec::new() };
    let queue = state.queue(of.queue);
    let Some((node, tree)) = queue.node.zip(queue.tree) else { return Vec::new() };
    let is_short = |key: (FlavorId, ResourceId), asks: i64| {
        let free = state
            .forest()
            .find_cell(tree, key)
            .map_or(Amount::ZERO, |cell| state.forest().available(node, cell));
        Amount(asks.saturating_add(others(key))) > free
    };
    let mut needed = Vec::new();
    for group in &queue.setup.groups {
        let requested: Vec<(ResourceId, i64)> = group
            .resources
            .iter()
            .map(|resource| (*resource, state.request_of(of.shape, *resource)))
            .filter(|(_, n)| *n > 0)
            .collect();
        let short = |flavor: FlavorId| {
            requested
                .iter()
                .filter(move |(resource, n)| (flavor, *resource) == key || is_short((flavor, *resource), *n))
        };
        let flavor = match group.resources.contains(&key.1) {
            true => Some(key.0),
            false => group.flavors.iter().copied().min_by_key(|flavor| short(*flavor).count() > 0),
        };
        if let Some(flavor) = flavor {
            needed.extend(
                short(flavor).map(|(resource, n)| {
                    ((flavor, *resource), n.saturating_add(others((flavor, *resource))))
                }),
            );
        }
    }
    needed
}
