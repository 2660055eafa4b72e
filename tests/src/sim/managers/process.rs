//! A manager's process: start, leadership, reload after a failed commit, end.

use crate::sim::context::event::SimEvent;
use crate::sim::hosts::manager::{ManagerHost, PendingCommit, StoredBodies};
use crate::sim::invariants::observation::WorldBefore;
use crate::sim::invariants::replay::same_state;
use crate::sim::invariants::violation::violation;
use crate::sim::world::Simulation;
use meridian_manager::host::leadership::{LeadershipPlan, Reloaded, StartMode};
use meridian_manager::host::replay::{ReplayError, replay};
use meridian_manager::host::{Host, Recipient};
use meridian_manager::journal::mark::BootId;
use meridian_manager::journal::{Journal, RedbJournal};
use meridian_manager_core::state::State;
use meridian_shared::ids::JournalId;
use meridian_shared::lease;
use meridian_shared::time::{Millis, Mono, Wall};

/// Pause before a journal that can't be opened is opened again.
const OPEN_AGAIN_MS: u64 = 1_000;
/// Pause before a journal that can't be read back is read again.
const RELOAD_AGAIN_MS: u64 = 300;
/// Pause of a process that found another writer on its journal.
const FOREIGN_WRITER_PAUSE_MS: u64 = 1_500;

impl Simulation {
    /// Starts a process. It leads at once if its mark matches the journal, else after claim and drift.
    pub(crate) fn start_manager(&mut self, m: usize, life: u64, mode: StartMode) {
        let now = self.managers[m].clock.now(self.cx.now);
        if self.managers[m].life != life || self.managers[m].cut || self.managers[m].is_up() {
            return;
        }
        let Some(mut journal) = self.open_journal(m, life, mode) else { return };
        let host = &self.managers[m];
        if host.mark.as_ref().is_some_and(|mark| mark.is_ahead_of(&journal, BootId(host.boot))) {
            self.cx.counters.one("rollbacks shown by the mark");
            journal.distrust();
        }
        let world = match replay(&journal, self.cx.scenario.config()) {
            Ok(world) => world,
            Err(error) => return self.cx.record_verdict(violation("replay", error.to_string())),
        };
        self.cx.log(|| format!("manager {m}: opens its journal at record {}", journal.last()));
        let machine = &mut self.managers[m];
        if let Some(expected) = machine.expected.take()
            && let Err(why) = same_state("replayed against committed", world.state(), &expected)
        {
            return self.cx.record_verdict(Err(why));
        }
        let claim = lease::claim(self.cx.scenario.term_min);
        let vouched = machine
            .mark
            .as_ref()
            .is_some_and(|mark| mark.vouches_for(&journal, BootId(machine.boot), now.mono, claim));
        (machine.snapshot_at, machine.snapshot) = (world.state().last(), None);
        let host = Host::new(world, &journal, now);
        let plan = host.plan_start(mode, vouched, &journal);
        machine.journal = Some(journal);
        machine.host = Some(host);
        if vouched {
            self.cx.counters.one("short cuts");
        }
        self.lead_by(m, now.mono, plan);
    }

    /// Schedules a leadership after the wait of its plan.
    fn lead_by(&mut self, m: usize, now: Mono, plan: LeadershipPlan) {
        let machine = &self.managers[m];
        let at = if plan.wait == Millis(0) { self.cx.now } else { machine.clock.when(now + plan.wait) };
        self.cx.schedule(at, SimEvent::ManagerLeads { manager: m, life: machine.life, plan });
    }

    /// Opens or makes the journal; a disk with a fault is tried again later.
    fn open_journal(&mut self, m: usize, life: u64, mode: StartMode) -> Option<RedbJournal> {
        let disk = self.managers[m].disk.clone();
        let wall = self.managers[m].clock.now(self.cx.now).wall;
        let opened = match mode {
            StartMode::Open => RedbJournal::open_on(disk),
            StartMode::Init | StartMode::InitRecover => {
                RedbJournal::init_on(disk, JournalId(self.cx.random.manager.wide()), Wall(wall.0))
            }
        };
        let error = match opened {
            Ok(journal) => return Some(journal),
            Err(error) => error,
        };
        self.cx.log(|| format!("manager {m}: can't open its journal: {error}"));
        if self.disk_may_fail(m) {
            let event = SimEvent::ManagerStarts { manager: m, life, mode };
            self.cx.schedule(self.cx.now + OPEN_AGAIN_MS, event);
        } else {
            let details = format!("manager {m} can't open it after a fault that it must survive: {error}");
            self.cx.record_verdict(violation("journal", details));
        }
        None
    }

