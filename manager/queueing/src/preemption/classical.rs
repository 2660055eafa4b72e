//! Chooses victims by hierarchy and priority.
//!
//! There are three kinds of candidates: those of other queues over which the preemptor has a hierarchical
//! advantage (its subtree's own quota covers the request, so priority doesn't matter), those of other queues
//! with lower priority, and those of its own queue.

mod candidates;

use crate::amount::Amount;
use crate::model::{PreemptionRule, QueueId, Target, WorkloadId};
use crate::names::{FlavorId, Id};
use crate::preemption::classical::candidates::{Candidate, CandidateKind, CandidateQueue, Candidates};
use crate::preemption::search::VictimSearch;
use crate::preemption::sort_candidates;
use crate::quota::{CellId, NodeId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

impl VictimSearch<'_> {
    pub(super) fn classical(&mut self) -> Vec<Target> {
        let forbidden = self.state.queue(self.queue).setup.preemption.borrow_within_cohort.is_none();
        let must_borrow = forbidden && !self.under_nominal();
        let own = self.own_candidates();
        let [mut by_hierarchy, mut by_priority] = self.cohort_candidates(must_borrow);
        let no_hierarchy = by_hierarchy.first(self).is_none();
        let no_others = no_hierarchy && by_priority.first(self).is_none();
        let kinds = [by_hierarchy, by_priority, own];
        let tries: &[bool] = if no_others || must_borrow {
            &[true]
        } else if forbidden && no_hierarchy {
            &[false, true]
        } else {
            &[true, false]
        };
        for may_borrow in tries {
            let mut targets = Vec::new();
            if self.take_until_it_fits(kinds.clone(), *may_borrow, &mut targets) {
                let targets = self.fill_back(targets, *may_borrow, |_, _, _| true);
                self.restore_targets(&targets);
                return targets;
            }
            self.restore_targets(&targets);
        }
        Vec::new()
    }

    /// Removes candidates until the workload fits: first the stopping ones of all kinds, then each kind in
    /// order. False if it never fits.
    fn take_until_it_fits(
        &mut self,
        mut kinds: [Candidates; 3],
        may_borrow: bool,
        targets: &mut Vec<Target>,
    ) -> bool {
        for stopping in [true, false] {
            for kind in &mut kinds {
                while let Some(candidate) =
                    kind.first(self).filter(|candidate| !(stopping && candidate.is_running))
                {
                    let without_borrowing = may_borrow && candidate.kind == CandidateKind::WithoutBorrowing;
                    let borrows = self.borrows(&candidate);
                    // A queue that stopped borrowing doesn't borrow again during the search.
                    kind.pass(self.state, borrows);
                    if without_borrowing || !borrows {
                        continue;
                    }
                    self.remove_target(candidate.workload);
                    targets
                        .push(Target { workload: candidate.workload, reason: Some(candidate.kind.reason()) });
                    if self.fits(may_borrow, targets) {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Whether the queue uses less than its nominal quota in all contested cells.
    fn under_nominal(&self) -> bool {
        self.contested.iter().all(|cell| {
            let here = self.state.forest().cell(self.node, *cell);
            here.quota.nominal > here.usage
        })
    }

    /// Whether the candidate's queue and all cohorts below the common one borrow.
    fn borrows(&self, candidate: &Candidate) -> bool {
        let queue = self.state.get(&candidate.workload).queue;
        if queue == self.queue {
            return true;
        }
        let Some(node) = self.state.queue(queue).node else { return false };
        !self.within_nominal(node)
            && self
                .state
                .forest()
                .ancestors(node)
                .take_while(|at| Some(*at) != candidate.common_cohort)
                .all(|at| !self.within_nominal(at))
    }

    fn own_candidates(&self) -> Candidates {
        let policy = self.state.queue(self.queue).setup.preemption.within_queue;
        let own = |workload| Candidate {
            workload,
            is_running: !self.state.get(&workload).evicted(),
            common_cohort: None,
            kind: CandidateKind::WithinQueue,
        };
        self.listed(self.of_queue(self.queue, policy).collect(), own)
    }

    fn of_queue(&self, queue: QueueId, policy: PreemptionRule) -> impl Iterator<Item = WorkloadId> + '_ {
        let (priority, since) = self.rank(self.workload);
        self.state
            .candidates_of(queue, policy, priority, since)
            .filter(|workload| *workload != self.workload && self.uses_contested(*workload))
    }

    /// Candidates of other queues: by hierarchical advantage, and by priority. Candidates by priority don't
    /// help a preemptor that must borrow but may not preempt while borrowing.
    fn cohort_candidates(&self, must_borrow: bool) -> [Candidates; 2] {
        let policy = self.state.queue(self.queue).setup.preemption.reclaim_within_cohort;
        let (mut by_hierarchy, mut by_priority) = (Vec::new(), Vec::new());
        if policy != PreemptionRule::Never {
            let mut left: Vec<(CellId, Amount)> = self.charge.clone();
            let mut advantage = self.holds(self.node, &mut left);
            let mut below = None;
            for at in self.state.forest().ancestors(self.node) {
                let found = if advantage { &mut by_hierarchy } else { &mut by_priority };
                if advantage || !must_borrow {
                    self.of_subtree(at, at, below, advantage, found);
                }
                // If a subtree covers the request with its own quota, every larger subtree does too.
                advantage |= self.holds(at, &mut left);
                below = Some(at);
            }
        }
        [by_hierarchy, by_priority].map(|queues| {
            if policy == PreemptionRule::Any && !self.by_usage() {
                self.merged(&queues)
            } else {
                self.collected(&queues, policy)
            }
        })
    }

    fn merged(&self, queues: &[CandidateQueue]) -> Candidates {
        let tree = self.state.forest().tree(self.state.forest().node(self.node).tree);
        let flavors: BTreeSet<FlavorId> =
            self.contested.iter().map(|cell| tree.cells[cell.index()].0).collect();
        let queues: Rc<[(FlavorId, CandidateQueue)]> =
            queues.iter().flat_map(|from| flavors.iter().map(|flavor| (*flavor, *from))).collect();
        let first = |(at, (flavor, from)): (usize, &(FlavorId, CandidateQueue))| {
            Some(Reverse((self.state.candidates_after(from.queue, *flavor, None).next()?.clone(), at)))
        };
        Candidates::Merged {
            heads: queues.iter().enumerate().filter_map(first).collect(),
            queues,
            last: None,
        }
    }

    fn collected(&self, queues: &[CandidateQueue], policy: PreemptionRule) -> Candidates {
        let mut all = Vec::new();
        let mut by_queue: BTreeMap<QueueId, CandidateQueue> = BTreeMap::new();
        for from in queues {
            by_queue.insert(from.queue, *from);
            all.extend(self.of_queue(from.queue, policy));
        }
        self.listed(all, |workload| {
            let of = self.state.get(&workload);
            let CandidateQueue { common_cohort, advantage, .. } = by_queue[&of.queue];
            Candidate {
                workload,
                is_running: !of.evicted(),
                common_cohort: Some(common_cohort),
                kind: self.candidate_kind(advantage, self.state.priority_of(of)),
            }
        })
    }

    /// A sorted list of candidates.
    fn listed(&self, all: Vec<WorkloadId>, candidate: impl Fn(WorkloadId) -> Candidate) -> Candidates {
        let all = sort_candidates(self.state, self.by_usage(), self.queue, all);
        Candidates::Listed { all: all.into_iter().map(candidate).collect(), next: 0 }
    }

    fn candidate_kind(&self, advantage: bool, priority: i64) -> CandidateKind {
        if advantage {
            return CandidateKind::ByHierarchy;
        }
        match self.state.queue(self.queue).setup.preemption.borrow_within_cohort {
            Some(most)
                if priority < self.rank(self.workload).0
                    && most.is_none_or(|most| priority <= i64::from(most)) =>
            {
                CandidateKind::WhileBorrowing
            }
            _ => CandidateKind::WithoutBorrowing,
        }
    }

    /// Whether the subtree quota of a node covers the rest of the request. Subtracts from the rest the quota
    /// that the node doesn't lend.
    fn holds(&self, node: NodeId, left: &mut [(CellId, Amount)]) -> bool {
        let mut holds = true;
        for (cell, amount) in left {
            let here = self.state.forest().cell(node, *cell);
            holds &= !here.borrows_with(*amount);
            *amount = (*amount - here.local_available()).floor();
        }
        holds
    }

    fn of_subtree(
        &self,
        at: NodeId,
        common_cohort: NodeId,
        skip: Option<NodeId>,
        advantage: bool,
        found: &mut Vec<CandidateQueue>,
    ) {
        let forest = self.state.forest();
        for child in &forest.node(at).cohorts {
            if Some(*child) != skip && !self.within_nominal(*child) {
                self.of_subtree(*child, common_cohort, skip, advantage, found);
            }
        }
        for child in &forest.node(at).queues {
            if *child != self.node
                && !self.within_nominal(*child)
                && let Some(queue) = self.state.active_queue_at(*child)
            {
                found.push(CandidateQueue { queue, common_cohort, advantage });
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::capacity_model::UnlimitedCapacity;
    use crate::model::{
        ClusterQueuePreemption, Flavor, PodSet, PodSetAdmission, QueueSetup, ResourceGroup, Shape,
    };
    use crate::queue_state::{NewWorkload, QueueState};
    use crate::quota::Quota;
    use meridian_shared::backoff::splitmix;
    use std::sync::Arc;

    /// One resource per flavor.
    pub(in crate::preemption) const BOTH: [(&str, &str); 2] = [("cpu", "any"), ("gpu", "fast")];

    /// A workload with some of the resources.
    pub(in crate::preemption) fn new(
        state: &mut QueueState,
        name: &str,
        queue: QueueId,
        priority: i64,
        since: i64,
        has: &[(&str, &str)],
    ) -> (NewWorkload, PodSetAdmission) {
        let has: Vec<_> = has
            .iter()
            .map(|(resource, flavor)| (state.resource(resource), state.flavor_id(flavor)))
            .collect();
        let amounts: Vec<_> = has.iter().map(|(resource, _)| (*resource, 1)).collect();
        let set = PodSet { name: Arc::from("main"), count: 1, per_pod: amounts.clone(), ..PodSet::default() };
        let shape = state.intern(Shape { pod_sets: vec![set], priority, ..Shape::default() });
        let given = PodSetAdmission {
            flavors: has.into_iter().collect(),
            usage: amounts,
            count: 1,
            ..PodSetAdmission::default()
        };
        (
            NewWorkload {
                key: Arc::from(name),
                uid: Arc::from(name),
                queue,
                local_queue: Arc::from("n/q"),
                shape,
                since,
                marks: None,
            },
            given,
        )
    }

    /// Queues of one cohort that borrow, with random priorities and ages; some holders are stopping.
    pub(in crate::preemption) fn borrowers(seed: u64, reclaim: PreemptionRule) -> QueueState {
        let mut state = QueueState::default();
        let groups = BOTH.map(|(resource, flavor)| (state.resource(resource), state.flavor_id(flavor)));
        groups.iter().for_each(|(_, flavor)| state.set_flavor(*flavor, Some(Flavor::default())));
        let quotas: BTreeMap<_, _> = groups
            .iter()
            .map(|(r, f)| ((*f, *r), Quota { nominal: Amount(2), ..Quota::default() }))
            .collect();
        let preemption =
            ClusterQueuePreemption { reclaim_within_cohort: reclaim, ..ClusterQueuePreemption::default() };
        let queue = |at: usize| QueueSetup {
            name: Arc::from(format!("q{at}")),
            cohort: Some(Arc::from("c")),
            groups: groups
                .map(|(resource, flavor)| ResourceGroup { resources: vec![resource], flavors: vec![flavor] })
                .into(),
            quotas: quotas.clone(),
            preemption,
            ..QueueSetup::default()
        };
        state.configure(&BTreeMap::new(), (0..5).map(queue).collect());
        for at in 0..24_u64 {
            let dice = splitmix(seed ^ (at << 32));
            let queue = state.queue_id(&format!("q{}", 1 + dice % 4)).unwrap();
            let has = [&BOTH[..1], &BOTH[1..], &BOTH[..]][usize::try_from(dice >> 40 & 3).unwrap().min(2)];
            let name = format!("w{:02}", splitmix(dice) % 100 * 24 + at);
            let (new, given) = new(&mut state, &name, queue, i64::try_from(dice >> 8 & 3).unwrap(), 0, has);
            state.add_holder(
                new,
                vec![given],
                i64::try_from(dice >> 16 & 7).unwrap(),
                dice >> 32 & 7 == 0,
                true,
            );
        }
        state
    }

    fn drained(
        mut candidates: Candidates,
        search: &VictimSearch<'_>,
    ) -> Vec<(WorkloadId, bool, CandidateKind)> {
        std::iter::from_fn(|| {
            let first = candidates.first(search)?;
            candidates.pass(search.state, true);
            Some((first.workload, first.is_running, first.kind))
        })
        .collect()
    }

    #[test]
    fn merged_candidates_are_in_sorted_order() {
        let mut stopping = 0;
        for seed in 0..200 {
            let mut state = borrowers(seed, PreemptionRule::Any);
            let queue = state.queue_id("q0").unwrap();
            let (waits, _) = new(&mut state, "waits", queue, 1, 0, &BOTH);
            let workload = state.add_pending(waits);
            let (node, tree) = state.queue(queue).node.zip(state.queue(queue).tree).unwrap();
            let cells = BOTH
                .map(|(resource, flavor)| (state.flavor_id(flavor), state.resource(resource)))
                .map(|key| state.forest().find_cell(tree, key).unwrap());
            let (charge, contested) = (cells.map(|cell| (cell, Amount(1))).into(), cells.into());
            let mut unlimited = UnlimitedCapacity;
            let search = VictimSearch::new(&mut state, &mut unlimited, workload, node, charge, contested);
            let mut queues = Vec::new();
            let cohort = search.state.forest().root(node);
            search.of_subtree(cohort, cohort, None, false, &mut queues);
            let listed = drained(search.collected(&queues, PreemptionRule::Any), &search);
            assert!(listed.len() >= 12, "{listed:?}");
            stopping += listed.iter().filter(|(_, is_running, _)| !is_running).count();
            assert_eq!(drained(search.merged(&queues), &search), listed, "seed {seed}");
        }
        assert!(stopping > 200, "{stopping}");
    }
}
