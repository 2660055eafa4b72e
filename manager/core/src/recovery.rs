//! Leaderships: every one starts in recovery, unless the shell has shown that the journal is the one that was left.

use crate::absorb::NODE_FAILURES;
use crate::audit::Entry;
use crate::giving_way::GivingWay;
use crate::input::{Actor, Bodies, Outcome};
use crate::leg::State as LegState;
use crate::record::{Record, RecoveryStart};
use crate::turn::Turn;
use crate::workload::Phase;
use crate::{Lease, Start, World, system};
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
        let leadership = Leadership { epoch: self.state.leadership.epoch + 1, id: start.id };
        let mut turn = Turn::new(self, start.now, bodies);
        let recovery = if start.fresh { None } else { start.recovery };
        let copy = recovery.as_ref().is_some_and(|r| r.restored || r.members_unknown);
        turn.take_the_lead(leadership, recovery, Vec::new(), BTreeSet::new());
        if copy {
            // Rules may have been tightened since; whoever could show that may be cut off.
            turn.doubt_rules();
        }
        turn.finish()
    }

    /// Every record up to this one is durable.
    pub fn durable(&mut self, through: RecordNumber) {
        self.live.let_go.retain(|_, (_, at)| *at > through);
    }

    /// After a failed commit: this world was read back, and goes on leading where `before` did, whose claim never expired. It
    /// counts leases as that one did, which knows of every answer that was ever composed.
    pub fn go_on_from(&mut self, before: &Self) {
        self.live.claim_until = before.live.claim_until;
        self.live.deadlines =
            before.live.let_go.iter().map(|(fence, (deadline, _))| (*fence, *deadline)).collect();
        self.live
            .deadlines
            .extend(before.live.leases.iter().map(|(fence, lease)| (*fence, lease.lease.deadline)));
    }
}

