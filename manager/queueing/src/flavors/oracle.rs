//! The interface between flavor assignment and preemption.

use crate::amount::Amount;
use crate::model::{PreemptionPossibility, WorkloadId};
use crate::names::{FlavorId, ResourceId};
use crate::queue_state::QueueState;

/// Simulates preemption for one flavor and resource.
pub trait PreemptionOracle {
    /// The result, and the height of the subtree that provides the quota after preemption.
    fn simulate(
        &mut self,
        state: &mut QueueState,
        workload: WorkloadId,
        key: (FlavorId, ResourceId),
        amount: Amount,
    ) -> (PreemptionPossibility, u32);

    /// Simulates preemption with the workload's own stopping victims, if they suffice.
    fn simulate_with_stopping(
        &mut self,
        _: &mut QueueState,
        _: WorkloadId,
        _: (FlavorId, ResourceId),
        _: Amount,
    ) -> Option<(PreemptionPossibility, u32)> {
        None
    }
}
