//! Events that agents report about offers and attempts.

use crate::dispatch::{self, grants, offers, starts};
use crate::facts::actor::Actor;
use crate::facts::audit::{Action, Entry};
use crate::facts::end;
use crate::facts::record::WorkloadFact;
use crate::link::{budget, ends, legs, pod_placement, scale_up};
use crate::sessions::provider_failures::ProviderFailure;
use crate::sessions::refusals::Refusal;
use crate::state::legs::leg::{self, LegAnswer, LegEvent, LegState};
use crate::world::gangs;
use crate::world::turn::Turn;
use meridian_shared::ids::{ClusterName, Fence, OfferId, Uid};
use meridian_shared::protocol::{Event, GrantRefusal, RefuseReason, clean};
use meridian_shared::time::Millis;

/// Takes events in the order of their numbers; those that were taken before are skipped.
pub(crate) fn take_events(turn: &mut Turn<'_>, cluster: &ClusterName, from: u64, events: Vec<Event>) {
    let live = turn.world.live_mut().cluster_mut(cluster).expect("admitted sessions are live");
    // Events before the first one sent were acknowledged, perhaps by an earlier leadership.
    live.take_events_through(from - 1);
    for (number, event) in (from..).zip(events) {
        let live = turn.world.live().cluster(cluster).expect("admitted sessions are live");
        if number != live.events_through() + 1 {
            continue;
        }
        if budget::is_put_off(turn, cluster, &event) {
            break;
        }
        let live = turn.world.live_mut().cluster_mut(cluster).expect("admitted sessions are live");
        live.take_events_through(number);
        take_event(turn, cluster, event);
    }
}

fn take_event(turn: &mut Turn<'_>, cluster: &ClusterName, event: Event) {
    match event {
        Event::Held { offer, uid } => on_held(turn, cluster, offer, uid),
        Event::Waiting { offer, uid, reason, estimate } => {
            on_waiting(turn, cluster, offer, uid, clean(&reason), estimate)
        }
        Event::Refused { offer, uid, reason, text } => on_refused(turn, cluster, offer, uid, reason, &text),
        Event::Gone { offer, uid, expired } => {
            let open =
                matches!(legs::leg_answer(turn, cluster, uid, offer, LegEvent::Expired), LegAnswer::To(_));
            if open {
                turn.record_workload(uid, WorkloadFact::HoldExpired { offer });
                budget::spend(turn, cluster, 0);
                offers::release_offer_capacity(turn, cluster, offer);
                if expired {
                    starts::note_failed_start(turn, uid, cluster);
                }
                offers::release_quota_if_idle(turn, uid);
            }
        }
        Event::Accepted { uid, fence, placement } => {
            match legs::own_leg(turn, cluster, uid, fence).map(|l| l.accepted()) {
                Some(false) => pod_placement::accepted(turn, uid, fence, placement),
                Some(true) => pod_placement::take_placement(turn, cluster, uid, fence, placement),
                None => legs::stray(turn, cluster, uid, fence),
            }
        }
        Event::GrantRefused { uid, fence, why } => on_grant_refused(turn, cluster, uid, fence, &why),
        Event::Running { uid, fence, placement } => {
            match legs::own_leg(turn, cluster, uid, fence).map(|l| leg::step(l.state(), LegEvent::Running)) {
                Some(LegAnswer::To(LegState::Running)) => {
                    turn.record_workload(uid, WorkloadFact::Running { fence, at: turn.now.wall });
                    starts::note_started(turn, uid, cluster);
                    dispatch::scale_up::evaluate_on_start(turn, uid);
                    pod_placement::take_placement(turn, cluster, uid, fence, placement);
                }
                Some(_) => pod_placement::take_placement(turn, cluster, uid, fence, placement),
                None => legs::stray(turn, cluster, uid, fence),
            }
        }
        Event::ScaledUp { uid, fence, number } => scale_up::on_scaled_up(turn, cluster, uid, fence, number),
        Event::ScaleUpRefused { uid, fence, number, reason, text } => {
            scale_up::on_scale_up_refused(turn, cluster, uid, fence, number, reason, &text)
        }
        Event::Ended(end) => ends::on_ended(turn, cluster, end),
    }
}

