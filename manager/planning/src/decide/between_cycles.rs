//! Steps between two cycles: evicted workloads stop, and admitted scale-ups join their gangs.

use super::{Decisions, PlanExtras};
use crate::load::RequeueTarget;
use meridian_queueing::model::{Moment, PodSetAdmission, Workload, WorkloadId};
use meridian_queueing::{NewWorkload, QueueState};
use std::collections::BTreeMap;

/// Adds the quota of admitted scale-ups to their gangs. A gang that is being evicted gets none.
pub(super) fn merge_scale_ups(
    state: &mut QueueState,
    scale_ups: &mut BTreeMap<WorkloadId, WorkloadId>,
    decisions: &mut Decisions,
) {
    let admitted: Vec<(WorkloadId, WorkloadId)> = scale_ups
        .iter()
        .filter(|(_, scale_up)| decisions.admitted.contains_key(scale_up))
        .map(|(gang, scale_up)| (*gang, *scale_up))
        .collect();
    for (gang, scale_up) in admitted {
        scale_ups.remove(&gang);
        decisions.admitted.remove(&scale_up);
        decisions.evaluations.remove(&scale_up);
        let added = state.remove(scale_up).and_then(|removed| removed.holding).map(|holding| holding.given);
        let running = state.workload(gang).filter(|workload| !workload.evicted()).cloned();
        if let Some(running) = running {
            add_quota(state, gang, running, added.unwrap_or_default());
        }
    }
}

fn add_quota(state: &mut QueueState, id: WorkloadId, running: Workload, added: Vec<PodSetAdmission>) {
    let Some(holding) = running.holding else { return };
    let shape = (**state.shape_of(running.shape)).clone();
    state.remove(id);
    let new = NewWorkload {
        key: running.key,
        uid: running.uid,
        queue: running.queue,
        local_queue: running.local_queue,
        shape: state.intern(shape),
        since: running.since,
        marks: running.marks,
    };
    let given = holding.given.into_iter().zip(added).map(|(held, added)| sum(held, added)).collect();
    let new_id = state.add_holder(new, given, holding.since, false, holding.admitted);
    debug_assert_eq!(new_id, id, "the id that was freed last is assigned first");
}

/// Adds usage and pods of one pod set. Flavors and placement are those of `held`.
fn sum(held: PodSetAdmission, added: PodSetAdmission) -> PodSetAdmission {
    let mut usage = held.usage;
    for (resource, amount) in added.usage {
        match usage.iter_mut().find(|(known, _)| *known == resource) {
            Some((_, known)) => *known = known.saturating_add(amount),
            None => usage.push((resource, amount)),
        }
    }
    PodSetAdmission { usage, count: held.count.saturating_add(added.count), ..held }
}

/// Requeues every evicted workload with all its pods in the cluster queue that its local queue points to now.
/// Returns a note for each workload that can't be requeued.
pub(super) fn finish_evictions(
    state: &mut QueueState,
    extras: &mut PlanExtras<'_>,
    decisions: &mut Decisions,
) -> Vec<String> {
    let evicted: Vec<(WorkloadId, Moment)> =
        state.workloads().filter(|(_, w)| w.evicted()).map(|(id, w)| (id, w.since)).collect();
    let mut notes = Vec::new();
    for (id, since) in evicted {
        decisions.admitted.remove(&id);
        decisions.evaluations.remove(&id);
        drop_pending_scale_up(state, extras, decisions, id);
        let parked = extras.parked.contains_key(&id);
        match extras.requeue_targets.remove(&id) {
            None if parked => state.requeue_parked(id, since),
            None => state.requeue(id, since),
            Some(RequeueTarget::Nowhere(why)) => {
                let stopped = state.remove(id);
                notes.extend(
                    stopped.map(|w| format!("workload `{}` isn't requeued after it stopped: {why}", w.key)),
                );
            }
            Some(RequeueTarget::Queue(target)) => {
                state.remove(id);
                let (new, shape) = *target;
                let new = NewWorkload { shape: state.intern(shape), ..new };
                let new_id = if parked { state.add_parked(new) } else { state.add_pending(new) };
                debug_assert_eq!(new_id, id, "the id that was freed last is assigned first");
            }
        }
    }
    notes
}

/// Drops the scale-up of a requeued workload, unless the scale-up holds quota, because the workload now
/// requests all its pods at once.
fn drop_pending_scale_up(
    state: &mut QueueState,
    extras: &mut PlanExtras<'_>,
    decisions: &mut Decisions,
    gang: WorkloadId,
) {
    let Some(scale_up) = extras.scale_ups.remove(&gang) else { return };
    if state.workload(scale_up).is_some_and(|workload| workload.holding.is_none()) {
        state.remove(scale_up);
        decisions.evaluations.remove(&scale_up);
    }
}
