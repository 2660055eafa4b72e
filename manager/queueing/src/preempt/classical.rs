//! Victims by position and priority.
//!
//! Three kinds of candidates: those whose room the preemptor's subtree could hold by its own quota (it has the advantage over
//! them whatever their priority), those of the cohort whom it may displace by priority, and those of its own queue.

use super::{CandidateRank, Right, Search, Target, candidate_order};
use crate::amount::Amount;
use crate::brain::Brain;
use crate::model::{Displaces, QueueId, WorkloadId};
use crate::names::Id;
use crate::tree::NodeId;

/// What displacing a candidate is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    WithinQueue,
    ByPosition,
    WithoutBorrowing,
    WhileBorrowing,
}

impl Variant {
    fn right(self) -> Right {
        match self {
            Self::WithinQueue => Right::InClusterQueue,
            Self::ByPosition | Self::WithoutBorrowing => Right::InCohortReclamation,
            Self::WhileBorrowing => Right::InCohortReclaimWhileBorrowing,
        }
    }
}

#[derive(Clone, Copy)]
struct Candidate {
    workload: WorkloadId,
    /// Its place among the candidates of its kind, where past use doesn't count.
    rank: CandidateRank,
    /// The lowest cohort that holds both queues.
    meets: Option<NodeId>,
    variant: Variant,
}

