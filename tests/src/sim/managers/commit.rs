//! Commits of a manager, and the replies that follow them.

use crate::sim::context::event::SimEvent;
use crate::sim::hosts::manager::Caller;
use crate::sim::invariants::violation::violation;
use crate::sim::network::Receiver;
use crate::sim::scenario::Fault;
use crate::sim::world::Simulation;
use meridian_manager::host::batch::PendingBatch;
use meridian_manager::host::{self, replies};
use meridian_manager::journal::mark::{BootId, Mark};
use meridian_manager::journal::{AuditNumber, Batch, Journal, Snapshot};
use meridian_manager_core::facts::audit;
use meridian_manager_core::facts::outcome::Reply;
use meridian_shared::planted::Bug;
use meridian_shared::protocol::{SyncAnswer, SyncRefusal};

/// Records between two snapshots.
const SNAPSHOT_EVERY: u64 = 150;
/// If managers are killed, a process ends after one in this number of replies.
const REPLIES_PER_END: u64 = 20_000;
/// Shortest pause between two turns that time alone makes due.
const TURN_PAUSE_MS: u64 = 5;

impl Simulation {
    /// The transactions of a decided batch, with a snapshot if one was taken before it.
    pub(super) fn batches(&mut self, m: usize, decided: &PendingBatch<Caller>, urgent: bool) -> Vec<Batch> {
        let machine = &mut self.managers[m];
        let (Some(host), Some(journal)) = (&machine.host, &machine.journal) else { return Vec::new() };
        let state = host.world().state();
        let (mut batches, _) = decided.batches(state.leadership(), journal.last(), urgent);
        if let Some(last) = batches.last_mut() {
            last.snapshot = machine.snapshot.take();
            self.cx.counters.add("snapshots", u64::from(last.snapshot.is_some()));
            if state.last().0 >= machine.snapshot_at.0 + SNAPSHOT_EVERY && state.last() == last.last() {
                machine.snapshot_at = state.last();
                machine.snapshot = Some(Snapshot { through: last.last(), bytes: host.world().snapshot() });
            }
        }
        batches
    }

    /// Commits batches, or a heartbeat where there are none; false if any part failed.
    pub(super) fn write(&mut self, m: usize, batches: &[Batch], settled: bool) -> bool {
        let machine = &mut self.managers[m];
        let Some(journal) = &mut machine.journal else { return false };
        let Err(error) = host::commit(journal, batches, settled) else { return true };
        self.cx.log(|| format!("manager {m}: fails to commit: {error}"));
        machine.failure = Some(error);
        false
    }

    /// Writes the commit under way. A commit that fails isn't tried again: its end finds the journal
    /// poisoned.
    pub(super) fn write_now(&mut self, m: usize) {
        let Some(mut committing) = self.managers[m].committing.take() else { return };
        committing.written = self.write(m, &committing.batches, committing.settled);
        self.managers[m].committing = Some(committing);
    }

    /// The end of a commit: replies are sent, or everything uncommitted is thrown away.
    pub(crate) fn end_commit(&mut self, m: usize, life: u64) {
        if self.managers[m].life != life {
            return;
        }
        let Some(committing) = self.managers[m].committing.take() else { return };
        let poisoned = self.managers[m].journal.as_ref().is_none_or(Journal::needs_reload);
        let mut write = || self.write(m, &committing.batches, committing.settled);
        if !committing.written && (poisoned || !write()) {
            return self.commit_failed(m, committing);
        }
        let machine = &mut self.managers[m];
        let now = machine.read_clocks(self.cx.now);
        let (Some(host), Some(journal)) = (&mut machine.host, &machine.journal) else { return };
        host.written(committing.write, journal);
        if committing.batches.iter().any(|batch| !batch.urgent) {
            host.space_found();
        }
        machine.mark = Some(Mark::of(journal, BootId(machine.boot), now.mono));
        self.send_replies(m, committing.replies);
    }

