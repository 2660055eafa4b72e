//! Candidates of one kind, in order.

use crate::model::{PreemptionCandidate, PreemptionReason, QueueId, WorkloadId};
use crate::names::FlavorId;
use crate::preemption::search::VictimSearch;
use crate::queue_state::QueueState;
use crate::quota::NodeId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

/// The kind of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CandidateKind {
    WithinQueue,
    ByHierarchy,
    WithoutBorrowing,
    WhileBorrowing,
}

impl CandidateKind {
    pub(super) fn reason(self) -> PreemptionReason {
        match self {
            Self::WithinQueue => PreemptionReason::InClusterQueue,
            Self::ByHierarchy | Self::WithoutBorrowing => PreemptionReason::InCohortReclamation,
            Self::WhileBorrowing => PreemptionReason::InCohortReclaimWhileBorrowing,
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Candidate {
    pub(super) workload: WorkloadId,
    /// Whether the candidate isn't stopping already.
    pub(super) is_running: bool,
    /// The lowest common cohort of both queues.
    pub(super) common_cohort: Option<NodeId>,
    pub(super) kind: CandidateKind,
}

/// A queue with candidates.
#[derive(Clone, Copy)]
pub(super) struct CandidateQueue {
    pub(super) queue: QueueId,
    pub(super) common_cohort: NodeId,
    pub(super) advantage: bool,
}

/// Candidates of one kind, in order.
#[derive(Clone)]
pub(super) enum Candidates {
    /// A sorted list.
    Listed { all: Rc<[Candidate]>, next: usize },
    /// Only the first candidate per borrowing queue and contested flavor, which suffices to find the next
    /// one. A candidate with two of the flavors comes twice in a row and counts once.
    Merged {
        queues: Rc<[(FlavorId, CandidateQueue)]>,
        heads: BinaryHeap<Reverse<(PreemptionCandidate, usize)>>,
        last: Option<WorkloadId>,
    },
}

impl Candidates {
    /// The next candidate.
    pub(super) fn first(&mut self, search: &VictimSearch<'_>) -> Option<Candidate> {
        loop {
            match self {
                Self::Listed { all, next } => return all.get(*next).copied(),
                Self::Merged { queues, heads, last } => {
                    let Reverse((head, of)) = heads.peek()?;
                    if *last != Some(head.workload) && search.uses_contested(head.workload) {
                        let CandidateQueue { common_cohort, advantage, .. } = queues[*of].1;
                        let kind = search.candidate_kind(advantage, head.priority);
                        return Some(Candidate {
                            workload: head.workload,
                            is_running: head.is_running,
                            common_cohort: Some(common_cohort),
                            kind,
                        });
                    }
                    self.pass(search.state, true);
                }
            }
        }
    }

    /// Moves to the next candidate. If `same_queue` is false, skips the rest of the current queue.
    pub(super) fn pass(&mut self, state: &QueueState, same_queue: bool) {
        match self {
            Self::Listed { next, .. } => *next += 1,
            Self::Merged { queues, heads, last } => {
                let Some(Reverse((passed, of))) = heads.pop() else { return };
                *last = Some(passed.workload);
                let (flavor, from) = queues[of];
                if same_queue
                    && let Some(next) = state.candidates_after(from.queue, flavor, Some(passed)).next()
                {
                    heads.push(Reverse((next.clone(), of)));
                }
            }
        }
    }
}
