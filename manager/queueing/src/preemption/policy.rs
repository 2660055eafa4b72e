//! Which holders a workload may preempt, and in which order they are considered.

use crate::model::{PreemptionRule, QueueId, Workload, WorkloadId};
use crate::queue_state::QueueState;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

/// Whether `preemptor` may preempt `candidate` by the rule. Both are (priority, queueing time).
pub fn may_preempt(policy: PreemptionRule, preemptor: (i64, i64), candidate: (i64, i64)) -> bool {
    let lower = preemptor.0 > candidate.0;
    match policy {
        PreemptionRule::Never | PreemptionRule::Unset => false,
        PreemptionRule::LowerPriority => lower,
        PreemptionRule::LowerOrNewerEqualPriority => {
            lower || (preemptor.0 == candidate.0 && preemptor.1 < candidate.1)
        }
        PreemptionRule::Any => true,
    }
}

/// Order of two candidates: stopping ones first, then other queues, higher usage, lower priority, later
/// reservation. Usage is compared within a queue only; across queues the order would have cycles.
pub fn candidate_order(
    state: &QueueState,
    by_usage: bool,
    own: QueueId,
    a: WorkloadId,
    b: WorkloadId,
) -> Ordering {
    let (x, y) = (state.get(&a), state.get(&b));
    let usage = || {
        if !by_usage || x.queue != y.queue || x.local_queue == y.local_queue {
            return Ordering::Equal;
        }
        match (state.usage_for_order(x), state.usage_for_order(y)) {
            (Some(x), Some(y)) => y.total_cmp(&x),
            _ => Ordering::Equal,
        }
    };
    let since = |w: &Workload| w.holding.as_ref().map_or(state.now(), |h| h.since);
    y.evicted()
        .cmp(&x.evicted())
        .then_with(|| (x.queue == own).cmp(&(y.queue == own)))
        .then_with(usage)
        .then_with(|| state.priority_of(x).cmp(&state.priority_of(y)))
        .then_with(|| since(y).cmp(&since(x)))
        .then_with(|| state.tie_breaker(y).cmp(&state.tie_breaker(x)))
        .then_with(|| x.uid.cmp(&y.uid))
}

/// Sorts the candidates. Each queue is sorted, then the queues are merged by their first candidates, which is
/// well-defined even if usage and priority contradict each other.
pub fn sort_candidates(
    state: &QueueState,
    by_usage: bool,
    own: QueueId,
    mut all: Vec<WorkloadId>,
) -> Vec<WorkloadId> {
    if !by_usage {
        all.sort_by(|a, b| candidate_order(state, false, own, *a, *b));
        return all;
    }
    let mut queues: BTreeMap<QueueId, Vec<WorkloadId>> = BTreeMap::new();
    for workload in all.drain(..) {
        queues.entry(state.get(&workload).queue).or_default().push(workload);
    }
    let sorted = |(queue, mut candidates): (QueueId, Vec<WorkloadId>)| {
        candidates.sort_by(|a, b| candidate_order(state, true, own, *a, *b));
        (queue == own, candidates.into_iter())
    };
    let mut queues: Vec<_> = queues.into_iter().map(sorted).collect();
    let next = |at: usize, (is_own, candidates): &mut (bool, std::vec::IntoIter<WorkloadId>)| {
        let of = state.as_candidate(candidates.next()?);
        Some(Reverse((of.is_running, *is_own, of, at)))
    };
    let mut heads: BinaryHeap<_> =
        queues.iter_mut().enumerate().filter_map(|(at, candidates)| next(at, candidates)).collect();
    while let Some(Reverse((.., first, at))) = heads.pop() {
        all.push(first.workload);
        heads.extend(next(at, &mut queues[at]));
    }
    all
}
