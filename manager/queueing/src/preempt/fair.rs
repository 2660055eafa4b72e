//! Victims by share: the queue that is furthest above its share gives way first.

use super::{Right, Search, Target, candidate_order, in_order};
use crate::brain::Brain;
use crate::model::{Displaceable, Displaces, QueueId, WorkloadId};
use crate::names::{FlavorId, Id};
use crate::settings::FairStrategy;
use crate::share::Share;
use crate::tree::NodeId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Candidates of one queue, in their order.
#[derive(Debug)]
enum Line {
    /// Found and ordered one and all.
    Listed(VecDeque<WorkloadId>),
    /// Only the first is known: as the queue keeps them in this order, whoever comes next is looked for when it is asked for.
    Kept(Displaceable),
}

impl Line {
    fn first(&self) -> Option<WorkloadId> {
        match self {
            Self::Listed(all) => all.front().copied(),
            Self::Kept(first) => Some(first.workload),
        }
    }
}

/// The queues whose candidates are visited, the one with the largest share first, level by level from the root.
#[derive(Debug)]
pub struct FairOrder {
    own: QueueId,
    node: NodeId,
    candidates: BTreeMap<QueueId, Line>,
    /// Queues of a cohort that may still be visited, once it was looked at.
    queues: BTreeMap<NodeId, Vec<NodeId>>,
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
        let candidates = by_queue.into_iter().map(|(queue, all)| (queue, Line::Listed(all))).collect();
        Self { own, node, candidates, queues: BTreeMap::new(), pruned: BTreeSet::new() }
    }

    /// The next candidate of a queue.
    pub fn pop(&mut self, visit: Visit) -> Option<WorkloadId> {
        self.pop_with(visit, |_| None)
    }

    /// The same, where `after` finds who comes after one in the queue's own order.
    fn pop_with(
        &mut self,
        visit: Visit,
        after: impl FnOnce(Displaceable) -> Option<Displaceable>,
    ) -> Option<WorkloadId> {
        match self.candidates.remove(&visit.queue)? {
            Line::Listed(mut all) => {
                let first = all.pop_front();
                self.candidates.insert(visit.queue, Line::Listed(all));
                first
            }
            Line::Kept(first) => {
                let workload = first.workload;
                if let Some(next) = after(first) {
                    self.candidates.insert(visit.queue, Line::Kept(next));
                }
                Some(workload)
            }
        }
    }

    /// Visits the queue no more.
    pub fn drop_queue(&mut self, visit: Visit) {
        self.pruned.insert(visit.node);
    }

    fn first(&self, queue: QueueId) -> Option<WorkloadId> {
        self.candidates.get(&queue).and_then(Line::first)
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
        let mut children =
            self.queues.remove(&cohort).unwrap_or_else(|| brain.forest.node(cohort).queues.to_vec());
        children.retain(|child| {
            // Of many queues few have candidates, and a share is costly.
            let candidate = brain
                .queue_at(*child)
                .filter(|_| !self.pruned.contains(child))
                .and_then(|queue| Some((queue, self.first(queue)?)));
            let Some((queue, first)) = candidate else { return false };
            let share = brain.forest.share(*child);
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
                        .is_some_and(|best| candidate_order(brain, false, self.own, first, best).is_lt());
            if better {
                best_queue = Some((share, Visit { queue, node: *child }));
            }
            true
        });
        self.queues.insert(cohort, children);
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
            (Some((share, cohort)), queue)
                if queue.as_ref().is_none_or(|(other, _)| share.order(other).is_ge()) =>
            {
                self.below(brain, cohort)
            }
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
        // Shares count the incoming workload.
        self.charge_self(true);
        let strategies =
            self.brain.settings.fair_sharing.as_ref().map(|f| f.strategies.clone()).unwrap_or_default();
        let mut targets = Vec::new();
        let mut again = BTreeMap::new();
        let first = strategies.first().copied().unwrap_or(FairStrategy::LessThanOrEqualToFinalShare);
        let mut fits = self.first_rule(candidates, first, &mut targets, &mut again);
        if !fits && strategies.len() > 1 {
            fits = self.second_rule(again, &mut targets);
        }
        self.charge_self(false);
        if !fits {
            self.put_back(&targets);
            return Vec::new();
        }
        let taken = targets.clone();
        let targets = self
            .fill_back(targets, true, |search, spared, rest| search.is_fair_without(spared, rest, &taken));
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

    /// Takes whom the first rule allows to take, until it fits. The first of each queue whom it doesn't is left for the second rule.
    fn first_rule(
        &mut self,
        candidates: BTreeMap<QueueId, Line>,
        strategy: FairStrategy,
        targets: &mut Vec<Target>,
        again: &mut BTreeMap<QueueId, WorkloadId>,
    ) -> bool {
        let mut order = FairOrder {
            own: self.queue,
            node: self.node,
            candidates,
            queues: BTreeMap::new(),
            pruned: BTreeSet::new(),
        };
        // What is nominally one's own is taken back whatever the shares.
        let entitled = self.brain.settings.gates.fair_preempt_within_nominal
            && self.contested.iter().all(|cell| !self.brain.forest.borrows(self.node, *cell));
        while let Some(visit) = order.next(self.brain) {
            if visit.queue == self.queue || entitled {
                let right = if visit.queue == self.queue {
                    Right::InClusterQueue
                } else {
                    Right::InCohortReclamation
                };
                let Some(candidate) = self.pop(&mut order, visit) else { continue };
                if self.take(candidate, right, targets) {
                    return true;
                }
                continue;
            }
            let (mine, theirs) = below_meeting(self.brain, self.node, visit.node);
            let (new, old) = (self.brain.forest.share(mine), self.brain.forest.share(theirs));
            // Without a weight nothing may be taken from who doesn't borrow without one too.
            if new.is_infinite() && !old.is_infinite() {
                if let Some(first) = order.first(visit.queue) {
                    again.entry(visit.queue).or_insert(first);
                }
                order.drop_queue(visit);
                continue;
            }
            let mut refused = None;
            while let Some(candidate) = self.pop(&mut order, visit) {
                // What was said of one holds for all who use as much.
                let charge = self.brain.workloads[&candidate].holding.as_ref().map(|holding| &holding.charge);
                if charge == refused.as_ref() {
                    continue;
                }
                let charge = charge.cloned();
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
                again.entry(visit.queue).or_insert(candidate);
                refused = charge;
            }
        }
        false
    }

    fn second_rule(&mut self, candidates: BTreeMap<QueueId, WorkloadId>, targets: &mut Vec<Target>) -> bool {
        let candidates: Vec<WorkloadId> = candidates.into_values().collect();
        let mut order = FairOrder::new(self.brain, self.queue, self.node, &candidates);
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
        let theirs: BTreeSet<NodeId> =
            rest.iter().filter(|t| by_share(t)).filter_map(|t| self.brain.node_of(t.workload)).collect();
        if !theirs.iter().any(|node| above.contains(&below_meeting(self.brain, self.node, *node).0)) {
            return true;
        }
        let strategies =
            self.brain.settings.fair_sharing.as_ref().map(|f| f.strategies.clone()).unwrap_or_default();
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

    fn fair_candidates(&self) -> BTreeMap<QueueId, Line> {
        let preemption = &self.brain.queue(self.queue).setup.preemption;
        let mut found = BTreeMap::new();
        found.extend(self.line(self.queue).map(|line| (self.queue, line)));
        let root = self.brain.forest.root(self.node);
        if root != self.node
            && !matches!(preemption.reclaim_within_cohort, Displaces::Never | Displaces::Unset)
        {
            let tree = self.brain.forest.node(root).tree;
            for node in &self.brain.forest.tree(tree).queues {
                if *node != self.node
                    && self.contested.iter().any(|cell| self.brain.forest.borrows(*node, *cell))
                    && let Some(queue) = self.brain.active_queue_at(*node)
                {
                    found.extend(self.line(queue).map(|line| (queue, line)));
                }
            }
        }
        found
    }

    /// The policy by which candidates of a queue may be displaced.
    fn policy_for(&self, queue: QueueId) -> Displaces {
        let preemption = &self.brain.queue(self.queue).setup.preemption;
        if queue == self.queue { preemption.within_queue } else { preemption.reclaim_within_cohort }
    }

    /// The candidates of a queue, where there are any. Where age or use before decide too, they aren't kept in their order.
    fn line(&self, queue: QueueId) -> Option<Line> {
        match self.policy_for(queue) {
            Displaces::Never | Displaces::Unset => None,
            Displaces::Any | Displaces::LowerPriority if !self.by_usage() => {
                self.kept_after(queue, None).map(Line::Kept)
            }
            policy => {
                let of_queue = self
                    .brain
                    .displaceable(queue, policy, self.rank(self.workload))
                    .filter(|w| *w != self.workload && self.uses_contested(*w));
                let all = in_order(self.brain, self.by_usage(), self.queue, of_queue.collect());
                (!all.is_empty()).then(|| Line::Listed(all.into()))
            }
        }
    }

    /// The first candidate of a queue, or the first after one, in the order that the queue keeps.
    fn kept_after(&self, queue: QueueId, after: Option<Displaceable>) -> Option<Displaceable> {
        let below = (self.policy_for(queue) == Displaces::LowerPriority).then(|| self.rank(self.workload).0);
        let tree = self.brain.forest.tree(self.brain.forest.node(self.node).tree);
        let flavors: BTreeSet<FlavorId> =
            self.contested.iter().map(|cell| tree.cells[cell.index()].0).collect();
        let candidate =
            |one: &&Displaceable| one.workload != self.workload && self.uses_contested(one.workload);
        let first_with = |flavor: FlavorId, after: Option<Displaceable>| {
            let too_important = |one: &Displaceable| below.is_some_and(|below| one.priority >= below);
            match self.brain.easiest_after(queue, flavor, after).find(candidate) {
                // Whoever is stopping comes first, so the least important of those who go on are still to come.
                Some(one) if too_important(one) && !one.goes_on => {
                    let going_on = Displaceable { goes_on: true, ..Displaceable::first() };
                    self.brain
                        .easiest_after(queue, flavor, Some(going_on))
                        .find(candidate)
                        .filter(|one| !too_important(one))
                }
                found => found.filter(|one| !too_important(one)),
            }
        };
        flavors.iter().filter_map(|flavor| first_with(*flavor, after.clone())).min().cloned()
    }

    fn pop(&self, order: &mut FairOrder, visit: Visit) -> Option<WorkloadId> {
        order.pop_with(visit, |passed| self.kept_after(visit.queue, Some(passed)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::classical::tests::{BOTH, borrowers, new};
    use super::*;
    use crate::amount::Amount;
    use crate::places::Anywhere;

    #[test]
    fn a_queues_own_order_is_that_of_all_its_candidates_sorted() {
        let mut candidates = 0;
        for seed in 0..400 {
            let policy = [Displaces::Any, Displaces::LowerPriority][usize::try_from(seed % 2).unwrap()];
            let mut brain = borrowers(seed, policy);
            let queue = brain.queue_id("q0").unwrap();
            let (waits, _) =
                new(&mut brain, "waits", queue, (1 + i64::try_from(seed / 2 % 3).unwrap(), 0), &BOTH);
            let workload = brain.wait(waits);
            let (node, tree) = brain.queue(queue).node.zip(brain.queue(queue).tree).unwrap();
            let cell = |(resource, flavor): (&str, &str)| (brain.flavor_id(flavor), brain.resource(resource));
            let mut cell = cell;
            let keys = BOTH.map(&mut cell);
            let contested: Vec<_> = keys[..1 + usize::try_from(seed / 6 % 2).unwrap()]
                .iter()
                .map(|key| brain.forest.find_cell(tree, *key).unwrap())
                .collect();
            let charge = contested.iter().map(|cell| (*cell, Amount(1))).collect();
            let mut anywhere = Anywhere;
            let search = Search {
                brain: &mut brain,
                places: &mut anywhere,
                workload,
                queue,
                node,
                charge,
                contested,
                topology: None,
                rooms: false,
                within: None,
            };
            for other in
                (1..5).map(|at| search.brain.queue_id(&format!("q{at}")).unwrap()).collect::<Vec<_>>()
            {
                let all = search
                    .brain
                    .displaceable(other, policy, search.rank(workload))
                    .filter(|w| search.uses_contested(*w));
                let sorted = in_order(search.brain, false, queue, all.collect());
                let mut kept = Vec::new();
                let mut next = search.kept_after(other, None);
                while let Some(one) = next {
                    kept.push(one.workload);
                    next = search.kept_after(other, Some(one));
                }
                candidates += kept.len();
                assert_eq!(kept, sorted, "seed {seed}");
            }
        }
        assert!(candidates > 4_000, "{candidates}");
    }
}
