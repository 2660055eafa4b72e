//! Stops of running gangs, and preemptions.

use crate::dispatch::offers;
use crate::facts::actor::Actor;
use crate::facts::audit::{Action, Entry};
use crate::facts::end::Preempted;
use crate::facts::record::WorkloadFact;
use crate::sessions::outbox::CommandRef;
use crate::state::workload::Workload;
use crate::state::workload::phase::Phase;
use crate::world::turn::Turn;
use meridian_shared::ids::{ClusterName, Fence, OfferId, Uid};
use meridian_shared::protocol::StopReason;
use meridian_shared::time::Millis;

/// Orders an attempt to stop. Its quota and capacity stay charged until the stop is confirmed or the lease
/// has lapsed.
pub(crate) fn order_stop(turn: &mut Turn<'_>, uid: Uid, fence: Fence, reason: StopReason, by: &Actor) {
    order_stop_for(turn, uid, fence, reason, by, None);
}

fn order_stop_for(
    turn: &mut Turn<'_>,
    uid: Uid,
    fence: Fence,
    reason: StopReason,
    by: &Actor,
    preempted: Option<Preempted>,
) {
    let Some((_, leg)) = turn.workload(uid).and_then(|w| w.leg_of(fence)) else { return };
    let cluster = leg.cluster().clone();
    if turn.workload(uid).is_some_and(|w| matches!(w.phase(), Phase::Granted | Phase::Running)) {
        turn.record_workload(
            uid,
            WorkloadFact::StopOrdered {
                fence,
                reason,
                by: by.clone(),
                preempted: preempted.clone(),
                at: turn.now.wall,
            },
        );
        let detail = Some(reason.word().to_owned());
        let entry = Entry { preempted, detail, ..Entry::new(Action::Stop, uid.to_string()).at(&cluster) };
        turn.audit(by.clone(), entry);
    }
    turn.send(&cluster, CommandRef::Stop(uid, fence, reason));
}

/// Preempts a workload: stops its attempt if it has one, otherwise withdraws its offers and releases its
/// quota at once.
pub(crate) fn preempt(turn: &mut Turn<'_>, victim: Uid, preempted: Preempted) {
    let Some(right) = turn.workload(victim).map(Workload::right) else { return };
    let fence = right.and_then(|(_, leg)| leg.fence());
    turn.world.live_mut().reservations_mut().note_preemption(victim, preempted.by, turn.now.mono);
    match fence {
        Some(fence) => {
            order_stop_for(turn, victim, fence, StopReason::Evicted, &Actor::System, Some(preempted))
        }
        None => {
            let entry = Entry {
                preempted: Some(preempted.clone()),
                ..Entry::new(Action::Preempt, victim.to_string())
            };
            turn.audit(Actor::System, entry);
            // The preemptor may have to wait for other victims. The backoff keeps this victim from taking the
            // released quota again in the meantime.
            let until = turn.now.mono + PREEMPTED_BACKOFF;
            turn.world.live_mut().backoffs_mut().start(victim, until);
            turn.world.live_mut().reservations_mut().rests(victim, preempted.by);
            offers::withdraw_open_for(turn, victim, Some(preempted));
        }
    }
}

/// Longest backoff of a workload that was preempted before it ran. Long enough for the preemptor's other
/// victims to stop, so that this victim doesn't regain its quota first.
const PREEMPTED_BACKOFF: Millis = Millis::secs(30);

/// Attempts that this cluster has the right to run.
pub(crate) fn granted_attempts(turn: &Turn<'_>, cluster: &ClusterName) -> Vec<(Uid, Fence, OfferId)> {
    let uids = turn.world.loads().get(cluster).into_iter().flatten().map(|(uid, _)| *uid);
    uids.filter_map(|uid| {
        let (offer, leg) = turn.world.state().workloads().get(&uid)?.right()?;
        (*leg.cluster() == *cluster).then_some((uid, leg.fence()?, offer))
    })
    .collect()
}
