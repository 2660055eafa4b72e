use crate::capacity::reserved;
use crate::dispatch::{grants, offers, stops};
use crate::facts::record::{MemberFact, Record, WorkloadFact};
use crate::leadership::receipts;
use crate::link::budget;
use crate::placement::capacity::ClusterCapacity;
use crate::sessions::LiveCluster;
use crate::sessions::budget::{BYTES_MAX, Budget, SESSION};
use crate::sessions::outbox::{CommandRef, Outbox};
use crate::state::members::LEDGERS_REPLACED_MAX;
use crate::world::turn::Turn;
use meridian_shared::ids::{ClusterName, Fence, Leadership, LedgerId, Session, Uid};
use meridian_shared::planted::Bug;
use meridian_shared::protocol::{SyncRefusal, SyncRequest, VERSION, VERSIONS};
use meridian_shared::time::Mono;
use std::collections::BTreeMap;

/// Largest number that an event may have: no agent lives long enough, and sums of such numbers never overflow.
const NUMBER_MAX: u64 = u64::MAX / 4;

/// Whether this request may be taken at all; opens its session if it is new.
pub(crate) fn admit(
    turn: &mut Turn<'_>,
    cluster: &ClusterName,
    request: &SyncRequest,
) -> Result<(), SyncRefusal> {
    if !grants::claims(turn) {
        return Err(SyncRefusal::NotLeading);
    }
    if !VERSIONS.contains(&request.version) {
        return Err(SyncRefusal::Version { oldest: *VERSIONS.start(), newest: *VERSIONS.end() });
    }
    if turn.world.state.catalog().cluster(cluster).is_none() {
        return Err(SyncRefusal::UnknownCluster);
    }
    if request.events_from == 0
        || request.events_from > NUMBER_MAX
        || request.events.len() > meridian_shared::protocol::EVENTS_MAX
    {
        return Err(SyncRefusal::Malformed("events are numbered from 1 and bounded in number".into()));
    }
    let ours = turn.world.state.leadership();
    if let Some(follows) = request.follows
        && (follows.epoch > ours.epoch || (follows.epoch == ours.epoch && follows.id != ours.id))
    {
        return stand_above(turn, request, follows);
    }
    open_session(turn, cluster, request.ledger, request.session)?;
    if let Some(live) = turn.world.live.clusters.get_mut(cluster) {
        live.version = request.version;
    }
    Ok(())
}

/// An agent follows a newer leadership. Shown with our own code, it makes us take a higher epoch and collect again.
fn stand_above(turn: &mut Turn<'_>, request: &SyncRequest, follows: Leadership) -> Result<(), SyncRefusal> {
    let receipts = request.inventory.as_ref().map(|i| i.receipts.as_slice()).unwrap_or_default();
    let shown: Vec<(Leadership, meridian_shared::ids::RecordNumber)> =
        receipts::foreign(turn, receipts).into_iter().map(|(l, r)| (l, r.record)).collect();
    if shown.iter().any(|(l, _)| *l == follows) {
        receipts::above(turn, shown, receipts);
    }
    Err(SyncRefusal::NewerLeadership { follows })
}

fn open_session(
    turn: &mut Turn<'_>,
    cluster: &ClusterName,
    ledger: LedgerId,
    session: Session,
) -> Result<(), SyncRefusal> {
    let known =
        turn.world.state.members().get(cluster).map(|m| (m.ledger, m.session, m.lost.contains(&ledger)));
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
            turn.world.live.counts.put_off += 1;
            return Err(SyncRefusal::Malformed(
                "its cluster begins too many sessions: try again in a moment".into(),
            ));
        }
        if turn.world.state.members().get(cluster).is_some_and(|member| !member.may_replace(ledger)) {
            let words = format!(
                "its cluster has replaced its ledger {LEDGERS_REPLACED_MAX} times, and each is remembered: join under another name"
            );
            return Err(SyncRefusal::Malformed(words));
        }
        spend_session(turn, cluster);
        let replaced = known.is_some_and(|(has, _, _)| has != ledger);
        turn.record(Record::Member {
            cluster: cluster.clone(),
            fact: MemberFact::SessionOpened { ledger, session },
        });
        if known.is_none() {
            if turn.world.state.recovery().is_some() {
                // A journal that is older than it looks may have forgotten this cluster, and what runs there.
                turn.world.live.awaited.insert(cluster.clone());
            }
            // The others must hear its name.
            turn.out.wake.extend(turn.world.live.clusters.keys().cloned());
        }
        if replaced && turn.world.config.planted.has(Bug::NewLedgerFrees) {
            free_all(turn, cluster);
        }
    }
    if newer || turn.world.live.clusters.get(cluster).is_none_or(|l| l.session != session) {
        begin(turn, cluster, session);
    }
    Ok(())
}

