//! Applies an action to a state, and checks the promises.

use crate::action::{Action, Covered};
use crate::host::{Host, Reach};
use crate::model::{ProtocolModel, leader};
use crate::setup::{self, OneBody, UID};
use crate::state::{Answer, Manager, Request, Role, State, durable_part};
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::input::{Input, Operator};
use meridian_manager_core::facts::outcome::{Outcome, Reply};
use meridian_manager_core::facts::record::Record;
use meridian_manager_core::facts::record::{LeadershipFact, OrphanFact, WorkloadFact};
use meridian_manager_core::facts::submission::RecoveryStart;
use meridian_manager_core::live::counts::Count;
use meridian_manager_core::{Start, World};
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::protocol::{Command, EndResult, SyncAnswer, SyncRequest};
use meridian_shared::time::Now;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One transition under way.
pub(crate) struct Transition<'a> {
    model: &'a ProtocolModel,
    state: &'a mut State,
}

impl<'a> Transition<'a> {
    pub(crate) fn new(model: &'a ProtocolModel, state: &'a mut State) -> Self {
        Self { model, state }
    }

    /// Does one action.
    pub(crate) fn perform(&mut self, action: Action) {
        let left = &mut self.state.budget;
        let spend = |from: &mut u8| *from = from.saturating_sub(1);
        match action {
            Action::Submit => {
                self.state.submitted = true;
                self.input(0, setup::submit());
            }
            Action::Delete => {
                spend(&mut left.deletions);
                self.input(0, setup::delete());
            }
            Action::Exchange { host, manager } => self.exchange(host, manager, Reach::All),
            Action::ExchangeAndDie { host, manager, stored } => {
                spend(&mut left.agent_crashes);
                self.exchange(host, manager, if stored { Reach::Stored } else { Reach::Nothing });
                self.hang_up(host);
            }
            Action::Send { host } => {
                spend(&mut left.lingering);
                let now = self.host_now(host);
                let body = Arc::new(self.host(host).send(now));
                self.state.requests[host].push(Request { body });
            }
            Action::Deliver { host, request, manager, again } => self.deliver(host, request, manager, again),
            Action::Take { host, answer, again } => {
                let taken = self.state.answers[host][answer].clone();
                if again {
                    spend(&mut self.state.budget.repeats);
                } else {
                    self.state.answers[host].swap_remove(answer);
                }
                self.take(host, &taken.body, Reach::All);
            }
            Action::AgentRestarts { host } => {
                spend(&mut left.agent_crashes);
                self.with_host(host, Host::restart);
                self.hang_up(host);
            }
            Action::LedgerLost { host } => {
                spend(&mut left.lost_ledgers);
                self.forget_unreported_success(host);
                self.with_host(host, Host::lose_ledger);
                self.hang_up(host);
            }
            Action::Runs { host, fence } => self.with_host(host, |h, now| h.runs(now, UID, fence)),
            Action::Succeeds { host, fence } => {
                spend(&mut left.successes);
                self.model.cover(Covered::Succeeded);
                self.with_host(host, |h, now| h.ends(now, UID, fence, EndResult::Succeeded));
                self.state.observed.done = Some(fence);
            }
            Action::Stopped { host, fence } => {
                self.with_host(host, |h, now| h.ends(now, UID, fence, EndResult::Stopped))
            }
            Action::Step { disconnected } => self.tick(disconnected),
            Action::ManagerDies { .. }
            | Action::Leads { .. }
            | Action::TakesShortCut { .. }
            | Action::Backup
            | Action::Restore
            | Action::Confirms { .. }
            | Action::Twin
            | Action::TakeOver => self.perform_on_managers(action),
        }
    }

    /// The store of a cluster is deleted: it may take the only report of the job's success with it.
    fn forget_unreported_success(&mut self, host: usize) {
        let observed = &mut self.state.observed;
        let tombstones = &self.state.hosts[host].durable().tombstones();
        let is_lost = |done: &Fence| tombstones.contains_key(&(UID, *done)) && !observed.freed.contains(done);
        if observed.done.as_ref().is_some_and(is_lost) {
            observed.done = None;
        }
    }

