//! Sessions of agents: which requests are taken, and what a new session resets.

use crate::capacity::reserved;
use crate::dispatch::{grants, offers, stops};
use crate::facts::record::{MemberFact, Record, WorkloadFact};
use crate::leadership::receipts;
use crate::link::budget;
use crate::live::counts::Count;
use crate::sessions::LiveCluster;
use crate::sessions::budget::{BYTES_MAX, SESSION};
use crate::sessions::outbox::CommandRef;
use crate::state::members::LEDGERS_REPLACED_MAX;
use crate::world::turn::Turn;
use meridian_shared::ids::{ClusterName, Fence, Leadership, LedgerId, Session, Uid};
use meridian_shared::lease;
use meridian_shared::planted::Bug;
use meridian_shared::protocol::{SyncRefusal, SyncRequest, VERSIONS};
use meridian_shared::time::{Millis, Mono};

/// Upper bound for event numbers; keeps sums from overflowing.
const EVENT_NUMBER_MAX: u64 = u64::MAX / 4;

/// Checks whether a request may be taken, and opens its session if that is new. Fails with the refusal to
/// send.
pub(crate) fn admit(
    turn: &mut Turn<'_>,
    cluster: &ClusterName,
    request: &SyncRequest,
) -> Result<(), SyncRefusal> {
    if !grants::holds_leader_claim(turn) {
        return Err(SyncRefusal::NotLeading);
    }
    if !VERSIONS.contains(&request.version) {
        return Err(SyncRefusal::Version { oldest: *VERSIONS.start(), newest: *VERSIONS.end() });
    }
    if turn.world.state().catalog().cluster(cluster).is_none() {
        return Err(SyncRefusal::UnknownCluster);
    }
    if request.events_from == 0
        || request.events_from > EVENT_NUMBER_MAX
        || request.events.len() > meridian_shared::protocol::EVENTS_MAX
    {
        return Err(SyncRefusal::Malformed("events are numbered from 1 and bounded in number".into()));
    }
    let ours = turn.world.state().leadership();
    if let Some(follows) = request.follows
        && (follows.epoch > ours.epoch || (follows.epoch == ours.epoch && follows.id != ours.id))
    {
        return refuse_newer_leadership(turn, request, follows);
    }
    open_session(turn, cluster, request.ledger, request.session)?;
    if let Some(live) = turn.world.live_mut().cluster_mut(cluster) {
        live.set_version(request.version);
    }
    Ok(())
}

/// Refuses an agent that follows a newer leadership. If a receipt with our signature proves that leadership,
/// this manager also starts a leadership above it and recovers again.
fn refuse_newer_leadership(
    turn: &mut Turn<'_>,
    request: &SyncRequest,
    follows: Leadership,
) -> Result<(), SyncRefusal> {
    let receipts = request.inventory.as_ref().map(|i| i.receipts.as_slice()).unwrap_or_default();
    let foreign: Vec<(Leadership, meridian_shared::ids::RecordNumber)> =
        receipts::foreign(turn, receipts).into_iter().map(|(l, r)| (l, r.record)).collect();
    if foreign.iter().any(|(l, _)| *l == follows) {
        receipts::lead_above(turn, foreign, receipts);
    }
    Err(SyncRefusal::NewerLeadership { follows })
}

fn open_session(
    turn: &mut Turn<'_>,
    cluster: &ClusterName,
    ledger: LedgerId,
    session: Session,
) -> Result<(), SyncRefusal> {
    let known = turn
        .world
        .state()
        .members()
        .get(cluster)
        .map(|m| (m.ledger(), m.session(), m.lost().contains(&ledger)));
    let newer = match known {
        None => true,
        Some((_, _, true)) => return Err(SyncRefusal::LedgerLost),
        Some((has, _, false)) if has != ledger => true,
        Some((_, has, false)) if session.counter > has.counter => true,
        Some((_, has, false)) if session == has => false,
        Some((_, by, false)) => return Err(SyncRefusal::Superseded { by }),
    };
    if newer {
        if !may_begin(turn, cluster) {
            turn.world.live_mut().counts_mut().add_one(Count::PutOff);
            return Err(SyncRefusal::Malformed(
                "this cluster opens sessions too often: try again in a moment".into(),
            ));
        }
        if turn.world.state().members().get(cluster).is_some_and(|member| !member.may_replace(ledger)) {
            let message = format!(
                "this cluster has replaced its ledger {LEDGERS_REPLACED_MAX} times, which is the limit: \
                 join under another name"
            );
            return Err(SyncRefusal::Malformed(message));
        }
        spend_session(turn, cluster);
        let replaced = known.is_some_and(|(has, _, _)| has != ledger);
        turn.record(Record::Member {
            cluster: cluster.clone(),
            fact: MemberFact::SessionOpened { ledger, session },
        });
        if known.is_none() {
            if turn.world.state().recovery().is_some() {
                // The journal may be an old copy that lacks this cluster and what runs there.
                turn.world.live_mut().recovery_mut().await_unknown(cluster);
            }
            // The other members must acknowledge the new name before the cluster is admitted.
            turn.wake_all();
        }
        if replaced && turn.world.config().planted.has(Bug::NewLedgerFrees) {
            free_all(turn, cluster);
        }
        if replaced {
            lose_runs(turn, cluster, ledger);
        }
    }
    if newer || turn.world.live().cluster(cluster).is_none_or(|l| l.session() != session) {
        begin(turn, cluster, session);
    }
    Ok(())
}

