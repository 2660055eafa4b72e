//! The gangs of one machine.
//!
//! On a guarded machine each gang ends by its guard's deadline even when no agent is alive; on a supervised
//! one only the agent stops it. The name of an attempt (uid and fence) is used once, and a stop of an unknown
//! attempt uses it up.

use crate::sim::fleet::job::Behaviour;
use crate::sim::hosts::gang::{Gang, PodMove, never_started};
use crate::sim::random::Random;
use meridian_agent_core::{Found, RunnerEvent, Start};
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::protocol::Size;
use meridian_shared::time::{Millis, Mono, Now};
use std::collections::{BTreeMap, BTreeSet};

/// One attempt of a workload.
pub(crate) type AttemptKey = (Uid, Fence);

/// Stop budget of a gang without a deadline, in milliseconds.
const STOP_BUDGET_MS: u64 = 2_000;

/// The gangs of one machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runner {
    guarded: bool,
    gangs: BTreeMap<AttemptKey, Gang>,
    used_names: BTreeSet<AttemptKey>,
}

impl Runner {
    /// A machine without gangs.
    pub(crate) fn new(guarded: bool) -> Self {
        Self { guarded, ..Self::default() }
    }

    /// Every gang that is known here, also those that are over.
    pub(crate) fn gangs(&self) -> impl Iterator<Item = (&AttemptKey, &Gang)> {
        self.gangs.iter()
    }

    /// The gang of an attempt while it is alive.
    pub(crate) fn living(&self, key: AttemptKey) -> Option<&Gang> {
        self.gangs.get(&key).filter(|gang| gang.is_alive())
    }

    /// Attempts that are alive.
    pub(crate) fn alive(&self) -> impl Iterator<Item = AttemptKey> + '_ {
        self.gangs.iter().filter(|(_, gang)| gang.is_alive()).map(|(key, _)| *key)
    }

    /// Attempts that are alive and for which the promises hold: all but those that outlive their lapse
    /// because their guard was killed.
    pub(crate) fn alive_within_lease(&self, now: Now) -> impl Iterator<Item = AttemptKey> + '_ {
        self.gangs
            .iter()
            .filter(move |(_, gang)| gang.is_alive() && !gang.outlives_its_lapse(now))
            .map(|(key, _)| *key)
    }

    /// Attempts that are alive and have a guard.
    pub(crate) fn guarded(&self) -> impl Iterator<Item = AttemptKey> + '_ {
        self.gangs.iter().filter(|(_, gang)| gang.is_alive() && !gang.is_unguarded()).map(|(key, _)| *key)
    }

    /// Starts a gang; false if its name was used before.
    pub(crate) fn start(&mut self, now: Now, start: &Start, job: &Behaviour, random: &mut Random) -> bool {
        let key = (start.uid, start.fence);
        if !self.used_names.insert(key) {
            return false;
        }
        let budget = if start.deadline.is_some() { start.stop_budget.0 } else { STOP_BUDGET_MS };
        let stop_duration = Millis(if random.permille(400) { budget } else { random.between(0, budget) });
        self.gangs.insert(key, Gang::start(now, start, job, stop_duration));
        true
    }

    /// Extends the deadline of an attempt.
    pub(crate) fn renew(&mut self, now: Now, key: AttemptKey, deadline: Mono) {
        if let Some(gang) = self.gangs.get_mut(&key) {
            gang.renew(now, deadline);
        }
    }

    /// Moves pods. Returns the confirmation if the move was done before; otherwise [`Self::tick`] reports it.
    pub(crate) fn move_pods(&mut self, now: Now, order: PodMove) -> Option<RunnerEvent> {
        self.gangs.get_mut(&order.key)?.move_pods(now, order)
    }

    /// Adds pods. Returns the confirmation if that is done at once; otherwise [`Self::tick`] reports it.
    pub(crate) fn scale_up(&mut self, order: PodMove, size: Size) -> Option<RunnerEvent> {
        self.gangs.get_mut(&order.key)?.scale_up(order, size)
    }

    /// Ends the pods of an attempt beyond `size`, which takes its time.
    pub(crate) fn scale_down(&mut self, now: Now, key: AttemptKey, size: Size) {
        if let Some(gang) = self.gangs.get_mut(&key) {
            gang.scale_down(now, size);
        }
    }

    /// Stops an attempt, known or not. Returns its end if it is over already; otherwise [`Self::tick`]
    /// reports it.
    pub(crate) fn stop(&mut self, now: Now, key: AttemptKey) -> Option<RunnerEvent> {
        self.used_names.insert(key);
        match self.gangs.get_mut(&key) {
            None => Some(never_started(key)),
            Some(gang) => gang.stop(key, now),
        }
    }

    /// Removes the record of a gang that is over.
    pub(crate) fn forget(&mut self, key: AttemptKey) {
        if self.gangs.get(&key).is_some_and(|gang| !gang.is_alive()) {
            self.gangs.remove(&key);
        }
    }

    /// Does everything that is due, and returns the events that agents see.
    pub(crate) fn tick(&mut self, now: Now) -> Vec<RunnerEvent> {
        let guarded = self.guarded;
        let alive = self.gangs.iter_mut().filter(|(_, gang)| gang.is_alive());
        alive.flat_map(|(key, gang)| gang.tick(*key, now, guarded)).collect()
    }

    /// When [`Self::tick`] is due next.
    pub(crate) fn next_tick(&self, now: Now) -> Option<Mono> {
        let alive = self.gangs.values().filter(|gang| gang.is_alive());
        alive.map(|gang| gang.next_tick(now, self.guarded)).min()
    }

    /// When an attempt ends by its guard, by boot time. A pause of the machine counts as elapsed.
    pub(crate) fn lapse(&self, key: AttemptKey, now: Now) -> Option<Mono> {
        self.living(key)?.lapse(now)
    }

    /// An agent starts: empty places are reported again, because it may not know of them.
    pub(crate) fn report_again(&mut self) {
        self.gangs.values_mut().for_each(Gang::report_again);
    }

    /// The gangs that a starting agent finds.
    pub(crate) fn found(&self) -> Vec<Found> {
        self.gangs.iter().map(|(key, gang)| gang.found(*key)).collect()
    }

    /// The machine restarts: nothing that ran is left, not even its record.
    pub(crate) fn reboot(&mut self) {
        self.gangs.retain(|_, gang| !gang.is_alive());
    }

    /// Kills a guard. Returns the end of its gang if the gang ends with the guard.
    pub(crate) fn kill_guard(
        &mut self,
        now: Now,
        key: AttemptKey,
        in_namespace: bool,
    ) -> Option<RunnerEvent> {
        let gang = self.gangs.get_mut(&key)?;
        gang.lose_guard();
        in_namespace.then(|| gang.end_without_guard(key, now))
    }

    /// Whether a gang is alive without its guard.
    pub(crate) fn has_unguarded(&self) -> bool {
        self.gangs.values().any(|gang| gang.is_alive() && gang.is_unguarded())
    }

    /// Ends all gangs without a guard.
    pub(crate) fn end_unguarded(&mut self, now: Now) -> Vec<RunnerEvent> {
        let unguarded = self.gangs.iter_mut().filter(|(_, gang)| gang.is_alive() && gang.is_unguarded());
        unguarded.map(|(key, gang)| gang.end_without_guard(*key, now)).collect()
    }
}
