//! Looks up the legs of an agent's reports, and answers reports that don't match a leg.

use crate::live::counts::Count;
use crate::sessions::outbox::CommandRef;
use crate::state::legs::leg::{self, LegAnswer, LegEvent, LegState};
use crate::world::turn::Turn;
use meridian_shared::ids::{ClusterName, Fence, OfferId, Uid};
use meridian_shared::placement::Placement;
use meridian_shared::planted::Bug;
use meridian_shared::protocol::StopReason;

/// The answer of a leg's state machine to an event. A leg that isn't stored any more counts as withdrawn; a
/// leg of another cluster makes the event illegal.
pub(crate) fn leg_answer(
    turn: &Turn<'_>,
    cluster: &ClusterName,
    uid: Uid,
    offer: OfferId,
    event: LegEvent,
) -> LegAnswer {
    match turn.workload(uid).and_then(|w| w.legs().get(&offer)) {
        Some(leg) if *leg.cluster() == *cluster => leg::step(leg.state(), event),
        Some(_) => LegAnswer::Illegal,
        None => leg::step(LegState::Withdrawn, event),
    }
}

/// Handles an event that didn't change its leg.
pub(crate) fn late(turn: &mut Turn<'_>, cluster: &ClusterName, uid: Uid, offer: OfferId, answer: LegAnswer) {
    match answer {
        LegAnswer::Withdraw => {
            turn.world.live_mut().counts_mut().add_one(Count::LateHolds);
            turn.send_correction(cluster, CommandRef::Withdraw(uid, offer));
        }
        LegAnswer::Illegal => turn.world.live_mut().counts_mut().add_one(Count::Illegal),
        LegAnswer::To(_) | LegAnswer::Nothing => {}
    }
}

/// The leg with exactly this fence, if it was granted to this cluster's present ledger. Only reports about
/// such a leg may end an attempt.
pub(crate) fn own_leg<'a>(
    turn: &'a Turn<'_>,
    cluster: &ClusterName,
    uid: Uid,
    fence: Fence,
) -> Option<&'a crate::state::legs::Leg> {
    let ledger = turn.world.state().members().get(cluster)?.ledger();
    let any_fence = turn.world.config().planted.has(Bug::AnyFenceFrees);
    let workload = turn.workload(uid)?;
    let leg = workload
        .legs()
        .values()
        .find(|l| l.fence() == Some(fence))
        .or_else(|| any_fence.then(|| workload.right().map(|(_, l)| l)).flatten())?;
    (any_fence || (*leg.cluster() == *cluster && leg.ledger() == ledger)).then_some(leg)
}

/// Stops an attempt that the cluster reports but has no right to run any more. While recovery is open nothing
/// is stopped, because the journal may lack the grant.
pub(crate) fn stray(turn: &mut Turn<'_>, cluster: &ClusterName, uid: Uid, fence: Fence) {
    if turn.workload(uid).is_some() && turn.world.state().recovery().is_none() {
        turn.send_correction(cluster, CommandRef::Stop(uid, fence, StopReason::Superseded));
    }
}

/// Acknowledges an end in one of the next answers, once its record is durable.
pub(crate) fn acknowledge(turn: &mut Turn<'_>, cluster: &ClusterName, uid: Uid, fence: Fence) {
    let number = turn.world.state().last().next();
    if let Some(live) = turn.world.live_mut().cluster_mut(cluster) {
        live.answers_mut().add_end(uid, fence, number);
    }
}

/// Whether a reported placement belongs to this gang and is newer than the known one, by its revision:
/// reports may arrive out of order.
pub(crate) fn placement_counts(turn: &Turn<'_>, uid: Uid, fence: Fence, placement: &Placement) -> bool {
    let Some(workload) = turn.workload(uid) else { return false };
    let known_revision =
        workload.leg_of(fence).and_then(|(_, leg)| leg.placement()).map(|known| known.revision);
    if known_revision.is_some_and(|known| placement.revision <= known) {
        return false;
    }
    placement.is_of(&workload.given_gang(turn.world.queues().class(workload.class())))
}
