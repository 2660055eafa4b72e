//! The state of one search, and what both search strategies share.

use crate::amount::Amount;
use crate::capacity_model::{CapacityModel, ClusterIndex};
use crate::flavors::{TopologyRequests, topology};
use crate::model::{Charge, QueueId, Target, WorkloadId};
use crate::queue_state::QueueState;
use crate::quota::{CellId, NodeId};

/// Result of a search that didn't ask for cluster capacity.
#[derive(Clone, Debug)]
pub(crate) struct SearchRecord {
    pub(super) workload: WorkloadId,
    pub(super) cell: CellId,
    pub(super) amount: Amount,
    /// Empty if there are none.
    pub(super) victims: Vec<Target>,
}

/// One search for victims.
pub(crate) struct VictimSearch<'a> {
    pub(super) state: &'a mut QueueState,
    pub(super) capacity: &'a mut dyn CapacityModel,
    pub(super) workload: WorkloadId,
    pub(super) queue: QueueId,
    pub(super) node: NodeId,
    /// Quota request of the workload.
    pub(super) charge: Charge,
    /// Cells that need preemption.
    pub(super) contested: Vec<CellId>,
    /// Topology request of the workload, if it matters.
    pub(super) topology: Option<TopologyRequests>,
    /// Whether to ask for cluster capacity.
    pub(super) asks_capacity: bool,
    /// Only search victims in this cluster.
    pub(super) within: Option<ClusterIndex>,
    /// Set if the workload failed to fit only for lack of cluster capacity.
    pub(super) short_of_capacity: bool,
}

impl<'a> VictimSearch<'a> {
    /// A search that ignores topology and cluster capacity.
    pub(super) fn new(
        state: &'a mut QueueState,
        capacity: &'a mut dyn CapacityModel,
        workload: WorkloadId,
        node: NodeId,
        charge: Charge,
        contested: Vec<CellId>,
    ) -> Self {
        let queue = state.get(&workload).queue;
        Self {
            state,
            capacity,
            workload,
            queue,
            node,
            charge,
            contested,
            topology: None,
            asks_capacity: false,
            within: None,
            short_of_capacity: false,
        }
    }
}

impl VictimSearch<'_> {
    pub(super) fn remove_target(&mut self, workload: WorkloadId) {
        self.state.suspend_usage(workload);
    }

    pub(super) fn restore_targets(&mut self, targets: &[Target]) {
        for target in targets {
            self.state.resume_usage(target.workload);
        }
    }

    /// Whether the workload fits in the current state.
    pub(super) fn fits(&mut self, may_borrow: bool, targets: &[Target]) -> bool {
        let forest = self.state.forest();
        for (cell, amount) in &self.charge {
            let here = forest.cell(self.node, *cell);
            if (!may_borrow && here.quota.nominal < here.usage + *amount)
                || *amount > forest.available(self.node, *cell)
            {
                return false;
            }
        }
        let placed = self.topology.as_ref().is_none_or(|requests| {
            topology::find_domains(self.state, requests, self.workload, false).is_ok()
        });
        let fits_cluster =
            !placed || !self.asks_capacity || self.capacity.fits(self.state, self.workload, targets);
        self.short_of_capacity |= !fits_cluster;
        placed && fits_cluster
    }

    /// Restores targets that aren't needed, the last first. `is_allowed` says whether the remaining targets
    /// may still be preempted once one is restored.
    pub(super) fn fill_back(
        &mut self,
        mut targets: Vec<Target>,
        may_borrow: bool,
        is_allowed: impl Fn(&mut Self, Target, &[Target]) -> bool,
    ) -> Vec<Target> {
        for at in (0..targets.len().saturating_sub(1)).rev() {
            let spared = targets[at];
            self.state.resume_usage(spared.workload);
            targets.swap_remove(at);
            if !self.fits(may_borrow, &targets) || !is_allowed(self, spared, &targets) {
                self.state.suspend_usage(spared.workload);
                // The target is needed: put it back in its position, and the last target back at the end.
                targets.push(spared);
                let last = targets.len() - 1;
                targets.swap(at, last);
            }
        }
        targets
    }

    /// Whether preempting a workload helps: it uses a contested cell in the searched cluster. Stopping
    /// workloads always count.
    pub(super) fn uses_contested(&self, workload: WorkloadId) -> bool {
        let of = self.state.get(&workload);
        let elsewhere = self.within.is_some() && self.capacity.cluster_of(workload) != self.within;
        let uses = of
            .holding
            .as_ref()
            .is_some_and(|h| h.charge.iter().any(|(cell, _)| self.contested.contains(cell)));
        uses && (of.evicted() || (!elsewhere && self.capacity.may_preempt(self.workload, workload)))
    }

    /// Whether a node borrows nothing in all contested cells.
    pub(super) fn within_nominal(&self, node: NodeId) -> bool {
        self.contested.iter().all(|cell| !self.state.forest().borrows(node, *cell))
    }

    /// Priority and queueing time of a workload, which policies compare.
    pub(super) fn rank(&self, workload: WorkloadId) -> (i64, i64) {
        let of = self.state.get(&workload);
        (self.state.priority_of(of), of.since)
    }

    pub(super) fn by_usage(&self) -> bool {
        self.state.settings().gates.admission_fair_sharing
            && self.state.settings().admission_fair_sharing.is_some()
    }
}