    /// A leadership begins, and is committed before anything else.
    pub(crate) fn begin_leadership(&mut self, m: usize, life: u64, plan: &LeadershipPlan) {
        let id = self.cx.random.manager.bits();
        let machine = &mut self.managers[m];
        if machine.life != life || machine.leading || !machine.is_up() {
            return;
        }
        let now = machine.read_clocks(self.cx.now);
        let (Some(host), Some(journal)) = (&mut machine.host, &machine.journal) else { return };
        let before = WorldBefore::of(host.world());
        let outcome = host.lead(plan, id, now, &StoredBodies(journal));
        let leadership = host.world().state().leadership();
        let continues = machine.continues.take();
        self.invariants.leases.led(leadership, now.mono, continues);
        self.check_outcome(m, now.mono, &before, &outcome);
        let Some(host) = &mut self.managers[m].host else { return };
        host.record(Recipient::Nobody, outcome);
        let (write, settled, decided) = (host.begin_write(now), host.is_settled(), host.take_batch());
        let batches = self.batches(m, &decided, true);
        if !self.write(m, &batches, settled) {
            self.cx.log(|| format!("manager {m}: can't commit its leadership"));
            return self.end_manager(m, false, 1_000);
        }
        let machine = &mut self.managers[m];
        let (Some(host), Some(journal)) = (&mut machine.host, &machine.journal) else { return };
        host.written(write, journal);
        machine.leading = true;
        self.cx.log(|| match &plan.recovery {
            None => format!("manager {m}: leads as {leadership}, without recovery"),
            Some(recovery) => format!("manager {m}: leads as {leadership}, in recovery: {recovery:?}"),
        });
        self.cx.counters.one(if plan.recovery.is_some() { "recoveries" } else { "starts without recovery" });
        self.take_over_history(m);
        self.wake_manager(m, self.cx.now);
    }

    /// Effects of a new leadership on users and checks: an older journal lacks what was acknowledged since.
    fn take_over_history(&mut self, m: usize) {
        let world = self.managers[m].expect_world();
        if std::mem::take(&mut self.faults.history_is_lost) {
            self.invariants.history_lost(world);
            self.users.history_lost(world, &self.invariants);
        }
        let verdict = self.check_durability(world);
        let is_empty = world.state().catalog().iter().next().is_none();
        self.cx.record_verdict(verdict);
        self.users.needs_fleet |= is_empty;
    }

    /// Reads back what is durable after a failed commit. If the claim still holds and the journal has no
    /// other writer, the next leadership continues at once; otherwise the manager starts as usual.
    pub(super) fn commit_failed(&mut self, m: usize, committing: PendingCommit) {
        self.cx.counters.one("commits failed");
        for (caller, _) in committing.replies {
            self.refuse(m, &caller, true);
        }
        let known = committing.before.filter(|_| committing.batches.len() <= 1);
        self.managers[m].leading = false;
        // A poll of a process that no longer leads is refused.
        let polls = self.managers[m].host.as_mut().map(|host| host.polls().take_all()).unwrap_or_default();
        polls.iter().for_each(|caller| self.refuse(m, caller, true));
        self.managers[m].poll_ends.clear();
        // Some records that the snapshot includes aren't durable.
        self.managers[m].snapshot = None;
        self.reload_manager(m, self.managers[m].life, known);
    }

