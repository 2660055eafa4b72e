//! Leaderships: every one starts in recovery, unless the shell has shown that the journal is the one that was left.

use crate::config::Start;
use crate::dispatch::{offers, stops};
use crate::facts::actor::Actor;
use crate::facts::audit::{Action, Entry};
use crate::facts::end::EvictionCause;
use crate::facts::outcome::{Bodies, Outcome};
use crate::facts::record::{LeadershipFact, Record, WorkloadFact};
use crate::facts::submission::RecoveryStart;
use crate::placement::reservations::Reservations;
use crate::state::legs::leg::State as LegState;
use crate::state::workload::phase::Phase;
use crate::world::turn::Turn;
use crate::world::{Lease, World, gangs};
use meridian_shared::ids::{ClusterName, Fence, Leadership, OfferId, RecordNumber, Uid};
use meridian_shared::lease::{ManagerLease, TERM_MAX};
use meridian_shared::planted::Bug;
use meridian_shared::protocol::OnLoss;
use meridian_shared::time::{Millis, Mono};
use std::collections::{BTreeMap, BTreeSet};

/// While recovery is open, how often a pass looks for workloads that their own term has released.
const RELEASE_EVERY: Millis = Millis::secs(1);

impl World {
    /// Begins a leadership on what was replayed. The outcome must be committed before anything is answered.
    pub fn lead(&mut self, start: Start, bodies: &dyn Bodies) -> Outcome {
        let leadership = Leadership { epoch: self.state.leadership().epoch + 1, id: start.id };
        let mut turn = Turn::new(self, start.now, bodies);
        let recovery = if start.fresh { None } else { start.recovery };
        let copy = recovery.as_ref().is_some_and(|r| r.restored || r.members_unknown);
        take_the_lead(&mut turn, leadership, recovery, Vec::new(), BTreeSet::new());
        if copy {
            // Rules may have been tightened since; whoever could show that may be cut off.
            doubt_rules(&mut turn);
        }
        turn.finish()
    }

    /// Every record up to this one is durable.
    pub fn durable(&mut self, through: RecordNumber) {
        self.live.released_leases.retain(|_, (_, at)| *at > through);
    }

    /// After a failed commit: this world was read back, and goes on leading where `before` did, whose claim never expired. It
    /// counts leases as that one did, which knows of every answer that was ever composed.
    pub fn go_on_from(&mut self, before: &Self) {
        self.live.claim_until = before.live.claim_until;
        self.live.deadlines =
            before.live.released_leases.iter().map(|(fence, (deadline, _))| (*fence, *deadline)).collect();
        self.live
            .deadlines
            .extend(before.live.leases.iter().map(|(fence, lease)| (*fence, lease.lease.deadline)));
    }
}

/// A new leadership, at the start or because an agent follows a newer one.
pub(crate) fn take_the_lead(
    turn: &mut Turn<'_>,
    leadership: Leadership,
    recovery: Option<RecoveryStart>,
    foreign: Vec<(Leadership, RecordNumber)>,
    members: BTreeSet<ClusterName>,
) {
    let recovering = recovery.is_some();
    turn.record(Record::Leadership(LeadershipFact::Started {
        leadership,
        at: turn.now.wall,
        recovery,
        foreign,
    }));
    let reservations = Reservations::remembered(&turn.world.state.displaced(), turn.now);
    let live = &mut turn.world.live;
    let finished = std::mem::take(&mut live.finished);
    let claim_until = live.claim_until;
    let known = std::mem::take(&mut live.deadlines);
    let counts = std::mem::take(&mut live.counts);
    *live = crate::world::Live {
        led_at: turn.now.mono,
        sole_since: turn.now.mono,
        claim_until,
        finished,
        counts,
        dirty: true,
        reservations,
        ..crate::world::Live::default()
    };
    for (uid, until) in backing_off(turn) {
        turn.world.live.backoff_until.insert(uid, until);
        turn.world.mirror.touch(uid);
    }
    if recovering || turn.world.state.recovery().is_some() {
        turn.world.live.awaited = turn.world.state.members().keys().cloned().chain(members).collect();
    }
    close_open_legs(turn);
    count_every_lease(turn, &known);
    // With nobody to wait for and nothing that could still run, recovery has nothing to find out.
    maybe_close(turn);
}

