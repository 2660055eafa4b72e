//! Effects of a manager's answer.

use super::Agent;
use crate::leg::Phase;
use crate::link::QueuedCommand;
use crate::runs::StopCause;
use crate::turn::{Effect, Outcome};
use meridian_shared::ids::{Fence, Leadership, Uid};
use meridian_shared::planted::Bug;
use meridian_shared::protocol::{Command, StopReason, SyncAnswer, SyncRefusal, SyncResponse, VERSION};
use meridian_shared::time::{Mono, Now};

impl Agent {
    pub(super) fn on_answer(&mut self, at: Mono, now: Now, answer: SyncAnswer, out: &mut Outcome) {
        match answer {
            SyncAnswer::Ok(response) => self.on_response(at, now, *response, out),
            SyncAnswer::Refused(SyncRefusal::Superseded { by }) if by != self.session => {
                out.act(Effect::Superseded)
            }
            SyncAnswer::Refused(SyncRefusal::LedgerLost) => self.stop_everything(out),
            // The manager must see the receipts before it accepts that there was a newer leadership.
            SyncAnswer::Refused(SyncRefusal::NewerLeadership { .. }) => self.inventory_due = true,
            SyncAnswer::Refused(_) => {}
        }
    }

    /// Stops every run of a ledger that is no longer valid, before the process exits.
    fn stop_everything(&mut self, out: &mut Outcome) {
        self.lost = true;
        for uid in self.runs.uids() {
            if self.runs.get(uid).is_some_and(|run| run.phase != Phase::Stopping) {
                self.order_stop(uid, StopCause::Requested(StopReason::Superseded), out);
            }
        }
        if self.runs.is_empty() {
            out.act(Effect::Superseded);
        }
    }

    fn on_response(&mut self, at: Mono, now: Now, response: SyncResponse, out: &mut Outcome) {
        if response.version != VERSION || response.session != self.session {
            return;
        }
        let Some(sent) = self.transmissions.sent_at(response.transmission) else { return };
        if !self.follow(response.leadership, out) {
            return;
        }
        self.transmissions.note_answer(response.transmission);
        self.usage.acknowledge(response.transmission);
        self.durable.note_receipt(&response.receipt, &response.members, out.writes());
        self.ranges = response.ranges;
        self.events.acknowledge(response.events_through);
        for (uid, fence, record) in response.ends_acknowledged {
            let by = (response.leadership, record, now.wall);
            if self.durable.acknowledge(uid, fence, by, out.writes()) {
                out.act(Effect::Settle { uid, fence });
            }
        }
        for (uid, fence) in response.renewals {
            self.renew(at, sent, uid, fence, out);
        }
        for (number, command) in (response.commands_from..).zip(response.commands) {
            let takes_repeats = self.config.planted.has(Bug::RepeatedGrantRefused);
            if takes_repeats && number <= self.commands.done() && matches!(command, Command::Grant(_)) {
                self.on_command(at, sent, command, out);
            } else {
                self.commands.push(number, QueuedCommand { sent, command });
            }
        }
        while let Some(QueuedCommand { sent, command }) = self.commands.next() {
            self.on_command(at, sent, command, out);
        }
        self.inventory_due = response.want_inventory;
        self.capacity.acknowledge(response.capacity_acknowledged);
        self.poll = response.poll;
    }

    /// Whether an answer of this leadership counts. A newer leadership is made durable.
    fn follow(&mut self, leadership: Leadership, out: &mut Outcome) -> bool {
        if let Some(known) = self.durable.follows() {
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
        self.durable.follow(leadership, out.writes());
        self.commands.restart();
        self.capacity.forget_acknowledged();
        self.inventory_due = true;
        true
    }

    fn renew(&mut self, at: Mono, sent: Mono, uid: Uid, fence: Fence, out: &mut Outcome) {
        let counts_from = if self.config.planted.has(Bug::AgentCountsFromArrival) { at } else { sent };
        let run = self.runs.attempt_mut(uid, fence).filter(|run| run.phase != Phase::Stopping);
        let Some(lease) = run.and_then(|run| run.lease.as_mut()) else { return };
        let before = lease.lapses;
        if lease.renew(counts_from, at) && lease.lapses > before {
            let deadline = self.elapsed.boot_time(lease.lapses);
            self.store_run(uid, out);
            out.act(Effect::Renew { uid, fence, deadline });
        }
    }
}