    fn perform_on_managers(&mut self, action: Action) {
        let (now, left) = (self.state.now, &mut self.state.budget);
        let spend = |from: &mut u8| *from = from.saturating_sub(1);
        match action {
            Action::ManagerDies { manager } => {
                spend(&mut left.manager_crashes);
                let m = &mut self.state.managers[manager];
                *m = Manager {
                    world: durable_part(&m.world),
                    role: Role::Down(now),
                    composed: BTreeMap::new(),
                    ..m.clone()
                };
            }
            Action::Leads { manager } => {
                let restored = self.state.managers[manager].restored;
                self.lead(manager, Some(RecoveryStart { restored, members_unknown: false }));
            }
            Action::TakesShortCut { manager } => {
                spend(&mut left.short_cuts);
                self.lead(manager, None);
            }
            Action::Backup => {
                spend(&mut left.backups);
                self.state.backup = Some(durable_part(&self.state.managers[0].world));
            }
            Action::Restore => {
                spend(&mut left.restores);
                let world = self.state.backup.clone().expect("possible only with a copy");
                self.state.managers[0].world = world;
                self.state.managers[0].restored = true;
            }
            Action::Confirms { manager } => {
                spend(&mut left.confirmations);
                let m = &mut self.state.managers[manager];
                // Until now another copy may have granted and renewed.
                (m.led, m.restored) = (now, false);
                if !m.world.live().recovery().awaited().is_empty() {
                    self.model.cover(Covered::ConfirmedEarly);
                }
                let action = Operator::ConfirmRecovery;
                self.input(manager, Input::Operator { actor: Actor::user("operator"), action });
            }
            Action::Twin => {
                spend(&mut left.twins);
                let world = self.state.backup.clone().expect("possible only with a copy");
                self.state.managers.push(Manager {
                    world,
                    role: Role::Down(now),
                    restored: true,
                    led: now,
                    composed: BTreeMap::new(),
                });
            }
            Action::TakeOver => {
                spend(&mut left.takeovers);
                let world = durable_part(&self.state.managers[0].world);
                self.state.managers[0].role = Role::CutOff;
                self.state.managers.push(Manager {
                    world,
                    role: Role::Down(now),
                    restored: false,
                    led: now,
                    composed: BTreeMap::new(),
                });
            }
            _ => unreachable!("{action:?} is performed before"),
        }
    }

    /// Connections end with the agent's process; requests that are under way may still arrive.
    fn hang_up(&mut self, host: usize) {
        self.state.answers[host].clear();
    }

    fn host(&mut self, host: usize) -> &mut Host {
        Arc::make_mut(&mut self.state.hosts[host])
    }

    fn host_now(&self, host: usize) -> Now {
        setup::host_now(host, self.state.now)
    }

    fn with_host(&mut self, host: usize, does: impl FnOnce(&mut Host, Now)) {
        let now = self.host_now(host);
        does(self.host(host), now);
        self.check_starts(host);
    }

    fn check_starts(&mut self, host: usize) {
        let started: Vec<(Uid, Fence)> = std::mem::take(&mut self.host(host).started);
        let observed = &mut self.state.observed;
        for (_, fence) in started {
            if observed.done.is_some() {
                observed.broken = Some("a job that succeeded was started again");
            }
            if observed.newest.is_some_and(|newest| newest >= fence) {
                observed.broken = Some("a fence that isn't the largest was started");
            }
            if observed.newest.is_some() {
                self.model.cover(Covered::StartedAgain);
            }
            observed.newest = observed.newest.max(Some(fence));
        }
    }

    fn exchange(&mut self, host: usize, manager: usize, reach: Reach) {
        let now = self.host_now(host);
        let request = self.host(host).send(now);
        if let Some(answer) = self.sync(host, manager, request) {
            self.take(host, &answer, reach);
        }
    }

    fn take(&mut self, host: usize, answer: &SyncAnswer, reach: Reach) {
        self.with_host(host, |h, now| h.take(now, answer, reach));
    }