    /// Sends the replies of a turn, and plans the next turn. The process may end between two replies.
    pub(super) fn send_replies(&mut self, m: usize, replies: Vec<(Caller, Reply)>) {
        let life = self.managers[m].life;
        for (caller, reply) in replies {
            self.deliver(m, caller, reply);
            if self.cx.scenario.faults.contains_key(&Fault::ManagerKill)
                && self.cx.random.faults.below(REPLIES_PER_END) == 0
                && !self.cx.healed
            {
                self.cx.log(|| format!("manager {m}: ends between two replies"));
                return self.end_manager(m, false, 500);
            }
        }
        if self.managers[m].life == life {
            self.plan_next_turn(m);
        }
    }

    fn plan_next_turn(&mut self, m: usize) {
        let machine = &self.managers[m];
        let Some(host) = machine.host.as_ref().filter(|_| machine.leading) else { return };
        let (heartbeat, timer) = host.next_deadline(machine.clock.now(self.cx.now));
        let timed = timer.map_or(heartbeat, |at| at.min(heartbeat));
        let poll_ends = machine.poll_ends.iter().map(|end| end.at).min().unwrap_or(u64::MAX);
        let mut at = machine.clock.when(timed).max(self.cx.now + TURN_PAUSE_MS).min(poll_ends);
        if !machine.inbox.is_empty() {
            at = self.cx.now;
        }
        self.wake_manager(m, at);
    }

    /// Sends one reply. An answer leaves only while the claim is valid: a slow commit may outlive the claim,
    /// and another manager may lead since.
    pub(super) fn deliver(&mut self, m: usize, caller: Caller, reply: Reply) {
        let machine = &mut self.managers[m];
        let now = machine.read_clocks(self.cx.now);
        let claim_is_valid = machine.host.as_mut().is_some_and(|host| host.holds_claim(now))
            || self.cx.scenario.planted == Some(Bug::AnswersWithoutClaim);
        match (caller, replies::after_commit(reply, claim_is_valid)) {
            (caller @ Caller::Agent { .. }, Ok(Reply::Sync(answer))) => {
                self.answer_agent(m, &caller, &answer);
            }
            (caller @ Caller::Agent { .. }, _) => self.refuse(m, &caller, true),
            (Caller::User(_), Err(_)) => self.cx.counters.one("answers withheld"),
            (Caller::User(id), Ok(reply)) => {
                let at = self.cx.now + self.cx.random.users.between(1, 20);
                let history = self.faults.history;
                self.cx.schedule(at, SimEvent::UserReplyArrives { id, history, reply: Box::new(reply) });
            }
        }
    }

    fn answer_agent(&mut self, m: usize, caller: &Caller, answer: &SyncAnswer) {
        let Caller::Agent { agent, life, transmission, .. } = *caller else { return };
        let receiver = Receiver { agent, name: &self.agents[agent].name, life, transmission };
        self.network.send_answer(&mut self.cx, m, &receiver, answer);
    }

    /// This manager doesn't lead. Agents get a refusal if a process is there to send one; users try again.
    pub(super) fn refuse(&mut self, m: usize, caller: &Caller, up: bool) {
        if up {
            self.answer_agent(m, caller, &SyncAnswer::Refused(SyncRefusal::NotLeading));
        }
    }

    /// Verifies the audit log of a journal from the first line to the last.
    pub(crate) fn verify_audit(&mut self, m: usize) {
        let Some(journal) = &self.managers[m].journal else { return };
        let reader = journal.reader();
        let mut verifier = audit::Verifier::default();
        let head = reader.audit_head().ok().flatten().map_or(0, |(n, _)| n.0);
        let mut take = |_, bytes: &[u8]| {
            let line: audit::Line = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
            verifier.take(&line).map_err(|e| e.to_string())
        };
        let walked = reader.audit(AuditNumber(1), AuditNumber(head + 1), &mut take);
        // While a commit is under way the world is ahead of what is written.
        let settled = self.managers[m].committing.is_none();
        let world_head = self.managers[m].world().filter(|_| settled).map(|w| w.state().audit().clone());
        let verdict = match (walked, verifier.finish(world_head.as_ref())) {
            (Ok(()), Ok(_)) => Ok(()),
            (Err(e), _) => violation("audit", e.to_string()),
            (_, Err(e)) => violation("audit", e.to_string()),
        };
        self.cx.record_verdict(verdict);
    }
}
