//! The manager's half of a sync with one agent: take its news, journal them, compose the answer.
//!
//! Composing answers and deciding lapses happen in one turn of one loop, so that no lease is renewed after it was called
//! lapsed. Every rule about a send is judged here, first time or repeated.

use crate::absorb::{LAPSED, UNKNOWN};
use crate::audit::Entry;
use crate::bounds::LEDGERS_REPLACED_MAX;
use crate::budget::Budget;
use crate::carried::Carried;
use crate::input::{Actor, Reply};
use crate::leg::{Answer, Event as LegEvent, State as LegState, step};
use crate::outbox::{Outbox, Said};
use crate::record::Record;
use crate::rooms::Rooms;
use crate::turn::Turn;
use crate::workload::Phase;
use crate::{LiveCluster, World, residency, system};
use meridian_shared::ids::{ClusterName, Fence, Leadership, LedgerId, OfferId, Session, Uid};
use meridian_shared::lease;
use meridian_shared::planted::Bug;
use meridian_shared::protocol::{
    COMMANDS_BYTES_MAX, COMMANDS_MAX, Command, Digest, End, EndResult, Event, Grant, GrantRefusal, Offer,
    OnLoss, Proof, RENEWALS_MAX, RUNS_MAX, Receipt, RefuseReason, Size, StopReason, SyncAnswer, SyncRefusal,
    SyncRequest, SyncResponse, VERSION, VERSIONS,
};
use meridian_shared::protocol::{clean, grant_message};
use meridian_shared::time::{Millis, Mono};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Largest number that an event may have: no agent lives long enough, and sums of such numbers never overflow.
const NUMBER_MAX: u64 = u64::MAX / 4;
/// Ends acknowledged in one answer at most.
const ACKNOWLEDGED_MAX: usize = 1_024;
/// Ends that wait to be acknowledged at most, more than may come at once from a whole cluster; of those beyond, the next
/// inventory speaks again.
const ACKNOWLEDGE_MAX: usize = 4 * RUNS_MAX;
/// Ranges named in one answer at most, the newest.
const RANGES_MAX: usize = 64;

impl World {
    /// Whether there is something to say to a cluster's agent.
    pub fn owes(&self, cluster: &ClusterName, now: Mono) -> bool {
        let Some(live) = self.live.clusters.get(cluster) else { return true };
        live.want_inventory
            || !live.acknowledge.is_empty()
            // Somebody must have heard the name of who joins. That the answer with it was taken isn't always shown at once: one more
            // shows it, and nobody waits for the time of a poll.
            || self.state.members.iter().any(|(name, member)| name != cluster && !member.admitted && member.since > live.acknowledged_record)
            || live.outbox.due(now)
            || (now >= live.renew_at && self.loads.get(cluster).is_some_and(|l| !l.is_empty()))
    }
}

