//! Every event goes to the host that it is about.

use crate::sim::context::event::SimEvent;
use crate::sim::world::Simulation;

/// Pause between two rounds of the operators.
const OPERATORS_MS: u64 = 1_500;

impl Simulation {
    /// Handles one event, now or when its host continues.
    pub(crate) fn handle(&mut self, event: SimEvent) {
        if let Some(until) = self.stalled_until(&event) {
            return self.cx.schedule(until, event);
        }
        match event {
            SimEvent::UserRequestArrives { manager, id, input } => {
                self.user_request_arrives(manager, id, *input);
            }
            SimEvent::UserReplyArrives { id, history, reply } => self.user_reply_arrives(id, history, &reply),
            SimEvent::UserRequestTimeout { id } => self.send_request(id),
            SimEvent::UsersAct => self.users_act(),
            SimEvent::OperatorsAct => {
                self.act_as_operators();
                self.cx.schedule(self.cx.now + OPERATORS_MS, SimEvent::OperatorsAct);
            }
            SimEvent::Backup => self.back_up(),
            SimEvent::FaultStrikes(fault) => self.strike(fault),
            SimEvent::FaultsEnd => self.end_faults(),
            SimEvent::EndCheck => self.check_end(),
            event => self.handle_on_host(event),
        }
    }

    /// Handles an event of a manager, an agent or a machine.
    fn handle_on_host(&mut self, event: SimEvent) {
        match event {
            SimEvent::ManagerStarts { manager, life, mode } => self.start_manager(manager, life, mode),
            SimEvent::ManagerLeads { manager, life, plan } => self.begin_leadership(manager, life, &plan),
            SimEvent::ManagerTurn { manager, turn } => self.manager_turn(manager, turn),
            SimEvent::CommitEnds { manager, life } => self.end_commit(manager, life),
            SimEvent::ManagerReloads { manager, life } => self.reload_manager(manager, life, None),
            SimEvent::ManagerThaws { manager } => self.thaw_manager(manager),
            SimEvent::DiskHeals { manager } => self.heal_disk(manager),
            SimEvent::RequestArrives { manager, agent, life, request } => {
                self.request_arrives(manager, agent, life, *request);
            }
            SimEvent::AnswerArrives { agent, life, transmission, answer } => {
                self.answer_arrives(agent, life, transmission, *answer);
            }
            SimEvent::AgentStarts { agent, life } => self.start_agent(agent, life),
            SimEvent::AgentTurn { agent, turn } => self.agent_turn(agent, turn),
            SimEvent::AnswerTimeout { agent, life, lane, transmission } => {
                self.answer_timeout(agent, life, lane, transmission);
            }
            SimEvent::ProviderReports { agent, life, event } => self.provider_reports(agent, life, event),
            SimEvent::HoldReports { agent, life, event } => self.hold_reports(agent, life, event),
            SimEvent::MachineTick { machine, turn } => self.machine_tick(machine, turn),
            SimEvent::UnguardedEnd { machine } => self.end_unguarded(machine),
            SimEvent::MachineThaws { machine } => self.thaw_machine(machine),
            SimEvent::NodeFails => self.fail_node(),
            SimEvent::NodeReturns { machine, node } => self.return_node(machine, node),
            event => unreachable!("{event:?} is handled before"),
        }
    }

    /// Users act until all faults are over, and while the fleet's objects are there.
    fn users_act(&mut self) {
        if self.cx.healed {
            return;
        }
        if !self.users.needs_fleet {
            self.act_as_users();
        }
        let at = self.cx.now + self.cx.random.users.between(100, 2 * self.cx.scenario.users_ms);
        self.cx.schedule(at, SimEvent::UsersAct);
    }

    /// Until when the host of an event is paused or frozen, if it is.
    fn stalled_until(&self, event: &SimEvent) -> Option<u64> {
        let now = self.cx.now;
        let manager = |m: usize| {
            let host = &self.managers[m];
            Some(host.paused_until).filter(|until| *until > now || host.clock.is_frozen())
        };
        let machine = |m: usize| {
            let host = &self.machines[m];
            Some(host.paused_until).filter(|until| *until > now || host.clock.is_frozen())
        };
        let agent = |a: usize| {
            let host = &self.agents[a];
            Some(host.paused_until).filter(|until| *until > now).max(machine(host.machine))
        };
        match event {
            SimEvent::ManagerStarts { manager: m, .. }
            | SimEvent::ManagerLeads { manager: m, .. }
            | SimEvent::ManagerTurn { manager: m, .. }
            | SimEvent::CommitEnds { manager: m, .. }
            | SimEvent::ManagerReloads { manager: m, .. } => manager(*m),
            SimEvent::AgentStarts { agent: a, .. }
            | SimEvent::AgentTurn { agent: a, .. }
            | SimEvent::AnswerTimeout { agent: a, .. }
            | SimEvent::AnswerArrives { agent: a, .. } => agent(*a),
            SimEvent::MachineTick { machine: m, .. } | SimEvent::UnguardedEnd { machine: m } => machine(*m),
            _ => None,
        }
    }
}