impl Search<'_> {
    pub(super) fn classical(&mut self) -> Vec<Target> {
        let forbidden = self.brain.queue(self.queue).setup.preemption.borrow_within_cohort.is_none();
        let must_borrow = forbidden && !self.under_nominal();
        let own = self.own_candidates();
        let (by_position, by_priority) = self.cohort_candidates(must_borrow);
        let (no_others, no_position) = (by_position.is_empty() && by_priority.is_empty(), by_position.is_empty());
        let candidates = self.ordered([by_position, by_priority, own]);
        let tries: &[bool] = if no_others || must_borrow {
            &[true]
        } else if forbidden && no_position {
            &[false, true]
        } else {
            &[true, false]
        };
        for may_borrow in tries {
            let mut targets = Vec::new();
            for candidate in &candidates {
                if !self.still_valid(candidate, *may_borrow) {
                    continue;
                }
                self.take_out(candidate.workload);
                targets.push(Target { workload: candidate.workload, right: Some(candidate.variant.right()) });
                if self.fits(*may_borrow, &targets) {
                    let targets = self.fill_back(targets, *may_borrow, |_, _, _| true);
                    self.put_back(&targets);
                    return targets;
                }
            }
            self.put_back(&targets);
        }
        Vec::new()
    }

    /// Who is stopping anyway comes first, then each kind in its order.
    fn ordered(&self, kinds: [Vec<Candidate>; 3]) -> Vec<Candidate> {
        let (brain, by_usage, queue) = (&*self.brain, self.by_usage(), self.queue);
        let mut stopping = Vec::new();
        let mut others = Vec::new();
        for mut kind in kinds {
            if by_usage {
                kind.sort_by(|a, b| candidate_order(brain, true, queue, a.workload, b.workload));
            } else {
                let uid = |c: &Candidate| &brain.workloads[&c.workload].uid;
                kind.sort_by(|a, b| a.rank.cmp(&b.rank).then_with(|| uid(a).cmp(uid(b))));
            }
            let split = kind.partition_point(|c| brain.workloads[&c.workload].evicted());
            others.push(kind.split_off(split));
            stopping.extend(kind);
        }
        stopping.extend(others.into_iter().flatten());
        stopping
    }

    /// Whether the queue uses less than its nominal quota in every contested cell.
    fn under_nominal(&self) -> bool {
        self.contested.iter().all(|cell| {
            let here = self.brain.forest.cell(self.node, *cell);
            here.quota.nominal > here.usage
        })
    }

    fn still_valid(&self, candidate: &Candidate, may_borrow: bool) -> bool {
        let queue = self.brain.workloads[&candidate.workload].queue;
        if queue == self.queue {
            return true;
        }
        if may_borrow && candidate.variant == Variant::WithoutBorrowing {
            return false;
        }
        let Some(node) = self.brain.queue(queue).node else { return false };
        !self.within_nominal(node) && self.brain.forest.ancestors(node).take_while(|at| Some(*at) != candidate.meets).all(|at| !self.within_nominal(at))
    }

    fn own_candidates(&self) -> Vec<Candidate> {
        if self.brain.queue(self.queue).setup.preemption.within_queue == Displaces::Never {
            return Vec::new();
        }
        let mut found = Vec::new();
        self.of_queue(self.queue, None, false, &mut found);
        found
    }

    fn of_queue(&self, queue: QueueId, meets: Option<NodeId>, advantage: bool, found: &mut Vec<Candidate>) {
        let preemption = &self.brain.queue(self.queue).setup.preemption;
        let own = queue == self.queue;
        let policy = if own { preemption.within_queue } else { preemption.reclaim_within_cohort };
        let rank = self.rank(self.workload);
        for workload in self.brain.displaceable(queue, policy, rank) {
            if workload == self.workload || !self.uses_contested(workload) {
                continue;
            }
            let rank_there = CandidateRank::of(self.brain, self.queue, workload);
            let priority = rank_there.priority;
            let variant = if own {
                Variant::WithinQueue
            } else if advantage {
                Variant::ByPosition
            } else {
                match preemption.borrow_within_cohort {
                    Some(most) if priority < rank.0 && most.is_none_or(|most| priority <= i64::from(most)) => Variant::WhileBorrowing,
                    _ => Variant::WithoutBorrowing,
                }
            };
            found.push(Candidate { workload, rank: rank_there, meets, variant });
        }
    }

    /// Candidates of other queues: by position, and by priority. Who has to borrow, and may displace nobody while it does, has
    /// no use for the latter.
    fn cohort_candidates(&self, must_borrow: bool) -> (Vec<Candidate>, Vec<Candidate>) {
        let (mut by_position, mut by_priority) = (Vec::new(), Vec::new());
        if self.brain.queue(self.queue).setup.preemption.reclaim_within_cohort == Displaces::Never {
            return (by_position, by_priority);
        }
        let mut left: Vec<(crate::tree::CellId, Amount)> = self.charge.clone();
        let mut advantage = self.holds(self.node, &mut left);
        let mut below = None;
        for at in self.brain.forest.ancestors(self.node) {
            let found = if advantage { &mut by_position } else { &mut by_priority };
            if advantage || !must_borrow {
                self.of_subtree(at, at, below, advantage, found);
            }
            // Once a subtree holds the request by its own quota, so does every larger one.
            advantage |= self.holds(at, &mut left);
            below = Some(at);
        }
        (by_position, by_priority)
    }

    /// Whether the node's subtree quota holds what is left of the request; what it keeps for itself is taken off.
    fn holds(&self, node: NodeId, left: &mut [(crate::tree::CellId, Amount)]) -> bool {
        let mut holds = true;
        for (cell, amount) in left {
            let here = self.brain.forest.cell(node, *cell);
            holds &= !here.borrows_with(*amount);
            *amount = (*amount - here.local_available()).floor();
        }
        holds
    }

    fn of_subtree(&self, at: NodeId, meets: NodeId, skip: Option<NodeId>, advantage: bool, found: &mut Vec<Candidate>) {
        let forest = &self.brain.forest;
        for child in &forest.node(at).cohorts {
            if Some(*child) != skip && !self.within_nominal(*child) {
                self.of_subtree(*child, meets, skip, advantage, found);
            }
        }
        for child in &forest.node(at).queues {
            if *child != self.node
                && !self.within_nominal(*child)
                && let Some(queue) = self.brain.active_queue_at(*child)
            {
                self.of_queue(queue, Some(meets), advantage, found);
            }
        }
    }
}

impl Brain {
    /// The cluster queue at a node.
    pub(crate) fn queue_at(&self, node: NodeId) -> Option<QueueId> {
        self.queue_of_node.get(node.index()).copied().flatten()
    }

    /// The same where it admits anything: from a queue that doesn't, nothing is taken back for another's sake.
    pub(crate) fn active_queue_at(&self, node: NodeId) -> Option<QueueId> {
        self.queue_at(node).filter(|queue| self.queue(*queue).setup.inactive.is_none())
    }
}
