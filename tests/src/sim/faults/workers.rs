//! Faults of agents and their machines.

use crate::sim::clusters::cluster_index;
use crate::sim::context::event::SimEvent;
use crate::sim::hosts::agent::AgentHost;
use crate::sim::scenario::Fault;
use crate::sim::world::Simulation;
use meridian_shared::ids::Uid;

impl Simulation {
    /// A fault strikes an agent or its machine. Only their agent can stop supervised gangs, so it must not be
    /// killed.
    pub(super) fn strike_worker(&mut self, fault: Fault) {
        let can_be_struck = |a: &usize| {
            let host = &self.agents[*a];
            let machine = &self.machines[host.machine];
            (machine.guarded || fault == Fault::MachineReboot)
                && !machine.clock.is_frozen()
                && !host.gone
                && host.agent.is_some()
                && !host.hostile
        };
        let candidates: Vec<usize> = (0..self.agents.len()).filter(can_be_struck).collect();
        let Some(a) = self.cx.random.faults.pick(&candidates).copied() else { return };
        let machine = self.agents[a].machine;
        self.cx.log(|| format!("agent {}: {fault:?} on machine {machine}", self.agents[a].name));
        match fault {
            Fault::AgentKill => {
                self.cx.counters.one("agent kills");
                self.end_agent(a, true);
            }
            Fault::AgentPause => {
                let long = self.cx.random.faults.permille(400);
                self.cx.counters.one("agents paused");
                let duration = self.short_or_long(long, (200, 5_000), (5_000, 20_000));
                self.agents[a].paused_until = self.cx.now + duration;
            }
            Fault::MachineFreeze => self.freeze_machine(machine),
            Fault::MachineReboot => self.reboot_machine(machine),
            Fault::StoreLost => {
                self.cx.counters.one("stores lost");
                self.end_agent(a, true);
                self.agents[a].lose_store();
            }
            Fault::StoreFull => self.fill_store(a),
            Fault::StoreFailSync => self.spoil_store(a),
            Fault::Clone => self.clone_agent(a),
            Fault::Rival => self.add_rival(a),
            _ => {}
        }
    }

    fn freeze_machine(&mut self, machine: usize) {
        let long = self.cx.random.faults.permille(500);
        let until = self.cx.now + self.short_or_long(long, (200, 6_000), (6_000, 30_000));
        if self.has_unseen_jump(machine) {
            return;
        }
        self.cx.counters.one("machines frozen");
        self.machines[machine].clock.freeze(self.cx.now);
        self.machines[machine].paused_until = until;
        self.cx.schedule(until, SimEvent::MachineThaws { machine });
    }

    /// Whether a process on this machine hasn't read its clocks since the wall clock was set back. Each
    /// process reads them once a second, and doesn't notice a pause before that.
    fn has_unseen_jump(&self, machine: usize) -> bool {
        let host = &self.machines[machine];
        let guards = host.unseen_back && host.runner.alive().next().is_some();
        guards || self.agents.iter().any(|agent| agent.machine == machine && !agent.gone && agent.unseen_back)
    }

    /// A frozen machine continues: its guards read the clocks before anything else happens there.
    pub(crate) fn thaw_machine(&mut self, machine: usize) {
        self.cx.log(|| format!("machine {machine}: continues"));
        self.machines[machine].clock.thaw(self.cx.now);
        self.tick_machine(machine);
        let alive: Vec<Uid> = self.machines[machine].runner.alive().map(|(uid, _)| uid).collect();
        alive.into_iter().for_each(|uid| self.check_runs_once(uid));
        for a in 0..self.agents.len() {
            if self.agents[a].machine == machine {
                self.wake_agent(a, self.cx.now);
            }
        }
    }

    fn reboot_machine(&mut self, machine: usize) {
        self.cx.counters.one("machines rebooted");
        let mono = self.cx.random.faults.between(1_000, 60_000);
        let boot = self.cx.random.faults.wide();
        let host = &mut self.machines[machine];
        host.runner.reboot();
        host.clock.reboot(self.cx.now, mono);
        host.boot = boot;
        self.reset_toleration_timers(machine);
        for a in 0..self.agents.len() {
            if self.agents[a].machine == machine && self.agents[a].agent.is_some() {
                self.end_agent(a, true);
            }
        }
    }

    /// Whether the cluster of this agent has another agent.
    fn has_second_agent(&self, a: usize) -> bool {
        let cluster = &self.agents[a].cluster;
        self.agents.iter().filter(|host| !host.gone && host.cluster == *cluster).count() > 1
    }

    /// Starts a second agent with a copy of the store, on the same machine: two deployments of one cluster.
    fn clone_agent(&mut self, a: usize) {
        if self.has_second_agent(a) {
            return;
        }
        self.cx.counters.one("clones");
        let machine = self.agents[a].machine;
        self.machines[machine].has_unknown_gangs = true;
        let mut copy = AgentHost::new(self.agents[a].cluster.clone(), machine);
        copy.store = self.agents[a].store.clone();
        copy.is_copy = true;
        let agent = self.add_agent(copy);
        let at = self.cx.now + self.cx.random.faults.between(10, 3_000);
        self.cx.schedule(at, SimEvent::AgentStarts { agent, life: 0 });
    }

    /// Starts a second agent of the same name, with its own machine and store.
    fn add_rival(&mut self, a: usize) {
        if self.has_second_agent(a) {
            return;
        }
        self.cx.counters.one("rivals");
        let cluster = cluster_index(self.agents[a].cluster.as_str()).expect("agents are of known clusters");
        let agent = self.new_worker(cluster);
        // The agent that loses the name ends for good, and can't stop supervised gangs any more.
        let machine = self.agents[agent].machine;
        self.machines[machine].guard();
        let at = self.cx.now + self.cx.random.faults.between(10, 3_000);
        self.cx.schedule(at, SimEvent::AgentStarts { agent, life: 0 });
    }
}
