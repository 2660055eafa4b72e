//! Offers to clusters and their withdrawal.

use crate::facts::end::Preempted;
use crate::facts::record::WorkloadFact;
use crate::facts::submission::Choice;
use crate::sessions::outbox::CommandRef;
use crate::state::workload::phase::Phase;
use crate::world::turn::Turn;
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, OfferId, Uid};
use std::sync::Arc;

pub(crate) fn offer(turn: &mut Turn<'_>, uid: Uid, cluster: ClusterName, gang: &Arc<Gang>, choice: Choice) {
    let leadership = turn.world.state().leadership();
    let offer = OfferId {
        epoch: leadership.epoch,
        leadership: leadership.id,
        counter: turn.world.state().offers() + 1,
    };
    let ledger = turn.world.state().members()[&cluster].ledger();
    turn.record_workload(
        uid,
        WorkloadFact::Offered { offer, cluster: cluster.clone(), ledger, choice: Some(choice) },
    );
    let number = turn.send(&cluster, CommandRef::Offer(uid, offer)).unwrap_or(0);
    if let Some(live) = turn.world.live_mut().cluster_mut(&cluster) {
        live.capacity_mut().asked(offer, number, gang);
    }
}

/// Withdraws one offer, unless its leg is already closed.
pub(crate) fn withdraw(turn: &mut Turn<'_>, uid: Uid, offer: OfferId) {
    let Some(leg) = turn.workload(uid).and_then(|w| w.legs().get(&offer)) else { return };
    if !leg.state().open() {
        return;
    }
    let cluster = leg.cluster().clone();
    turn.record_workload(uid, WorkloadFact::Withdrawn { offer });
    turn.send(&cluster, CommandRef::Withdraw(uid, offer));
    release_offer_capacity(turn, &cluster, offer);
}

/// Withdraws every open offer of a workload and releases its quota.
pub(crate) fn withdraw_open(turn: &mut Turn<'_>, uid: Uid) {
    withdraw_open_for(turn, uid, None);
}

pub(crate) fn withdraw_open_for(turn: &mut Turn<'_>, uid: Uid, preempted: Option<Preempted>) {
    let open: Vec<OfferId> = turn
        .workload(uid)
        .map(|w| w.legs().iter().filter(|(_, l)| l.state().open()).map(|(o, _)| *o).collect())
        .unwrap_or_default();
    for offer in open {
        withdraw(turn, uid, offer);
    }
    release_quota_if_idle_for(turn, uid, preempted);
}

/// Releases the quota of a workload that isn't granted and has no open leg left. Call this after a leg was
/// closed.
pub(crate) fn release_quota_if_idle(turn: &mut Turn<'_>, uid: Uid) {
    release_quota_if_idle_for(turn, uid, None);
}

fn release_quota_if_idle_for(turn: &mut Turn<'_>, uid: Uid, preempted: Option<Preempted>) {
    let idle = turn.workload(uid).is_some_and(|w| {
        matches!(w.phase(), Phase::Dispatching | Phase::Reserved)
            && !w.legs().values().any(|l| l.state().open())
    });
    if idle {
        turn.record_workload(uid, WorkloadFact::QuotaReleased { preempted, at: turn.now.wall });
        turn.capacity_changed();
    }
}

/// Withdraws every open offer to a cluster.
pub(crate) fn withdraw_all(turn: &mut Turn<'_>, cluster: &ClusterName) {
    let open: Vec<(Uid, OfferId)> = turn
        .world
        .loads()
        .get(cluster)
        .into_iter()
        .flatten()
        .filter_map(|(uid, _)| turn.world.state().workloads().get(uid).map(|w| (*uid, w)))
        .flat_map(|(uid, w)| {
            w.legs()
                .iter()
                .filter(|(_, l)| *l.cluster() == *cluster && l.state().open())
                .map(move |(o, _)| (uid, *o))
        })
        .collect();
    for (uid, offer) in open {
        withdraw(turn, uid, offer);
        release_quota_if_idle(turn, uid);
    }
}

/// Stops counting the capacity of an offer that ended without a start, and lets other workloads be evaluated
/// again. That must not wait for the workload's other offers or for a report: no report contains a limit of
/// the cluster, or an offer that its agent held nothing for.
pub(crate) fn release_offer_capacity(turn: &mut Turn<'_>, cluster: &ClusterName, offer: OfferId) {
    if let Some(live) = turn.world.live_mut().cluster_mut(cluster) {
        live.capacity_mut().over(offer);
    }
    turn.capacity_changed();
}
