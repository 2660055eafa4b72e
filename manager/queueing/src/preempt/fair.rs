//! Victims by share: the queue that is furthest above its share gives way first.

use super::{Right, Search, Target, candidate_order, in_order};
use crate::brain::Brain;
use crate::model::{Displaces, QueueId, WorkloadId};
use crate::settings::FairStrategy;
use crate::share::Share;
use crate::tree::NodeId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The queues whose candidates are visited, the one with the largest share first, level by level from the root.
#[derive(Debug)]
pub struct FairOrder {
    own: QueueId,
    node: NodeId,
    candidates: BTreeMap<QueueId, VecDeque<WorkloadId>>,
    pruned: BTreeSet<NodeId>,
}

/// A queue to take candidates from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// The queue.
    pub queue: QueueId,
    /// Its place.
    pub node: NodeId,
}

impl FairOrder {
    /// Visits the queues of `candidates`, each in the given order, for a preemptor of queue `own`.
    pub fn new(brain: &Brain, own: QueueId, node: NodeId, candidates: &[WorkloadId]) -> Self {
        let mut by_queue: BTreeMap<QueueId, VecDeque<WorkloadId>> = BTreeMap::new();
        for candidate in candidates {
            by_queue.entry(brain.workloads[candidate].queue).or_default().push_back(*candidate);
        }
        Self { own, node, candidates: by_queue, pruned: BTreeSet::new() }
    }

    /// The next candidate of a queue.
    pub fn pop(&mut self, visit: Visit) -> Option<WorkloadId> {
        self.candidates.get_mut(&visit.queue).and_then(VecDeque::pop_front)
    }

    /// Visits the queue no more.
    pub fn drop_queue(&mut self, visit: Visit) {
        self.pruned.insert(visit.node);
    }

    fn first(&self, queue: QueueId) -> Option<WorkloadId> {
        self.candidates.get(&queue).and_then(|c| c.front().copied())
    }

    /// The queue to visit next.
    pub fn next(&mut self, brain: &Brain) -> Option<Visit> {
        let root = brain.forest.root(self.node);
        if root == self.node {
            let visit = Visit { queue: self.own, node: self.node };
            return (!self.pruned.contains(&self.node) && self.first(self.own).is_some()).then_some(visit);
        }
        while !self.pruned.contains(&root) {
            if let Some(visit) = self.below(brain, root) {
                return Some(visit);
            }
        }
        None
    }

    fn on_path(&self, brain: &Brain, cohort: NodeId) -> bool {
        brain.forest.ancestors(self.node).any(|at| at == cohort)
    }

