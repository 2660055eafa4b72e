//! Simulated preemption for flavor assignment.

use crate::amount::Amount;
use crate::capacity_model::CapacityModel;
use crate::flavors::PreemptionOracle;
use crate::model::{PreemptionPossibility, Target, WorkloadId};
use crate::names::{FlavorId, ResourceId};
use crate::preemption::SearchRecord;
use crate::preemption::search::VictimSearch;
use crate::queue_state::QueueState;
use crate::quota::{CellId, NodeId};

/// An oracle without any candidates.
pub(crate) struct NoCandidatesOracle;

impl PreemptionOracle for NoCandidatesOracle {
    fn simulate(
        &mut self,
        _: &mut QueueState,
        _: WorkloadId,
        _: (FlavorId, ResourceId),
        _: Amount,
    ) -> (PreemptionPossibility, u32) {
        (PreemptionPossibility::NoCandidates, 0)
    }
}

/// An oracle that searches victims in the current state.
pub(crate) struct StateOracle<'a> {
    capacity: &'a mut dyn CapacityModel,
    /// Results that later searches in the same state can use.
    searches: &'a mut Vec<SearchRecord>,
}

/// The cell of a simulated preemption.
#[derive(Clone, Copy)]
struct ContestedCell {
    node: NodeId,
    cell: CellId,
    amount: Amount,
}

impl ContestedCell {
    fn of(
        state: &QueueState,
        workload: WorkloadId,
        key: (FlavorId, ResourceId),
        amount: Amount,
    ) -> Option<Self> {
        let queue = state.queue(state.get(&workload).queue);
        let cell = queue.tree.and_then(|tree| state.forest().find_cell(tree, key))?;
        Some(Self { node: queue.node?, cell, amount })
    }
}

impl<'o> StateOracle<'o> {
    /// Starts with no results of earlier searches.
    pub(crate) fn new(capacity: &'o mut dyn CapacityModel, searches: &'o mut Vec<SearchRecord>) -> Self {
        searches.clear();
        Self { capacity, searches }
    }

    /// A search for one flavor and resource alone, without asking for cluster capacity.
    fn search<'a>(
        &'a mut self,
        state: &'a mut QueueState,
        workload: WorkloadId,
        contested: ContestedCell,
    ) -> VictimSearch<'a> {
        let ContestedCell { node, cell, amount } = contested;
        VictimSearch::new(state, self.capacity, workload, node, vec![(cell, amount)], vec![cell])
    }

    /// Evaluates the state without the victims.
    fn evaluate_without(
        &mut self,
        state: &mut QueueState,
        workload: WorkloadId,
        contested: ContestedCell,
        victims: Vec<Target>,
    ) -> (PreemptionPossibility, u32) {
        let ContestedCell { node, cell, amount } = contested;
        for victim in &victims {
            state.suspend_usage(victim.workload);
        }
        let (borrowing, _) = state.forest().lowest_fit(node, cell, amount);
        for victim in &victims {
            state.resume_usage(victim.workload);
        }
        let queue = state.get(&workload).queue;
        let possibility = match victims.iter().any(|v| state.get(&v.workload).queue == queue) {
            _ if victims.is_empty() => PreemptionPossibility::NoCandidates,
            true => PreemptionPossibility::Preempt,
            false => PreemptionPossibility::Reclaim,
        };
        self.searches.push(SearchRecord { workload, cell, amount, victims });
        (possibility, borrowing)
    }
}

impl PreemptionOracle for StateOracle<'_> {
    fn simulate(
        &mut self,
        state: &mut QueueState,
        workload: WorkloadId,
        key: (FlavorId, ResourceId),
        amount: Amount,
    ) -> (PreemptionPossibility, u32) {
        let Some(contested) = ContestedCell::of(state, workload, key, amount) else {
            return (PreemptionPossibility::NoCandidates, 0);
        };
        let victims = self.search(state, workload, contested).run();
        self.evaluate_without(state, workload, contested, victims)
    }

    fn simulate_with_stopping(
        &mut self,
        state: &mut QueueState,
        workload: WorkloadId,
        key: (FlavorId, ResourceId),
        amount: Amount,
    ) -> Option<(PreemptionPossibility, u32)> {
        state.get(&workload).progress.pending_preemption.as_ref()?;
        let contested = ContestedCell::of(state, workload, key, amount)?;
        let victims = self.search(state, workload, contested).stopping_victims()?;
        Some(self.evaluate_without(state, workload, contested, victims))
    }
}
