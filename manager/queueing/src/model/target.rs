//! Victims, and why they are preempted.

use crate::model::WorkloadId;
use serde::{Deserialize, Serialize};

/// Why a workload is preempted; the names are Kueue's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PreemptionReason {
    /// Lower priority in the same queue.
    InClusterQueue,
    /// The victim's queue borrows quota.
    InCohortReclamation,
    /// Lower priority, although the preemptor borrows.
    InCohortReclaimWhileBorrowing,
    /// The share of the preemptor is smaller.
    InCohortFairSharing,
}

impl PreemptionReason {
    /// The name in Kueue's API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InClusterQueue => "InClusterQueue",
            Self::InCohortReclamation => "InCohortReclamation",
            Self::InCohortReclaimWhileBorrowing => "InCohortReclaimWhileBorrowing",
            Self::InCohortFairSharing => "InCohortFairSharing",
        }
    }
}

/// A workload to preempt or to replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    pub workload: WorkloadId,
    /// `None` for a slice to replace.
    pub reason: Option<PreemptionReason>,
}