    /// The child with the largest share, down to a queue. `None` says only that something was pruned.
    fn below(&mut self, brain: &Brain, cohort: NodeId) -> Option<Visit> {
        let mut best_queue: Option<(Share, Visit)> = None;
        for child in &brain.forest.node(cohort).queues {
            if self.pruned.contains(child) {
                continue;
            }
            let share = brain.forest.share(*child);
            let queue = brain.queue_at(*child);
            let candidate = queue.and_then(|queue| self.first(queue).map(|first| (queue, first)));
            let Some((queue, first)) = candidate.filter(|_| share.borrowing || *child == self.node) else {
                self.pruned.insert(*child);
                continue;
            };
            let order = best_queue.as_ref().map_or(std::cmp::Ordering::Greater, |(best, _)| share.order(best));
            let better = order.is_gt()
                || order.is_eq()
                    && best_queue
                        .as_ref()
                        .and_then(|(_, v)| self.first(v.queue))
                        .is_some_and(|best| candidate_order(brain, false, self.own, first, best).is_lt());
            if better {
                best_queue = Some((share, Visit { queue, node: *child }));
            }
        }
        let mut best_cohort: Option<(Share, NodeId)> = None;
        for child in &brain.forest.node(cohort).cohorts {
            if self.pruned.contains(child) {
                continue;
            }
            let share = brain.forest.share(*child);
            if !share.borrowing && !self.on_path(brain, *child) {
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
            // Of equals the cohort: the most unfair node within it is found next.
            (Some((share, cohort)), queue) if queue.as_ref().is_none_or(|(other, _)| share.order(other).is_ge()) => self.below(brain, cohort),
            (_, queue) => queue.map(|(_, visit)| visit),
        }
    }
}

/// The two nodes just below the lowest cohort that holds both queues: the preemptor's and the target's.
fn below_meeting(brain: &Brain, preemptor: NodeId, target: NodeId) -> (NodeId, NodeId) {
    let path: Vec<NodeId> = std::iter::once(preemptor).chain(brain.forest.ancestors(preemptor)).collect();
    let mut below = target;
    for at in brain.forest.ancestors(target) {
        if let Some(place) = path.iter().position(|p| *p == at) {
            return (path[place.saturating_sub(1)], below);
        }
        below = at;
    }
    (preemptor, target)
}

impl FairStrategy {
    fn allows(self, preemptor_new: &Share, target_old: &Share, target_new: &Share) -> bool {
        match self {
            Self::LessThanOrEqualToFinalShare => preemptor_new.order(target_new).is_le(),
            Self::LessThanInitialShare => preemptor_new.order(target_old).is_lt(),
        }
    }
}

impl Search<'_> {
    pub(super) fn fair(&mut self) -> Vec<Target> {
        let candidates = self.fair_candidates();
        if candidates.is_empty() {
            return Vec::new();
        }
        let candidates = in_order(self.brain, self.by_usage(), self.queue, candidates);
        // Shares count the incoming workload.
        self.charge_self(true);
        let strategies = self.brain.settings.fair_sharing.as_ref().map(|f| f.strategies.clone()).unwrap_or_default();
        let mut targets = Vec::new();
        let mut again = Vec::new();
        let first = strategies.first().copied().unwrap_or(FairStrategy::LessThanOrEqualToFinalShare);
        let mut fits = self.first_rule(&candidates, first, &mut targets, &mut again);
        if !fits && strategies.len() > 1 {
            fits = self.second_rule(&again, &mut targets);
        }
        self.charge_self(false);
        if !fits {
            self.put_back(&targets);
            return Vec::new();
        }
        let taken = targets.clone();
        let targets = self.fill_back(targets, true, |search, spared, rest| search.is_fair_without(spared, rest, &taken));
        self.put_back(&targets);
        targets
    }

    fn charge_self(&mut self, add: bool) {
        for (cell, amount) in &self.charge {
            if add {
                self.brain.forest.add(self.node, *cell, *amount);
            } else {
                self.brain.forest.remove(self.node, *cell, *amount);
            }
        }
    }

    fn take(&mut self, workload: WorkloadId, right: Right, targets: &mut Vec<Target>) -> bool {
        self.take_out(workload);
        targets.push(Target { workload, right: Some(right) });
        self.charge_self(false);
        let fits = self.fits(true, targets);
        self.charge_self(true);
        fits
    }

    fn first_rule(&mut self, candidates: &[WorkloadId], strategy: FairStrategy, targets: &mut Vec<Target>, again: &mut Vec<WorkloadId>) -> bool {
        let mut order = FairOrder::new(self.brain, self.queue, self.node, candidates);
        // What is nominally one's own is taken back whatever the shares.
        let entitled = self.brain.settings.gates.fair_preempt_within_nominal && self.contested.iter().all(|cell| !self.brain.forest.borrows(self.node, *cell));
        while let Some(visit) = order.next(self.brain) {
            if visit.queue == self.queue || entitled {
                let right = if visit.queue == self.queue { Right::InClusterQueue } else { Right::InCohortReclamation };
                let Some(candidate) = order.pop(visit) else { continue };
                if self.take(candidate, right, targets) {
                    return true;
                }
                continue;
            }
            let (mine, theirs) = below_meeting(self.brain, self.node, visit.node);
            let (new, old) = (self.brain.forest.share(mine), self.brain.forest.share(theirs));
            // Without a weight nothing may be taken from who doesn't borrow without one too.
            let hopeless = new.is_infinite() && !old.is_infinite();
            while let Some(candidate) = order.pop(visit) {
                if hopeless {
                    again.push(candidate);
                    continue;
                }
                self.brain.suspend_usage(candidate);
                let after = self.brain.forest.share(theirs);
                self.brain.resume_usage(candidate);
                if strategy.allows(&new, &old, &after) {
                    if self.take(candidate, Right::InCohortFairSharing, targets) {
                        return true;
                    }
                    // Another queue may now be furthest above its share.
                    break;
                }
                again.push(candidate);
            }
        }
        false
    }

