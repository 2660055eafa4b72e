//! Explanations of a manager are checked after a turn. An explanation costs more than a decision, so only
//! some are checked.

use crate::sim::invariants::explanations::explain;
use crate::sim::world::Simulation;
use meridian_manager_core::state::workload::phase::Phase;
use meridian_shared::ids::Uid;
use meridian_shared::time::Now;

/// Turns between two checks of any workloads.
const TURNS: u64 = 16;
/// Workloads per check.
const WORKLOADS: usize = 4;

impl Simulation {
    /// P6 and P8, after a turn that decided everything.
    pub(super) fn check_explanations(&mut self, m: usize, turn: u64, now: Now) {
        let world = self.managers[m].world();
        let Some(world) = world.filter(|world| !world.undecided()) else { return };
        let mut checked = self.explanations.next_of(m);
        if turn.is_multiple_of(TURNS) {
            let waits = |phase: Phase| matches!(phase, Phase::Pending | Phase::Reserved | Phase::Dispatching);
            let waiting: Vec<Uid> = world
                .state()
                .workloads()
                .iter()
                .filter(|(_, w)| waits(w.phase()))
                .map(|(uid, _)| *uid)
                .collect();
            let first = usize::try_from(turn / TURNS).unwrap_or(0) * WORKLOADS % waiting.len().max(1);
            checked.extend(waiting.iter().cycle().skip(first).take(WORKLOADS.min(waiting.len())));
            checked.sort_unstable();
            checked.dedup();
        }
        self.cx.counters.add("explanations checked", checked.len() as u64);
        let verdict = checked
            .into_iter()
            .try_for_each(|uid| self.explanations.check(m, uid, self.cx.now, explain(world, uid, now)?));
        self.cx.record_verdict(verdict);
    }
}