impl Turn<'_> {
    /// A new leadership, at the start or because an agent follows a newer one.
    pub(crate) fn take_the_lead(
        &mut self,
        leadership: Leadership,
        recovery: Option<RecoveryStart>,
        foreign: Vec<(Leadership, RecordNumber)>,
        members: BTreeSet<ClusterName>,
    ) {
        let recovering = recovery.is_some();
        self.record(Record::Led { leadership, at: self.now.wall, recovery, foreign });
        let giving_way = GivingWay::remembered(&self.world.state.displaced, self.now);
        let live = &mut self.world.live;
        let finished = std::mem::take(&mut live.finished);
        let claim_until = live.claim_until;
        let known = std::mem::take(&mut live.deadlines);
        let counts = std::mem::take(&mut live.counts);
        *live = crate::Live {
            led_at: self.now.mono,
            claim_until,
            finished,
            counts,
            dirty: true,
            giving_way,
            ..crate::Live::default()
        };
        for (uid, until) in self.resting() {
            self.world.live.not_before.insert(uid, until);
            self.world.deciding.touch(uid);
        }
        if recovering || self.world.state.recovery.is_some() {
            self.world.live.awaited = self.world.state.members.keys().cloned().chain(members).collect();
        }
        self.close_open_legs();
        self.count_every_lease(&known);
        // With nobody to wait for and nothing that could still run, recovery has nothing to find out.
        self.maybe_close();
    }

    /// Who lost its nodes and rests, as the journal knows it: what is left of its time counts from now.
    fn resting(&self) -> Vec<(Uid, Mono)> {
        let rest = |(uid, workload): (&Uid, &crate::Workload)| {
            let lost = workload.phase == Phase::Pending
                && workload.evicted.as_ref().is_some_and(|evicted| evicted.reason == NODE_FAILURES);
            let stay = workload.history.last().filter(|_| lost)?;
            let left = workload.rest_after_loss(stay.fence).saturating_sub(self.now.wall.since(stay.over?));
            (left > Millis(0)).then_some((*uid, self.now.mono + left))
        };
        self.world.state.workloads.iter().filter_map(rest).collect()
    }

    fn doubt_rules(&mut self) {
        let seen = self.world.state.rules_doubted.unwrap_or(self.world.state.rules);
        self.record(Record::RulesDoubted { seen });
    }

    /// Offers and holds die with the leadership that made them; the next inventories clear what agents still hold.
    fn close_open_legs(&mut self) {
        let open: Vec<(Uid, OfferId)> = self
            .world
            .state
            .workloads
            .iter()
            .filter(|(_, w)| matches!(w.phase, Phase::Reserved | Phase::Dispatching))
            .flat_map(|(uid, w)| w.legs.keys().map(move |o| (*uid, *o)))
            .collect();
        for (uid, offer) in &open {
            self.record(Record::Withdrawn { uid: *uid, offer: *offer });
        }
        let uids: Vec<Uid> = self
            .world
            .state
            .workloads
            .iter()
            .filter(|(_, w)| matches!(w.phase, Phase::Reserved | Phase::Dispatching))
            .map(|(u, _)| *u)
            .collect();
        for uid in uids {
            self.after_leg(uid);
        }
    }

    /// Every lease counts in full from now, but for those of which this very process knows when they end: nobody else has
    /// renewed them.
    fn count_every_lease(&mut self, known: &BTreeMap<Fence, Mono>) {
        let now = self.now.mono;
        let forget = self.world.config.planted.has(Bug::RestartForgetsLeases);
        let rights: Vec<(Uid, Fence, Lease)> = self
            .world
            .state
            .workloads
            .iter()
            .filter_map(|(uid, w)| {
                let (_, leg) = World::right(w)?;
                let mut lease = ManagerLease::from_composed(now, w.term);
                if let Some(deadline) = leg.fence.and_then(|fence| known.get(&fence)) {
                    lease.deadline = *deadline;
                }
                if forget {
                    lease.deadline = now;
                }
                let start_by = now + self.world.start_timeout(self.world.queues.class(w.class));
                Some((
                    *uid,
                    leg.fence?,
                    Lease { uid: *uid, lease, composed: None, first: Some(Mono(0)), start_by },
                ))
            })
            .collect();
        for (_, fence, lease) in rights {
            self.world.live.due = self.world.live.due.min(lease.lease.deadline).min(lease.start_by);
            self.world.live.leases.insert(fence, lease);
        }
    }

    /// Recovery ends when every known cluster has sent its complete inventory to this leadership.
    pub(crate) fn maybe_close(&mut self) {
        let Some(recovery) = &self.world.state.recovery else { return };
        // A copy from before anybody joined knows of nobody to wait for, and that isn't the same as nobody.
        let nobody_known = self.world.state.behind && self.world.state.members.is_empty();
        if !recovery.members_unknown && !nobody_known && self.world.live.awaited.is_empty() {
            self.close_recovery(system());
        }
    }

    pub(crate) fn close_recovery(&mut self, by: Actor) {
        let copy = self.world.state.recovery.as_ref().is_some_and(|r| r.restored);
        let entry = Entry {
            action: "recovery-closed".into(),
            subject: self.world.state.leadership.to_string(),
            cluster: None,
            verdict: None,
            rule: None,
            detail: None,
        };
        self.record(Record::RecoveryClosed { by: by.clone() });
        self.audit(by, entry);
        self.world.live.awaited.clear();
        if copy {
            // Until now the original may have renewed what this copy only knows of.
            self.world.live.leases.values_mut().for_each(|l| l.lease.compose(self.now.mono));
            self.world.live.due = self.now.mono;
        }
        self.stop_unconfirmed();
        self.stir();
    }

    /// Grants of earlier leaderships that no inventory showed are never sent again: their clusters are asked to bury them.
    fn stop_unconfirmed(&mut self) {
        let unseen: Vec<(Uid, Fence)> = self
            .world
            .state
            .workloads
            .iter()
            .filter(|(_, w)| w.phase == Phase::Granted)
            .filter_map(|(uid, w)| {
                World::right(w)
                    .filter(|(_, l)| !l.accepted && l.state == LegState::Granted)
                    .and_then(|(_, l)| l.fence)
                    .map(|f| (*uid, f))
            })
            .filter(|(_, f)| f.leadership != self.world.state.leadership.id)
            .collect();
        for (uid, fence) in unseen {
            self.order_stop(uid, fence, meridian_shared::protocol::StopReason::Superseded, &system());
        }
    }

    /// Where a person need not be asked, the longest term that any run could have closes recovery.
    pub(crate) fn recovery_by_time(&mut self) {
        let Some(recovery) = &self.world.state.recovery else { return };
        if recovery.restored {
            return;
        }
        let led_at = self.world.live.led_at;
        let now = self.now.mono;
        // Each workload is released by its own term; a pass is due whenever one more is.
        let since = self.world.state.led_since;
        let released = |w: &crate::Workload| {
            w.on_loss == OnLoss::Fence && ManagerLease::from_composed(led_at, w.term).lapsed(now)
        };
        let old = |w: &crate::Workload| w.submitted < since && w.phase != Phase::Finished;
        let workloads = &self.world.state.workloads;
        let over = if recovery.members_unknown {
            // There may be runs that nobody here knows of.
            ManagerLease::from_composed(led_at, TERM_MAX).lapsed(now)
        } else {
            !workloads.any(|w| old(w) && !released(w))
                && ManagerLease::from_composed(led_at, self.world.config.term).lapsed(now)
        };
        if over {
            self.close_recovery(system());
        } else if now >= self.world.live.released_at {
            self.world.live.released_at = now + RELEASE_EVERY;
            let mut outside = self.world.deciding.outside().filter_map(|uid| workloads.get(uid));
            self.world.live.dirty |=
                outside.any(|w| old(w) && w.waits() && w.inactive.is_none() && released(w));
        }
    }
}