    fn second_rule(&mut self, candidates: &[WorkloadId], targets: &mut Vec<Target>) -> bool {
        let mut order = FairOrder::new(self.brain, self.queue, self.node, candidates);
        while let Some(visit) = order.next(self.brain) {
            let (mine, theirs) = below_meeting(self.brain, self.node, visit.node);
            let (new, old) = (self.brain.forest.share(mine), self.brain.forest.share(theirs));
            if let Some(candidate) = order.pop(visit)
                && FairStrategy::LessThanInitialShare.allows(&new, &old, &old)
                && self.take(candidate, Right::InCohortFairSharing, targets)
            {
                return true;
            }
            order.drop_queue(visit);
        }
        false
    }

    /// Whether shares still allow the `rest` of those who were `taken`, in that order, once one is spared. With a victim of its
    /// own subtree the preemptor's share was smaller than it is without (simulation seeds 1321, 1638, 1990).
    fn is_fair_without(&mut self, spared: Target, rest: &[Target], taken: &[Target]) -> bool {
        let by_share = |target: &Target| target.right == Some(Right::InCohortFairSharing);
        let Some(at) = self.brain.node_of(spared.workload) else { return true };
        let above: BTreeSet<NodeId> = std::iter::once(at).chain(self.brain.forest.ancestors(at)).collect();
        let theirs: BTreeSet<NodeId> = rest.iter().filter(|t| by_share(t)).filter_map(|t| self.brain.node_of(t.workload)).collect();
        if !theirs.iter().any(|node| above.contains(&below_meeting(self.brain, self.node, *node).0)) {
            return true;
        }
        let strategies = self.brain.settings.fair_sharing.as_ref().map(|f| f.strategies.clone()).unwrap_or_default();
        let rest: BTreeSet<WorkloadId> = rest.iter().map(|t| t.workload).collect();
        rest.iter().for_each(|workload| self.brain.resume_usage(*workload));
        self.charge_self(true);
        let mut fair = true;
        for target in taken.iter().filter(|t| rest.contains(&t.workload)) {
            let node = self.brain.node_of(target.workload).filter(|_| by_share(target));
            let before = node.map(|node| {
                let (mine, theirs) = below_meeting(self.brain, self.node, node);
                (self.brain.forest.share(mine), theirs, self.brain.forest.share(theirs))
            });
            self.brain.suspend_usage(target.workload);
            if let Some((new, theirs, old)) = before {
                let after = self.brain.forest.share(theirs);
                fair &= strategies.iter().any(|strategy| strategy.allows(&new, &old, &after));
            }
        }
        self.charge_self(false);
        fair
    }

    fn fair_candidates(&self) -> Vec<WorkloadId> {
        let preemption = &self.brain.queue(self.queue).setup.preemption;
        let mut found = Vec::new();
        self.fair_of_queue(self.queue, preemption.within_queue, &mut found);
        let root = self.brain.forest.root(self.node);
        if root != self.node && !matches!(preemption.reclaim_within_cohort, Displaces::Never | Displaces::Unset) {
            let tree = self.brain.forest.node(root).tree;
            for node in &self.brain.forest.tree(tree).queues {
                if *node != self.node
                    && self.contested.iter().any(|cell| self.brain.forest.borrows(*node, *cell))
                    && let Some(queue) = self.brain.active_queue_at(*node)
                {
                    self.fair_of_queue(queue, preemption.reclaim_within_cohort, &mut found);
                }
            }
        }
        found
    }

    fn fair_of_queue(&self, queue: QueueId, policy: Displaces, found: &mut Vec<WorkloadId>) {
        let rank = self.rank(self.workload);
        found.extend(self.brain.displaceable(queue, policy, rank).filter(|w| *w != self.workload && self.uses_contested(*w)));
    }
}