    /// One try to read back what is durable.
    pub(crate) fn reload_manager(&mut self, m: usize, life: u64, known: Option<Box<State>>) {
        let machine = &mut self.managers[m];
        let now = machine.read_clocks(self.cx.now);
        if machine.life != life {
            return;
        }
        let (Some(host), Some(journal)) = (&mut machine.host, &mut machine.journal) else { return };
        let before = host.world().state().leadership();
        if let Some(cause) = machine.failure.take() {
            host.note_failure(&cause, now.mono);
        }
        let reloaded = host.reload(journal, now);
        self.cx.log(|| format!("manager {m}: reloads its journal: {reloaded:?}"));
        let plan = match reloaded {
            Ok(Reloaded::ForeignWriter) => return self.end_manager(m, false, FOREIGN_WRITER_PAUSE_MS),
            Err(_) if machine.cut => return self.end_manager(m, false, FOREIGN_WRITER_PAUSE_MS),
            Err(ReplayError::Undecodable(details)) => {
                return self.cx.record_verdict(violation("replay", details));
            }
            Err(_) => {
                let event = SimEvent::ManagerReloads { manager: m, life };
                return self.cx.schedule(self.cx.now + RELOAD_AGAIN_MS, event);
            }
            Ok(Reloaded::Plan { plan, completed }) => {
                if let (false, Some(known)) = (completed, &known)
                    && let Err(why) = same_state("reloaded against known", host.world().state(), known)
                {
                    return self.cx.record_verdict(Err(why));
                }
                plan
            }
        };
        if plan.recovery.is_none() {
            machine.continues = Some(before);
            self.cx.counters.one("claims kept over a failed commit");
        }
        self.lead_by(m, now.mono, plan);
    }

    /// Ends the process; the next one begins after `pause`. A power loss takes the page cache, the mark and
    /// the boot with it. A commit under way may become durable or not.
    pub(crate) fn end_manager(&mut self, m: usize, power: bool, pause: u64) {
        let partial = self.cx.random.disk.below(3);
        let operations = self.cx.random.disk.below(14);
        let (boot, mono) = (self.cx.random.manager.wide(), self.cx.random.manager.between(1_000, 60_000));
        let host = &mut self.managers[m];
        host.expected = host.settled_state();
        host.end_commit(partial, operations);
        host.disk = match (host.cut, power) {
            (true, _) => host.disk.clone(),
            (false, true) => host.disk.crash(),
            (false, false) => host.disk.kill(),
        };
        (host.journal, host.host, host.leading, host.continues) = (None, None, false, None);
        host.failure = None;
        host.inbox.clear();
        host.poll_ends.clear();
        host.life += 1;
        if power {
            host.mark = None;
            host.boot = boot;
            host.clock.reboot(self.cx.now, mono);
        }
        host.paused_until = if host.clock.is_frozen() { host.paused_until } else { 0 };
        let life = host.life;
        if !host.cut {
            let event = SimEvent::ManagerStarts { manager: m, life, mode: StartMode::Open };
            self.cx.schedule(self.cx.now + pause, event);
        }
    }

    /// Whether an error of a manager's disk is expected now.
    pub(super) fn disk_may_fail(&self, m: usize) -> bool {
        self.managers[m].cut || self.faults.faulty_disks.contains(&m)
    }
}

impl ManagerHost {
    /// The state that the next process must read back, where no commit is under way.
    fn settled_state(&self) -> Option<Box<State>> {
        let sound = self.journal.as_ref().is_some_and(|j| !j.needs_reload());
        let settled = self.committing.is_none() && !self.cut && self.leading && sound;
        self.world().filter(|_| settled).map(|world| Box::new(world.state().clone()))
    }

    /// A process ends in the middle of a commit: nothing of it is written (`partial` is 0), or the power goes
    /// off after this number of disk operations (1), or all of it may be written (2). The next start finds
    /// out.
    fn end_commit(&mut self, partial: u64, operations: u64) {
        let (Some(committing), Some(journal), false) = (self.committing.take(), &mut self.journal, self.cut)
        else {
            return;
        };
        if committing.written || partial == 0 || journal.needs_reload() {
            return;
        }
        if partial == 1 {
            self.disk.power_off_after(operations);
        }
        for batch in &committing.batches {
            if journal.commit(batch).is_err() {
                break;
            }
        }
    }
}
