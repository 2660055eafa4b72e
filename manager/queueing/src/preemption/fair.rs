//! Chooses victims by share: those of the queue with the largest share first.

mod order;

use crate::model::{PreemptionCandidate, PreemptionReason, PreemptionRule, QueueId, Target, WorkloadId};
use crate::names::{FlavorId, Id};
use crate::preemption::fair::order::QueueCandidates;
use crate::preemption::search::VictimSearch;
use crate::preemption::sort_candidates;
use crate::queue_state::QueueState;
use crate::quota::{NodeId, Share};
use crate::settings::FairStrategy;
use std::collections::{BTreeMap, BTreeSet};

pub use order::{FairOrder, Visit};

/// The ancestors of both queues just below their lowest common cohort: the preemptor's and the target's.
fn below_common_cohort(state: &QueueState, preemptor: NodeId, target: NodeId) -> (NodeId, NodeId) {
    let path: Vec<NodeId> = std::iter::once(preemptor).chain(state.forest().ancestors(preemptor)).collect();
    let mut below = target;
    for at in state.forest().ancestors(target) {
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

impl VictimSearch<'_> {
    pub(super) fn fair(&mut self) -> Vec<Target> {
        let candidates = self.fair_candidates();
        if candidates.is_empty() {
            return Vec::new();
        }
        // Shares include the incoming workload.
        self.charge_self(true);
        let strategies =
            self.state.settings().fair_sharing.as_ref().map(|f| f.strategies.clone()).unwrap_or_default();
        let mut targets = Vec::new();
        let mut left_over = BTreeMap::new();
        let first = strategies.first().copied().unwrap_or(FairStrategy::LessThanOrEqualToFinalShare);
        let mut fits = self.apply_first_strategy(candidates, first, &mut targets, &mut left_over);
        if !fits && strategies.len() > 1 {
            fits = self.apply_second_strategy(left_over, &mut targets);
        }
        self.charge_self(false);
        if !fits {
            self.restore_targets(&targets);
            return Vec::new();
        }
        let taken = targets.clone();
        let targets = self
            .fill_back(targets, true, |search, spared, rest| search.is_fair_without(spared, rest, &taken));
        self.restore_targets(&targets);
        targets
    }

    fn charge_self(&mut self, add: bool) {
        for (cell, amount) in &self.charge {
            if add {
                self.state.add_usage(self.node, *cell, *amount);
            } else {
                self.state.remove_usage(self.node, *cell, *amount);
            }
        }
    }

    /// Adds a target. Returns whether the workload fits now.
    fn take(&mut self, workload: WorkloadId, reason: PreemptionReason, targets: &mut Vec<Target>) -> bool {
        self.remove_target(workload);
        targets.push(Target { workload, reason: Some(reason) });
        self.charge_self(false);
        let fits = self.fits(true, targets);
        self.charge_self(true);
        fits
    }

    /// Takes the candidates that the first strategy allows until the workload fits. The first refused
    /// candidate of each queue is left for the second strategy.
    fn apply_first_strategy(
        &mut self,
        candidates: BTreeMap<QueueId, QueueCandidates>,
        strategy: FairStrategy,
        targets: &mut Vec<Target>,
        left_over: &mut BTreeMap<QueueId, WorkloadId>,
    ) -> bool {
        let mut order = FairOrder::of_queues(self.queue, self.node, candidates);
        // Nominal quota may be reclaimed regardless of shares.
        let entitled = self.state.settings().gates.fair_preempt_within_nominal
            && self.contested.iter().all(|cell| !self.state.forest().borrows(self.node, *cell));
        while let Some(visit) = order.next(self.state) {
            if visit.queue == self.queue || entitled {
                let reason = if visit.queue == self.queue {
                    PreemptionReason::InClusterQueue
                } else {
                    PreemptionReason::InCohortReclamation
                };
                let Some(candidate) = self.pop(&mut order, visit) else { continue };
                if self.take(candidate, reason, targets) {
                    return true;
                }
                continue;
            }
            let (mine, theirs) = below_common_cohort(self.state, self.node, visit.node);
            let (new, old) = (self.state.forest().share(mine), self.state.forest().share(theirs));
            // A preemptor with weight zero may take nothing from a queue that has a weight or doesn't borrow.
            if new.is_infinite() && !old.is_infinite() {
                if let Some(first) = order.first(visit.queue) {
                    left_over.entry(visit.queue).or_insert(first);
                }
                order.drop_queue(visit);
                continue;
            }
            let mut refused = None;
            while let Some(candidate) = self.pop(&mut order, visit) {
                // All candidates with the same charge get the same answer, so skip them.
                let charge = self.state.get(&candidate).holding.as_ref().map(|holding| &holding.charge);
                if charge == refused.as_ref() {
                    continue;
                }
                let charge = charge.cloned();
                self.state.suspend_usage(candidate);
                let after = self.state.forest().share(theirs);
                self.state.resume_usage(candidate);
                if strategy.allows(&new, &old, &after) {
                    if self.take(candidate, PreemptionReason::InCohortFairSharing, targets) {
                        return true;
                    }
                    // Another queue may have the largest share now.
                    break;
                }
                left_over.entry(visit.queue).or_insert(candidate);
                refused = charge;
            }
        }
        false
    }

    fn apply_second_strategy(
        &mut self,
        candidates: BTreeMap<QueueId, WorkloadId>,
        targets: &mut Vec<Target>,
    ) -> bool {
        let candidates: Vec<WorkloadId> = candidates.into_values().collect();
        let mut order = FairOrder::new(self.state, self.queue, self.node, &candidates);
        while let Some(visit) = order.next(self.state) {
            let (mine, theirs) = below_common_cohort(self.state, self.node, visit.node);
            let (new, old) = (self.state.forest().share(mine), self.state.forest().share(theirs));
            if let Some(candidate) = order.pop(visit)
                && FairStrategy::LessThanInitialShare.allows(&new, &old, &old)
                && self.take(candidate, PreemptionReason::InCohortFairSharing, targets)
            {
                return true;
            }
            order.drop_queue(visit);
        }
        false
    }

    /// Whether shares still allow the remaining targets, in the order of `taken`, after one was restored.
    /// Restoring a victim in the preemptor's own subtree raises the preemptor's share.
    fn is_fair_without(&mut self, spared: Target, rest: &[Target], taken: &[Target]) -> bool {
        let by_share = |target: &Target| target.reason == Some(PreemptionReason::InCohortFairSharing);
        let Some(at) = self.state.node_of(spared.workload) else { return true };
        let above: BTreeSet<NodeId> = std::iter::once(at).chain(self.state.forest().ancestors(at)).collect();
        let theirs: BTreeSet<NodeId> =
            rest.iter().filter(|t| by_share(t)).filter_map(|t| self.state.node_of(t.workload)).collect();
        if !theirs.iter().any(|node| above.contains(&below_common_cohort(self.state, self.node, *node).0)) {
            return true;
        }
        let strategies =
            self.state.settings().fair_sharing.as_ref().map(|f| f.strategies.clone()).unwrap_or_default();
        let rest: BTreeSet<WorkloadId> = rest.iter().map(|t| t.workload).collect();
        rest.iter().for_each(|workload| self.state.resume_usage(*workload));
        self.charge_self(true);
        let mut fair = true;
        for target in taken.iter().filter(|t| rest.contains(&t.workload)) {
            let node = self.state.node_of(target.workload).filter(|_| by_share(target));
            let before = node.map(|node| {
                let (mine, theirs) = below_common_cohort(self.state, self.node, node);
                (self.state.forest().share(mine), theirs, self.state.forest().share(theirs))
            });
            self.state.suspend_usage(target.workload);
            if let Some((new, theirs, old)) = before {
                let after = self.state.forest().share(theirs);
                fair &= strategies.iter().any(|strategy| strategy.allows(&new, &old, &after));
            }
        }
        self.charge_self(false);
        fair
    }

    fn fair_candidates(&self) -> BTreeMap<QueueId, QueueCandidates> {
        let preemption = &self.state.queue(self.queue).setup.preemption;
        let mut found = BTreeMap::new();
        found.extend(self.queue_candidates(self.queue).map(|candidates| (self.queue, candidates)));
        let root = self.state.forest().root(self.node);
        if root != self.node
            && !matches!(preemption.reclaim_within_cohort, PreemptionRule::Never | PreemptionRule::Unset)
        {
            let tree = self.state.forest().node(root).tree;
            for node in &self.state.forest().tree(tree).queues {
                if *node != self.node
                    && self.contested.iter().any(|cell| self.state.forest().borrows(*node, *cell))
                    && let Some(queue) = self.state.active_queue_at(*node)
                {
                    found.extend(self.queue_candidates(queue).map(|candidates| (queue, candidates)));
                }
            }
        }
        found
    }

    /// The preemption rule for candidates of a queue.
    fn policy_for(&self, queue: QueueId) -> PreemptionRule {
        let preemption = &self.state.queue(self.queue).setup.preemption;
        if queue == self.queue { preemption.within_queue } else { preemption.reclaim_within_cohort }
    }

    /// The candidates of a queue, if any. The queue's own order of holders can't be used if age or usage
    /// matter too.
    fn queue_candidates(&self, queue: QueueId) -> Option<QueueCandidates> {
        match self.policy_for(queue) {
            PreemptionRule::Never | PreemptionRule::Unset => None,
            PreemptionRule::Any | PreemptionRule::LowerPriority if !self.by_usage() => {
                self.kept_after(queue, None).map(QueueCandidates::Kept)
            }
            policy => {
                let (priority, since) = self.rank(self.workload);
                let of_queue = self
                    .state
                    .candidates_of(queue, policy, priority, since)
                    .filter(|w| *w != self.workload && self.uses_contested(*w));
                let all = sort_candidates(self.state, self.by_usage(), self.queue, of_queue.collect());
                (!all.is_empty()).then(|| QueueCandidates::Listed(all.into()))
            }
        }
    }

    /// The first candidate of a queue, or the one after `after`, in the order of the queue.
    fn kept_after(&self, queue: QueueId, after: Option<PreemptionCandidate>) -> Option<PreemptionCandidate> {
        let below =
            (self.policy_for(queue) == PreemptionRule::LowerPriority).then(|| self.rank(self.workload).0);
        let tree = self.state.forest().tree(self.state.forest().node(self.node).tree);
        let flavors: BTreeSet<FlavorId> =
            self.contested.iter().map(|cell| tree.cells[cell.index()].0).collect();
        let candidate =
            |one: &&PreemptionCandidate| one.workload != self.workload && self.uses_contested(one.workload);
        let first_with = |flavor: FlavorId, after: Option<PreemptionCandidate>| {
            let too_important = |one: &PreemptionCandidate| below.is_some_and(|below| one.priority >= below);
            match self.state.candidates_after(queue, flavor, after).find(candidate) {
                // Stopping candidates come first, so a running candidate with a lower priority may follow.
                Some(one) if too_important(one) && !one.is_running => {
                    let going_on = PreemptionCandidate { is_running: true, ..PreemptionCandidate::first() };
                    self.state
                        .candidates_after(queue, flavor, Some(going_on))
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
    use crate::capacity_model::UnlimitedCapacity;

    #[test]
    fn kept_candidates_are_in_sorted_order() {
        let mut candidates = 0;
        for seed in 0..400 {
            let policy =
                [PreemptionRule::Any, PreemptionRule::LowerPriority][usize::try_from(seed % 2).unwrap()];
            let mut state = borrowers(seed, policy);
            let queue = state.queue_id("q0").unwrap();
            let (waits, _) =
                new(&mut state, "waits", queue, 1 + i64::try_from(seed / 2 % 3).unwrap(), 0, &BOTH);
            let workload = state.add_pending(waits);
            let (node, tree) = state.queue(queue).node.zip(state.queue(queue).tree).unwrap();
            let cell = |(resource, flavor): (&str, &str)| (state.flavor_id(flavor), state.resource(resource));
            let mut cell = cell;
            let keys = BOTH.map(&mut cell);
            let contested: Vec<_> = keys[..1 + usize::try_from(seed / 6 % 2).unwrap()]
                .iter()
                .map(|key| state.forest().find_cell(tree, *key).unwrap())
                .collect();
            let charge = contested.iter().map(|cell| (*cell, Amount(1))).collect();
            let mut unlimited = UnlimitedCapacity;
            let search = VictimSearch::new(&mut state, &mut unlimited, workload, node, charge, contested);
            for other in
                (1..5).map(|at| search.state.queue_id(&format!("q{at}")).unwrap()).collect::<Vec<_>>()
            {
                let all = search
                    .state
                    .candidates_of(other, policy, search.rank(workload).0, search.rank(workload).1)
                    .filter(|w| search.uses_contested(*w));
                let sorted = sort_candidates(search.state, false, queue, all.collect());
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
