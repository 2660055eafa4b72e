//! Work that is due at a time: lapsed leases, missed start deadlines, expired backoffs and reservations,
//! retention.

use crate::dispatch::{grants, offers, starts, starvation_guard, stops, usage};
use crate::facts::actor::Actor;
use crate::facts::record::WorkloadFact;
use crate::leadership::{orphans, recovery};
use crate::live::counts::Count;
use crate::state::workload::phase::Phase;
use crate::world::Parts;
use crate::world::turn::Turn;
use meridian_shared::ids::Uid;
use meridian_shared::protocol::{OnLoss, StopReason};
use meridian_shared::time::{Millis, Mono};

/// How often finished workloads are checked for their retention time.
const RETENTION_INTERVAL: Millis = Millis::secs(10);

/// Delay before the next check when a turn reached [`FORGET_MAX`].
const RETENTION_INTERVAL_BUSY: Millis = Millis(100);

/// Most workloads that one turn forgets.
const FORGET_MAX: usize = 1_000;

/// Ends lapsed leases and forgets finished workloads after their retention time.
pub(crate) fn end_overdue(turn: &mut Turn<'_>) {
    let now = turn.now.mono;
    // Without a valid claim another manager may lead and renew leases, so none is ended.
    if now >= turn.world.live().leases().due() && grants::holds_leader_claim(turn) {
        lapse(turn);
    }
    if turn.world.live().retention().is_due(now) {
        orphans::orphans_lapse(turn);
        let more = forget_finished(turn);
        let interval = if more { RETENTION_INTERVAL_BUSY } else { RETENTION_INTERVAL };
        turn.world.live_mut().retention_mut().check_next_at(now + interval);
    }
}

pub(crate) fn on_time(turn: &mut Turn<'_>) {
    let now = turn.now.mono;
    end_overdue(turn);
    let backed_off = turn.world.live_mut().backoffs_mut().remove_over(now);
    let refusals_expired = turn.world.live_mut().refusals_mut().expire(now);
    let providers_asked_again = turn.world.live_mut().provider_failures_mut().expire(now);
    let cluster_available = starts::end_waits_after_failed_starts(turn.world, now);
    if !backed_off.is_empty() || refusals_expired || providers_asked_again || cluster_available {
        backed_off.iter().for_each(|uid| {
            turn.world.live_mut().reservations_mut().rested(*uid);
            turn.world.mirror_mut().touch(*uid);
        });
        turn.capacity_changed();
    }
    for uid in turn.world.live_mut().reservations_mut().expire(now) {
        turn.world.mirror_mut().requeue_neighbours(uid);
        turn.capacity_changed();
    }
    starvation_guard::schedule_starvation_check(turn);
    turn.wake_due();
    withdraw_from_disconnected(turn);
    recovery::recovery_by_time(turn);
    usage::sample(turn);
}

/// Withdraws open offers from disconnected clusters, so that the workloads can be offered to others.
fn withdraw_from_disconnected(turn: &mut Turn<'_>) {
    let now = turn.now.mono;
    let limit = meridian_shared::lease::disconnect_after(turn.world.config().term_min);
    let disconnected: Vec<_> = turn
        .world
        .live()
        .clusters()
        .iter()
        .filter(|(_, c)| now.since(c.heard()) >= limit)
        .map(|(name, _)| name.clone())
        .collect();
    for cluster in disconnected {
        if turn.world.has_open_legs(&cluster) {
            offers::withdraw_all(turn, &cluster);
        }
    }
}

/// Ends leases after their deadline, and stops gangs that didn't start in time.
fn lapse(turn: &mut Turn<'_>) {
    let now = turn.now.mono;
    let mut lapsed = Vec::new();
    let mut late = Vec::new();
    let mut due = Mono(u64::MAX);
    for (fence, lease) in turn.world.live().leases().iter() {
        let Some(workload) = turn.world.state().workloads().get(&lease.uid()) else { continue };
        // If this journal is a copy, the manager with the original may still renew the lease.
        if workload.on_loss() == OnLoss::Fence && !turn.world.disputed(workload) {
            if lease.lapsed(now) {
                lapsed.push((lease.uid(), fence));
                continue;
            }
            due = due.min(lease.deadline());
        }
        if workload.phase() == Phase::Granted {
            if now >= lease.start_by() {
                late.push((lease.uid(), fence));
            } else {
                due = due.min(lease.start_by());
            }
        }
    }
    turn.world.live_mut().leases_mut().checked(due);
    for (uid, fence) in lapsed {
        turn.world.live_mut().counts_mut().add_one(Count::Lapses);
        turn.record_workload(
            uid,
            WorkloadFact::LeaseLapsed { fence, at: turn.now.wall, declared: false, by: None },
        );
        grants::settle_ended_attempt(turn, uid, fence);
    }
    for (uid, fence) in late {
        if let Some(cluster) =
            turn.workload(uid).and_then(|w| w.leg_of(fence)).map(|(_, l)| l.cluster().clone())
        {
            starts::note_failed_start(turn, uid, &cluster);
        }
        stops::order_stop(turn, uid, fence, StopReason::StartTimeout, &Actor::System);
    }
}

/// Forgets finished workloads after their retention time; those of the management cluster go when it deletes
/// them. Returns whether [`FORGET_MAX`] left some for the
/// next turn.
fn forget_finished(turn: &mut Turn<'_>) -> bool {
    let wall = turn.now.wall;
    let mut over: Vec<Uid> = Vec::new();
    let kept_max = turn.world.config().finished_kept_max;
    let finished = turn.world.live().retention().finished().len();
    for (i, (at, uid)) in turn.world.live().retention().finished().enumerate() {
        let Some(workload) = turn.world.state().workloads().get(&uid) else { continue };
        if workload.is_managed() {
            // its end must be seen there, or it would be submitted again
            continue;
        }
        let keep = workload.ttl().unwrap_or(turn.world.config().finished_kept);
        let too_many = workload.ttl().is_none() && finished - i > kept_max;
        if wall.since(at) >= keep || too_many {
            over.push(uid);
        }
        if over.len() >= FORGET_MAX {
            break;
        }
    }
    let more = over.len() >= FORGET_MAX;
    for uid in over {
        turn.record_workload(uid, WorkloadFact::Forgotten);
    }
    let Parts { state, live, .. } = turn.world.parts();
    let workloads = state.workloads();
    live.failed_starts_mut()
        .retain(|uid| workloads.get(uid).is_some_and(|workload| workload.finished().is_none()));
    more
}
