//! Reported ends of attempts.

use crate::dispatch::{grants, offers, stops};
use crate::facts::actor::Actor;
use crate::facts::audit::Action;
use crate::facts::end::AttemptEnd;
use crate::facts::record::{OrphanFact, Record, WorkloadFact};
use crate::link::{legs, pods};
use crate::state::workload::Workload;
use crate::world::gangs;
use crate::world::turn::Turn;
use meridian_shared::ids::{ClusterName, Fence, Uid};
use meridian_shared::protocol::{End, EndResult, Proof, StopReason, grant_message};
use meridian_shared::time::Millis;

pub(crate) fn on_ended(turn: &mut Turn<'_>, cluster: &ClusterName, end: End) {
    let end = End { result: end.result.cleaned(), ..end };
    legs::acknowledge(turn, cluster, end.uid, end.fence);
    if turn.world.state().orphans().get(&(end.uid, end.fence)).is_some_and(|o| *o.cluster() == *cluster) {
        turn.record(Record::Orphan {
            uid: end.uid,
            fence: end.fence,
            fact: OrphanFact::Gone { by: Some(Actor::agent(cluster)) },
        });
    }
    let Some(fence) = legs::own_leg(turn, cluster, end.uid, end.fence).and_then(|l| l.fence()) else {
        return learn_end(turn, cluster, end);
    };
    let uid = end.uid;
    let result = end.result.clone();
    let unknown = end.proof.is_none();
    let deactivated = deactivate_at_time_limit(turn, uid, &result);
    pods::note_completed(turn, cluster, uid, fence, &end.completed);
    // A scale-up may never have reached the agent, so no capacity report would clear its estimated usage.
    if let Some(offer) = gangs::offer_of(turn.world, uid, fence) {
        offers::release_offer_capacity(turn, cluster, offer);
    }
    turn.record_workload(
        uid,
        WorkloadFact::Ended {
            fence,
            result: end.result,
            pod_failures: end.pod_failures,
            ran: end.ran,
            at: turn.now.wall,
            unknown,
        },
    );
    let deleted = turn.workload(uid).is_some_and(|w| w.deletion().is_some());
    match result {
        _ if deleted || deactivated => {}
        EndResult::Succeeded | EndResult::Failed { .. } => grants::finish_as(turn, uid, result),
        EndResult::NodeLost { .. } => {
            let backoff =
                turn.workload(uid).map_or(Millis(0), |workload| workload.backoff_after_node_loss(fence));
            turn.world.live_mut().backoffs_mut().start(uid, turn.now.mono + backoff);
            turn.world.mirror_mut().touch(uid);
        }
        EndResult::Stopped | EndResult::LeaseLapsed => {}
    }
    grants::settle_ended_attempt(turn, uid, fence);
}

/// Takes the end of an attempt that the journal doesn't have, because it is an old copy, or that it has as
/// lapsed: a job that succeeded or failed must not start again. Without our signature on the grant the report
/// is ignored, since any agent could claim that a job has ended.
fn learn_end(turn: &mut Turn<'_>, cluster: &ClusterName, end: End) {
    let End { uid, fence, result, pod_failures, ran, proof, completed: _ } = end;
    let has_result = matches!(result, EndResult::Succeeded | EndResult::Failed { .. });
    // A recorded end is final, except a lapse or an end without proof, as from an agent on an old copy of its
    // ledger: the job's result isn't known then.
    let open = |w: &crate::state::workload::Workload| {
        w.history()
            .iter()
            .rev()
            .find(|s| s.fence == fence)
            .is_none_or(|attempt| attempt.end.as_ref().is_some_and(AttemptEnd::leaves_result_open))
    };
    let is_news = |w: &crate::state::workload::Workload| {
        w.finished().is_none()
            && w.deletion().is_none()
            && w.fence().is_none_or(|known| fence >= known)
            && open(w)
    };
    if !has_result
        || !turn.workload(uid).is_some_and(is_news)
        || !proof.is_some_and(|proof| proves(turn, cluster, uid, fence, &proof))
    {
        return;
    }
    offers::withdraw_open(turn, uid);
    let at = turn.now.wall;
    turn.record_workload(
        uid,
        WorkloadFact::EndLearned {
            fence,
            cluster: cluster.clone(),
            result: result.clone(),
            pod_failures,
            ran,
            at,
        },
    );
    match turn.workload(uid).and_then(Workload::right).and_then(|(_, leg)| leg.fence()) {
        Some(older) => stops::order_stop(turn, uid, older, StopReason::Superseded, &Actor::System),
        None => grants::finish_as(turn, uid, result),
    }
    turn.capacity_changed();
}

/// Whether the proof is our signature on this cluster's grant.
fn proves(turn: &Turn<'_>, cluster: &ClusterName, uid: Uid, fence: Fence, proof: &Proof) -> bool {
    let Proof { offer, attempt, term, on_loss, mac } = proof;
    turn.world.state().members().get(cluster).is_some_and(|member| {
        let message = grant_message(cluster, member.ledger(), uid, fence, *offer, *attempt, *term, *on_loss);
        turn.world.config().receipt_key.verify(&message, mac)
    })
}

/// Deactivates a workload if its attempt ended because the maximum execution time was reached, and returns
/// whether it did. Other deadlines, such as the job's `activeDeadlineSeconds`, end the job for good.
pub(crate) fn deactivate_at_time_limit(turn: &mut Turn<'_>, uid: Uid, result: &EndResult) -> bool {
    let deadline = matches!(result, EndResult::Failed { reason, .. } if reason == "DeadlineExceeded");
    let limit_reached = deadline
        && turn.workload(uid).is_some_and(|w| {
            let gang = &turn.world.queues().class(w.class()).gang;
            w.deletion().is_none() && gang.deactivates_when_up(w.ran())
        });
    if limit_reached {
        let by = Actor::System;
        turn.audit_workload(uid, &by, Action::Deactivate);
        turn.record_workload(
            uid,
            WorkloadFact::Deactivated { by, at: turn.now.wall, max_execution_time_reached: true },
        );
    }
    limit_reached
}