    fn deliver(&mut self, host: usize, request: usize, manager: usize, again: bool) {
        let Request { body } = self.state.requests[host][request].clone();
        if again {
            self.state.budget.repeats -= 1;
        } else {
            self.state.requests[host].swap_remove(request);
        }
        let (session, transmission) = (body.session, body.transmission);
        let answer = self.sync(host, manager, (*body).clone());
        if let Some(body) = answer
            && self.state.hosts[host].agent().session() == session
        {
            self.state.answers[host].push(Answer { transmission, body });
        }
    }

    fn sync(&mut self, host: usize, manager: usize, request: SyncRequest) -> Option<Arc<SyncAnswer>> {
        let input =
            Input::Sync { cluster: setup::cluster(host), request: Box::new(request), may_park: false };
        let Reply::Sync(answer) = self.input(manager, input)? else { return None };
        if let SyncAnswer::Ok(response) = &*answer {
            self.check_grants(manager, &response.commands);
            let granted = response
                .commands
                .iter()
                .filter_map(|c| if let Command::Grant(grant) = c { Some(grant.fence) } else { None });
            let (m, now) = (&mut self.state.managers[manager], self.state.now);
            m.composed.extend(
                granted.chain(response.renewals.iter().map(|(_, fence)| *fence)).map(|fence| (fence, now)),
            );
        }
        Some(Arc::from(answer))
    }

    /// While recovery is open, no grant of another leadership is sent again. A grant of this leadership may
    /// be for a new job.
    fn check_grants(&mut self, manager: usize, commands: &[Command]) {
        let state = self.state.managers[manager].world.state();
        let foreign = |fence: Fence| {
            (fence.epoch, fence.leadership) != (state.leadership().epoch, state.leadership().id)
        };
        if state.recovery().is_some()
            && commands.iter().any(|c| matches!(c, Command::Grant(grant) if foreign(grant.fence)))
        {
            self.state.observed.broken = Some("a grant was sent again while recovery is open");
        }
    }

    /// Applies and commits an input, and returns the reply. A manager without its disk can only give replies
    /// that need no record.
    fn input(&mut self, manager: usize, input: Input) -> Option<Reply> {
        let now = setup::manager_now(self.state.now);
        let mut world = (*self.state.managers[manager].world).clone();
        let late = world.live().counts().of(Count::LateHolds);
        let outcome = world.apply(now, input, &OneBody);
        let turn = world.apply(now, Input::Turn, &OneBody);
        if world.live().counts().of(Count::LateHolds) > late {
            self.model.cover(Covered::LateHold);
        }
        let records = !outcome.records.is_empty() || !turn.records.is_empty();
        match self.state.managers[manager].role {
            Role::CutOff if records => {
                // The commit fails, and the world can't be read back from the disk.
                self.state.managers[manager].role = Role::Gone;
                return None;
            }
            Role::CutOff => {}
            Role::Leads | Role::Down(_) | Role::Gone => world.committed(now.mono),
        }
        let reply = self.observe(manager, &world, outcome);
        self.observe(manager, &world, turn);
        self.state.managers[manager].world = Arc::new(world);
        Some(reply)
    }

    fn lead(&mut self, manager: usize, recovery: Option<RecoveryStart>) {
        let now = setup::manager_now(self.state.now);
        self.state.leaderships += 1;
        let id = 1_000 + self.state.leaderships;
        let mut world = (*self.state.managers[manager].world).clone();
        let outcome = world.lead(Start { id, recovery, fresh: false, now }, &OneBody);
        world.committed(now.mono);
        // The only policy of this world never changes, so the operator of a copy confirms it at once.
        let doubted = world.state().rules_doubted().is_some();
        let confirmed = doubted.then(|| {
            world.apply(
                now,
                Input::Operator { actor: Actor::user("operator"), action: Operator::ConfirmRules },
                &OneBody,
            )
        });
        let led = self.state.now;
        let m = &mut self.state.managers[manager];
        (m.role, m.led) = (Role::Leads, led);
        m.composed.clear();
        self.observe(manager, &world, outcome);
        if let Some(outcome) = confirmed {
            self.observe(manager, &world, outcome);
        }
        self.state.managers[manager].world = Arc::new(world);
    }

