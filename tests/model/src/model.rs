//! What may happen next, what it does, and what must always hold.

use meridian_manager_core::facts::record::{LeadershipFact, OrphanFact, WorkloadFact};
use crate::host::{Host, Reach};
use crate::setup::{self, OneBody, UID};
use crate::state::{Answer, Budget, Manager, Request, Role, State, durable_part};
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::input::{Input, Operator};
use meridian_manager_core::facts::outcome::{Outcome, Reply};
use meridian_manager_core::facts::record::Record;
use meridian_manager_core::facts::submission::RecoveryStart;
use meridian_manager_core::{Start, World};
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::planted::{Bug, Planted};
use meridian_shared::protocol::{Command, EndResult, SyncAnswer, SyncRequest};
use stateright::{Model, Property};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most requests and answers of one cluster in flight.
const FLYING_MAX: usize = 3;
/// The largest epoch that is looked at.
const EPOCH_MAX: u64 = 4;

/// Everything that can happen. Clusters and managers are named by number, messages by their place among those in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The user submits the job.
    Submit,
    /// The user deletes it.
    Delete,
    /// A whole exchange at one moment.
    Exchange { host: usize, manager: usize },
    /// As before, and the agent is killed before it is done with the answer.
    ExchangeAndDie { host: usize, manager: usize, stored: bool },
    /// A request goes out.
    Send { host: usize },
    /// It arrives; its answer goes out. With `again` it will arrive once more.
    Deliver { host: usize, request: usize, manager: usize, again: bool },
    /// An answer arrives. With `again` it will arrive once more.
    Take { host: usize, answer: usize, again: bool },
    /// The agent is killed and restarted.
    AgentRestarts { host: usize },
    /// The agent's store is deleted, the agent restarted.
    LedgerLost { host: usize },
    /// All pods of an attempt have started.
    Runs { host: usize, fence: Fence },
    /// The job succeeds.
    Succeeds { host: usize, fence: Fence },
    /// A stop is done.
    Stopped { host: usize, fence: Fence },
    /// A manager is killed.
    ManagerDies { manager: usize },
    /// It leads again, through recovery.
    Leads { manager: usize },
    /// It leads again at once: the journal is the one that was left.
    TakesShortCut { manager: usize },
    /// The journal is copied.
    Backup,
    /// The journal of a manager that is down is replaced by the copy.
    Restore,
    /// A second manager is started on the copy, beside the first.
    Twin,
    /// The manager's disk is cut off, and a standby begins to take over.
    TakeOver,
    /// Time passes, after every cluster that isn't cut off has exchanged with the manager that leads.
    Step { silent: [bool; setup::CLUSTERS] },
}

/// What a search came across, so that one which met nothing can't pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seen {
    /// A grant.
    Granted,
    /// A gang that runs.
    Running,
    /// A grant after another.
    GrantedAgain,
    /// A refused grant.
    GrantRefused,
    /// A lapse.
    Lapsed,
    /// A reported run that became the workload's leg.
    Adopted,
    /// An end of recovery.
    Recovered,
    /// An end that freed.
    Ended,
    /// A success.
    Succeeded,
    /// A run of an unknown uid.
    Orphan,
    /// A hold for a leg that was over.
    LateHold,
    /// A gang that began to run after another attempt had run.
    StartedAgain,
}

impl Seen {
    /// All, in the order of the counters.
    pub const ALL: [Self; 12] = [
        Self::Granted,
        Self::Running,
        Self::GrantedAgain,
        Self::GrantRefused,
        Self::Lapsed,
        Self::Adopted,
        Self::Recovered,
        Self::Ended,
        Self::Succeeded,
        Self::Orphan,
        Self::LateHold,
        Self::StartedAgain,
    ];
}

/// One configuration of the search.
#[derive(Clone, Debug)]
pub struct Meridian {
    /// Its name.
    pub name: &'static str,
    /// What may go wrong.
    pub budget: Budget,
    /// A search that looks at fewer states proves nothing.
    pub least: usize,
    /// Ask both clusters at once.
    pub race: bool,
    /// Clusters that may do anything at any moment; the others exchange only when time passes.
    pub free: [bool; setup::CLUSTERS],
    /// What has happened before the search begins.
    pub before: Vec<Action>,
    /// A bug planted in both cores.
    pub planted: Planted,
    /// What was met, counted over transitions.
    pub seen: Arc<[AtomicU64; Seen::ALL.len()]>,
}

