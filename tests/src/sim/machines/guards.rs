//! Guards that are killed, and their gangs.
//!
//! If a guard is init of its gang's PID namespace, the gang ends with it. Otherwise nothing ends the gang at
//! its lapse until its agent notices, or until the next agent starts. Only in that time may a gang outlive
//! its lapse; docs/protocol.md names this gap.

use crate::sim::context::event::SimEvent;
use crate::sim::hosts::runner::AttemptKey;
use crate::sim::world::Simulation;

/// Longest time in which a running agent notices that a guard is gone.
const NOTICE_MS_MAX: u64 = 100;

impl Simulation {
    /// Kills the guard of a random gang.
    pub(crate) fn kill_guard(&mut self) {
        let guarded =
            self.machines.iter().enumerate().filter(|(_, m)| m.guarded && m.honest && !m.clock.is_frozen());
        let gangs: Vec<(usize, AttemptKey)> =
            guarded.flat_map(|(i, m)| m.runner.guarded().map(move |key| (i, key))).collect();
        let Some((machine, key)) = self.cx.random.faults.pick(&gangs).copied() else { return };
        self.cx.log(|| format!("machine {machine}: the guard of {} (fence {}) is killed", key.0, key.1));
        self.cx.counters.one("guards killed");
        let host = &mut self.machines[machine];
        let now = host.clock.now(self.cx.now);
        match host.runner.kill_guard(now, key, host.namespaces) {
            Some(event) => self.report_runner_events(machine, vec![event]),
            None => {
                self.cx.counters.one("gangs without a guard");
                self.schedule_unguarded_end(machine);
            }
        }
        self.schedule_machine_tick(machine);
    }

    /// An agent on this machine soon notices gangs without a guard, if there are any.
    pub(crate) fn schedule_unguarded_end(&mut self, machine: usize) {
        if self.machines[machine].runner.has_unguarded() {
            let at = self.cx.now + self.cx.random.runners.between(1, NOTICE_MS_MAX);
            self.cx.schedule(at, SimEvent::UnguardedEnd { machine });
        }
    }

    /// An agent ends gangs without a guard. If no agent runs, the next one does so when it starts.
    pub(crate) fn end_unguarded(&mut self, machine: usize) {
        let here = self.agents.iter().filter(|host| host.machine == machine && host.agent.is_some());
        match here.map(|host| host.paused_until).min() {
            None => {}
            Some(until) if until > self.cx.now => {
                self.cx.schedule(until, SimEvent::UnguardedEnd { machine });
            }
            Some(_) => {
                let host = &mut self.machines[machine];
                let now = host.clock.now(self.cx.now);
                let late = host.runner.alive().count() - host.runner.alive_within_lease(now).count();
                let events = host.runner.end_unguarded(now);
                self.cx.counters.add("gangs that outlived their lapse", late as u64);
                self.report_runner_events(machine, events);
            }
        }
    }
}