/// Notes every attempt that an older ledger of the cluster has the right to run.
fn lose_runs(turn: &mut Turn<'_>, cluster: &ClusterName, ledger: LedgerId) {
    for (uid, fence, offer) in stops::granted_attempts(turn, cluster) {
        let leg = turn.workload(uid).and_then(|workload| workload.legs().get(&offer));
        if leg.is_some_and(|leg| leg.ledger() != ledger && leg.replaced_ledger().is_none()) {
            grants::record_replaced_ledger(turn, uid, fence);
        }
    }
}

fn free_all(turn: &mut Turn<'_>, cluster: &ClusterName) {
    let rights: Vec<(Uid, Fence)> =
        stops::granted_attempts(turn, cluster).into_iter().map(|(u, f, _)| (u, f)).collect();
    for (uid, fence) in rights {
        turn.record_workload(
            uid,
            WorkloadFact::LeaseLapsed { fence, at: turn.now.wall, declared: false, by: None },
        );
        grants::settle_ended_attempt(turn, uid, fence);
    }
}

/// Resets the volatile state of a cluster for a session that is new to this leadership. Holds in it are
/// unknown, so open offers to the cluster are withdrawn.
fn begin(turn: &mut Turn<'_>, cluster: &ClusterName, session: Session) {
    let now = turn.now.mono;
    let live = LiveCluster::opened(session, now, turn.world.live().cluster(cluster));
    turn.world.live_mut().open_session(cluster.clone(), live);
    reserved::restore_reservations(turn.world, cluster);
    offers::withdraw_all(turn, cluster);
    if turn.world.config().planted.has(Bug::RecoveryResends) && turn.world.state().recovery().is_some() {
        for (uid, fence, offer) in stops::granted_attempts(turn, cluster) {
            turn.send(cluster, CommandRef::Grant(uid, offer, fence));
        }
    }
}

/// Counts a cluster as disconnected from now on, because its agent is no longer allowed to connect. Its
/// leases are not renewed and lapse. The session's state stays: an agent that is allowed again may continue
/// the session, and its numbers must not restart.
pub(crate) fn disconnect(turn: &mut Turn<'_>, cluster: &ClusterName) {
    offers::withdraw_all(turn, cluster);
    let silence = lease::disconnect_after(turn.world.config().term_min) + Millis(1);
    let heard = Mono(turn.now.mono.0.saturating_sub(silence.0));
    if let Some(live) = turn.world.live_mut().cluster_mut(cluster) {
        live.silence_since(heard);
    }
}

/// Admits joined clusters whose names `cluster` has acknowledged. Before that they get no offers: if this
/// journal is lost, another member must know the name, so that recovery waits for that cluster's inventory.
pub(crate) fn admit_members(turn: &mut Turn<'_>, cluster: &ClusterName) {
    let Some(acknowledged) = turn.world.live().cluster(cluster).map(|l| l.answers().known_record()) else {
        return;
    };
    let waiting: Vec<ClusterName> = turn
        .world
        .state()
        .members()
        .iter()
        .filter(|(name, m)| *name != cluster && !m.admitted() && m.since() <= acknowledged)
        .map(|(name, _)| name.clone())
        .collect();
    for name in waiting {
        turn.record(Record::Member {
            cluster: name,
            fact: MemberFact::Admitted { by: crate::facts::actor::Actor::agent(cluster) },
        });
        turn.capacity_changed();
    }
}

/// Whether a cluster may open another session now. An agent that has used up its budget of journal writes may
/// still restart, so the limit is twice the budget.
pub(crate) fn may_begin(turn: &Turn<'_>, cluster: &ClusterName) -> bool {
    turn.world.live().cluster(cluster).is_none_or(|live| live.budget().spent(turn.now.mono) < 2 * BYTES_MAX)
}

pub(crate) fn spend_session(turn: &mut Turn<'_>, cluster: &ClusterName) {
    budget::spend(turn, cluster, SESSION);
}