    /// Checks the records of an outcome; returns its reply.
    fn observe(&mut self, manager: usize, world: &World, outcome: Outcome) -> Reply {
        for (_, record) in &outcome.records {
            let freed = match record {
                Record::Workload { fact: WorkloadFact::Ended { fence, .. }, .. } => {
                    Some((fence, Covered::Ended))
                }
                Record::Workload { fact: WorkloadFact::GrantRefused { fence, .. }, .. } => {
                    Some((fence, Covered::GrantRefused))
                }
                Record::Workload { fact: WorkloadFact::LeaseLapsed { fence, .. }, .. } => {
                    Some((fence, Covered::Lapsed))
                }
                _ => None,
            };
            if let Some((fence, what)) = freed {
                if what == Covered::Lapsed && self.state.observed.done == Some(*fence) {
                    self.state.observed.done = None;
                }
                self.check_freed(manager, *fence, what);
                self.state.managers[manager].composed.remove(fence);
                self.state.observed.freed.insert(*fence);
                self.model.cover(what);
            }
            match record {
                Record::Workload { uid, fact: WorkloadFact::Granted { .. } } => {
                    let again = world.state().workloads().get(uid).is_some_and(|w| w.attempts() > 1);
                    self.model.cover(if again { Covered::GrantedAgain } else { Covered::Granted });
                }
                Record::Workload { fact: WorkloadFact::Running { .. }, .. } => {
                    self.model.cover(Covered::Running)
                }
                Record::Workload { fact: WorkloadFact::Adopted { .. }, .. } => {
                    self.model.cover(Covered::Adopted)
                }
                Record::Leadership(LeadershipFact::RecoveryClosed { .. }) => {
                    self.model.cover(Covered::Recovered)
                }
                Record::Orphan { fact: OrphanFact::Seen { .. }, .. } => self.model.cover(Covered::Orphan),
                _ => {}
            }
        }
        outcome.reply
    }

    /// A lease lapses only after its term, and an end counts only if the agent's store has its tombstone.
    fn check_freed(&mut self, manager: usize, fence: Fence, what: Covered) {
        let has_tombstone = |host: &Arc<Host>| {
            host.durable().tombstones().contains_key(&(UID, fence)) || host.lost_its_store()
        };
        if what == Covered::Lapsed && !self.state.managers[manager].lapsed(fence, self.state.now) {
            self.state.observed.broken = Some("a lease was called lapsed too early");
        }
        if what != Covered::Lapsed && !self.state.hosts.iter().any(has_tombstone) {
            self.state.observed.broken = Some("an end counts although no store has its tombstone");
        }
    }

    fn tick(&mut self, disconnected: [bool; setup::CLUSTERS]) {
        for (host, disconnected) in disconnected.into_iter().enumerate() {
            match leader(self.state) {
                Some(manager) if !disconnected => {
                    // The second exchange brings what the first one asked for.
                    self.exchange(host, manager, Reach::All);
                    self.exchange(host, manager, Reach::All);
                }
                _ => {
                    self.state.budget.disconnections =
                        self.state.budget.disconnections.saturating_sub(u8::from(disconnected))
                }
            }
        }
        self.state.budget.steps = self.state.budget.steps.saturating_sub(1);
        self.state.now += 1;
        for host in 0..self.state.hosts.len() {
            self.with_host(host, Host::tick);
        }
        let now = setup::manager_now(self.state.now);
        for manager in 0..self.state.managers.len() {
            match self.state.managers[manager].role {
                Role::Leads => {
                    // An idle leader writes a heartbeat.
                    Arc::make_mut(&mut self.state.managers[manager].world).committed(now.mono);
                    self.input(manager, Input::Turn);
                }
                Role::CutOff => {
                    self.input(manager, Input::Turn);
                }
                Role::Down(_) | Role::Gone => {}
            }
        }
    }
}