fn free_all(turn: &mut Turn<'_>, cluster: &ClusterName) {
    let rights: Vec<(Uid, Fence)> =
        stops::rights(turn, cluster).into_iter().map(|(u, f, _)| (u, f)).collect();
    for (uid, fence) in rights {
        turn.record_workload(
            uid,
            WorkloadFact::LeaseLapsed { fence, at: turn.now.wall, declared: false, by: None },
        );
        grants::freed(turn, uid, fence);
    }
}

/// A session that this leadership hasn't talked to: its holds are unknown, so open legs there are asked anew.
fn begin(turn: &mut Turn<'_>, cluster: &ClusterName, session: Session) {
    let now = turn.now.mono;
    let old = turn.world.live.clusters.remove(cluster);
    let live = LiveCluster {
        session,
        version: VERSION,
        heard: now,
        acknowledged: now,
        answered: 0,
        events_through: 0,
        unacknowledged: BTreeMap::new(),
        acknowledged_record: meridian_shared::ids::RecordNumber(0),
        inventoried: false,
        want_inventory: true,
        renew_at: now,
        digest_at: now,
        outbox: Outbox::default(),
        acknowledge: BTreeMap::new(),
        capacity: ClusterCapacity::default(),
        budget: old.as_ref().map_or_else(Budget::default, |o| o.budget),
        failed_starts: old.as_ref().map_or(0, |o| o.failed_starts),
        failed_last: old.as_ref().and_then(|o| o.failed_last),
        backed_off: old.map_or(Mono(0), |o| o.backed_off),
        located: None,
        shrinks: false,
        grows: false,
        ranks: false,
    };
    turn.world.live.clusters.insert(cluster.clone(), live);
    reserved::restore_reservations(turn.world, cluster);
    offers::withdraw_all(turn, cluster);
    if turn.world.config.planted.has(Bug::RecoveryResends) && turn.world.state.recovery().is_some() {
        for (uid, fence, offer) in stops::rights(turn, cluster) {
            turn.send(cluster, CommandRef::Grant(uid, offer, fence));
        }
    }
}

/// A joining cluster gets no offer before another member has acknowledged the list that names it: should this journal be
/// lost, somebody remembers whom to wait for.
pub(crate) fn admit_members(turn: &mut Turn<'_>, cluster: &ClusterName) {
    let Some(seen) = turn.world.live.clusters.get(cluster).map(|l| l.acknowledged_record) else {
        return;
    };
    let waiting: Vec<ClusterName> = turn
        .world
        .state
        .members()
        .iter()
        .filter(|(name, m)| *name != cluster && !m.admitted && m.since <= seen)
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

/// Whether a cluster may begin another session now. It may with a full budget spent, so that who said too much may still
/// start anew, and not with two.
pub(crate) fn may_begin(turn: &Turn<'_>, cluster: &ClusterName) -> bool {
    turn.world.live.clusters.get(cluster).is_none_or(|live| live.budget.spent(turn.now.mono) < 2 * BYTES_MAX)
}

/// A session is begun.
pub(crate) fn spend_session(turn: &mut Turn<'_>, cluster: &ClusterName) {
    budget::spend(turn, cluster, SESSION);
}
