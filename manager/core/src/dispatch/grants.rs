//! What time alone changes: lapses, start deadlines, recovery by time, back-off, retention, samples of past use.

use crate::capacity::readiness;
use crate::dispatch::offers;
use crate::facts::actor::Actor;
use crate::facts::audit::{Action, Entry};
use crate::facts::record::WorkloadFact;
use crate::sessions::outbox::CommandRef;
use crate::state::residency;
use crate::state::workload::phase::Phase;
use crate::world::turn::Turn;
use crate::world::{Lease, World, gangs};
use meridian_shared::ids::{ClusterName, Fence, OfferId, Uid};
use meridian_shared::lease::ManagerLease;
use meridian_shared::planted::Bug;
use meridian_shared::protocol::{EndResult, OnLoss};
use meridian_shared::time::{Millis, Mono};
use std::sync::Arc;

/// Gives the right to run to the cluster whose hold came first.
pub(crate) fn grant(turn: &mut Turn<'_>, uid: Uid, offer: OfferId) {
    let Some(workload) = turn.workload(uid) else { return };
    let Some(leg) = workload.legs().get(&offer) else { return };
    let (cluster, class, term, on_loss) =
        (leg.cluster.clone(), workload.class(), workload.term(), workload.on_loss());
    let shape = turn.world.queues.class(class).clone();
    let allowed =
        residency::judge(&turn.world.state.catalog(), &shape, &cluster, turn.world.config.residency_required)
            .is_ok();
    let once = turn.world.config.planted.has(Bug::ResidencyJudgedOnce);
    let closed = readiness::is_closed(turn.world, uid, &cluster);
    if workload.phase() != Phase::Dispatching
        || turn.world.held_back(workload, turn.now.mono)
        || closed
        || !(allowed || once)
    {
        if !allowed {
            turn.audit(Actor::System, Entry::denied(Action::Grant, uid, &cluster, None));
        }
        offers::withdraw(turn, uid, offer);
        offers::after_leg(turn, uid);
        return;
    }
    let leadership = turn.world.state.leadership();
    let mut fence =
        Fence { epoch: leadership.epoch, leadership: leadership.id, counter: turn.world.state.grants() + 1 };
    if let Some(old) = workload.fence()
        && turn.world.config.planted.has(Bug::FenceReused)
    {
        fence = old;
    }
    turn.record_workload(uid, WorkloadFact::Granted { offer, fence, at: turn.now.wall });
    let entry = Entry {
        cluster: Some(cluster.to_string()),
        detail: Some(fence.to_string()),
        ..Entry::new(Action::Grant, uid.to_string())
    };
    turn.audit(Actor::System, entry);
    turn.world.live.counts.grants += 1;
    let others: Vec<OfferId> = turn
        .workload(uid)
        .map(|w| w.legs().iter().filter(|(_, l)| l.state.open()).map(|(o, _)| *o).collect())
        .unwrap_or_default();
    for other in others {
        offers::withdraw(turn, uid, other);
    }
    let start_by = turn.now.mono + gangs::start_timeout(turn.world, &shape);
    lease(turn, uid, fence, term, on_loss, start_by);
    turn.send(&cluster, CommandRef::Grant(uid, offer, fence));
}

pub(crate) fn lease(
    turn: &mut Turn<'_>,
    uid: Uid,
    fence: Fence,
    term: Millis,
    on_loss: OnLoss,
    start_by: Mono,
) {
    let lease =
        Lease { uid, lease: manager_lease(turn, term), composed: Some(turn.now.mono), first: None, start_by };
    let due = if on_loss == OnLoss::Fence { lease.lease.deadline.min(start_by) } else { start_by };
    turn.world.live.leases.insert(fence, lease);
    turn.world.live.due = turn.world.live.due.min(due);
}

fn manager_lease(turn: &Turn<'_>, term: Millis) -> ManagerLease {
    let mut lease = ManagerLease::from_composed(turn.now.mono, term);
    if turn.world.config.planted.has(Bug::NoDriftBound) {
        lease.deadline = turn.now.mono + term;
    }
    lease
}

/// A lease counts no more once the records so far are durable.
pub(crate) fn release_lease(turn: &mut Turn<'_>, fence: Fence) {
    if let Some(over) = turn.world.live.leases.remove(&fence) {
        turn.world.live.released_leases.insert(fence, (over.lease.deadline, turn.world.state.last()));
    }
}

/// Notes that an answer with this lease was composed.
pub(crate) fn composed(world: &mut World, fence: Fence, now: Mono) {
    let planted = world.config.planted;
    if let Some(lease) = world.live.leases.get_mut(&fence) {
        lease.first.get_or_insert(now);
        lease.composed = Some(now);
        if planted.has(Bug::ManagerCountsFromAcknowledgement) {
            return;
        }
        if planted.has(Bug::DeadlineMovesBack) {
            // As if an answer counted from when its command was first composed.
            lease.lease = ManagerLease::from_composed(lease.first.unwrap_or(now), lease.lease.term);
        } else if planted.has(Bug::NoDriftBound) {
            lease.lease.deadline = lease.lease.deadline.max(now + lease.lease.term);
        } else {
            lease.lease.compose(now);
        }
    }
}

/// What follows when a right to run is over and the workload isn't: it is forgotten if it was deleted, else it waits again.
pub(crate) fn freed(turn: &mut Turn<'_>, uid: Uid, fence: Fence) {
    release_lease(turn, fence);
    let learned = turn
        .workload(uid)
        .filter(|w| w.deletion().is_none() && w.phase() == Phase::Pending)
        .and_then(|w| w.learned().cloned());
    if let Some(result) = learned {
        finish_as(turn, uid, result);
    }
    if turn.workload(uid).is_some_and(|w| w.deletion().is_some() && w.phase() == Phase::Pending) {
        turn.record_workload(uid, WorkloadFact::Forgotten);
    }
    turn.capacity_changed();
}

/// Records how a job ended by its own doing.
pub(crate) fn finish_as(turn: &mut Turn<'_>, uid: Uid, result: EndResult) {
    let (succeeded, reason, message) = match result {
        EndResult::Succeeded => (true, "Completed".into(), "the job succeeded".into()),
        EndResult::Failed { reason, message } => (false, reason, message),
        EndResult::Stopped | EndResult::LeaseLapsed | EndResult::NodeLost { .. } => return,
    };
    turn.record_workload(uid, WorkloadFact::Finished { succeeded, reason, message, at: turn.now.wall });
}

pub(crate) fn claims(turn: &Turn<'_>) -> bool {
    turn.now.mono < turn.world.live.claim_until || turn.world.config.planted.has(Bug::AnswersWithoutClaim)
}

/// Residency, judged again at every send.
pub(crate) fn may_know(turn: &Turn<'_>, uid: Uid, cluster: &ClusterName) -> bool {
    let Some(workload) = turn.workload(uid) else { return false };
    let class: Arc<crate::facts::submission::Class> = turn.world.queues.class(workload.class()).clone();
    let there = readiness::located_elsewhere(turn.world, cluster).is_none();
    turn.world.config.planted.has(Bug::ResidencyJudgedOnce)
        || there
            && residency::judge(
                &turn.world.state.catalog(),
                &class,
                cluster,
                turn.world.config.residency_required,
            )
            .is_ok()
}
