//! Scale-ups of running gangs: the command to the agent, and its reports.

use crate::dispatch::scale_up::{self, REFUSED_FOR, REFUSED_FOR_MAX, UNABLE_FOR};
use crate::dispatch::{grants, offers, sizes};
use crate::facts::record::WorkloadFact;
use crate::link::legs;
use crate::sessions::refusals::Refusal;
use crate::state::workload::Workload;
use crate::state::workload::phase::Phase;
use crate::world::gangs;
use crate::world::turn::Turn;
use meridian_shared::ids::{ClusterName, Fence, LedgerId, RecordNumber, Uid};
use meridian_shared::protocol::{Command, RefuseReason, Run, ScaleUp, StopReason, clean};

/// Builds the scale-up command. If the scale-up is outdated, or rules forbid that the cluster knows the
/// workload, a harmless command takes its number.
pub(crate) fn render_scale_up(
    turn: &Turn<'_>,
    cluster: &ClusterName,
    uid: Uid,
    fence: Fence,
    number: RecordNumber,
) -> Command {
    let workload = turn.workload(uid);
    let Some((offer, leg)) = workload.and_then(|w| w.leg_of(fence)) else {
        return Command::Stop { uid, fence, reason: StopReason::Superseded };
    };
    let workload = workload.filter(|w| {
        matches!(w.phase(), Phase::Granted | Phase::Running) && grants::may_disclose(turn, uid, cluster)
    });
    match workload.and_then(|w| {
        Some((w.started_scale_up().filter(|started| started.number == number)?, w.counts().cloned()?))
    }) {
        Some((started, places)) => {
            let mut scale_up = ScaleUp { number, places, size: started.size, mac: None };
            scale_up.mac = Some(turn.world.config().receipt_key.sign(&scale_up.message(
                cluster,
                leg.ledger(),
                uid,
                fence,
            )));
            Command::ScaleUp { uid, fence, scale_up: Box::new(scale_up) }
        }
        // Agents ignore the withdrawal of an offer that was granted.
        None => Command::Withdraw { offer, uid },
    }
}

/// The agent has capacity for all additional pods.
pub(crate) fn on_scaled_up(
    turn: &mut Turn<'_>,
    cluster: &ClusterName,
    uid: Uid,
    fence: Fence,
    number: RecordNumber,
) {
    if legs::own_leg(turn, cluster, uid, fence).is_none_or(|leg| leg.fence() != Some(fence)) {
        return;
    }
    let Some((started, places)) =
        turn.workload(uid).and_then(|w| Some((w.started_scale_up()?, w.counts().cloned()?)))
    else {
        return;
    };
    if started.number == number {
        let scale_up = ScaleUp { number, places, size: started.size, mac: None };
        apply_scale_up(turn, cluster, uid, fence, scale_up);
    }
}

fn apply_scale_up(turn: &mut Turn<'_>, cluster: &ClusterName, uid: Uid, fence: Fence, scale_up: ScaleUp) {
    turn.record_workload(
        uid,
        WorkloadFact::ScaledUp {
            fence,
            scale_up: Box::new(ScaleUp { mac: None, ..scale_up }),
            at: turn.now.wall,
        },
    );
    sizes::send_scale_down(turn, cluster, uid, fence);
    turn.capacity_changed();
}

/// The agent refused the additional pods: their quota is released, and the scale-up waits.
pub(crate) fn on_scale_up_refused(
    turn: &mut Turn<'_>,
    cluster: &ClusterName,
    uid: Uid,
    fence: Fence,
    number: RecordNumber,
    reason: RefuseReason,
    text: &str,
) {
    let Some(offer) = legs::own_leg(turn, cluster, uid, fence)
        .filter(|leg| leg.fence() == Some(fence))
        .and_then(|_| gangs::offer_of(turn.world, uid, fence))
    else {
        return;
    };
    if turn.workload(uid).and_then(Workload::started_scale_up).is_none_or(|started| started.number != number)
    {
        return;
    }
    let text = clean(text);
    turn.record_workload(
        uid,
        WorkloadFact::ScaleUpRefused { fence, reason, text: text.clone(), at: turn.now.wall },
    );
    offers::release_offer_capacity(turn, cluster, offer);
    let base = if matches!(reason, RefuseReason::NoCapacity | RefuseReason::StillRuns) {
        REFUSED_FOR
    } else {
        UNABLE_FOR
    };
    let tried = u32::try_from(number.0 % 4).unwrap_or(0);
    let until = turn.now.mono + meridian_shared::backoff::wait(base, REFUSED_FOR_MAX, tried, number.0);
    turn.world.live_mut().refusals_mut().add(uid, cluster, Refusal::new(until, reason, text));
    sizes::send_scale_down(turn, cluster, uid, fence);
}

/// Takes the scale-up of a reported run: the one that was sent, or a later one that the journal lacks because
/// it is an old copy. If the run reports neither, the scale-up in progress is sent again.
pub(crate) fn apply_reported_scale_up(turn: &mut Turn<'_>, cluster: &ClusterName, run: &Run) {
    let (uid, fence) = (run.uid, run.fence);
    let Some(workload) = turn.workload(uid).filter(|w| w.phase().granted()) else { return };
    let last = workload.resized().map_or(RecordNumber(0), |resized| resized.last);
    let (started, sets) = (
        workload.started_scale_up().map(|started| started.number),
        turn.world.queues().class(workload.class()).gang.pod_sets.len(),
    );
    match run.scale_up.as_deref() {
        Some(reported) if started == Some(reported.number) => {
            on_scaled_up(turn, cluster, uid, fence, reported.number)
        }
        Some(reported) if reported.number > last && reported.places.len() == sets => {
            apply_scale_up(turn, cluster, uid, fence, reported.clone())
        }
        _ => drop(scale_up::send_scale_up(turn, cluster, uid, fence)),
    }
}

/// A reported run without its scale-up, unless the scale-up carries our signature.
pub(crate) fn verified(turn: &Turn<'_>, cluster: &ClusterName, ledger: LedgerId, run: &Run) -> Run {
    let key = &turn.world.config().receipt_key;
    let is_signed = |reported: &ScaleUp| {
        reported
            .mac
            .as_ref()
            .is_some_and(|mac| key.verify(&reported.message(cluster, ledger, run.uid, run.fence), mac))
    };
    Run { scale_up: run.scale_up.clone().filter(|reported| is_signed(reported)), ..run.clone() }
}
