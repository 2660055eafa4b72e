//! Capacity of real clusters, as queue decisions see it. A gang needs capacity in one cluster in addition to
//! quota.

use crate::model::{Assignment, Target, WorkloadId};
use crate::queue_state::QueueState;

/// Answers questions about the capacity of clusters.
pub trait CapacityModel {
    /// Whether one cluster fits the whole workload after the victims are gone.
    fn fits(&mut self, state: &QueueState, workload: WorkloadId, victims: &[Target]) -> bool;

    /// From now on, evaluates the workload with the pods and flavors of this assignment, or as submitted if
    /// `None`.
    fn assume_assignment(
        &mut self,
        state: &QueueState,
        workload: WorkloadId,
        assignment: Option<&Assignment>,
    ) {
        let _ = (state, workload, assignment);
    }

    /// Whether one cluster has capacity for the workload now. If so, `fits` is true for any victims, and
    /// `clusters` doesn't matter.
    fn fits_now(&mut self, state: &QueueState, workload: WorkloadId) -> bool {
        let _ = (state, workload);
        true
    }

    /// Whether a cluster that can't get offers now may have capacity for the workload soon. Until then,
    /// nothing is preempted for capacity.
    fn may_fit_soon(&mut self, state: &QueueState, workload: WorkloadId) -> bool {
        let _ = (state, workload);
        false
    }

    /// Reserves the capacity that the victims free until the workload is admitted or gives up.
    fn reserve(&mut self, state: &QueueState, workload: WorkloadId, victims: &[Target]) {
        let _ = (state, workload, victims);
    }

    /// Whether the workload may preempt a holder, regardless of policies.
    fn may_preempt(&self, workload: WorkloadId, holder: WorkloadId) -> bool {
        let _ = (workload, holder);
        true
    }

    /// Whether the obstacle may concern this workload alone, so that equivalent workloads must be evaluated
    /// too.
    fn has_own_obstacle(&self, workload: WorkloadId) -> bool {
        let _ = workload;
        false
    }

    /// Clusters in which the workload could run after preemption. Victims are searched in one cluster at a
    /// time, because the freed capacity must be in one place. Empty if the place doesn't matter.
    fn clusters(&mut self, state: &QueueState, workload: WorkloadId) -> Vec<ClusterIndex> {
        let _ = (state, workload);
        Vec::new()
    }

    /// The cluster of a holder.
    fn cluster_of(&self, holder: WorkloadId) -> Option<ClusterIndex> {
        let _ = holder;
        None
    }

    /// Takes the capacity for an assignment that is about to be admitted. False if no cluster has it.
    fn take(&mut self, state: &QueueState, workload: WorkloadId, assignment: &Assignment) -> bool;
}

/// A cluster, as numbered by the capacity model.
pub type ClusterIndex = u32;

/// Unlimited capacity: only quota matters.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnlimitedCapacity;

impl CapacityModel for UnlimitedCapacity {
    fn fits(&mut self, _: &QueueState, _: WorkloadId, _: &[Target]) -> bool {
        true
    }

    fn take(&mut self, _: &QueueState, _: WorkloadId, _: &Assignment) -> bool {
        true
    }
}