impl Turn<'_> {
    pub(crate) fn sync(&mut self, cluster: ClusterName, request: SyncRequest, may_park: bool) {
        if let Err(refusal) = self.admit(&cluster, &request) {
            return self.reply(Reply::Sync(Box::new(SyncAnswer::Refused(refusal))));
        }
        let now = self.now.mono;
        let mut request = request;
        let follows_us = request.follows == Some(self.world.state.leadership);
        if !follows_us {
            // Commands are numbered per leadership, and what was taken of an earlier one's answers says nothing of ours.
            (request.answered, request.commands_through) = (0, 0);
            if let Some(capacity) = &mut request.capacity {
                capacity.after_command = 0;
            }
        }
        let live = self.world.live.clusters.get_mut(&cluster).expect("admitted sessions are live");
        let returned = now.since(live.heard) >= lease::silence(self.world.config.term_min);
        live.heard = now;
        (live.shrinks, live.grows, live.ranks) = (request.shrinks, request.grows, request.ranks);
        if request.answered > live.answered {
            live.answered = request.answered;
            live.acknowledged = now;
        }
        live.heed_answered(request.answered);
        live.outbox.acknowledge(request.commands_through, now);
        let stale = request.commands_through < live.outbox.acknowledged()
            || request.events_last < live.events_through;
        if returned {
            self.stir();
        }
        self.admit_members(&cluster);
        self.take_events(&cluster, request.events_from, request.events.clone());
        self.take_spare(&cluster, std::mem::take(&mut request.spare));
        // What an older transmission shows must not be held against commands that were taken since, nor against what was told since:
        // a run that has ended, and whose job is forgotten, would look like one that nobody knows.
        if let Some(inventory) = request.inventory.clone().filter(|_| !stale && !self.is_spent(&cluster)) {
            self.take_inventory(&cluster, request.ledger, request.commands_through, inventory);
            if !self.world.live.clusters.contains_key(&cluster) {
                // Its receipts made us take a higher epoch: every session begins anew.
                return self.reply(Reply::Sync(Box::new(SyncAnswer::Refused(SyncRefusal::NotLeading))));
            }
        }
        if let Some(capacity) = request.capacity.clone() {
            self.take_capacity(&cluster, capacity);
        }
        if follows_us {
            self.compare_digest(&cluster, &request);
        }
        if may_park {
            return self.reply(Reply::Park);
        }
        self.answer(&cluster, request.session, request.transmission);
    }

    pub(crate) fn unpark(&mut self, cluster: ClusterName, session: Session, transmission: u64) {
        if !self.claims() {
            return self.reply(Reply::Sync(Box::new(SyncAnswer::Refused(SyncRefusal::NotLeading))));
        }
        match self.world.live.clusters.get(&cluster) {
            Some(live) if live.session == session => self.answer(&cluster, session, transmission),
            Some(live) => {
                let by = live.session;
                self.reply(Reply::Sync(Box::new(SyncAnswer::Refused(SyncRefusal::Superseded { by }))));
            }
            None => self.reply(Reply::Sync(Box::new(SyncAnswer::Refused(SyncRefusal::NotLeading)))),
        }
    }

    pub(crate) fn claims(&self) -> bool {
        self.now.mono < self.world.live.claim_until || self.world.config.planted.has(Bug::AnswersWithoutClaim)
    }

    /// Whether this request may be taken at all; opens its session if it is new.
    fn admit(&mut self, cluster: &ClusterName, request: &SyncRequest) -> Result<(), SyncRefusal> {
        if !self.claims() {
            return Err(SyncRefusal::NotLeading);
        }
        if !VERSIONS.contains(&request.version) {
            return Err(SyncRefusal::Version { oldest: *VERSIONS.start(), newest: *VERSIONS.end() });
        }
        if self.world.state.catalog.cluster(cluster).is_none() {
            return Err(SyncRefusal::UnknownCluster);
        }
        if request.events_from == 0
            || request.events_from > NUMBER_MAX
            || request.events.len() > meridian_shared::protocol::EVENTS_MAX
        {
            return Err(SyncRefusal::Malformed("events are numbered from 1 and bounded in number".into()));
        }
        let ours = self.world.state.leadership;
        if let Some(follows) = request.follows
            && (follows.epoch > ours.epoch || (follows.epoch == ours.epoch && follows.id != ours.id))
        {
            return self.stand_above(request, follows);
        }
        self.open_session(cluster, request.ledger, request.session)?;
        if let Some(live) = self.world.live.clusters.get_mut(cluster) {
            live.version = request.version;
        }
        Ok(())
    }

    /// An agent follows a newer leadership. Shown with our own code, it makes us take a higher epoch and collect again.
    fn stand_above(&mut self, request: &SyncRequest, follows: Leadership) -> Result<(), SyncRefusal> {
        let receipts = request.inventory.as_ref().map(|i| i.receipts.as_slice()).unwrap_or_default();
        let shown: Vec<(Leadership, meridian_shared::ids::RecordNumber)> =
            self.foreign(receipts).into_iter().map(|(l, r)| (l, r.record)).collect();
        if shown.iter().any(|(l, _)| *l == follows) {
            self.above(shown, receipts);
        }
        Err(SyncRefusal::NewerLeadership { follows })
    }

    fn open_session(
        &mut self,
        cluster: &ClusterName,
        ledger: LedgerId,
        session: Session,
    ) -> Result<(), SyncRefusal> {
        let known =
            self.world.state.members.get(cluster).map(|m| (m.ledger, m.session, m.lost.contains(&ledger)));
        let newer = match known {
            None => true,
            Some((_, _, true)) => return Err(SyncRefusal::LedgerLost),
            Some((has, _, false)) if has != ledger => true,
            Some((_, has, false)) if session.counter > has.counter => true,
            Some((_, has, false)) if session == has => false,
            Some((_, by, false)) => return Err(SyncRefusal::Superseded { by }),
        };
        if newer {
            if !self.may_begin(cluster) {
                self.world.live.counts.put_off += 1;
                return Err(SyncRefusal::Malformed(
                    "its cluster begins too many sessions: try again in a moment".into(),
                ));
            }
            if self.world.state.members.get(cluster).is_some_and(|member| !member.may_replace(ledger)) {
                let words = format!(
                    "its cluster has replaced its ledger {LEDGERS_REPLACED_MAX} times, and each is remembered: join under another name"
                );
                return Err(SyncRefusal::Malformed(words));
            }
            self.spend_session(cluster);
            let replaced = known.is_some_and(|(has, _, _)| has != ledger);
            self.record(Record::SessionOpened { cluster: cluster.clone(), ledger, session });
            if known.is_none() {
                if self.world.state.recovery.is_some() {
                    // A journal that is older than it looks may have forgotten this cluster, and what runs there.
                    self.world.live.awaited.insert(cluster.clone());
                }
                // The others must hear its name.
                self.out.wake.extend(self.world.live.clusters.keys().cloned());
            }
            if replaced && self.world.config.planted.has(Bug::NewLedgerFrees) {
                self.free_all(cluster);
            }
        }
        if newer || self.world.live.clusters.get(cluster).is_none_or(|l| l.session != session) {
            self.begin(cluster, session);
        }
        Ok(())
    }

    fn free_all(&mut self, cluster: &ClusterName) {
        let rights: Vec<(Uid, Fence)> = self.rights(cluster).into_iter().map(|(u, f, _)| (u, f)).collect();
        for (uid, fence) in rights {
            self.record(Record::Lapsed { uid, fence, at: self.now.wall, declared: false, by: None });
            self.freed(uid, fence);
        }
    }

    /// A session that this leadership hasn't talked to: its holds are unknown, so open legs there are asked anew.
    fn begin(&mut self, cluster: &ClusterName, session: Session) {
        let now = self.now.mono;
        let old = self.world.live.clusters.remove(cluster);
        let live = LiveCluster {
            session,
            version: VERSION,
            heard: now,
            acknowledged: now,
            answered: 0,
            events_through: 0,
            carried: BTreeMap::new(),
            acknowledged_record: meridian_shared::ids::RecordNumber(0),
            inventoried: false,
            want_inventory: true,
            renew_at: now,
            digest_at: now,
            outbox: Outbox::default(),
            acknowledge: BTreeMap::new(),
            rooms: Rooms::default(),
            budget: old.as_ref().map_or_else(Budget::default, |o| o.budget),
            failed_starts: old.as_ref().map_or(0, |o| o.failed_starts),
            failed_last: old.as_ref().and_then(|o| o.failed_last),
            backed_off: old.map_or(Mono(0), |o| o.backed_off),
            located: None,
            shrinks: false,
            grows: false,
            ranks: false,
        };
        self.world.live.clusters.insert(cluster.clone(), live);
        self.world.keep_room_again(cluster);
        self.withdraw_all(cluster);
        if self.world.config.planted.has(Bug::RecoveryResends) && self.world.state.recovery.is_some() {
            for (uid, fence, offer) in self.rights(cluster) {
                self.say(cluster, Said::Grant(uid, offer, fence));
            }
        }
    }

    /// Takes every open question to a cluster back.
    pub(crate) fn withdraw_all(&mut self, cluster: &ClusterName) {
        let open: Vec<(Uid, OfferId)> = self
            .world
            .loads
            .get(cluster)
            .into_iter()
            .flatten()
            .filter_map(|(uid, _)| self.world.state.workloads.get(uid).map(|w| (*uid, w)))
            .flat_map(|(uid, w)| {
                w.legs
                    .iter()
                    .filter(|(_, l)| l.cluster == *cluster && l.state.open())
                    .map(move |(o, _)| (uid, *o))
            })
            .collect();
        for (uid, offer) in open {
            self.withdraw(uid, offer);
            self.after_leg(uid);
        }
    }

    /// A joining cluster gets no offer before another member has acknowledged the list that names it: should this journal be
    /// lost, somebody remembers whom to wait for.
    fn admit_members(&mut self, cluster: &ClusterName) {
        let Some(seen) = self.world.live.clusters.get(cluster).map(|l| l.acknowledged_record) else { return };
        let waiting: Vec<ClusterName> = self
            .world
            .state
            .members
            .iter()
            .filter(|(name, m)| *name != cluster && !m.admitted && m.since <= seen)
            .map(|(name, _)| name.clone())
            .collect();
        for name in waiting {
            self.record(Record::MemberAdmitted { cluster: name, by: crate::input::Actor::agent(cluster) });
            self.stir();
        }
    }

    /// Attempts that this cluster may have the right to run.
    pub(crate) fn rights(&self, cluster: &ClusterName) -> Vec<(Uid, Fence, OfferId)> {
        let uids = self.world.loads.get(cluster).into_iter().flatten().map(|(uid, _)| *uid);
        uids.filter_map(|uid| {
            let (offer, leg) = World::right(self.world.state.workloads.get(&uid)?)?;
            (leg.cluster == *cluster).then_some((uid, leg.fence?, offer))
        })
        .collect()
    }

    fn take_events(&mut self, cluster: &ClusterName, from: u64, events: Vec<Event>) {
        let live = self.world.live.clusters.get_mut(cluster).expect("admitted sessions are live");
        // What stands before the first was acknowledged, by us or by an earlier leadership: it is not ours to miss.
        live.events_through = live.events_through.max(from - 1);
        for (number, event) in (from..).zip(events) {
            let live = self.world.live.clusters.get(cluster).expect("admitted sessions are live");
            if number != live.events_through + 1 {
                continue;
            }
            if self.is_put_off(cluster, &event) {
                break;
            }
            self.world.live.clusters.get_mut(cluster).expect("admitted sessions are live").events_through =
                number;
            self.take_event(cluster, event);
        }
    }

    fn take_event(&mut self, cluster: &ClusterName, event: Event) {
        match event {
            Event::Held { offer, uid } => self.on_held(cluster, offer, uid),
            Event::Waiting { offer, uid, reason, estimate } => {
                self.on_waiting(cluster, (offer, uid), clean(&reason), estimate)
            }
            Event::Refused { offer, uid, reason, text } => {
                self.on_refused(cluster, offer, uid, reason, &text)
            }
            Event::Gone { offer, uid, expired } => {
                let open = matches!(self.leg_answer(cluster, uid, offer, LegEvent::Expired), Answer::To(_));
                if open {
                    self.record(Record::Expired { uid, offer });
                    self.spend(cluster, 0);
                    self.over(cluster, offer);
                    if expired && self.held_back(uid).is_none() {
                        self.failed_start(uid, cluster);
                    }
                    self.after_leg(uid);
                }
            }
            Event::Accepted { uid, fence, placement } => {
                match self.own_leg(cluster, uid, fence).map(|l| l.accepted) {
                    Some(false) => self.accepted(uid, fence, placement),
                    Some(true) => self.take_placement(cluster, (uid, fence), placement),
                    None => self.stray(cluster, uid, fence),
                }
            }
            Event::GrantRefused { uid, fence, why } => self.on_grant_refused(cluster, uid, fence, &why),
            Event::Running { uid, fence, placement } => {
                match self.own_leg(cluster, uid, fence).map(|l| step(l.state, LegEvent::Running)) {
                    Some(Answer::To(LegState::Running)) => {
                        self.record(Record::Running { uid, fence, at: self.now.wall });
                        self.started(uid, cluster);
                        self.take_placement(cluster, (uid, fence), placement);
                    }
                    Some(_) => self.take_placement(cluster, (uid, fence), placement),
                    None => self.stray(cluster, uid, fence),
                }
            }
            Event::Grown { uid, fence, number } => self.on_grown(cluster, uid, fence, number),
            Event::NotGrown { uid, fence, number, reason, text } => {
                self.on_not_grown(cluster, (uid, fence), number, (reason, &text))
            }
            Event::Ended(end) => self.on_ended(cluster, end),
        }
    }

    fn held_back(&self, uid: Uid) -> Option<()> {
        self.workload(uid).filter(|w| self.world.held_back(w, self.now.mono)).map(|_| ())
    }

    /// What the leg's machine says of an event, for a leg of this cluster; one that is gone is over.
    fn leg_answer(&self, cluster: &ClusterName, uid: Uid, offer: OfferId, event: LegEvent) -> Answer {
        match self.workload(uid).and_then(|w| w.legs.get(&offer)) {
            Some(leg) if leg.cluster == *cluster => step(leg.state, event),
            Some(_) => Answer::Illegal,
            None => step(LegState::Withdrawn, event),
        }
    }

    fn late(&mut self, cluster: &ClusterName, uid: Uid, offer: OfferId, answer: Answer) {
        match answer {
            Answer::Withdraw => {
                self.world.live.counts.late_holds += 1;
                self.object(cluster, Said::Withdraw(uid, offer));
            }
            Answer::Illegal => self.world.live.counts.illegal += 1,
            Answer::To(_) | Answer::Nothing => {}
        }
    }

    /// It waits for its provider, whose words and estimate may be others than before.
    fn on_waiting(
        &mut self,
        cluster: &ClusterName,
        (offer, uid): (OfferId, Uid),
        reason: String,
        estimate: Option<Millis>,
    ) {
        match self.leg_answer(cluster, uid, offer, LegEvent::Waiting) {
            Answer::To(_) => {
                let leg = self
                    .workload(uid)
                    .and_then(|w| w.legs.get(&offer))
                    .expect("the machine of that very leg has answered");
                let (known, state) = ((leg.note.as_ref(), leg.estimate), leg.state);
                if state == LegState::Waiting && known == (Some(&reason), estimate) {
                    return;
                }
                if state != LegState::Offered {
                    self.spend(cluster, reason.len());
                }
                self.record(Record::Waited { uid, offer, reason, estimate });
            }
            other => self.late(cluster, uid, offer, other),
        }
    }

    fn on_held(&mut self, cluster: &ClusterName, offer: OfferId, uid: Uid) {
        match self.leg_answer(cluster, uid, offer, LegEvent::Held) {
            Answer::To(_) => {
                self.record(Record::Held { uid, offer });
                self.grant(uid, offer);
            }
            other => self.late(cluster, uid, offer, other),
        }
    }

    fn on_refused(
        &mut self,
        cluster: &ClusterName,
        offer: OfferId,
        uid: Uid,
        reason: RefuseReason,
        text: &str,
    ) {
        if !matches!(self.leg_answer(cluster, uid, offer, LegEvent::Refused), Answer::To(_)) {
            return;
        }
        let text = clean(text);
        self.record(Record::Refused { uid, offer, reason, text: text.clone() });
        self.over(cluster, offer);
        let base = match reason {
            // An agent that was asked too much at once has answered most of it a moment later.
            RefuseReason::NoRoom | RefuseReason::StillRuns | RefuseReason::Overloaded => Millis(500),
            RefuseReason::NeverFits | RefuseReason::Unsupported => Millis::mins(1),
            RefuseReason::ProviderFailed => Millis::secs(5),
        };
        let tried = u32::try_from(offer.counter % 4).unwrap_or(0);
        let until =
            self.now.mono + meridian_shared::backoff::wait(base, Millis::mins(10), tried, offer.counter);
        self.world.live.refused.insert((uid, cluster.clone()), (until, reason, text));
        self.after_leg(uid);
    }

    fn over(&mut self, cluster: &ClusterName, offer: OfferId) {
        if let Some(live) = self.world.live.clusters.get_mut(cluster) {
            live.rooms.over(offer);
        }
    }

    /// The leg that exactly this fence names, if it was given to this cluster's present ledger: nothing else frees.
    pub(crate) fn own_leg(&self, cluster: &ClusterName, uid: Uid, fence: Fence) -> Option<&crate::Leg> {
        let ledger = self.world.state.members.get(cluster)?.ledger;
        let any = self.world.config.planted.has(Bug::AnyFenceFrees);
        let workload = self.workload(uid)?;
        let leg = workload
            .legs
            .values()
            .find(|l| l.fence == Some(fence))
            .or_else(|| any.then(|| World::right(workload).map(|(_, l)| l)).flatten())?;
        (any || (leg.cluster == *cluster && leg.ledger == ledger)).then_some(leg)
    }

    /// Somebody runs an attempt that isn't theirs to run any more.
    fn stray(&mut self, cluster: &ClusterName, uid: Uid, fence: Fence) {
        if self.workload(uid).is_some() && self.world.state.recovery.is_none() {
            self.object(cluster, Said::Stop(uid, fence, StopReason::Superseded));
        }
    }

    fn on_grant_refused(&mut self, cluster: &ClusterName, uid: Uid, fence: Fence, why: &GrantRefusal) {
        self.acknowledge(cluster, uid, fence);
        let Some(fence) = self.own_leg(cluster, uid, fence).and_then(|l| l.fence) else { return };
        let why = match why {
            GrantRefusal::StaleFence { known } => format!("a larger fence `{known}` is known there"),
            GrantRefusal::NoHold => "its hold had run out".into(),
            GrantRefusal::StillRuns { fence } => format!("attempt `{fence}` still runs there"),
            GrantRefusal::Lapsed => "it arrived after its lease had lapsed".into(),
        };
        self.audit(
            Actor::agent(cluster),
            Entry::denied("grant", uid, cluster, Some(format!("{fence}: {why}"))),
        );
        self.record(Record::GrantRefused { uid, fence, why });
        let until = self.now.mono + Millis(500);
        self.world.live.not_before.insert(uid, until);
        self.world.deciding.touch(uid);
        self.freed(uid, fence);
    }

    pub(crate) fn on_ended(&mut self, cluster: &ClusterName, end: End) {
        let end = End { result: end.result.cleaned(), ..end };
        self.acknowledge(cluster, end.uid, end.fence);
        if self.world.state.orphans.get(&(end.uid, end.fence)).is_some_and(|o| o.cluster == *cluster) {
            self.record(Record::OrphanGone {
                uid: end.uid,
                fence: end.fence,
                by: Some(Actor::agent(cluster)),
            });
        }
        let Some(fence) = self.own_leg(cluster, end.uid, end.fence).and_then(|l| l.fence) else {
            return self.learn_end(cluster, end);
        };
        let uid = end.uid;
        let result = end.result.clone();
        let unknown = end.proof.is_none();
        let retired = self.retire(uid, &result);
        // What it was to grow by may not have been told: then no report ever counts it (simulation seed 1795456614385635).
        if let Some(offer) = self.offer_of(uid, fence) {
            self.over(cluster, offer);
        }
        self.record(Record::Ended {
            uid,
            fence,
            result: end.result,
            pod_failures: end.pod_failures,
            ran: end.ran,
            at: self.now.wall,
            unknown,
        });
        let deleted = self.workload(uid).is_some_and(|w| w.deletion.is_some());
        match result {
            _ if deleted || retired => {}
            EndResult::Succeeded | EndResult::Failed { .. } => self.finish_as(uid, result),
            EndResult::NodeLost { .. } => {
                let rest = self.workload(uid).map_or(Millis(0), |workload| workload.rest_after_loss(fence));
                self.world.live.not_before.insert(uid, self.now.mono + rest);
                self.world.deciding.touch(uid);
            }
            EndResult::Stopped | EndResult::LeaseLapsed => {}
        }
        self.freed(uid, fence);
    }

    /// The end of an attempt that this journal never granted, because it is a copy from before, or that lapsed unheard: a job
    /// that is over by its own doing doesn't start again. Only our own code over that grant shows it; anybody could say that a job is over.
    fn learn_end(&mut self, cluster: &ClusterName, end: End) {
        let End { uid, fence, result, pod_failures, ran, proof } = end;
        let own_doing = matches!(result, EndResult::Succeeded | EndResult::Failed { .. });
        // An attempt whose end was written down has no other one: only a lapse says nothing of it, and an agent that knew nothing
        // of the grant, as on a copy of its ledger from before (simulation seed 107846).
        let says_nothing = |end: Option<&str>| matches!(end, Some(LAPSED | UNKNOWN));
        let open = |w: &crate::Workload| {
            w.history.iter().rev().find(|s| s.fence == fence).is_none_or(|s| says_nothing(s.end.as_deref()))
        };
        let news = |w: &crate::Workload| {
            w.finished.is_none()
                && w.deletion.is_none()
                && w.fence.is_none_or(|known| fence >= known)
                && open(w)
        };
        if !own_doing
            || !self.workload(uid).is_some_and(news)
            || !proof.is_some_and(|proof| self.proves(cluster, uid, fence, &proof))
        {
            return;
        }
        self.withdraw_open(uid);
        let at = self.now.wall;
        self.record(Record::EndLearned {
            uid,
            fence,
            cluster: cluster.clone(),
            result: result.clone(),
            pod_failures,
            ran,
            at,
        });
        match self.workload(uid).and_then(World::right).and_then(|(_, leg)| leg.fence) {
            Some(older) => self.order_stop(uid, older, StopReason::Superseded, &system()),
            None => self.finish_as(uid, result),
        }
        self.stir();
    }

    fn proves(&self, cluster: &ClusterName, uid: Uid, fence: Fence, proof: &Proof) -> bool {
        let Proof { offer, attempt, term, on_loss, mac } = proof;
        self.world.state.members.get(cluster).is_some_and(|member| {
            let message =
                grant_message(cluster, member.ledger, uid, fence, *offer, *attempt, *term, *on_loss);
            self.world.config.receipt_key.verify(&message, mac)
        })
    }

    /// Records how a job ended by its own doing.
    pub(crate) fn finish_as(&mut self, uid: Uid, result: EndResult) {
        let (succeeded, reason, message) = match result {
            EndResult::Succeeded => (true, "Completed".into(), "the job succeeded".into()),
            EndResult::Failed { reason, message } => (false, reason, message),
            EndResult::Stopped | EndResult::LeaseLapsed | EndResult::NodeLost { .. } => return,
        };
        self.record(Record::Finished { uid, succeeded, reason, message, at: self.now.wall });
    }

    fn acknowledge(&mut self, cluster: &ClusterName, uid: Uid, fence: Fence) {
        let number = self.world.state.last.next();
        if let Some(live) = self.world.live.clusters.get_mut(cluster)
            && (live.acknowledge.len() < ACKNOWLEDGE_MAX || live.acknowledge.contains_key(&(uid, fence)))
        {
            live.acknowledge.insert((uid, fence), number);
        }
    }

    fn take_capacity(&mut self, cluster: &ClusterName, capacity: meridian_shared::protocol::Capacity) {
        let live = self.world.live.clusters.get_mut(cluster).expect("admitted sessions are live");
        let moved = live.located != capacity.located;
        live.located.clone_from(&capacity.located);
        let never_fits = |(_, of): &(Uid, ClusterName), (_, reason, _): &(Mono, RefuseReason, String)| {
            of == cluster && *reason == RefuseReason::NeverFits
        };
        let before = self
            .world
            .live
            .refused
            .iter()
            .any(|(key, said)| never_fits(key, said))
            .then(|| live.rooms.machines());
        if live.rooms.report(capacity) {
            // What was too much for the machines that were there is asked again where there are others.
            if before.is_some_and(|before| live.rooms.machines() != before) {
                self.world.live.refused.retain(|key, said| !never_fits(key, said));
            }
            self.stir();
        }
        if moved {
            self.rank_again();
        }
    }

    /// Compared only when nothing is under way either way: what differs then, the next inventory settles.
    fn compare_digest(&mut self, cluster: &ClusterName, request: &SyncRequest) {
        let now = self.now.mono;
        let every = lease::poll(self.world.config.term_min);
        let live = self.world.live.clusters.get_mut(cluster).expect("admitted sessions are live");
        let quiet = live.inventoried
            && live.outbox.quiet()
            && request.events_last == live.events_through
            && request.commands_through >= live.outbox.last();
        if !quiet || now < live.digest_at {
            return;
        }
        live.digest_at = now + every;
        let ledger = self.world.state.members[cluster].ledger;
        let mut digest = Digest::default();
        for uid in self.world.loads.get(cluster).into_iter().flatten().map(|(uid, _)| uid) {
            for (offer, leg) in self.world.state.workloads[uid]
                .legs
                .iter()
                .filter(|(_, l)| l.cluster == *cluster && l.ledger == ledger)
            {
                digest = match leg.fence {
                    Some(fence) => digest.with_grant(*uid, fence),
                    None => digest.with_offer(*offer),
                };
            }
        }
        if digest != request.digest {
            self.world.live.counts.digest_mismatches += 1;
            self.world.live.clusters.get_mut(cluster).expect("admitted sessions are live").want_inventory =
                true;
        }
    }

    /// Composes one answer: from here on, whether or not it arrives, its leases count.
    fn answer(&mut self, cluster: &ClusterName, session: Session, transmission: u64) {
        let now = self.now.mono;
        let renewals = self.renewals(cluster);
        let (commands_from, commands) = self.commands(cluster);
        let live = self.world.live.clusters.get_mut(cluster).expect("only live sessions are answered");
        live.outbox.sent(now, commands_from, commands.len());
        let ends: Vec<_> = live
            .acknowledge
            .iter()
            .take(ACKNOWLEDGED_MAX)
            .map(|((uid, fence), number)| (*uid, *fence, *number))
            .collect();
        let (events_through, want_inventory, capacity) =
            (live.events_through, live.want_inventory, live.rooms.version());
        let state = &self.world.state;
        let members: Vec<ClusterName> = state.members.keys().cloned().collect();
        let version = live.version;
        let mut receipt = Receipt {
            journal: state.journal,
            leadership: state.leadership,
            record: state.last,
            rules: state.rules,
            audit_head: Some(format!("{}:{}", state.audit.lines, state.audit.hash)),
            mac: None,
        };
        receipt.mac = Some(self.world.config.receipt_key.sign(&receipt.message(&members)));
        live.carries(transmission, Carried { record: state.last, ends: ends.clone() });
        let skip = state.ranges.len().saturating_sub(RANGES_MAX);
        let response = SyncResponse {
            version,
            leadership: state.leadership,
            session,
            transmission,
            receipt,
            members,
            events_through,
            ends_acknowledged: ends,
            commands,
            commands_from,
            renewals,
            want_inventory,
            capacity_acknowledged: capacity,
            ranges: state.ranges[skip..].to_vec(),
            poll: lease::poll(self.world.config.term_min),
        };
        self.reply(Reply::Sync(Box::new(SyncAnswer::Ok(Box::new(response)))));
    }

    /// As many commands as one answer may carry.
    fn commands(&mut self, cluster: &ClusterName) -> (u64, Vec<Command>) {
        let (from, said) = self
            .world
            .live
            .clusters
            .get(cluster)
            .map(|l| l.outbox.next(self.now.mono, COMMANDS_MAX))
            .unwrap_or((1, Vec::new()));
        let (mut commands, mut bytes) = (Vec::with_capacity(said.len()), 0);
        for said in said {
            let command = self.render(cluster, said);
            bytes += command.weight();
            if bytes > COMMANDS_BYTES_MAX && !commands.is_empty() {
                // It is said again with the next answer. That its lease counts from now on errs on the safe side.
                break;
            }
            commands.push(command);
        }
        (from, commands)
    }

    fn renewals(&mut self, cluster: &ClusterName) -> Vec<(Uid, Fence)> {
        let now = self.now.mono;
        let step = Millis(self.world.config.term_min.0 / 16);
        let Some(live) = self.world.live.clusters.get_mut(cluster) else { return Vec::new() };
        if now < live.renew_at {
            return Vec::new();
        }
        live.renew_at = now + step;
        let silent_for = now.since(live.acknowledged);
        let ledger = self.world.state.members[cluster].ledger;
        let mut due: Vec<(Option<Mono>, Uid, Fence)> = self
            .rights(cluster)
            .into_iter()
            .filter_map(|(uid, fence, _)| {
                let workload = self.workload(uid)?;
                let (_, leg) = World::right(workload)?;
                let lease = self.world.live.leases.get(&fence)?;
                let good = workload.on_loss == OnLoss::Fence
                    && leg.accepted
                    && leg.ledger == ledger
                    && workload.phase != Phase::Stopping
                    // A copy renews only once every cluster follows it: its original counts on the silence of those that do.
                    && !self.world.disputed(workload)
                    && !lease.lease.lapsed(now)
                    && silent_for < lease::silence(workload.term)
                    && lease.composed.is_none_or(|at| now.since(at) >= Millis(workload.term.0 / 32));
                good.then_some((lease.composed, uid, fence))
            })
            .collect();
        if due.len() > RENEWALS_MAX {
            due.sort_unstable();
            due.truncate(RENEWALS_MAX);
            due.sort_unstable_by_key(|(_, uid, _)| *uid);
        }
        let due: Vec<(Uid, Fence)> = due.into_iter().map(|(_, uid, fence)| (uid, fence)).collect();
        self.world.live.counts.renewals += due.len() as u64;
        for (_, fence) in &due {
            self.world.composed(*fence, now);
        }
        due
    }

    /// What is said now, under the rules as they are now.
    fn render(&mut self, cluster: &ClusterName, said: Said) -> Command {
        match said {
            Said::Withdraw(uid, offer) => Command::Withdraw { offer, uid },
            Said::Stop(uid, fence, reason) => Command::Stop { uid, fence, reason },
            Said::Shrink(uid, fence, size) => self.render_shrink(cluster, uid, fence, size),
            Said::Grow(uid, fence, number) => self.render_grow(cluster, uid, fence, number),
            Said::Rank(uid, fence, _) => self.render_rank(cluster, uid, fence),
            Said::Offer(uid, offer) => {
                let open =
                    self.workload(uid).and_then(|w| w.legs.get(&offer)).is_some_and(|l| l.state.open());
                match self.world.asked_gang(uid) {
                    Some(gang) if open && self.may_know(uid, cluster) => {
                        let workload = self.workload(uid).expect("its gang was found");
                        let class = self.world.queues.class(workload.class);
                        let policy = self
                            .world
                            .queues
                            .charged_to(uid)
                            .and_then(|q| self.world.state.catalog.dispatch_policy(q));
                        let requires_guarded = policy.is_some_and(|p| {
                            p.on_cluster_loss.requires == meridian_objects::spec::Supervision::Guarded
                        });
                        let (namespace, kind, hold) =
                            (workload.namespace.clone(), class.kind.clone(), self.world.config.hold);
                        Command::Offer(Box::new(Offer {
                            offer,
                            uid,
                            namespace,
                            kind,
                            gang,
                            hold,
                            requires_guarded,
                        }))
                    }
                    _ => Command::Withdraw { offer, uid },
                }
            }
            Said::Grant(uid, offer, fence) => self.render_grant(cluster, uid, offer, fence),
        }
    }

    /// Where it is out of date, or the cluster may not know it any more, something is said in its place that changes nothing.
    fn render_shrink(&self, cluster: &ClusterName, uid: Uid, fence: Fence, size: Size) -> Command {
        let leg = self.workload(uid).and_then(|w| w.leg_of(fence));
        match leg {
            Some(_) if self.may_know(uid, cluster) => Command::Shrink { uid, fence, size },
            // What was granted isn't withdrawn, and nobody waits for an answer about what is over.
            Some((offer, _)) => Command::Withdraw { offer, uid },
            None => Command::Stop { uid, fence, reason: StopReason::Superseded },
        }
    }

    fn render_grant(&mut self, cluster: &ClusterName, uid: Uid, offer: OfferId, fence: Fence) -> Command {
        let now = self.now.mono;
        let stop = Command::Stop { uid, fence, reason: StopReason::Superseded };
        let Some(workload) = self.workload(uid) else { return stop };
        let current = workload.phase != Phase::Stopping
            && workload.leg_of(fence).is_some_and(|(_, l)| l.state == LegState::Granted);
        // A grant is good for sending for one term from when it was first composed.
        let fresh = self
            .world
            .live
            .leases
            .get(&fence)
            .is_some_and(|l| l.first.is_none_or(|f| now.since(f) < workload.term));
        let resends = self.world.config.planted.has(Bug::RecoveryResends);
        let held_back = self.world.held_back(workload, now);
        if !current || !(fresh || resends) || (held_back && !resends) {
            return stop;
        }
        if !self.may_know(uid, cluster) {
            self.world.live.counts.residency_stops += 1;
            self.order_stop(uid, fence, StopReason::Residency, &system());
            return Command::Stop { uid, fence, reason: StopReason::Residency };
        }
        let workload = self.workload(uid).expect("found above");
        let Some(spec) = self.body(workload.body) else { return stop };
        let ledger = workload.leg_of(fence).expect("it is current").1.ledger;
        let class = self.world.queues.class(workload.class);
        let max_run = class.gang.max_run;
        let grant = Grant {
            offer,
            uid,
            fence,
            attempt: workload.attempts,
            namespace: workload.namespace.clone(),
            name: workload.name.clone(),
            spec,
            term: workload.term,
            on_loss: workload.on_loss,
            start_within: self.world.start_timeout(class),
            run_left: max_run.map(|m| m.saturating_sub(workload.ran)),
            pod_failures: workload.pod_failures,
            priority: workload.priority,
            mac: Some(self.world.config.receipt_key.sign(&grant_message(
                cluster,
                ledger,
                uid,
                fence,
                offer,
                workload.attempts,
                workload.term,
                workload.on_loss,
            ))),
        };
        self.world.composed(fence, now);
        Command::Grant(Box::new(grant))
    }

    /// Residency, judged again at every send.
    pub(crate) fn may_know(&self, uid: Uid, cluster: &ClusterName) -> bool {
        let Some(workload) = self.workload(uid) else { return false };
        let class: Arc<crate::record::Class> = self.world.queues.class(workload.class).clone();
        let there = self.world.located_elsewhere(cluster).is_none();
        self.world.config.planted.has(Bug::ResidencyJudgedOnce)
            || there
                && residency::judge(
                    &self.world.state.catalog,
                    &class,
                    cluster,
                    self.world.config.residency_required,
                )
                .is_ok()
    }
}
