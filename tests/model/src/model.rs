//! The search space: which actions are possible in a state, and what must always hold.

use crate::action::{Action, Covered};
use crate::host::Host;
use crate::setup::{self, UID};
use crate::state::{Budget, Role, State};
use crate::transition::Transition;
use meridian_shared::planted::{Bug, Planted};
use stateright::{Model, Property};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most requests and answers of one cluster that are in flight together.
const FLYING_MAX: usize = 3;
/// The largest epoch that is searched.
const EPOCH_MAX: u64 = 4;

/// One configuration of the search.
#[derive(Clone, Debug)]
pub struct ProtocolModel {
    /// Name of the configuration.
    pub name: &'static str,
    /// The bound: what may go wrong.
    pub budget: Budget,
    /// A search of fewer states proves nothing.
    pub least: usize,
    /// Offers go to both clusters at once.
    pub race: bool,
    /// Clusters that may act at any moment; the others exchange only when time passes.
    pub free: [bool; setup::CLUSTERS],
    /// What happens before the search begins.
    pub before: Vec<Action>,
    /// A bug planted in both cores.
    pub planted: Planted,
    /// Number of transitions that covered each event.
    pub covered: Arc<[AtomicU64; Covered::ALL.len()]>,
}

impl ProtocolModel {
    /// Counts that a transition covers this.
    pub(crate) fn cover(&self, what: Covered) {
        self.covered[what as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Number of transitions that covered the event.
    pub fn count(&self, what: Covered) -> u64 {
        self.covered[what as usize].load(Ordering::Relaxed)
    }

    /// The state after one action.
    pub fn step(&self, last: &State, action: Action) -> State {
        let mut next = last.clone();
        Transition::new(self, &mut next).perform(action);
        next.seal();
        next
    }

    fn begin(&self) -> State {
        let hosts = (0..setup::CLUSTERS).map(|i| Host::new(i, self.planted, setup::host_now(i, 0))).collect();
        let mut state = State::new(setup::world(self.race, self.planted), hosts);
        // Sessions open, and inventories and capacities are taken. The third exchange brings nothing new.
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

impl Model for ProtocolModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.begin()]
    }

    fn actions(&self, state: &State, out: &mut Vec<Action>) {
        if state.observed.broken.is_some() {
            return;
        }
        manager_actions(state, out);
        let left = state.budget;
        let mut offer = |when: bool, action: Action| {
            if when {
                out.push(action);
            }
        };
        let answered = leader(state).is_some();
        for disconnected in [[false, false], [true, false], [false, true], [true, true]] {
            let cost = disconnected.iter().filter(|s| **s).count();
            let possible = if answered { cost <= usize::from(left.disconnections) } else { cost == 0 };
            offer(left.steps > 0 && possible, Action::Step { disconnected });
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
        // Two managers on copies of one journal would raise their epochs forever.
        state.managers.iter().all(|m| m.world.state().leadership().epoch <= EPOCH_MAX)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("at most one cluster runs the workload", |_, s: &State| {
                s.hosts.iter().filter(|h| h.runner.live().next().is_some()).count() <= 1
                    && s.hosts.iter().all(|h| h.runner.live().count() <= 1)
            }),
            Property::always("nothing runs that was freed", |m: &Self, s: &State| {
                // If a copy and its original lead at the same time, neither knows the leases that the other
                // one renews.
                let copies = s.managers.len() > 1 && s.managers[1].restored;
                copies
                    || m.budget.twins > 0
                    || s.hosts
                        .iter()
                        .flat_map(|h| h.runner.live())
                        .all(|(_, fence, _)| !s.observed.freed.contains(&fence))
            }),
            Property::always("no transition breaks a promise", |_, s: &State| s.observed.broken.is_none()),
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

/// Actions of the user and of managers.
fn manager_actions(state: &State, out: &mut Vec<Action>) {
    let left = state.budget;
    let mut offer = |when: bool, action: Action| {
        if when {
            out.push(action);
        }
    };
    offer(!state.submitted && state.managers[0].role == Role::Leads, Action::Submit);
    let known = state.managers[0].world.state().workloads().get(&UID);
    offer(
        left.deletions > 0
            && state.managers[0].role == Role::Leads
            && known.is_some_and(|w| w.deletion().is_none()),
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
        let is_copy = m.world.state().recovery().is_some_and(|recovery| recovery.restored);
        let is_alone = state.managers.len() == 1 && m.role == Role::Leads;
        offer(left.confirmations > 0 && is_copy && is_alone, Action::Confirms { manager });
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
}

/// The newest manager that leads; clusters send to it.
pub(crate) fn leader(state: &State) -> Option<usize> {
    state.managers.iter().rposition(|m| m.role == Role::Leads)
}

/// Actions of a cluster.
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

/// The switches that plant this bug in both cores.
pub fn planted(bug: Option<Bug>) -> Planted {
    bug.map_or(Planted::NONE, Planted::with)
}
