//! Holders as candidates for preemption.

use crate::model::{Moment, PreemptionCandidate, PreemptionRule, QueueId, Workload, WorkloadId};
use crate::names::FlavorId;
use crate::queue_state::QueueState;
use std::cmp::Reverse;
use std::ops::Bound;

impl QueueState {
    pub(crate) fn priority_of(&self, workload: &Workload) -> i64 {
        self.shape_of(workload.shape).priority
    }

    /// Breaks ties between workloads that reserved quota at the same time.
    pub(crate) fn tie_breaker(&self, workload: &Workload) -> Moment {
        if self.settings.ties_by_age { workload.since } else { 0 }
    }

    /// A holder as a candidate for preemption.
    pub(crate) fn as_candidate(&self, id: WorkloadId) -> PreemptionCandidate {
        let of = &self.workloads[&id];
        PreemptionCandidate {
            is_running: !of.evicted(),
            priority: self.priority_of(of),
            since: Reverse(of.holding.as_ref().map_or(0, |h| h.since)),
            age: Reverse(self.tie_breaker(of)),
            uid: of.uid.clone(),
            workload: id,
        }
    }

    /// Candidates of a queue for a preemptor of this priority and queueing time, without those excluded in
    /// this cycle. The cost grows with the number of candidates, not of holders.
    pub(crate) fn candidates_of(
        &self,
        queue: QueueId,
        rule: PreemptionRule,
        priority: i64,
        since: Moment,
    ) -> impl Iterator<Item = WorkloadId> + '_ {
        const FIRST: WorkloadId = WorkloadId(0);
        let end = match rule {
            PreemptionRule::Never | PreemptionRule::Unset => {
                Bound::Excluded((i64::MIN, Reverse(i64::MAX), FIRST))
            }
            PreemptionRule::LowerPriority => Bound::Excluded((priority, Reverse(i64::MAX), FIRST)),
            PreemptionRule::LowerOrNewerEqualPriority => Bound::Excluded((priority, Reverse(since), FIRST)),
            PreemptionRule::Any => Bound::Unbounded,
        };
        self.queue(queue).holders_up_to(end).filter(|workload| !self.excluded.contains(*workload))
    }

    /// The candidates of a queue with a flavor, in order, optionally after a given one.
    pub(crate) fn candidates_after(
        &self,
        queue: QueueId,
        flavor: FlavorId,
        after: Option<PreemptionCandidate>,
    ) -> impl Iterator<Item = &PreemptionCandidate> {
        self.queue(queue)
            .holders_with_flavor(flavor, after)
            .filter(|candidate| !self.excluded.contains(candidate.workload))
    }
}
