//! One turn of a manager's engine, and what is checked after every input.

use crate::sim::context::event::SimEvent;
use crate::sim::hosts::manager::{Caller, PendingCommit, PollEnd, QueuedInput, StoredBodies};
use crate::sim::invariants::durability::may_forget;
use crate::sim::invariants::observation::{Observation, WorldBefore};
use crate::sim::invariants::priorities::check_priorities;
use crate::sim::invariants::violation::{Verdict, violation};
use crate::sim::managers::describe::describe_record;
use crate::sim::world::Simulation;
use meridian_manager::host::{Host, Step};
use meridian_manager_core::facts::input::Input;
use meridian_manager_core::facts::outcome::{Outcome, Reply};
use meridian_manager_core::facts::record::LeadershipFact;
use meridian_manager_core::facts::record::Record;
use meridian_manager_core::state::State;
use meridian_shared::lease;
use meridian_shared::planted::Bug;
use meridian_shared::protocol::{SyncAnswer, SyncRequest};
use meridian_shared::time::{Mono, Now};

impl Simulation {
    /// Wakes a manager's engine at `at`, unless it wakes earlier.
    pub(crate) fn wake_manager(&mut self, m: usize, at: u64) {
        let at = at.max(self.cx.now);
        if let Some(turn) = self.managers[m].plan_turn(at) {
            self.cx.schedule(at, SimEvent::ManagerTurn { manager: m, turn });
        }
    }

    /// A sync arrives at a manager.
    pub(crate) fn request_arrives(&mut self, m: usize, agent: usize, life: u64, request: SyncRequest) {
        if !self.managers[m].is_up() {
            return;
        }
        let cluster = self.agents[agent].cluster.clone();
        let transmission = request.transmission;
        let caller = Caller::Agent { agent, life, cluster: cluster.clone(), transmission };
        let input = Input::Sync { cluster, request: Box::new(request), may_park: true };
        self.managers[m].inbox.push_back(QueuedInput { caller, input });
        self.wake_manager(m, self.cx.now);
    }

    /// A request of a user or an operator arrives at a manager.
    pub(crate) fn user_request_arrives(&mut self, m: usize, id: u64, input: Input) {
        if self.managers[m].is_up() && self.users.is_open(id) {
            self.managers[m].inbox.push_back(QueuedInput { caller: Caller::User(id), input });
            self.wake_manager(m, self.cx.now);
        }
    }

    /// One turn of the engine: select, apply, then the commit begins.
    pub(crate) fn manager_turn(&mut self, m: usize, turn: u64) {
        let host = &mut self.managers[m];
        if !host.begin_turn(turn) || host.committing.is_some() {
            return;
        }
        if !host.leading {
            let refused: Vec<QueuedInput> = host.inbox.drain(..).collect();
            let up = host.is_up();
            return refused.into_iter().for_each(|queued| self.refuse(m, &queued.caller, up));
        }
        let now = host.read_clocks(self.cx.now);
        let restricted = host.is_restricted(now.mono);
        let before = self
            .disk_may_fail(m)
            .then(|| self.managers[m].world().map(|w| Box::new(w.state().clone())))
            .flatten();
        self.count_decided_leases(m, now.mono);
        let steps = self.select(m, now.mono);
        self.decide_all(m, now, steps);
        if self.cx.has_failed() {
            return;
        }
        if !restricted {
            self.check_explanations(m, turn, now);
        }
        let (answers, _) = self.expect_host(m).answers(now.mono);
        self.decide_all(m, now, answers);
        if !self.cx.has_failed() {
            self.begin_commit(m, now, before);
        }
    }

    /// Counts turns in which only a rule keeps a lease from being called lapsed.
    fn count_decided_leases(&mut self, m: usize, now: Mono) {
        let Some(world) = self.managers[m].world() else { return };
        let (live, copy) = (world.live(), world.state().recovery().is_some_and(|recovery| recovery.restored));
        let without_claim = now >= live.claim_until();
        if (copy || without_claim) && live.leases().iter().any(|(_, lease)| lease.lapsed(now)) {
            let counters = &mut self.cx.counters;
            counters.add("turns of a copy with a lease at its end", u64::from(copy));
            counters.add("turns without a claim with a lease at its end", u64::from(without_claim));
        }
    }

    /// Decides inputs one by one, up to the first broken promise.
    fn decide_all(&mut self, m: usize, now: Now, steps: Vec<Step<Caller>>) {
        for step in steps {
            self.decide(m, now, step);
            if self.cx.has_failed() {
                return;
            }
        }
    }

    fn expect_host(&mut self, m: usize) -> &mut Host<Caller> {
        self.managers[m].host.as_mut().expect("a leading manager has a host")
    }

    /// Begins the commit of a turn. A turn without records replies at once, and commits only a heartbeat that
    /// is due.
    fn begin_commit(&mut self, m: usize, now: Now, before: Option<Box<State>>) {
        let host = self.expect_host(m);
        let (restricted, heartbeat) = (host.is_restricted(now.mono), host.needs_heartbeat(now.mono));
        let (write, settled) = (host.begin_write(now), host.is_settled());
        let mut decided = host.take_batch();
        let batches = self.batches(m, &decided, restricted);
        let mut replies = std::mem::take(&mut decided.replies);
        if self.cx.scenario.planted == Some(Bug::ReplyBeforeCommit) {
            for (caller, reply) in std::mem::take(&mut replies) {
                self.deliver(m, caller, reply);
            }
        }
        if batches.is_empty() && (!heartbeat || self.cx.scenario.late_heartbeats) {
            self.send_replies(m, replies);
            if !heartbeat || self.managers[m].host.is_none() {
                return;
            }
            replies = Vec::new();
        }
        let slow = self.cx.now < self.managers[m].slow_until;
        let duration = if slow {
            self.cx.random.disk.between(200, 3_000)
        } else {
            self.cx.random.disk.between(0, self.cx.scenario.commit_max)
        };
        let committing = PendingCommit { write, batches, settled, written: false, replies, before };
        self.managers[m].committing = Some(committing);
        let life = self.managers[m].life;
        if duration == 0 {
            return self.end_commit(m, life);
        }
        if self.cx.random.disk.permille(500) {
            // The bytes are durable before the process continues.
            self.write_now(m);
        }
        self.cx.schedule(self.cx.now + duration, SimEvent::CommitEnds { manager: m, life });
    }

