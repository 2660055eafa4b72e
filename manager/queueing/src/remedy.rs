//! Which single change would do.

use crate::amount::Amount;
use crate::brain::Brain;
use crate::model::{QueueId, WorkloadId};
use crate::names::{FlavorId, ResourceId};
use crate::tree::{Forest, NodeId, Side};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::Arc;

/// Lenders that are looked at, those first that keep most.
const LENDERS_MAX: usize = 8;
/// Holders that are weighed one by one, those first that matter least.
const WEIGHED_MAX: usize = 4_096;

/// A declared limit without which a queue would have more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The cluster queue or cohort that declares it.
    pub of: Arc<str>,
    /// Whether that is a cohort.
    pub cohort: bool,
    /// What it is put on.
    pub side: Side,
    /// The limit.
    pub most: i64,
    /// What there would be more.
    pub more: i64,
}

/// Of which quota it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// What is free now.
    Now,
    /// What could be with nobody else there.
    Ever,
}

impl Brain {
    /// Limits of which each alone keeps something from a queue: those on what it and the cohorts above it borrow, and those on what
    /// others lend, who keep most first.
    pub fn limits(&self, queue: QueueId, key: (FlavorId, ResourceId), when: When) -> Vec<Limit> {
        let queue = self.queue(queue);
        let Some((node, tree)) = queue.node.zip(queue.tree) else { return Vec::new() };
        let Some(cell) = self.forest.find_cell(tree, key) else { return Vec::new() };
        let has = |forest: &Forest| match when {
            When::Now => forest.balance(node, cell),
            When::Ever => forest.cell(node, cell).potential,
        };
        let above: BTreeSet<NodeId> = self.forest.ancestors(node).chain([node]).collect();
        let mut lenders: Vec<(Reverse<Amount>, NodeId)> = Vec::new();
        for (id, of) in self.forest.nodes().filter(|(id, of)| of.tree == tree && !above.contains(id)) {
            let here = self.forest.cell(id, cell);
            let keeps = if when == When::Now { here.local_available() } else { here.local };
            if of.parent.is_some() && here.quota.lending_limit.is_some() && keeps > Amount::ZERO {
                lenders.push((Reverse(keeps), id));
            }
        }
        lenders.sort_unstable();
        let borrowers = above.iter().map(|id| (*id, Side::Borrows));
        let candidates =
            borrowers.chain(lenders.into_iter().take(LENDERS_MAX).map(|(_, id)| (id, Side::Lends)));
        let mut forest = self.forest.only(&BTreeSet::from([tree]));
        let before = has(&forest);
        let mut found = Vec::new();
        for (id, side) in candidates {
            let quota = forest.cell(id, cell).quota;
            let limit = if side == Side::Borrows { quota.borrowing_limit } else { quota.lending_limit };
            let Some(most) = limit else { continue };
            forest.limit(id, cell, side, None);
            let more = has(&forest) - before;
            forest.limit(id, cell, side, limit);
            if more > Amount::ZERO {
                let of = forest.node(id);
                found.push(Limit {
                    of: of.name.clone(),
                    cohort: of.cohort,
                    side,
                    most: most.0,
                    more: more.0,
                });
            }
        }
        found
    }

    /// The holder that matters least without which a queue would have `asks` of a flavor and resource free, whatever policies
    /// say of it. Who is stopping anyway doesn't count.
    pub fn in_the_way(&self, queue: QueueId, key: (FlavorId, ResourceId), asks: i64) -> Option<WorkloadId> {
        let (node, tree) = self.queue(queue).node.zip(self.queue(queue).tree)?;
        let cell = self.forest.find_cell(tree, key)?;
        let queues = self.forest.tree(tree).queues.iter().filter_map(|node| self.queue_at(*node));
        // Every queue has its holders in order: of those first in each are the first of all.
        let mut firsts: BinaryHeap<Reverse<(_, usize)>> = BinaryHeap::new();
        let mut rests: Vec<_> = queues.map(|queue| self.queue(queue).ranked.iter()).collect();
        firsts
            .extend(rests.iter_mut().enumerate().filter_map(|(at, rest)| Some(Reverse((*rest.next()?, at)))));
        let next = || {
            let Reverse(((_, _, id), at)) = firsts.pop()?;
            firsts.extend(rests[at].next().map(|holder| Reverse((*holder, at))));
            Some(id)
        };
        let mut forest = self.forest.only(&BTreeSet::from([tree]));
        std::iter::from_fn(next).take(WEIGHED_MAX).find(|id| {
            let Some(holding) = self.workloads[id].holding.as_ref().filter(|h| !h.evicted) else {
                return false;
            };
            let Some(at) = self.node_of(*id) else { return false };
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
}

impl Brain {
    /// What a workload, and `others` besides, would need more of to be given quota now, with what they ask for: `key` for one,
    /// and whatever else of the same flavor, or of every flavor of another group, is short.
    pub fn needed(
        &self,
        id: WorkloadId,
        key: (FlavorId, ResourceId),
        others: impl Fn((FlavorId, ResourceId)) -> i64,
    ) -> Vec<((FlavorId, ResourceId), i64)> {
        let Some(of) = self.workload(id) else { return Vec::new() };
        let queue = self.queue(of.queue);
        let Some((node, tree)) = queue.node.zip(queue.tree) else { return Vec::new() };
        let is_short = |key: (FlavorId, ResourceId), asks: i64| {
            let free = self
                .forest
                .find_cell(tree, key)
                .map_or(Amount::ZERO, |cell| self.forest.available(node, cell));
            Amount(asks.saturating_add(others(key))) > free
        };
        let mut needed = Vec::new();
        for group in &queue.setup.groups {
            let asked: Vec<(ResourceId, i64)> = group
                .resources
                .iter()
                .map(|resource| (*resource, self.asks(of.shape, *resource)))
                .filter(|(_, n)| *n > 0)
                .collect();
            let short = |flavor: FlavorId| {
                asked.iter().filter(move |(resource, n)| {
                    (flavor, *resource) == key || is_short((flavor, *resource), *n)
                })
            };
            let flavor = match group.resources.contains(&key.1) {
                true => Some(key.0),
                false => group.flavors.iter().copied().min_by_key(|flavor| short(*flavor).count() > 0),
            };
            if let Some(flavor) = flavor {
                needed.extend(short(flavor).map(|(resource, n)| {
                    ((flavor, *resource), n.saturating_add(others((flavor, *resource))))
                }));
            }
        }
        needed
    }
}
