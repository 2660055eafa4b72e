//! Events that are due on a machine, and the inputs of its agents about them.

use crate::sim::context::event::SimEvent;
use crate::sim::fleet::topology::TopologyRequest;
use crate::sim::world::Simulation;
use meridian_agent_core::{Input, RunnerEvent};

/// Clocks of machines and agents are read at least this often.
pub(crate) const CLOCK_READ_MS: u64 = 1_000;

impl Simulation {
    /// Schedules the next tick of a machine, if something is due there.
    pub(crate) fn schedule_machine_tick(&mut self, machine: usize) {
        let now = self.cx.now;
        let host = &mut self.machines[machine];
        let Some(due) = host.runner.next_tick(host.clock.now(now)) else { return };
        let at = host.clock.when(due).max(now).min(now + CLOCK_READ_MS);
        if let Some(turn) = host.plan_tick(at) {
            self.cx.schedule(at, SimEvent::MachineTick { machine, turn });
        }
    }

    /// A planned tick; does nothing if another one was planned since.
    pub(crate) fn machine_tick(&mut self, machine: usize, turn: u64) {
        if self.machines[machine].begin_tick(turn) {
            self.tick_machine(machine);
        }
    }

    /// Does everything that is due on a machine now.
    pub(crate) fn tick_machine(&mut self, machine: usize) {
        let host = &mut self.machines[machine];
        let now = host.clock.now(self.cx.now);
        host.unseen_back = false;
        let events = host.runner.tick(now);
        self.report_runner_events(machine, events);
        self.schedule_machine_tick(machine);
    }

    /// Every agent of a machine sees what happened to its gangs.
    pub(crate) fn report_runner_events(&mut self, machine: usize, events: Vec<RunnerEvent>) {
        for event in events {
            self.cx.log(|| format!("machine {machine}: {event:?}"));
            match &event {
                RunnerEvent::Moved { uid, .. } => {
                    let job = self.invariants.jobs.get(uid);
                    let required =
                        job.is_some_and(|job| matches!(job.topology, Some(TopologyRequest::Required(_))));
                    self.cx.counters.one("gangs moved");
                    self.cx.counters.add("gangs moved within a domain", u64::from(required));
                    self.check_placement(machine);
                }
                RunnerEvent::Reclaimable { uid, fence, places } => {
                    self.cx.counters.one("pods exited");
                    self.invariants.attempts.pods_exited(*uid, *fence, places.len());
                }
                _ => {}
            }
            self.send_to_agents(machine, || Input::Runner(event.clone()));
        }
    }

    /// Puts an input into the inbox of every running agent of a machine.
    pub(crate) fn send_to_agents(&mut self, machine: usize, input: impl Fn() -> Input) {
        for a in 0..self.agents.len() {
            if self.agents[a].machine == machine && self.agents[a].agent.is_some() {
                self.agents[a].inbox.push(input());
                self.wake_agent(a, self.cx.now);
            }
        }
    }
}
