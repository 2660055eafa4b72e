//! The agent's half of the sync: what a transmission says, and what an answer changes (the protocol's section 5).

use crate::reporting::{self, Told};
use crate::{Agent, Effect, OfferState, Outcome, StopCause};
use meridian_shared::ids::Leadership;
use meridian_shared::packing::Block;
use meridian_shared::placement::Placement;
use meridian_shared::planted::Bug;
use meridian_shared::protocol::{
    COMMANDS_MAX, Capacity, Command, Digest, ENDS_MAX, EVENTS_BYTES_MAX, EVENTS_MAX, Event, Inventory, Lane,
    PLACEMENTS_BYTES_MAX, RECEIPTS_BYTES_MAX, Run, SPARE_MAX, Spare, StopReason, SyncAnswer, SyncRefusal,
    SyncRequest, SyncResponse, VERSION,
};
use meridian_shared::time::{Mono, Now};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Transmissions whose sending time is remembered; an answer to an older one is ignored.
const SENT_MAX: usize = 64;
/// How far a command may be ahead of its turn: two answers full of them. What has no place is said again.
const AHEAD_MAX: u64 = 2 * COMMANDS_MAX as u64;
/// Capacity versions remembered as bases for deltas.
const BASES_MAX: usize = 8;

/// What was reported of the ledger, version by version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct CapacityReports {
    pub(crate) revision: Option<u64>,
    pub(crate) version: u64,
    pub(crate) acknowledged: u64,
    pub(crate) bases: BTreeMap<u64, Vec<Block>>,
    /// Pools as the newest version tells them.
    pub(crate) pools: Vec<Block>,
    /// Nodes that it says nothing of.
    pub(crate) untold: u32,
}

impl Agent {
    pub(crate) fn compose_at(&mut self, at: Mono, lane: Lane) -> SyncRequest {
        if !(self.config.planted.has(Bug::TransmissionReused) && self.transmissions > self.answered + 1) {
            self.transmissions += 1;
        }
        self.sent.insert(self.transmissions, at);
        while self.sent.len() > SENT_MAX {
            self.sent.pop_first();
        }
        let room = SPARE_MAX.saturating_sub(self.spare_news.values().filter(|carried| **carried > 0).count());
        for carried in self.spare_news.values_mut().filter(|carried| **carried == 0).take(room) {
            *carried = self.transmissions;
        }
        let inventory = (self.inventory_due && self.durable.follows.is_some()).then(|| self.inventory());
        SyncRequest {
            version: VERSION,
            ledger: self.durable.ledger,
            session: self.session,
            transmission: self.transmissions,
            lane,
            follows: self.durable.follows,
            answered: self.answered,
            commands_through: self.commands_through,
            events: self.news(),
            events_from: self.events_from,
            events_last: self.events_last(),
            digest: self.digest(),
            inventory,
            capacity: self.capacity_report(),
            spare: self
                .spare_news
                .iter()
                .filter(|(_, carried)| **carried > 0)
                .filter_map(|(uid, _)| self.spare_of(*uid))
                .collect(),
            shrinks: true,
            grows: true,
            ranks: true,
        }
    }

    fn spare_of(&self, uid: meridian_shared::ids::Uid) -> Option<Spare> {
        self.runs.get(&uid).map(|run| Spare {
            uid,
            fence: run.fence,
            pods: self.ledger.spare_pods(run.offer),
            failures: run.pod_failures,
        })
    }

    /// Digest of open offers and live attempts.
    pub(crate) fn digest(&self) -> Digest {
        let offers = self.offers.keys().fold(Digest::default(), |d, o| d.with_offer(*o));
        self.runs.iter().fold(offers, |d, (uid, run)| d.with_grant(*uid, run.fence))
    }

    /// As many events as one request carries, and always one.
    fn news(&self) -> Vec<Event> {
        let mut bytes = 0;
        let fits = |(at, event): &(usize, &Event)| {
            bytes += event.weight();
            *at == 0 || bytes <= EVENTS_BYTES_MAX
        };
        self.events
            .iter()
            .take(EVENTS_MAX)
            .enumerate()
            .take_while(fits)
            .map(|(_, event)| event.clone())
            .collect()
    }

