//! Holders that may not be preempted in the current cycle.

use crate::model::WorkloadId;
use std::collections::BTreeSet;

#[derive(Clone, Debug, Default)]
pub(crate) struct ExcludedCandidates {
    /// Workloads admitted in this cycle.
    admitted: BTreeSet<WorkloadId>,
    /// Victims of this cycle, while further victims are searched.
    victims: BTreeSet<WorkloadId>,
}

impl ExcludedCandidates {
    pub(crate) fn contains(&self, id: WorkloadId) -> bool {
        self.admitted.contains(&id) || self.victims.contains(&id)
    }

    pub(crate) fn add_admitted(&mut self, id: WorkloadId) {
        self.admitted.insert(id);
    }

    /// Whether any workload was admitted in this cycle.
    pub(crate) fn has_admitted(&self) -> bool {
        !self.admitted.is_empty()
    }

    /// Ends the cycle.
    pub(crate) fn clear_admitted(&mut self) {
        self.admitted.clear();
    }

    /// Swaps the excluded victims with `victims`. A second call restores both.
    pub(crate) fn swap_victims(&mut self, victims: &mut BTreeSet<WorkloadId>) {
        std::mem::swap(victims, &mut self.victims);
    }
}
