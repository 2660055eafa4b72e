//! Starts and ends of an agent's process.

use super::situations;
use crate::sim::context::event::SimEvent;
use crate::sim::invariants::violation::violation;
use crate::sim::scenario::Fault;
use crate::sim::world::Simulation;
use meridian_agent_core::durable::Durable;
use meridian_agent_core::{Agent, Config};
use meridian_shared::ids::LedgerId;
use meridian_shared::managed::ManagedResources;
use meridian_shared::planted::Planted;
use meridian_shared::protocol::RunnerKind;

/// Pause of a supervisor that starts a superseded agent again, with a new store.
const SUPERVISOR_PAUSE_MS: u64 = 2_000;

impl Simulation {
    /// Starts an agent's process, unless a later process was started.
    pub(crate) fn start_agent(&mut self, a: usize, life: u64) {
        let host = &self.agents[a];
        if host.life != life || host.gone || host.agent.is_some() {
            return;
        }
        let machine = host.machine;
        let now = self.machines[machine].clock.now(self.cx.now);
        let config = self.agent_config(a);
        self.count_restarted_timers(a);
        let Some(durable) = self.load_store(a) else { return };
        situations::count_start(&durable, &mut self.cx.counters);
        // The runner's records may be deleted together with the store. Then nobody knows which gangs still
        // run.
        let blind = durable.sessions() == 0 && self.cx.random.agents.permille(500);
        self.machines[machine].has_unknown_gangs |= blind;
        self.machines[machine].runner.report_again();
        let found = if blind { Vec::new() } else { self.machines[machine].runner.found() };
        let (agent, outcome) = Agent::start(config, durable, found, self.cx.random.agents.bits(), now);
        let session = agent.session();
        self.cx.name(session, format!("{}#{}", self.agents[a].name, session.counter));
        self.cx.log(|| format!("agent {}: starts session {}", self.agents[a].name, session));
        let nodes = self.machines[machine].nodes_input();
        self.agents[a].begin(agent);
        if !blind {
            self.schedule_unguarded_end(machine);
        }
        let (writes, effects) = outcome.into_parts();
        if !self.persist(a, writes) {
            return;
        }
        self.perform_effects(a, effects);
        self.apply_to_agent(a, vec![nodes]);
        self.wake_agent(a, self.cx.now);
    }

    fn agent_config(&self, a: usize) -> Config {
        let host = &self.agents[a];
        let machine = &self.machines[host.machine];
        Config {
            cluster: host.cluster.clone(),
            runner: RunnerKind::Simulated,
            guarded: machine.guarded && machine.namespaces,
            located: None,
            boot: machine.boot,
            replacement_wait: self.cx.scenario.replacement_wait,
            holds: self.cx.scenario.hold_settings(),
            managed: ManagedResources::default(),
            planted: self.cx.scenario.planted.map_or(Planted::NONE, Planted::with),
        }
    }

    /// The content of the store, or a new store; `None` if that can't be made durable.
    fn load_store(&mut self, a: usize) -> Option<Durable> {
        let pairs = self.agents[a].store.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        match Durable::load(pairs) {
            Ok(Some(durable)) => Some(durable),
            Ok(None) => {
                let durable = Durable::new(LedgerId(self.cx.random.agents.wide()));
                self.commit_store(a, vec![durable.birth()]).then_some(durable)
            }
            Err(error) => {
                self.cx.record_verdict(violation("store", error.to_string()));
                None
            }
        }
    }

    /// Whether this agent's process may be killed at any moment. A supervised gang needs its agent for its
    /// stop.
    pub(crate) fn may_kill_agent(&self, a: usize) -> bool {
        self.cx.scenario.faults.contains_key(&Fault::AgentKill)
            && !self.cx.healed
            && self.machines[self.agents[a].machine].guarded
    }

    /// Ends the process; gangs continue under their guards. With `again`, the next one starts after a random
    /// pause.
    pub(crate) fn end_agent(&mut self, a: usize, again: bool) {
        let pause = again.then(|| self.cx.random.faults.between(50, 2_500));
        self.end_agent_for(a, pause);
    }

    /// Ends the process; the next one starts after `pause`, if there is one.
    pub(crate) fn end_agent_for(&mut self, a: usize, pause: Option<u64>) {
        let host = &mut self.agents[a];
        if let Some(agent) = host.agent.take() {
            situations::count_end(&agent, &mut self.cx.counters);
        }
        host.life += 1;
        host.paused_until = 0;
        let life = host.life;
        self.cx.counters.one("agent ends");
        if let Some(pause) = pause {
            self.cx.schedule(self.cx.now + pause, SimEvent::AgentStarts { agent: a, life });
        }
    }

    /// Another agent of the same cluster took over. This agent ends for good, unless it is the cluster's last
    /// one: then its supervisor starts it again with a new store.
    pub(crate) fn supersede_agent(&mut self, a: usize) {
        self.cx.log(|| format!("agent {}: is superseded", self.agents[a].name));
        self.cx.counters.one("agents superseded");
        let is_last = !self
            .agents
            .iter()
            .enumerate()
            .any(|(i, host)| i != a && !host.gone && host.cluster == self.agents[a].cluster);
        self.end_agent(a, false);
        if is_last {
            self.agents[a].lose_store();
            let life = self.agents[a].life;
            let at = self.cx.now + SUPERVISOR_PAUSE_MS;
            self.cx.schedule(at, SimEvent::AgentStarts { agent: a, life });
        } else {
            self.agents[a].gone = true;
        }
    }
}
