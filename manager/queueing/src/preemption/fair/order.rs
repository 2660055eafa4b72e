//! The order in which fair sharing visits queues with candidates.

use crate::model::{PreemptionCandidate, QueueId, WorkloadId};
use crate::preemption::candidate_order;
use crate::queue_state::QueueState;
use crate::quota::{NodeId, Share};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Candidates of one queue, in order.
#[derive(Debug)]
pub(super) enum QueueCandidates {
    /// A sorted list.
    Listed(VecDeque<WorkloadId>),
    /// Only the first candidate. The queue keeps its holders in the same order, so the next candidate is
    /// looked up when needed.
    Kept(PreemptionCandidate),
}

impl QueueCandidates {
    pub(super) fn first(&self) -> Option<WorkloadId> {
        match self {
            Self::Listed(all) => all.front().copied(),
            Self::Kept(first) => Some(first.workload),
        }
    }
}

/// Visits the queues with candidates, largest share first, level by level from the root.
#[derive(Debug)]
pub struct FairOrder {
    own: QueueId,
    node: NodeId,
    candidates: BTreeMap<QueueId, QueueCandidates>,
    /// Queues of a visited cohort that still have candidates.
    queues: BTreeMap<NodeId, Vec<NodeId>>,
    pruned: BTreeSet<NodeId>,
}

/// A queue to take candidates from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    pub queue: QueueId,
    pub node: NodeId,
}

impl FairOrder {
    /// Visits the queues of `candidates`, each in the given order, for a preemptor of queue `own`.
    pub fn new(state: &QueueState, own: QueueId, node: NodeId, candidates: &[WorkloadId]) -> Self {
        let mut by_queue: BTreeMap<QueueId, VecDeque<WorkloadId>> = BTreeMap::new();
        for candidate in candidates {
            by_queue.entry(state.get(candidate).queue).or_default().push_back(*candidate);
        }
        let candidates =
            by_queue.into_iter().map(|(queue, all)| (queue, QueueCandidates::Listed(all))).collect();
        Self::of_queues(own, node, candidates)
    }

    pub(super) fn of_queues(
        own: QueueId,
        node: NodeId,
        candidates: BTreeMap<QueueId, QueueCandidates>,
    ) -> Self {
        Self { own, node, candidates, queues: BTreeMap::new(), pruned: BTreeSet::new() }
    }

    /// The next candidate of a queue.
    pub fn pop(&mut self, visit: Visit) -> Option<WorkloadId> {
        self.pop_with(visit, |_| None)
    }

    /// Pops the next candidate; `after` looks up its successor in the order of the queue.
    pub(super) fn pop_with(
        &mut self,
        visit: Visit,
        after: impl FnOnce(PreemptionCandidate) -> Option<PreemptionCandidate>,
    ) -> Option<WorkloadId> {
        match self.candidates.remove(&visit.queue)? {
            QueueCandidates::Listed(mut all) => {
                let first = all.pop_front();
                self.candidates.insert(visit.queue, QueueCandidates::Listed(all));
                first
            }
            QueueCandidates::Kept(first) => {
                let workload = first.workload;
                if let Some(next) = after(first) {
                    self.candidates.insert(visit.queue, QueueCandidates::Kept(next));
                }
                Some(workload)
            }
        }
    }

    /// Excludes the queue.
    pub fn drop_queue(&mut self, visit: Visit) {
        self.pruned.insert(visit.node);
    }

    pub(super) fn first(&self, queue: QueueId) -> Option<WorkloadId> {
        self.candidates.get(&queue).and_then(QueueCandidates::first)
    }

    /// The next queue to visit.
    pub fn next(&mut self, state: &QueueState) -> Option<Visit> {
        let root = state.forest().root(self.node);
        if root == self.node {
            let visit = Visit { queue: self.own, node: self.node };
            return (!self.pruned.contains(&self.node) && self.first(self.own).is_some()).then_some(visit);
        }
        while !self.pruned.contains(&root) {
            if let Some(visit) = self.below(state, root) {
                return Some(visit);
            }
        }
        None
    }

    fn on_path(&self, state: &QueueState, cohort: NodeId) -> bool {
        state.forest().ancestors(self.node).any(|at| at == cohort)
    }

    /// The child with the largest share, down to a queue. `None` means that a node was excluded.
    fn below(&mut self, state: &QueueState, cohort: NodeId) -> Option<Visit> {
        let mut best_queue: Option<(Share, Visit)> = None;
        let mut children =
            self.queues.remove(&cohort).unwrap_or_else(|| state.forest().node(cohort).queues.to_vec());
        children.retain(|child| {
            // Few queues have candidates, and shares are expensive.
            let candidate = state
                .queue_at(*child)
                .filter(|_| !self.pruned.contains(child))
                .and_then(|queue| Some((queue, self.first(queue)?)));
            let Some((queue, first)) = candidate else { return false };
            let share = state.forest().share(*child);
            if !share.borrowing && *child != self.node {
                return false;
            }
            let order =
                best_queue.as_ref().map_or(std::cmp::Ordering::Greater, |(best, _)| share.order(best));
            let better = order.is_gt()
                || order.is_eq()
                    && best_queue
                        .as_ref()
                        .and_then(|(_, v)| self.first(v.queue))
                        .is_some_and(|best| candidate_order(state, false, self.own, first, best).is_lt());
            if better {
                best_queue = Some((share, Visit { queue, node: *child }));
            }
            true
        });
        self.queues.insert(cohort, children);
        let mut best_cohort: Option<(Share, NodeId)> = None;
        for child in &state.forest().node(cohort).cohorts {
            if self.pruned.contains(child) {
                continue;
            }
            let share = state.forest().share(*child);
            if !share.borrowing && !self.on_path(state, *child) {
                self.pruned.insert(*child);
            } else if best_cohort.as_ref().is_none_or(|(best, _)| share.order(best).is_ge()) {
                best_cohort = Some((share, *child));
            }
        }
        match (best_cohort, best_queue) {
            (None, None) => {
                self.pruned.insert(cohort);
                None
            }
            // On a tie the cohort comes first; the search continues with the largest share within it.
            (Some((share, cohort)), queue)
                if queue.as_ref().is_none_or(|(other, _)| share.order(other).is_ge()) =>
            {
                self.below(state, cohort)
            }
            (_, queue) => queue.map(|(_, visit)| visit),
        }
    }
}
