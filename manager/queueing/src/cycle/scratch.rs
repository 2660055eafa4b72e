//! The state of one cycle.

use crate::amount::Amount;
use crate::capacity_model::CapacityModel;
use crate::cycle::CycleReport;
use crate::model::{Assignment, WorkloadId};
use crate::preemption::SearchRecord;
use crate::queue_state::{PlacedPods, QueueState};
use crate::quota::{CellId, NodeId};
use std::collections::BTreeSet;

/// Charges of queues: node, cell, amount.
pub(super) type Charges = Vec<(NodeId, CellId, Amount)>;

/// Temporary usage of the entries of a cycle. It is released when the cycle ends.
#[derive(Default)]
pub(super) struct TemporaryUsage {
    pub(super) charges: Charges,
    /// Quota reserved for pending workloads. It isn't in use, so it must not count when borrowing is checked.
    pub(super) reserved: Charges,
    /// Length of the prefix of `reserved` that belongs to starved heads.
    pub(super) reserved_for_starved: usize,
    pub(super) assignments: Vec<(WorkloadId, Assignment)>,
    /// Topology usage that holders gave up when they moved in this cycle. As in Kueue, it counts until the
    /// cycle ends.
    pub(super) vacated: Vec<PlacedPods>,
}

/// State of one cycle.
pub(crate) struct Cycle<'a> {
    pub(super) state: &'a mut QueueState,
    pub(super) capacity: &'a mut dyn CapacityModel,
    pub(super) victims: BTreeSet<WorkloadId>,
    /// Charges of the victims, by queue and cell.
    pub(super) freed: Charges,
    pub(super) temporary: TemporaryUsage,
    /// Starved heads that found no quota and no victims.
    pub(super) unserved: Vec<WorkloadId>,
    /// Quota that is left to a node's children once all victims so far are gone. Cleared when victims are
    /// added. Otherwise it only decreases, so a stale value is an upper bound.
    pub(super) known_left: Charges,
    /// Searches for victims during the current flavor assignment.
    pub(super) searches: Vec<SearchRecord>,
    /// Whether a search since the last nomination failed only for lack of cluster capacity.
    pub(super) short_of_capacity: bool,
    pub(super) report: CycleReport,
}

impl<'a> Cycle<'a> {
    pub(crate) fn new(state: &'a mut QueueState, capacity: &'a mut dyn CapacityModel) -> Self {
        Self {
            state,
            capacity,
            victims: BTreeSet::new(),
            freed: Charges::new(),
            temporary: TemporaryUsage::default(),
            unserved: Vec::new(),
            known_left: Charges::new(),
            searches: Vec::new(),
            short_of_capacity: false,
            report: CycleReport::default(),
        }
    }

    pub(super) fn clear_scan(&mut self, workload: WorkloadId) {
        if let Some(progress) = self.state.progress_mut(workload) {
            progress.scan = None;
        }
    }
}