impl Meridian {
    fn saw(&self, what: Seen) {
        self.seen[what as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often something was met.
    pub fn count(&self, what: Seen) -> u64 {
        self.seen[what as usize].load(Ordering::Relaxed)
    }

    /// Does one action.
    pub fn step(&self, last: &State, action: Action) -> State {
        let mut next = last.clone();
        Turn { model: self, state: &mut next }.perform(action);
        next.seal();
        next
    }

    fn begin(&self) -> State {
        let hosts = (0..setup::CLUSTERS).map(|i| Host::new(i, self.planted, setup::host_now(i, 0))).collect();
        let mut state = State::new(setup::world(self.race, self.planted), hosts);
        // Sessions open, inventories and capacities are taken; the third exchange says nothing new.
        for host in [0, 1, 0, 1, 0, 1] {
            state = self.step(&state, Action::Exchange { host, manager: 0 });
        }
        for action in &self.before {
            state = self.step(&state, *action);
        }
        state.budget = self.budget;
        state.seal();
        state
    }
}

impl Model for Meridian {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.begin()]
    }

    fn actions(&self, state: &State, out: &mut Vec<Action>) {
        if state.ghost.broken.is_some() {
            return;
        }
        let left = state.budget;
        let mut offer = |when: bool, action: Action| {
            if when {
                out.push(action);
            }
        };
        offer(!state.submitted && state.managers[0].role == Role::Leads, Action::Submit);
        let known = state.managers[0].world.state.workloads.get(&UID);
        offer(
            left.deletions > 0
                && state.managers[0].role == Role::Leads
                && known.is_some_and(|w| w.deletion.is_none()),
            Action::Delete,
        );
        for (manager, m) in state.managers.iter().enumerate() {
            if let Role::Down(since) = m.role {
                let waited = setup::waited(state.now - since);
                offer(waited, Action::Leads { manager });
                let followed =
                    if manager == 0 { since == state.now && !m.restored } else { waited && !m.restored };
                offer(followed && left.short_cuts > 0, Action::TakesShortCut { manager });
            }
            offer(left.manager_crashes > 0 && m.role == Role::Leads, Action::ManagerDies { manager });
        }
        offer(left.backups > 0 && state.backup.is_none() && state.submitted, Action::Backup);
        offer(
            left.restores > 0 && state.backup.is_some() && matches!(state.managers[0].role, Role::Down(_)),
            Action::Restore,
        );
        offer(left.twins > 0 && state.backup.is_some() && state.managers.len() == 1, Action::Twin);
        offer(
            left.takeovers > 0 && state.managers.len() == 1 && state.managers[0].role == Role::Leads,
            Action::TakeOver,
        );
        let answered = leader(state).is_some();
        for silent in [[false, false], [true, false], [false, true], [true, true]] {
            let cost = silent.iter().filter(|s| **s).count();
            let possible = if answered { cost <= usize::from(left.silences) } else { cost == 0 };
            offer(left.steps > 0 && possible, Action::Step { silent });
        }
        for host in 0..state.hosts.len() {
            if self.free[host] {
                host_actions(state, host, out);
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        Some(self.step(last, action))
    }

    fn within_boundary(&self, state: &State) -> bool {
        // Two managers on copies of one journal outbid each other for ever.
        state.managers.iter().all(|m| m.world.state.leadership.epoch <= EPOCH_MAX)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("at most one cluster runs the workload", |_, s: &State| {
                s.hosts.iter().filter(|h| h.runner.live().next().is_some()).count() <= 1
                    && s.hosts.iter().all(|h| h.runner.live().count() <= 1)
            }),
            Property::always("nothing runs that was freed", |m: &Self, s: &State| {
                // A copy that runs beside its original can't know what the other renews: only grants are excluded then.
                let copies = s.managers.len() > 1 && s.managers[1].restored;
                copies
                    || m.budget.twins > 0
                    || s.hosts
                        .iter()
                        .flat_map(|h| h.runner.live())
                        .all(|(_, fence, _)| !s.ghost.freed.contains(&fence))
            }),
            Property::always("no transition breaks a promise", |_, s: &State| s.ghost.broken.is_none()),
            Property::always("the manager's core is sound", |_, s: &State| {
                s.managers
                    .iter()
                    .filter(|m| m.role == Role::Leads)
                    .all(|m| m.world.check().is_ok() && m.world.over_quota().is_empty())
            }),
            Property::always("the agents' cores are sound", |_, s: &State| {
                s.hosts.iter().all(|h| h.agent().check().is_ok())
            }),
        ]
    }
}

/// The newest manager that leads: whom clusters turn to.
fn leader(state: &State) -> Option<usize> {
    state.managers.iter().rposition(|m| m.role == Role::Leads)
}

fn host_actions(state: &State, host: usize, out: &mut Vec<Action>) {
    let left = state.budget;
    let answering = || {
        state
            .managers
            .iter()
            .enumerate()
            .filter(|(_, m)| matches!(m.role, Role::Leads | Role::CutOff))
            .map(|(i, _)| i)
    };
    for manager in answering() {
        out.push(Action::Exchange { host, manager });
        if left.agent_crashes > 0 {
            out.push(Action::ExchangeAndDie { host, manager, stored: true });
            out.push(Action::ExchangeAndDie { host, manager, stored: false });
        }
    }
    if left.lingering > 0 && state.requests[host].len() + state.answers[host].len() < FLYING_MAX {
        out.push(Action::Send { host });
    }
    for request in 0..state.requests[host].len() {
        for manager in answering() {
            out.push(Action::Deliver { host, request, manager, again: false });
            if left.repeats > 0 {
                out.push(Action::Deliver { host, request, manager, again: true });
            }
        }
    }
    for answer in 0..state.answers[host].len() {
        out.push(Action::Take { host, answer, again: false });
        if left.repeats > 0 {
            out.push(Action::Take { host, answer, again: true });
        }
    }
    if left.agent_crashes > 0 {
        out.push(Action::AgentRestarts { host });
    }
    if left.lost_ledgers > 0 {
        out.push(Action::LedgerLost { host });
    }
    for (_, fence, gang) in state.hosts[host].runner.live() {
        if gang.stopping {
            out.push(Action::Stopped { host, fence });
        } else if !gang.running {
            out.push(Action::Runs { host, fence });
        } else if left.successes > 0 {
            out.push(Action::Succeeds { host, fence });
        }
    }
}

/// One transition under way.
struct Turn<'a> {
    model: &'a Meridian,
    state: &'a mut State,
}

