use crate::dispatch::{grants, offers, starts, starvation_guard, stops, usage};
use crate::facts::actor::Actor;
use crate::facts::record::WorkloadFact;
use crate::leadership::{orphans, recovery};
use crate::state::workload::phase::Phase;
use crate::world::turn::Turn;
use meridian_shared::ids::Uid;
use meridian_shared::protocol::{OnLoss, StopReason};
use meridian_shared::time::{Millis, Mono};

/// How often retention is looked at.
const RETAIN_EVERY: Millis = Millis::secs(10);

/// The same where one turn didn't forget all of them.
const RETAIN_ON: Millis = Millis(100);

/// Workloads forgotten in one turn at most.
const FORGET_MAX: usize = 1_000;

/// Leases that are over, and workloads that are kept no longer.
pub(crate) fn end_what_is_over(turn: &mut Turn<'_>) {
    let now = turn.now.mono;
    // Without a valid claim somebody else may lead: nothing is decided about leases then (simulation seed 656).
    if now >= turn.world.live.due && grants::claims(turn) {
        lapse(turn);
    }
    if now >= turn.world.live.retained {
        orphans::orphans_lapse(turn);
        let more = retain(turn);
        turn.world.live.retained = now + if more { RETAIN_ON } else { RETAIN_EVERY };
    }
}

pub(crate) fn on_time(turn: &mut Turn<'_>) {
    let now = turn.now.mono;
    end_what_is_over(turn);
    let rested: Vec<Uid> =
        turn.world.live.backoff_until.iter().filter(|(_, t)| **t <= now).map(|(u, _)| *u).collect();
    let reopened = turn
        .world
        .live
        .refused
        .iter()
        .filter(|(_, (t, _, _))| *t <= now)
        .map(|(k, _)| k.clone())
        .collect::<Vec<_>>();
    let returned = starts::end_waits_after_failed_starts(turn.world, now);
    if !rested.is_empty() || !reopened.is_empty() || returned {
        rested.iter().for_each(|u| {
            turn.world.live.backoff_until.remove(u);
            turn.world.live.reservations.rested(*u);
            turn.world.mirror.touch(*u);
        });
        reopened.iter().for_each(|k| {
            turn.world.live.refused.remove(k);
        });
        turn.capacity_changed();
    }
    for uid in turn.world.live.reservations.expire(now) {
        turn.world.mirror.look_again(uid);
        turn.capacity_changed();
    }
    starvation_guard::schedule_starvation_check(turn);
    let late = turn.world.live.clusters.iter().filter(|(_, c)| c.outbox.due(now));
    turn.out.wake.extend(late.map(|(cluster, _)| cluster.clone()));
    give_up_on_the_silent(turn);
    recovery::recovery_by_time(turn);
    usage::sample(turn);
}

/// A cluster that isn't heard answers no question: its open legs are taken back, so that others can be asked.
fn give_up_on_the_silent(turn: &mut Turn<'_>) {
    let now = turn.now.mono;
    let limit = meridian_shared::lease::silence(turn.world.config.term_min);
    let silent: Vec<_> = turn
        .world
        .live
        .clusters
        .iter()
        .filter(|(_, c)| now.since(c.heard) >= limit)
        .map(|(name, _)| name.clone())
        .collect();
    for cluster in silent {
        if turn.world.has_open_legs(&cluster) {
            offers::withdraw_all(turn, &cluster);
        }
    }
}

/// Ends leases whose deadline has passed, and stops gangs that did not start in time.
fn lapse(turn: &mut Turn<'_>) {
    let now = turn.now.mono;
    let mut lapsed = Vec::new();
    let mut late = Vec::new();
    let mut due = Mono(u64::MAX);
    for (fence, lease) in &turn.world.live.leases {
        let Some(workload) = turn.world.state.workloads().get(&lease.uid) else { continue };
        // Beside a copy the original may go on renewing.
        if workload.on_loss() == OnLoss::Fence && !turn.world.disputed(workload) {
            if lease.lease.lapsed(now) {
                lapsed.push((lease.uid, *fence));
                continue;
            }
            due = due.min(lease.lease.deadline);
        }
        if workload.phase() == Phase::Granted {
            if now >= lease.start_by {
                late.push((lease.uid, *fence));
            } else {
                due = due.min(lease.start_by);
            }
        }
    }
    turn.world.live.due = due;
    for (uid, fence) in lapsed {
        turn.world.live.counts.lapses += 1;
        turn.record_workload(
            uid,
            WorkloadFact::LeaseLapsed { fence, at: turn.now.wall, declared: false, by: None },
        );
        grants::freed(turn, uid, fence);
    }
    for (uid, fence) in late {
        if let Some(cluster) =
            turn.workload(uid).and_then(|w| w.leg_of(fence)).map(|(_, l)| l.cluster.clone())
        {
            starts::failed_start(turn, uid, &cluster);
        }
        stops::order_stop(turn, uid, fence, StopReason::StartTimeout, &Actor::System);
    }
}

/// Forgets finished workloads whose time is over. Whether some are left.
fn retain(turn: &mut Turn<'_>) -> bool {
    let wall = turn.now.wall;
    let mut over: Vec<Uid> = Vec::new();
    let kept_max = turn.world.config.finished_kept_max;
    let many = turn.world.live.finished.len();
    for (i, (at, uid)) in turn.world.live.finished.iter().enumerate() {
        let Some(workload) = turn.world.state.workloads().get(uid) else { continue };
        let keep = workload.ttl().unwrap_or(turn.world.config.finished_kept);
        let crowded = workload.ttl().is_none() && many - i > kept_max;
        if wall.since(*at) >= keep || crowded {
            over.push(*uid);
        }
        if over.len() >= FORGET_MAX {
            break;
        }
    }
    let more = over.len() >= FORGET_MAX;
    for uid in over {
        turn.record_workload(uid, WorkloadFact::Forgotten);
    }
    let workloads = &turn.world.state.workloads();
    turn.world
        .live
        .failed_starts
        .retain(|(uid, _), _| workloads.get(uid).is_some_and(|workload| workload.finished().is_none()));
    more
}