/// Who lost its nodes and rests, as the journal knows it: what is left of its time counts from now.
fn backing_off(turn: &Turn<'_>) -> Vec<(Uid, Mono)> {
    let rest = |(uid, workload): (&Uid, &crate::state::workload::Workload)| {
        let lost = workload.phase() == Phase::Pending
            && workload.evicted().is_some_and(|evicted| evicted.cause == EvictionCause::NodeFailures);
        let stay = workload.history().last().filter(|_| lost)?;
        let left =
            workload.backoff_after_node_loss(stay.fence).saturating_sub(turn.now.wall.since(stay.over?));
        (left > Millis(0)).then_some((*uid, turn.now.mono + left))
    };
    turn.world.state.workloads().iter().filter_map(rest).collect()
}

fn doubt_rules(turn: &mut Turn<'_>) {
    let seen = turn.world.state.rules_doubted().unwrap_or(turn.world.state.rules());
    turn.record(Record::Leadership(LeadershipFact::RulesDoubted { seen }));
}

/// Offers and holds die with the leadership that made them; the next inventories clear what agents still hold.
fn close_open_legs(turn: &mut Turn<'_>) {
    let open: Vec<(Uid, OfferId)> = turn
        .world
        .state
        .workloads()
        .iter()
        .filter(|(_, w)| matches!(w.phase(), Phase::Reserved | Phase::Dispatching))
        .flat_map(|(uid, w)| w.legs().keys().map(move |o| (*uid, *o)))
        .collect();
    for (uid, offer) in &open {
        turn.record_workload(*uid, WorkloadFact::Withdrawn { offer: *offer });
    }
    let uids: Vec<Uid> = turn
        .world
        .state
        .workloads()
        .iter()
        .filter(|(_, w)| matches!(w.phase(), Phase::Reserved | Phase::Dispatching))
        .map(|(u, _)| *u)
        .collect();
    for uid in uids {
        offers::after_leg(turn, uid);
    }
}

/// Every lease counts in full from now, but for those of which this very process knows when they end: nobody else has
/// renewed them.
fn count_every_lease(turn: &mut Turn<'_>, known: &BTreeMap<Fence, Mono>) {
    let now = turn.now.mono;
    let forget = turn.world.config.planted.has(Bug::RestartForgetsLeases);
    let rights: Vec<(Uid, Fence, Lease)> = turn
        .world
        .state
        .workloads()
        .iter()
        .filter_map(|(uid, w)| {
            let (_, leg) = w.right()?;
            let mut lease = ManagerLease::from_composed(now, w.term());
            if let Some(deadline) = leg.fence.and_then(|fence| known.get(&fence)) {
                lease.deadline = *deadline;
            }
            if forget {
                lease.deadline = now;
            }
            let start_by = now + gangs::start_timeout(turn.world, turn.world.queues.class(w.class()));
            Some((
                *uid,
                leg.fence?,
                Lease { uid: *uid, lease, composed: None, first: Some(Mono(0)), start_by },
            ))
        })
        .collect();
    for (_, fence, lease) in rights {
        turn.world.live.due = turn.world.live.due.min(lease.lease.deadline).min(lease.start_by);
        turn.world.live.leases.insert(fence, lease);
    }
}

/// Recovery ends when every known cluster has sent its complete inventory to this leadership.
pub(crate) fn maybe_close(turn: &mut Turn<'_>) {
    let Some(recovery) = &turn.world.state.recovery() else { return };
    // A copy from before anybody joined knows of nobody to wait for, and that isn't the same as nobody.
    let nobody_known = turn.world.state.behind() && turn.world.state.members().is_empty();
    if !recovery.members_unknown && !nobody_known && turn.world.live.awaited.is_empty() {
        close_recovery(turn, Actor::System);
    }
}

