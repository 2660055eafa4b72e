use crate::sessions::outbox::CommandRef;
use crate::state::legs::leg::{self, Answer, Event as LegEvent, State as LegState};
use crate::world::turn::Turn;
use meridian_shared::ids::{ClusterName, Fence, OfferId, Uid};
use meridian_shared::placement::Placement;
use meridian_shared::planted::Bug;
use meridian_shared::protocol::{RUNS_MAX, StopReason};

pub(crate) fn held_back(turn: &Turn<'_>, uid: Uid) -> Option<()> {
    turn.workload(uid).filter(|w| turn.world.held_back(w, turn.now.mono)).map(|_| ())
}

/// What the leg's machine says of an event, for a leg of this cluster; one that is gone is over.
pub(crate) fn leg_answer(
    turn: &Turn<'_>,
    cluster: &ClusterName,
    uid: Uid,
    offer: OfferId,
    event: LegEvent,
) -> Answer {
    match turn.workload(uid).and_then(|w| w.legs().get(&offer)) {
        Some(leg) if leg.cluster == *cluster => leg::step(leg.state, event),
        Some(_) => Answer::Illegal,
        None => leg::step(LegState::Withdrawn, event),
    }
}

pub(crate) fn late(turn: &mut Turn<'_>, cluster: &ClusterName, uid: Uid, offer: OfferId, answer: Answer) {
    match answer {
        Answer::Withdraw => {
            turn.world.live.counts.late_holds += 1;
            turn.send_correction(cluster, CommandRef::Withdraw(uid, offer));
        }
        Answer::Illegal => turn.world.live.counts.illegal += 1,
        Answer::To(_) | Answer::Nothing => {}
    }
}

/// The leg that exactly this fence names, if it was given to this cluster's present ledger: nothing else frees.
pub(crate) fn own_leg<'a>(
    turn: &'a Turn<'_>,
    cluster: &ClusterName,
    uid: Uid,
    fence: Fence,
) -> Option<&'a crate::state::legs::Leg> {
    let ledger = turn.world.state.members().get(cluster)?.ledger;
    let any = turn.world.config.planted.has(Bug::AnyFenceFrees);
    let workload = turn.workload(uid)?;
    let leg = workload
        .legs()
        .values()
        .find(|l| l.fence == Some(fence))
        .or_else(|| any.then(|| workload.right().map(|(_, l)| l)).flatten())?;
    (any || (leg.cluster == *cluster && leg.ledger == ledger)).then_some(leg)
}

/// Somebody runs an attempt that isn't theirs to run any more.
pub(crate) fn stray(turn: &mut Turn<'_>, cluster: &ClusterName, uid: Uid, fence: Fence) {
    if turn.workload(uid).is_some() && turn.world.state.recovery().is_none() {
        turn.send_correction(cluster, CommandRef::Stop(uid, fence, StopReason::Superseded));
    }
}

pub(crate) fn acknowledge(turn: &mut Turn<'_>, cluster: &ClusterName, uid: Uid, fence: Fence) {
    let number = turn.world.state.last().next();
    if let Some(live) = turn.world.live.clusters.get_mut(cluster)
        && (live.acknowledge.len() < ACKNOWLEDGE_MAX || live.acknowledge.contains_key(&(uid, fence)))
    {
        live.acknowledge.insert((uid, fence), number);
    }
}

/// Ends that wait to be acknowledged at most, more than may come at once from a whole cluster; of those beyond, the next
/// inventory speaks again.
const ACKNOWLEDGE_MAX: usize = 4 * RUNS_MAX;

/// Whether it is news of this very gang. Words may overtake each other, so only a later revision is.
pub(crate) fn placement_counts(turn: &Turn<'_>, uid: Uid, fence: Fence, placement: &Placement) -> bool {
    let Some(workload) = turn.workload(uid) else { return false };
    let known =
        workload.leg_of(fence).and_then(|(_, leg)| leg.placement.as_ref()).map(|known| known.revision);
    if known.is_some_and(|known| placement.revision <= known) {
        return false;
    }
    placement.is_of(&workload.given_gang(turn.world.queues.class(workload.class())))
}