    /// The inputs of one turn: the inbox, then scheduling. Polls that have waited long enough are ended.
    fn select(&mut self, m: usize, now: Mono) -> Vec<Step<Caller>> {
        let most = 1 + self.cx.random.manager.index(16);
        let at = self.cx.now;
        let machine = &mut self.managers[m];
        let Some(host) = &mut machine.host else { return Vec::new() };
        for end in machine.poll_ends.extract_if(.., |end| end.at <= at) {
            host.polls().end(&end.cluster, end.transmission);
        }
        let poll_end = at + lease::poll(self.cx.scenario.term_min).0;
        let mut steps = Vec::new();
        while steps.len() < most
            && let Some(queued) = machine.inbox.pop_front()
        {
            if let (Input::Sync { request, .. }, Caller::Agent { cluster, transmission, .. }) =
                (&queued.input, &queued.caller)
                && request.may_wait()
            {
                let (cluster, transmission) = (cluster.clone(), *transmission);
                machine.poll_ends.push(PollEnd { at: poll_end, cluster, transmission });
            }
            // If a full disk refuses new work, the user tries again.
            steps.extend(host.admit(queued.input, queued.caller, now));
        }
        steps.extend(host.scheduling(now));
        steps
    }

    /// Decides one input and checks the outcome.
    fn decide(&mut self, m: usize, now: Now, step: Step<Caller>) {
        let Step { input, recipient } = step;
        let machine = &mut self.managers[m];
        let (Some(host), Some(journal)) = (&mut machine.host, &machine.journal) else {
            unreachable!("a leading manager has both")
        };
        let before = WorldBefore::of(host.world());
        let leadership = host.world().state().leadership();
        let is_newest = if let Input::Sync { cluster, request, .. } = &input
            && let Some(inventory) = &request.inventory
            && inventory.for_leadership == Some(leadership)
            && !inventory.more
        {
            let sent = (request.session, request.transmission);
            self.invariants.recovery.inventory_arrived(leadership, cluster, sent)
        } else {
            false
        };
        let counts = host.world().live().counts().clone();
        let outcome = host.decide(now, input.clone(), &StoredBodies(journal));
        self.cx.counters.differences(&counts, host.world().live().counts());
        self.check_outcome(m, now.mono, &before, &outcome);
        if let Some(caller) = recipient.caller() {
            let verdict = self.check_sync(m, now.mono, caller, &input, &outcome.reply, is_newest);
            self.cx.record_verdict(verdict);
        }
        self.expect_host(m).record(recipient, outcome);
    }

    /// Checks what a sync reported, and the answer to it.
    fn check_sync(
        &mut self,
        m: usize,
        now: Mono,
        caller: &Caller,
        input: &Input,
        reply: &Reply,
        is_newest: bool,
    ) -> Verdict {
        let host = &self.managers[m];
        let world = host.expect_world();
        match (caller, input, reply) {
            (Caller::Agent { agent, cluster, .. }, Input::Sync { request, .. }, Reply::Park) => {
                let inventory =
                    request.inventory.as_ref().filter(|_| is_newest && !self.agents[*agent].hostile);
                inventory.map_or(Ok(()), |inventory| {
                    self.invariants.check_reported(world, cluster, &inventory.runs, &inventory.ends)
                })
            }
            (Caller::Agent { cluster, .. }, _, Reply::Sync(answer)) => match &**answer {
                SyncAnswer::Ok(response) => {
                    self.invariants.check_answer(&host.clock, now, world, cluster, response)
                }
                SyncAnswer::Refused(_) => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Checks everything that one input decided.
    pub(super) fn check_outcome(&mut self, m: usize, now: Mono, before: &WorldBefore, outcome: &Outcome) {
        for (number, record) in &outcome.records {
            if let Record::Leadership(LeadershipFact::Started { leadership, .. }) = record {
                self.cx.name(leadership, format!("L{}", leadership.epoch));
            }
            if !matches!(record, Record::Audited(_)) {
                self.cx.log(|| format!("manager {m}: record {number}: {}", describe_record(record)));
            }
            self.cx.counters.record(record);
        }
        let world = self.managers[m].expect_world();
        if self.managers[m].cut {
            // The manager's decisions can't be committed any more.
            let verdict = world.check().or_else(|details| violation("World::check", details));
            return self.cx.record_verdict(verdict);
        }
        let (machines, at) = (&self.machines, self.cx.now);
        let is_alive = |uid, fence| {
            machines.iter().filter(|machine| machine.honest && !machine.clock.is_frozen()).any(|machine| {
                machine.runner.alive_within_lease(machine.clock.now(at)).any(|key| key == (uid, fence))
            })
        };
        let observation = Observation { now, before, world, outcome };
        let mut verdict =
            self.invariants.check(&observation, &is_alive).and_then(|()| check_priorities(world));
        if outcome.records.iter().any(|(_, record)| may_forget(record)) {
            verdict = verdict.and_then(|()| self.check_durability(world));
        }
        self.cx.record_verdict(verdict);
    }
}