impl Turn<'_> {
    fn perform(&mut self, action: Action) {
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
                let kept =
                    |done: &Fence| self.state.hosts[host].durable().tombstones.contains_key(&(UID, *done));
                if self
                    .state
                    .ghost
                    .done
                    .as_ref()
                    .is_some_and(|done| kept(done) && !self.state.ghost.freed.contains(done))
                {
                    // The store takes the only news of the success with it.
                    self.state.ghost.done = None;
                }
                self.with_host(host, Host::lose_ledger);
                self.hang_up(host);
            }
            Action::Runs { host, fence } => self.with_host(host, |h, now| h.runs(now, UID, fence)),
            Action::Succeeds { host, fence } => {
                spend(&mut left.successes);
                self.model.saw(Seen::Succeeded);
                self.with_host(host, |h, now| h.ends(now, UID, fence, EndResult::Succeeded));
                self.state.ghost.done = Some(fence);
            }
            Action::Stopped { host, fence } => {
                self.with_host(host, |h, now| h.ends(now, UID, fence, EndResult::Stopped))
            }
            Action::Step { silent } => self.tick(silent),
            Action::ManagerDies { .. }
            | Action::Leads { .. }
            | Action::TakesShortCut { .. }
            | Action::Backup
            | Action::Restore
            | Action::Twin
            | Action::TakeOver => self.perform_on_managers(action),
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
                let world = self.state.backup.clone().expect("offered only with a copy");
                self.state.managers[0].world = world;
                self.state.managers[0].restored = true;
            }
            Action::Twin => {
                spend(&mut left.twins);
                let world = self.state.backup.clone().expect("offered only with a copy");
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
            _ => unreachable!("performed before"),
        }
    }

    /// Connections die with the agent's process; requests that are under way may still arrive.
    fn hang_up(&mut self, host: usize) {
        self.state.answers[host].clear();
    }

    fn host(&mut self, host: usize) -> &mut Host {
        Arc::make_mut(&mut self.state.hosts[host])
    }

    fn host_now(&self, host: usize) -> meridian_shared::time::Now {
        setup::host_now(host, self.state.now)
    }

    fn with_host(&mut self, host: usize, does: impl FnOnce(&mut Host, meridian_shared::time::Now)) {
        let now = self.host_now(host);
        does(self.host(host), now);
        self.note_starts(host);
    }

    fn note_starts(&mut self, host: usize) {
        let started: Vec<(Uid, Fence)> = std::mem::take(&mut self.host(host).started);
        let ghost = &mut self.state.ghost;
        for (_, fence) in started {
            if ghost.done.is_some() {
                ghost.broken = Some("a job that succeeded was started again");
            }
            if ghost.newest.is_some_and(|newest| newest >= fence) {
                ghost.broken = Some("a fence that isn't the largest was started");
            }
            if ghost.newest.is_some() {
                self.model.saw(Seen::StartedAgain);
            }
            ghost.newest = ghost.newest.max(Some(fence));
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
            self.note_grants(manager, &response.commands);
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

    /// While recovery is open no grant of another leadership is sent again; what this leadership grants may be for a new job.
    fn note_grants(&mut self, manager: usize, commands: &[Command]) {
        let state = &self.state.managers[manager].world.state;
        let foreign =
            |fence: Fence| (fence.epoch, fence.leadership) != (state.leadership.epoch, state.leadership.id);
        if state.recovery.is_some()
            && commands.iter().any(|c| matches!(c, Command::Grant(grant) if foreign(grant.fence)))
        {
            self.state.ghost.broken = Some("a grant was sent again while recovery is open");
        }
    }

    /// Applies, commits, and gives the reply. A manager whose disk is gone can give only replies that needed no record.
    fn input(&mut self, manager: usize, input: Input) -> Option<Reply> {
        let now = setup::manager_now(self.state.now);
        let mut world = (*self.state.managers[manager].world).clone();
        let late = world.live.counts.late_holds;
        let outcome = world.apply(now, input, &OneBody);
        let turn = world.apply(now, Input::Turn, &OneBody);
        if world.live.counts.late_holds > late {
            self.model.saw(Seen::LateHold);
        }
        let records = !outcome.records.is_empty() || !turn.records.is_empty();
        match self.state.managers[manager].role {
            Role::CutOff if records => {
                // The commit fails: 503, and the world is thrown away with nothing to reload it from.
                self.state.managers[manager].role = Role::Gone;
                return None;
            }
            Role::CutOff => {}
            Role::Leads | Role::Down(_) | Role::Gone => world.committed(now.mono),
        }
        let reply = self.note(manager, &world, outcome);
        self.note(manager, &world, turn);
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
        // The one policy of this world never changes: the operator of a copy looks and says so at once.
        let doubted = world.state.rules_doubted.is_some();
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
        self.note(manager, &world, outcome);
        if let Some(outcome) = confirmed {
            self.note(manager, &world, outcome);
        }
        self.state.managers[manager].world = Arc::new(world);
    }

    fn note(&mut self, manager: usize, world: &World, outcome: Outcome) -> Reply {
        for (_, record) in &outcome.records {
            let freed = match record {
                Record::Workload { fact: WorkloadFact::Ended { fence, .. }, .. } => Some((fence, Seen::Ended)),
                Record::Workload { fact: WorkloadFact::GrantRefused { fence, .. }, .. } => Some((fence, Seen::GrantRefused)),
                Record::Workload { fact: WorkloadFact::LeaseLapsed { fence, .. }, .. } => Some((fence, Seen::Lapsed)),
                _ => None,
            };
            if let Some((fence, what)) = freed {
                if what == Seen::Lapsed && self.state.ghost.done == Some(*fence) {
                    self.state.ghost.done = None;
                }
                self.judge_freed(manager, *fence, what);
                self.state.managers[manager].composed.remove(fence);
                self.state.ghost.freed.insert(*fence);
                self.model.saw(what);
            }
            match record {
                Record::Workload { uid, fact: WorkloadFact::Granted { .. } } => {
                    let again = world.state.workloads.get(uid).is_some_and(|w| w.attempts > 1);
                    self.model.saw(if again { Seen::GrantedAgain } else { Seen::Granted });
                }
                Record::Workload { fact: WorkloadFact::Running { .. }, .. } => self.model.saw(Seen::Running),
                Record::Workload { fact: WorkloadFact::Adopted { .. }, .. } => self.model.saw(Seen::Adopted),
                Record::Leadership(LeadershipFact::RecoveryClosed { .. }) => self.model.saw(Seen::Recovered),
                Record::Orphan { fact: OrphanFact::Seen { .. }, .. } => self.model.saw(Seen::Orphan),
                _ => {}
            }
        }
        outcome.reply
    }

    /// A lease lapses only when it is time, and an end counts only when the agent's store has its grave.
    fn judge_freed(&mut self, manager: usize, fence: Fence, what: Seen) {
        let buried =
            |host: &Arc<Host>| host.durable().tombstones.contains_key(&(UID, fence)) || host.lost_its_store();
        if what == Seen::Lapsed && !self.state.managers[manager].lapsed(fence, self.state.now) {
            self.state.ghost.broken = Some("a lease was called lapsed before its time");
        }
        if what != Seen::Lapsed && !self.state.hosts.iter().any(buried) {
            self.state.ghost.broken = Some("an end counts that no store remembers");
        }
    }

    fn tick(&mut self, silent: [bool; setup::CLUSTERS]) {
        for (host, silent) in silent.into_iter().enumerate() {
            match leader(self.state) {
                Some(manager) if !silent => {
                    // The second one brings what the first was asked for.
                    self.exchange(host, manager, Reach::All);
                    self.exchange(host, manager, Reach::All);
                }
                _ => self.state.budget.silences = self.state.budget.silences.saturating_sub(u8::from(silent)),
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
                    // The heartbeat of an idle leader.
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

/// Whether the model knows a bug's rule at all; the others are the simulator's.
pub fn planted(bug: Option<Bug>) -> Planted {
    bug.map_or(Planted::NONE, Planted::with)
}
