//! Guards that are killed, and what becomes of their gangs.
//!
//! Where a guard is init of its gang's PID namespace both end at once. Elsewhere the gang goes on without anybody who would end
//! it at its lapse: its agent does when it sees that, or the next agent when it starts. Until then is the gap that the
//! protocol names in section 4, the only one in which a gang may outlive its lapse.

use super::runner::{Run, Runner};
use super::{Happening, Sim};
use meridian_agent_core::RunnerEvent;
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::protocol::EndResult;
use meridian_shared::time::Now;

/// How long an agent needs at most to see that a guard is gone and to end its gang.
const SEEN_MS_MAX: u64 = 100;

impl Run {
    /// What has lost its guard is over once its pods have ended: nobody saw how.
    pub(super) fn drift(&mut self, key: (Uid, Fence), now: Now) -> Option<RunnerEvent> {
        (now.mono >= self.ends_at).then(|| self.end_without_guard(key, now))
    }

    fn end_without_guard(&mut self, key: (Uid, Fence), now: Now) -> RunnerEvent {
        let lost =
            || EndResult::NodeLost { message: "the gang's guard was killed, and the gang with it".into() };
        let result = if self.told_to_stop { EndResult::Stopped } else { lost() };
        self.conclude(key, now, result)
    }

    /// Whether it is in the gap: past its lapse, and nobody there who ends it.
    fn in_gap(&self, now: Now) -> bool {
        self.adrift && self.alive() && self.lapse(now).is_some_and(|lapse| now.mono >= lapse)
    }
}

impl Runner {
    /// Gangs that are alive by the promises: all but those in the gap.
    pub(super) fn bound(&self, now: Now) -> impl Iterator<Item = (Uid, Fence)> + '_ {
        self.runs.iter().filter(move |(_, run)| run.alive() && !run.in_gap(now)).map(|(key, _)| *key)
    }

    /// Gangs with a guard.
    fn kept(&self) -> impl Iterator<Item = (Uid, Fence)> + '_ {
        self.runs.iter().filter(|(_, run)| run.alive() && !run.adrift).map(|(key, _)| *key)
    }

    /// A guard is killed; how its gang ended, where that ends with it.
    fn kill_guard(&mut self, now: Now, key: (Uid, Fence), in_namespace: bool) -> Option<RunnerEvent> {
        let run = self.runs.get_mut(&key)?;
        run.adrift = true;
        in_namespace.then(|| run.end_without_guard(key, now))
    }

    /// Whether anything here has lost its guard.
    fn has_adrift(&self) -> bool {
        self.runs.values().any(|run| run.alive() && run.adrift)
    }

    fn end_adrift(&mut self, now: Now) -> Vec<RunnerEvent> {
        self.runs
            .iter_mut()
            .filter(|(_, run)| run.alive() && run.adrift)
            .map(|(key, run)| run.end_without_guard(*key, now))
            .collect()
    }
}

impl Sim {
    /// Some gang's guard is killed.
    pub(super) fn kill_guard(&mut self) {
        let guarded = self
            .machines
            .iter()
            .enumerate()
            .filter(|(_, mac)| mac.guarded && mac.honest && !mac.clock.is_frozen());
        let gangs: Vec<(usize, (Uid, Fence))> =
            guarded.flat_map(|(i, mac)| mac.runner.kept().map(move |key| (i, key))).collect();
        let Some((machine, key)) = self.chance.faults.pick(&gangs).copied() else { return };
        self.trace
            .say(self.now, || format!("the guard of {} of {} on machine {machine} is killed", key.1, key.0));
        self.counters.one("guards killed");
        let mac = &mut self.machines[machine];
        let now = mac.clock.now(self.now);
        match mac.runner.kill_guard(now, key, mac.namespaces) {
            Some(event) => self.tell(machine, vec![event]),
            None => {
                self.counters.one("gangs adrift");
                self.look_for_adrift(machine);
            }
        }
        self.watch_gangs(machine);
    }

    /// An agent on this machine finds out soon what has lost its guard, if anything has.
    pub(super) fn look_for_adrift(&mut self, machine: usize) {
        if self.machines[machine].runner.has_adrift() {
            let at = self.now + self.chance.runners.between(1, SEEN_MS_MAX);
            self.at(at, Happening::Adrift { machine });
        }
    }

    /// An agent ends what has lost its guard. Where none is there, the next one looks when it starts.
    pub(super) fn end_adrift(&mut self, machine: usize) {
        let here = self.agents.iter().filter(|host| host.machine == machine && host.agent.is_some());
        match here.map(|host| host.paused_until).min() {
            None => {}
            Some(until) if until > self.now => self.at(until, Happening::Adrift { machine }),
            Some(_) => {
                let mac = &mut self.machines[machine];
                let now = mac.clock.now(self.now);
                let late = mac.runner.alive().count() - mac.runner.bound(now).count();
                let events = mac.runner.end_adrift(now);
                self.counters.add("gangs in the gap", late as u64);
                self.tell(machine, events);
            }
        }
    }
}
