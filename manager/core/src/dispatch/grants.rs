//! Grants of the right to run, and the leases behind them.

use crate::capacity::readiness;
use crate::dispatch::{manifests, offers, starts};
use crate::facts::actor::Actor;
use crate::facts::audit::{Action, Entry};
use crate::facts::record::WorkloadFact;
use crate::live::counts::Count;
use crate::live::leases::Lease;
use crate::sessions::outbox::CommandRef;
use crate::state::residency;
use crate::state::workload::phase::Phase;
use crate::world::Parts;
use crate::world::turn::Turn;
use crate::world::{World, gangs};
use meridian_shared::ids::{ClusterName, Fence, OfferId, Uid};
use meridian_shared::lease::ManagerLease;
use meridian_shared::planted::Bug;
use meridian_shared::protocol::{EndResult, OnLoss};
use meridian_shared::time::{Millis, Mono};

/// Grants the right to run to the cluster that holds capacity for this offer, and withdraws the other offers.
/// Withdraws this offer too if something changed since it was made: the phase of the workload, the cluster,
/// or a residency rule.
pub(crate) fn grant(turn: &mut Turn<'_>, uid: Uid, offer: OfferId) {
    let Some(workload) = turn.workload(uid) else { return };
    let Some(leg) = workload.legs().get(&offer) else { return };
    let (cluster, class, term, on_loss) =
        (leg.cluster().clone(), workload.class(), workload.term(), workload.on_loss());
    let class = turn.world.queues().class(class).clone();
    let allowed = residency::check(
        turn.world.state().catalog(),
        &class,
        &cluster,
        turn.world.config().residency_required,
    )
    .is_ok();
    let ignores_rules = turn.world.config().planted.has(Bug::ResidencyCheckedOnce);
    let closed = readiness::is_closed(turn.world, uid, &cluster);
    if workload.phase() != Phase::Dispatching
        || turn.world.held_back(workload, turn.now.mono)
        || closed
        || !(allowed || ignores_rules)
    {
        if !allowed {
            turn.audit(Actor::System, Entry::denied(Action::Grant, uid, &cluster, None));
        }
        offers::withdraw(turn, uid, offer);
        offers::release_quota_if_idle(turn, uid);
        return;
    }
    let granted_before = workload.fence();
    if !manifests::is_readable(turn, uid) {
        starts::note_undelivered_start(turn, uid, &cluster);
        offers::withdraw(turn, uid, offer);
        offers::release_quota_if_idle(turn, uid);
        return;
    }
    let leadership = turn.world.state().leadership();
    let mut fence = Fence {
        epoch: leadership.epoch,
        leadership: leadership.id,
        counter: turn.world.state().grants() + 1,
    };
    if let Some(old) = granted_before
        && turn.world.config().planted.has(Bug::FenceReused)
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
    turn.world.live_mut().counts_mut().add_one(Count::Grants);
    let others: Vec<OfferId> = turn
        .workload(uid)
        .map(|w| w.legs().iter().filter(|(_, l)| l.state().open()).map(|(o, _)| *o).collect())
        .unwrap_or_default();
    for other in others {
        offers::withdraw(turn, uid, other);
    }
    let start_by = turn.now.mono + gangs::start_timeout(turn.world, &class);
    lease(turn, uid, fence, term, on_loss, start_by);
    turn.send(&cluster, CommandRef::Grant(uid, offer, fence));
}

/// Records that a ledger with the right to run was replaced, and when the lease will have lapsed.
pub(crate) fn record_replaced_ledger(turn: &mut Turn<'_>, uid: Uid, fence: Fence) {
    let Some(workload) = turn.workload(uid) else { return };
    let lease = turn.world.live().leases().get(fence).filter(|_| workload.on_loss() == OnLoss::Fence);
    let until = lease.map(|lease| turn.now.wall + lease.deadline().since(turn.now.mono));
    turn.record_workload(uid, WorkloadFact::LedgerReplaced { fence, until });
}

/// Starts the lease of an attempt. Timers next check the lease when it may lapse or when the gang must have
/// started.
pub(crate) fn lease(
    turn: &mut Turn<'_>,
    uid: Uid,
    fence: Fence,
    term: Millis,
    on_loss: OnLoss,
    start_by: Mono,
) {
    let lease = Lease::granted(uid, manager_lease(turn, term), start_by, turn.now.mono);
    let due = if on_loss == OnLoss::Fence { lease.deadline().min(start_by) } else { start_by };
    turn.world.live_mut().leases_mut().start(fence, lease, due);
}

fn manager_lease(turn: &Turn<'_>, term: Millis) -> ManagerLease {
    let mut lease = ManagerLease::from_composed(turn.now.mono, term);
    if turn.world.config().planted.has(Bug::NoDriftBound) {
        lease.deadline = turn.now.mono + term;
    }
    lease
}

/// Releases the lease of an attempt that is over. The next leadership may not know about the end until the
/// records so far are durable, so the deadline is kept until then.
pub(crate) fn release_lease(turn: &mut Turn<'_>, fence: Fence) {
    let last = turn.world.state().last();
    turn.world.live_mut().leases_mut().release(fence, last);
}

/// Notes that an answer that renews this lease was composed: its term counts from now.
pub(crate) fn note_lease_composed(world: &mut World, fence: Fence, now: Mono) {
    let Parts { live, config, .. } = world.parts();
    live.leases_mut().compose(fence, now, config.planted);
}

/// Settles a workload after its attempt ended: it is finished if its result is known, forgotten if it was
/// deleted, and pending otherwise.
pub(crate) fn settle_ended_attempt(turn: &mut Turn<'_>, uid: Uid, fence: Fence) {
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

/// Records that a job succeeded or failed by itself. Other results don't finish a workload.
pub(crate) fn finish_as(turn: &mut Turn<'_>, uid: Uid, result: EndResult) {
    let (succeeded, reason, message) = match result {
        EndResult::Succeeded => (true, "Completed".into(), "the job succeeded".into()),
        EndResult::Failed { reason, message } => (false, reason, message),
        EndResult::Stopped | EndResult::LeaseLapsed | EndResult::NodeLost { .. } => return,
    };
    turn.record_workload(uid, WorkloadFact::Finished { succeeded, reason, message, at: turn.now.wall });
}

/// Whether this manager's claim of leadership is still valid.
pub(crate) fn holds_leader_claim(turn: &Turn<'_>) -> bool {
    turn.now.mono < turn.world.live().claim_until()
        || turn.world.config().planted.has(Bug::AnswersWithoutClaim)
}

/// Whether a cluster may be sent anything about a workload. Residency rules may change at any time, so every
/// send checks them.
pub(crate) fn may_disclose(turn: &Turn<'_>, uid: Uid, cluster: &ClusterName) -> bool {
    let Some(workload) = turn.workload(uid) else { return false };
    let class = turn.world.queues().class(workload.class());
    let is_in_region = readiness::located_elsewhere(turn.world, cluster).is_none();
    turn.world.config().planted.has(Bug::ResidencyCheckedOnce)
        || is_in_region
            && residency::check(
                turn.world.state().catalog(),
                class,
                cluster,
                turn.world.config().residency_required,
            )
            .is_ok()
}