/// The agent waits for its capacity provider. Reason and estimate may differ from those reported before.
fn on_waiting(
    turn: &mut Turn<'_>,
    cluster: &ClusterName,
    offer: OfferId,
    uid: Uid,
    reason: String,
    estimate: Option<Millis>,
) {
    match legs::leg_answer(turn, cluster, uid, offer, LegEvent::Waiting) {
        LegAnswer::To(_) => {
            let leg = turn
                .workload(uid)
                .and_then(|w| w.legs().get(&offer))
                .expect("only an existing leg accepts the event");
            let (known, state) = ((leg.note(), leg.estimate()), leg.state());
            if state == LegState::Waiting && known == (Some(&*reason), estimate) {
                return;
            }
            if state != LegState::Offered {
                budget::spend(turn, cluster, reason.len());
            }
            turn.record_workload(uid, WorkloadFact::Waiting { offer, reason, estimate });
        }
        other => legs::late(turn, cluster, uid, offer, other),
    }
}

fn on_held(turn: &mut Turn<'_>, cluster: &ClusterName, offer: OfferId, uid: Uid) {
    match legs::leg_answer(turn, cluster, uid, offer, LegEvent::Held) {
        LegAnswer::To(_) => {
            turn.record_workload(uid, WorkloadFact::Held { offer });
            grants::grant(turn, uid, offer);
        }
        other => legs::late(turn, cluster, uid, offer, other),
    }
}

fn on_refused(
    turn: &mut Turn<'_>,
    cluster: &ClusterName,
    offer: OfferId,
    uid: Uid,
    reason: RefuseReason,
    text: &str,
) {
    if !matches!(legs::leg_answer(turn, cluster, uid, offer, LegEvent::Refused), LegAnswer::To(_)) {
        return;
    }
    let text = clean(text);
    let gang = gangs::asked_gang(turn.world, uid);
    turn.record_workload(uid, WorkloadFact::Refused { offer, reason, text: text.clone() });
    offers::release_offer_capacity(turn, cluster, offer);
    let base = match reason {
        // These obstacles often last only a moment.
        RefuseReason::NoCapacity | RefuseReason::StillRuns | RefuseReason::Overloaded => Millis(500),
        RefuseReason::NeverFits => Millis::mins(1),
        // Nobody reports that a kind of job was installed.
        RefuseReason::Unsupported => Millis::secs(10),
        RefuseReason::ProviderFailed | RefuseReason::Precondition => Millis::secs(5),
    };
    let tried = u32::try_from(offer.counter % 4).unwrap_or(0);
    let until = turn.now.mono + meridian_shared::backoff::wait(base, Millis::mins(10), tried, offer.counter);
    match gang.filter(|_| reason == RefuseReason::ProviderFailed) {
        Some(gang) => {
            let failure = ProviderFailure { until, text };
            turn.world.live_mut().provider_failures_mut().add(uid, cluster.clone(), &gang, failure);
        }
        None => {
            turn.world.live_mut().refusals_mut().add(uid, cluster, Refusal::new(until, reason, text));
        }
    }
    offers::release_quota_if_idle(turn, uid);
}

fn on_grant_refused(turn: &mut Turn<'_>, cluster: &ClusterName, uid: Uid, fence: Fence, why: &GrantRefusal) {
    legs::acknowledge(turn, cluster, uid, fence);
    let Some(fence) = legs::own_leg(turn, cluster, uid, fence).and_then(|l| l.fence()) else { return };
    turn.audit(
        Actor::agent(cluster),
        Entry::denied(Action::Grant, uid, cluster, Some(format!("{fence}: {}", end::refusal_text(why)))),
    );
    turn.record_workload(uid, WorkloadFact::GrantRefused { fence, why: why.clone() });
    let until = turn.now.mono + Millis(500);
    turn.world.live_mut().backoffs_mut().start(uid, until);
    turn.world.mirror_mut().touch(uid);
    grants::settle_ended_attempt(turn, uid, fence);
}