    fn inventory(&self) -> Inventory {
        let mut left = PLACEMENTS_BYTES_MAX;
        let mut told = |placed: &Arc<Placement>| {
            let fits = placed.weight() <= left;
            left -= if fits { placed.weight() } else { 0 };
            fits
        };
        let runs = self
            .runs
            .iter()
            .map(|(uid, r)| Run {
                uid: *uid,
                fence: r.fence,
                offer: r.offer,
                attempt: r.attempt,
                running: r.phase == crate::leg::Phase::Running,
                stopping: r.phase == crate::leg::Phase::Stopping,
                term: r.term,
                on_loss: r.on_loss,
                spec: r.spec,
                mac: r.mac.clone(),
                placement: r.placed.clone().filter(&mut told),
                spare: self.ledger.spare_pods(r.offer),
                grown: r.growth.latest.clone(),
                priority: Some(r.priority),
            })
            .collect();
        let known = |leadership: Leadership, record| {
            self.ranges.iter().any(|(l, first, last)| *l == leadership && (*first..=*last).contains(&record))
        };
        let mut ends: Vec<_> = self
            .durable
            .tombstones
            .iter()
            .filter(|(key, _)| !self.strangers.contains_key(key))
            .map(|(_, t)| t)
            .filter(|t| t.acknowledged.is_none_or(|(leadership, record, _)| !known(leadership, record)))
            .map(|t| t.end.clone())
            .take(ENDS_MAX + 1)
            .collect();
        let more = ends.len() > ENDS_MAX;
        ends.truncate(ENDS_MAX);
        Inventory {
            for_leadership: self.durable.follows,
            runs,
            offers: self.offers.iter().map(|(id, o)| (*id, o.uid)).collect(),
            ends,
            more,
            receipts: self.durable.newest_receipts(RECEIPTS_BYTES_MAX),
        }
    }

    fn capacity_report(&mut self) -> Option<Capacity> {
        if self.capacity.revision != Some(self.ledger.revision()) {
            let Told { blocks, pools, untold } = reporting::told(self.ledger.blocks(), self.ledger.pools());
            let same = self.capacity.bases.get(&self.capacity.version) == Some(&blocks)
                && self.capacity.pools == pools;
            self.capacity.untold = untold;
            let changed = self.capacity.revision.is_none() || !same;
            self.capacity.revision = Some(self.ledger.revision());
            if changed {
                self.capacity.version += 1;
                self.capacity.pools = pools;
                self.capacity.bases.insert(self.capacity.version, blocks);
                while self.capacity.bases.len() > BASES_MAX {
                    self.capacity.bases.pop_first();
                }
            }
        }
        if self.capacity.version == self.capacity.acknowledged {
            return None;
        }
        let current = self.capacity.bases.get(&self.capacity.version).cloned().unwrap_or_default();
        let acknowledged = self.capacity.bases.get(&self.capacity.acknowledged);
        let (base, blocks) = match acknowledged.and_then(|old| reporting::delta(old, &current)) {
            None => (None, current),
            Some(changed) => (Some(self.capacity.acknowledged), changed),
        };
        Some(Capacity {
            version: self.capacity.version,
            after_command: self.commands_through,
            base,
            blocks,
            provisionable: self.capacity.pools.clone(),
            runner: self.config.runner,
            guarded: self.config.guarded,
            located: self.config.located.clone(),
        })
    }

    pub(crate) fn on_answer(&mut self, at: Mono, now: Now, answer: SyncAnswer, out: &mut Outcome) {
        match answer {
            SyncAnswer::Ok(response) => self.on_response(at, now, *response, out),
            SyncAnswer::Refused(SyncRefusal::Superseded { by }) if by != self.session => {
                out.effects.push(Effect::Superseded)
            }
            SyncAnswer::Refused(SyncRefusal::LedgerLost) => self.give_up(out),
            // It must see our receipts before it believes that there was a newer leadership.
            SyncAnswer::Refused(SyncRefusal::NewerLeadership { .. }) => self.inventory_due = true,
            SyncAnswer::Refused(_) => {}
        }
    }

    /// This ledger counts for nothing any more: everything that it runs is stopped before the process exits.
    fn give_up(&mut self, out: &mut Outcome) {
        self.lost = true;
        let live: Vec<_> = self
            .runs
            .iter()
            .filter(|(_, r)| r.phase != crate::leg::Phase::Stopping)
            .map(|(uid, _)| *uid)
            .collect();
        for uid in live {
            self.order_stop(uid, StopCause::Asked(StopReason::Superseded), out);
        }
        if self.runs.is_empty() {
            out.effects.push(Effect::Superseded);
        }
    }

