//! Inventories: everything that an agent has, compared with the journal.
//!
//! - A reported run becomes its workload's attempt if its fence is higher than the known one and its
//!   signature is ours. Otherwise it is stopped, or, if its workload is unknown, recorded as an orphan.
//! - A grant that the inventory lacks frees nothing by itself. The agent must stop the grant and write a
//!   tombstone; only its confirmation, or the lapse of the lease, frees the capacity.

use crate::dispatch::{grants, offers, priority, sizes, stops};
use crate::facts::actor::Actor;
use crate::facts::record::{OrphanFact, Record, WorkloadFact};
use crate::leadership::{orphans, receipts, recovery};
use crate::link::{adoption, ends, pod_placement, scale_up};
use crate::live::counts::Count;
use crate::sessions::outbox::CommandRef;
use crate::state::workload::phase::Phase;
use crate::world::turn::Turn;
use meridian_shared::ids::{ClusterName, Fence, LedgerId, Uid};
use meridian_shared::planted::Bug;
use meridian_shared::protocol::{Inventory, Run, StopReason, clean, grant_message};
use std::collections::BTreeSet;

pub(crate) fn take_inventory(
    turn: &mut Turn<'_>,
    cluster: &ClusterName,
    ledger: LedgerId,
    inventory: Inventory,
) {
    receipts::apply_receipts(turn, &inventory.receipts);
    let ours = turn.world.state().leadership();
    if inventory.for_leadership != Some(ours) && !turn.world.config().planted.has(Bug::StaleInventoryCounts) {
        return;
    }
    let Some(live) = turn.world.live().cluster(cluster) else { return };
    // Whether the inventory reflects every command that was sent.
    let settled = live.outbox().quiet();
    for run in &inventory.runs {
        take_run(turn, cluster, ledger, &scale_up::verified(turn, cluster, ledger, run));
    }
    for end in inventory.ends {
        ends::on_ended(turn, cluster, end);
    }
    if inventory.more {
        // The next inventory brings the rest, once these ends are acknowledged.
        return;
    }
    let known: BTreeSet<(Uid, Fence)> = inventory.runs.iter().map(|r| (r.uid, r.fence)).collect();
    stop_missing(turn, cluster, ledger, &known, settled);
    settle_offers(turn, cluster, &inventory.offers, settled);
    orphans::stop_orphans(turn, cluster, ledger);
    if let Some(live) = turn.world.live_mut().cluster_mut(cluster) {
        live.inventory_mut().complete();
    }
    let live = turn.world.live();
    if live.recovery().expects(cluster) {
        recovery::stop_awaiting(turn);
    }
    turn.capacity_changed();
}

fn take_run(turn: &mut Turn<'_>, cluster: &ClusterName, ledger: LedgerId, run: &Run) {
    if turn.world.config().planted.has(Bug::ReportedRunIgnored) && turn.world.state().recovery().is_some() {
        return;
    }
    let Some(workload) = turn.workload(run.uid) else {
        // Without our signature it is ignored: a faulty agent could invent any number of runs.
        if !is_signed(turn, cluster, ledger, run) {
            turn.world.live_mut().counts_mut().add_one(Count::Illegal);
        } else if !turn.world.state().orphans().contains_key(&(run.uid, run.fence)) {
            turn.world.live_mut().counts_mut().add_one(Count::Orphans);
            // The gang is unknown, so only the size of the placement can be checked.
            let placement = run.placement.clone().filter(|placement| placement.is_bounded());
            let job = run.job.as_deref().map(|job| clean(job).into());
            let run = Run { placement, job, ..run.clone() };
            turn.record(Record::Orphan {
                uid: run.uid,
                fence: run.fence,
                fact: OrphanFact::Seen { cluster: cluster.clone(), ledger, run: Box::new(run) },
            });
        }
        return;
    };
    if let Some((_, leg)) = workload.leg_of(run.fence)
        && *leg.cluster() == *cluster
        && leg.ledger() == ledger
    {
        let (accepted, running) = (leg.accepted(), leg.state() == crate::state::legs::leg::LegState::Running);
        let stopping = workload.phase() == Phase::Stopping;
        if !accepted {
            pod_placement::accepted(turn, run.uid, run.fence, run.placement.clone());
        }
        if run.running && !running && !stopping {
            turn.record_workload(run.uid, WorkloadFact::Running { fence: run.fence, at: turn.now.wall });
        }
        scale_up::apply_reported_scale_up(turn, cluster, run);
        pod_placement::take_placement(turn, cluster, run.uid, run.fence, run.placement.clone());
        sizes::apply_reclaimable_pods(turn, run.uid, run.fence, &run.spare);
        sizes::send_scale_down(turn, cluster, run.uid, run.fence);
        priority::apply_reported_priority(turn, cluster, run);
        if stopping {
            let reason = turn.workload(run.uid).and_then(|w| w.stopping()).unwrap_or(StopReason::Superseded);
            turn.send(cluster, CommandRef::Stop(run.uid, run.fence, reason));
        }
        return;
    }
    // The highest reported fence wins. Runs of ended workloads, and of those granted elsewhere since, are
    // stopped.
    let is_newer = workload.fence().is_none_or(|known| run.fence > known);
    if is_newer && !is_signed(turn, cluster, ledger, run) {
        // The signature isn't ours, so the report can't be trusted, yet the run may exist. A workload that
        // this leadership accepted can't run without its knowledge. An older workload isn't offered until its
        // term has passed since `sole_since`, even if the run is reported again.
        let (is_earlier, term) = (workload.is_older_than(turn.world.state().led_since()), workload.term());
        turn.world.live_mut().counts_mut().add_one(Count::Illegal);
        if is_earlier {
            let until = meridian_shared::lease::ManagerLease::from_composed(
                turn.world.live().recovery().sole_since(),
                term,
            )
            .deadline;
            turn.world.live_mut().backoffs_mut().start(run.uid, until);
            turn.world.mirror_mut().touch(run.uid);
        }
    } else if is_newer && workload.phase() != Phase::Finished && workload.deletion().is_none() {
        let gang = workload.adopted_gang(turn.world.queues().class(workload.class()), run);
        let placement = run.placement.clone().filter(|placement| placement.is_of(&gang));
        adoption::adopt(turn, cluster, ledger, &Run { placement, job: None, ..run.clone() });
    } else {
        turn.send_correction(cluster, CommandRef::Stop(run.uid, run.fence, StopReason::Superseded));
    }
}

