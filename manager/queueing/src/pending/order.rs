//! The order of pending workloads in a cluster queue, and positions in it. Decisions and explanations use the
//! same order.
//!
//! A starved head and a preemptor may precede all others. Then come usage of local queues (with admission
//! fair sharing), priority, age and uid. Finding the first active workload is cheap. Counting positions costs
//! as much as there are classes and preceding workloads, and is done on request only.

use crate::model::WorkloadId;
use crate::pending::{ClassKey, Pending, PendingPosition};
use std::cmp::Ordering;

/// When the preemptor of a queue is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreemptorOrder {
    /// In its regular position.
    Regular,
    /// First, unless the queue is ordered by usage.
    Sticky,
    /// Before all others.
    First,
}

/// The ordering rules of a queue.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "a function has nothing to show")]
pub struct QueueOrder<'a> {
    /// Usage of a local queue, if it precedes priority and age.
    pub usage: Option<&'a dyn Fn(&str) -> f64>,
    pub preemptor_order: PreemptorOrder,
    /// The workload that precedes all others.
    pub starved: Option<WorkloadId>,
}

impl QueueOrder<'_> {
    pub(super) fn used(&self, local_queue: &str) -> f64 {
        self.usage.map_or(0.0, |usage| usage(local_queue))
    }
}

/// Usage of local queues, cached for consecutive equal ones.
pub(super) struct UsageCache<'a> {
    order: &'a QueueOrder<'a>,
    last: Option<(&'a str, f64)>,
}

impl<'a> UsageCache<'a> {
    pub(super) fn new(order: &'a QueueOrder<'a>) -> Self {
        Self { order, last: None }
    }

    pub(super) fn of(&mut self, local_queue: &'a str) -> f64 {
        if self.order.usage.is_none() {
            return 0.0;
        }
        match self.last {
            Some((last, used)) if last == local_queue => used,
            _ => self.last.insert((local_queue, self.order.used(local_queue))).1,
        }
    }
}

/// Position of a workload by all ordering rules.
pub(super) struct PositionKey<'a> {
    /// Index among the favored workloads. All other workloads have the same, higher index.
    pub(super) favored_index: usize,
    pub(super) used: f64,
    pub(super) later: bool,
    pub(super) position: &'a PendingPosition,
}

impl PositionKey<'_> {
    pub(super) fn order(&self, other: &Self) -> Ordering {
        let by_usage =
            self.favored_index.cmp(&other.favored_index).then_with(|| self.used.total_cmp(&other.used));
        by_usage.then_with(|| (self.later, self.position).cmp(&(other.later, other.position)))
    }

    pub(super) fn first(one: Option<Self>, other: Self) -> Self {
        one.filter(|one| one.order(&other).is_le()).unwrap_or(other)
    }
}

impl Pending {
    /// The workloads that precede all others, in order.
    pub(super) fn favored(&self, order: &QueueOrder<'_>) -> [Option<WorkloadId>; 2] {
        let precedes_all = match order.preemptor_order {
            PreemptorOrder::First => true,
            PreemptorOrder::Sticky => order.usage.is_none(),
            PreemptorOrder::Regular => false,
        };
        [order.starved, self.preemptor.filter(|_| precedes_all)]
    }

    pub(super) fn rank<'a>(
        &self,
        order: &QueueOrder<'_>,
        position: &'a PendingPosition,
        used: f64,
    ) -> PositionKey<'a> {
        let favored = self.favored(order);
        PositionKey {
            favored_index: favored
                .iter()
                .position(|of| *of == Some(position.workload))
                .unwrap_or(favored.len()),
            used,
            later: order.preemptor_order == PreemptorOrder::Regular
                || self.preemptor != Some(position.workload),
            position,
        }
    }

    /// The next active workload.
    pub fn head(&self, order: &QueueOrder<'_>) -> Option<(PendingPosition, ClassKey)> {
        let first = self.heads.first();
        for favored in self.favored(order).into_iter().flatten() {
            if order.usage.is_none() && first.is_some_and(|(position, _)| position.workload == favored) {
                break;
            }
            if let Some(found) = self.find_active(favored) {
                return Some(found);
            }
        }
        if order.usage.is_none() {
            return first.cloned();
        }
        let preemptor = self
            .preemptor
            .filter(|_| order.preemptor_order == PreemptorOrder::Sticky)
            .and_then(|id| self.find_active(id));
        let candidates: Vec<&(PendingPosition, ClassKey)> = self.heads.iter().chain(&preemptor).collect();
        let ranked =
            candidates.into_iter().map(|found| (self.rank(order, &found.0, order.used(&found.1.0)), found));
        ranked.min_by(|a, b| a.0.order(&b.0)).map(|(_, found)| found.clone())
    }

    /// All workloads, active or parked, in order.
    pub fn ordered(&self, order: &QueueOrder<'_>) -> Vec<WorkloadId> {
        let mut usages = UsageCache::new(order);
        let all = self.classes.iter().flat_map(|(key, class)| {
            let used = usages.of(&key.0);
            class.active.iter().chain(&class.parked).map(move |position| (position, used))
        });
        let mut ranked: Vec<PositionKey<'_>> =
            all.map(|(position, used)| self.rank(order, position, used)).collect();
        ranked.sort_by(PositionKey::order);
        ranked.into_iter().map(|rank| rank.position.workload).collect()
    }

    /// The first workload, active or parked. `favored` has the favored workloads with their classes, because
    /// a favored workload needn't be the first of its class.
    pub(crate) fn first_of_all(
        &self,
        order: &QueueOrder<'_>,
        favored: &[(ClassKey, PendingPosition)],
    ) -> Option<WorkloadId> {
        let mut usages = UsageCache::new(order);
        let firsts = self.classes.iter().flat_map(|(key, class)| {
            let used = usages.of(&key.0);
            class.active.first().into_iter().chain(class.parked.first()).map(move |position| (position, used))
        });
        let all = firsts.chain(favored.iter().map(|(key, position)| (position, order.used(&key.0))));
        all.map(|(position, used)| self.rank(order, position, used))
            .min_by(PositionKey::order)
            .map(|rank| rank.position.workload)
    }
}