    fn on_response(&mut self, at: Mono, now: Now, response: SyncResponse, out: &mut Outcome) {
        if response.version != VERSION || response.session != self.session {
            return;
        }
        let Some(sent) = self.sent.get(&response.transmission).copied() else { return };
        if !self.follow(response.leadership, out) {
            return;
        }
        self.answered = self.answered.max(response.transmission);
        // Every transmission since the first has said so: whichever of them is answered, it was heard.
        self.spare_news.retain(|_, carried| *carried == 0 || *carried > response.transmission);
        self.durable.note_receipt(&response.receipt, &response.members, &mut out.store);
        self.ranges = response.ranges;
        while self.events_from <= response.events_through && self.events.pop_front().is_some() {
            self.events_from += 1;
        }
        for (uid, fence, record) in response.ends_acknowledged {
            self.acknowledge_end(uid, fence, (response.leadership, record, now.wall), out);
        }
        for (uid, fence) in response.renewals {
            self.renew(at, sent, uid, fence, out);
        }
        for (number, command) in (response.commands_from..).zip(response.commands) {
            let repeats = number <= self.commands_through && matches!(command, Command::Grant(_));
            if repeats && self.config.planted.has(Bug::RepeatedGrantRefused) {
                self.on_command(at, sent, command, out);
            } else {
                self.hear(number, sent, command);
            }
        }
        while let Some((sent, command)) = self.ahead.remove(&(self.commands_through + 1)) {
            self.commands_through += 1;
            self.on_command(at, sent, command, out);
        }
        self.inventory_due = response.want_inventory;
        self.capacity.acknowledged = self.capacity.acknowledged.max(response.capacity_acknowledged);
        self.poll = response.poll;
    }

    /// Keeps a command for its turn. Of one that was said twice the later word counts: rules are judged at each sending.
    fn hear(&mut self, number: u64, sent: Mono, command: Command) {
        let expected = number > self.commands_through && number - self.commands_through <= AHEAD_MAX;
        if expected && self.ahead.get(&number).is_none_or(|(at, _)| *at <= sent) {
            self.ahead.insert(number, (sent, command));
        }
    }

    /// Whether an answer of this leadership may be taken; a newer one is made durable first.
    fn follow(&mut self, leadership: Leadership, out: &mut Outcome) -> bool {
        if let Some(known) = self.durable.follows {
            if known == leadership {
                return true;
            }
            if leadership.epoch < known.epoch && !self.config.planted.has(Bug::AgentTakesOlderEpoch) {
                return false;
            }
            if leadership.epoch == known.epoch && !self.config.planted.has(Bug::AgentTakesTwinLeadership) {
                return false;
            }
        }
        self.durable.follow(leadership, &mut out.store);
        self.commands_through = 0;
        self.ahead.clear();
        self.capacity.acknowledged = 0;
        self.inventory_due = true;
        true
    }

    fn renew(
        &mut self,
        at: Mono,
        sent: Mono,
        uid: meridian_shared::ids::Uid,
        fence: meridian_shared::ids::Fence,
        out: &mut Outcome,
    ) {
        let counts_from = if self.config.planted.has(Bug::AgentCountsFromArrival) { at } else { sent };
        let Some(run) =
            self.runs.get_mut(&uid).filter(|r| r.fence == fence && r.phase != crate::leg::Phase::Stopping)
        else {
            return;
        };
        let Some(lease) = &mut run.lease else { return };
        let before = lease.lapses;
        if lease.renew(counts_from, at) && lease.lapses > before {
            let deadline = lease.lapses;
            self.store_run(uid, out);
            let deadline = self.elapsed.boot_time(deadline);
            out.effects.push(Effect::Renew { uid, fence, deadline });
        }
    }

    /// Offers that wait for a provider.
    pub fn waiting(&self) -> impl Iterator<Item = meridian_shared::ids::OfferId> + '_ {
        self.offers.iter().filter(|(_, o)| matches!(o.state, OfferState::Waiting)).map(|(id, _)| *id)
    }
}