/// Whether a run carries our signature on its grant to this ledger.
fn is_signed(turn: &Turn<'_>, cluster: &ClusterName, ledger: LedgerId, run: &Run) -> bool {
    let message =
        grant_message(cluster, ledger, run.uid, run.fence, run.offer, run.attempt, run.term, run.on_loss);
    run.mac.as_ref().is_some_and(|mac| turn.world.config().receipt_key.verify(&message, mac))
}

/// Stops grants that this ledger should have but didn't report, except grants that are still being sent.
fn stop_missing(
    turn: &mut Turn<'_>,
    cluster: &ClusterName,
    ledger: LedgerId,
    known: &BTreeSet<(Uid, Fence)>,
    settled: bool,
) {
    for (uid, fence, offer) in stops::granted_attempts(turn, cluster) {
        let Some((_, leg)) = turn.workload(uid).and_then(|w| w.leg_of(fence)) else { continue };
        let in_transit = !settled
            && turn
                .world
                .live()
                .cluster(cluster)
                .is_some_and(|l| l.outbox().pending(&CommandRef::Grant(uid, offer, fence)));
        if leg.ledger() != ledger || known.contains(&(uid, fence)) || in_transit {
            continue;
        }
        if turn.world.config().planted.has(Bug::MissingFrees) {
            turn.record_workload(
                uid,
                WorkloadFact::LeaseLapsed { fence, at: turn.now.wall, declared: false, by: None },
            );
            grants::settle_ended_attempt(turn, uid, fence);
            continue;
        }
        stops::order_stop(turn, uid, fence, StopReason::Superseded, &Actor::System);
    }
}

/// Withdraws offers that only the agent has, and expires those that only the manager has.
fn settle_offers(
    turn: &mut Turn<'_>,
    cluster: &ClusterName,
    reported: &[(meridian_shared::ids::OfferId, Uid)],
    settled: bool,
) {
    for (offer, uid) in reported {
        let open =
            turn.workload(*uid).and_then(|w| w.legs().get(offer)).is_some_and(|l| *l.cluster() == *cluster);
        if !open {
            turn.send_correction(cluster, CommandRef::Withdraw(*uid, *offer));
        }
    }
    if !settled {
        return;
    }
    let reported: BTreeSet<_> = reported.iter().copied().collect();
    let missing: Vec<_> = turn
        .world
        .loads()
        .get(cluster)
        .into_iter()
        .flatten()
        .flat_map(|(uid, _)| {
            turn.world.state().workloads()[uid]
                .legs()
                .iter()
                .filter(|(_, l)| *l.cluster() == *cluster && l.state().open())
                .map(move |(o, _)| (*uid, *o))
        })
        .filter(|(uid, offer)| !reported.contains(&(*offer, *uid)))
        .filter(|(uid, offer)| {
            !turn
                .world
                .live()
                .cluster(cluster)
                .is_some_and(|l| l.outbox().pending(&CommandRef::Offer(*uid, *offer)))
        })
        .collect();
    for (uid, offer) in missing {
        turn.record_workload(uid, WorkloadFact::HoldExpired { offer });
        offers::release_offer_capacity(turn, cluster, offer);
        offers::release_quota_if_idle(turn, uid);
    }
}