/// An operator's word that no other copy of this journal leads. It says nothing about clusters: workloads of earlier
/// leaderships stay held until every awaited cluster has reported its inventory, their own lease has lapsed from now (`Fence`),
/// or the missing clusters are declared lost.
pub(crate) fn rule_out_copies(turn: &mut Turn<'_>, by: &Actor) {
    let copy = turn.world.state.recovery().is_some_and(|recovery| recovery.restored);
    turn.record(Record::Leadership(LeadershipFact::CopiesRuledOut { by: by.clone() }));
    if copy {
        // Until now another copy may have granted or renewed.
        turn.world.live.sole_since = turn.now.mono;
        turn.world.live.leases.values_mut().for_each(|lease| lease.lease.compose(turn.now.mono));
        turn.world.live.due = turn.now.mono;
    }
    maybe_close(turn);
    turn.capacity_changed();
}

pub(crate) fn close_recovery(turn: &mut Turn<'_>, by: Actor) {
    let copy = turn.world.state.recovery().as_ref().is_some_and(|r| r.restored);
    let entry = Entry::new(Action::RecoveryClosed, turn.world.state.leadership().to_string());
    turn.record(Record::Leadership(LeadershipFact::RecoveryClosed { by: by.clone() }));
    turn.audit(by, entry);
    turn.world.live.awaited.clear();
    if copy {
        // Until now the original may have renewed what this copy only knows of.
        turn.world.live.leases.values_mut().for_each(|l| l.lease.compose(turn.now.mono));
        turn.world.live.due = turn.now.mono;
    }
    stop_unconfirmed(turn);
    turn.capacity_changed();
}

/// Grants of earlier leaderships that no inventory showed are never sent again: their clusters are asked to bury them.
fn stop_unconfirmed(turn: &mut Turn<'_>) {
    let unseen: Vec<(Uid, Fence)> = turn
        .world
        .state
        .workloads()
        .iter()
        .filter(|(_, w)| w.phase() == Phase::Granted)
        .filter_map(|(uid, w)| {
            w.right()
                .filter(|(_, l)| !l.accepted && l.state == LegState::Granted)
                .and_then(|(_, l)| l.fence)
                .map(|f| (*uid, f))
        })
        .filter(|(_, f)| f.leadership != turn.world.state.leadership().id)
        .collect();
    for (uid, fence) in unseen {
        stops::order_stop(
            turn,
            uid,
            fence,
            meridian_shared::protocol::StopReason::Superseded,
            &Actor::System,
        );
    }
}

/// Where a person need not be asked, the longest term that any run could have closes recovery.
pub(crate) fn recovery_by_time(turn: &mut Turn<'_>) {
    let Some(recovery) = &turn.world.state.recovery() else { return };
    if recovery.restored {
        return;
    }
    let since_sole = turn.world.live.sole_since;
    let now = turn.now.mono;
    // Each workload is released by its own term; a pass is due whenever one more is.
    let since = turn.world.state.led_since();
    let released = |w: &crate::state::workload::Workload| {
        w.on_loss() == OnLoss::Fence && ManagerLease::from_composed(since_sole, w.term()).lapsed(now)
    };
    let old = |w: &crate::state::workload::Workload| w.submitted() < since && w.phase() != Phase::Finished;
    let workloads = &turn.world.state.workloads();
    let over = if recovery.members_unknown {
        // There may be runs that nobody here knows of.
        ManagerLease::from_composed(since_sole, TERM_MAX).lapsed(now)
    } else {
        !workloads.any(|w| old(w) && !released(w))
            && ManagerLease::from_composed(since_sole, turn.world.config.term).lapsed(now)
    };
    if over {
        close_recovery(turn, Actor::System);
    } else if now >= turn.world.live.released_at {
        turn.world.live.released_at = now + RELEASE_EVERY;
        let mut outside = turn.world.mirror.outside().filter_map(|uid| workloads.get(uid));
        turn.world.live.dirty |=
            outside.any(|w| old(w) && w.waits() && w.inactive().is_none() && released(w));
    }
}
