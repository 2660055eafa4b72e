//! How attempts end, and why workloads lose what they were given.
//!
//! Decisions compare these values; readers get text made from them in `views`.

use meridian_queueing::preempt::Right;
use meridian_shared::ids::Uid;
use meridian_shared::protocol::{EndResult, GrantRefusal, StopReason};
use serde::{Deserialize, Serialize};

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AttemptEnd {
    /// As the agent that ran it reported.
    Reported(EndResult),
    /// Its agent had no trace of the grant: nothing runs, and how the job ended is unknown.
    NoTrace,
    /// Its agent refused the grant.
    GrantRefused(GrantRefusal),
    /// The cluster was silent until the lease had provably lapsed.
    LeaseLapsed,
    /// An operator declared the cluster's ledger lost.
    DeclaredLost,
}

impl AttemptEnd {
    /// Whether the job may have ended by itself without this journal knowing.
    pub(crate) fn leaves_result_open(&self) -> bool {
        match self {
            Self::NoTrace | Self::LeaseLapsed => true,
            Self::Reported(_) | Self::GrantRefused(_) | Self::DeclaredLost => false,
        }
    }
}

/// Why a workload lost its right to run or its quota without having ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EvictionCause {
    Preempted,
    Deactivated,
    MaximumExecutionTimeExceeded,
    LocalQueueStopped,
    ClusterQueueStopped,
    StartTimeout,
    NodeFailures,
    ClusterLost,
    Residency,
    Drained,
    /// Another attempt has a larger fence.
    Superseded,
    GrantRefused,
    /// Its agent stopped it without an order from this manager.
    StoppedByAgent,
}

impl EvictionCause {
    /// Kueue's reason. In Kueue the check of a worker cluster takes part in every admission, so losing the cluster is
    /// `AdmissionCheck`.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Preempted => "Preempted",
            Self::Deactivated | Self::MaximumExecutionTimeExceeded => "Deactivated",
            Self::LocalQueueStopped => "LocalQueueStopped",
            Self::ClusterQueueStopped => "ClusterQueueStopped",
            Self::StartTimeout => "PodsReadyTimeout",
            Self::NodeFailures => "NodeFailures",
            Self::ClusterLost
            | Self::Residency
            | Self::Drained
            | Self::Superseded
            | Self::GrantRefused
            | Self::StoppedByAgent => "AdmissionCheck",
        }
    }

    /// Kueue's underlying cause, or ours where Kueue has none; empty where the reason says it all.
    pub const fn underlying(self) -> &'static str {
        match self {
            Self::Preempted
            | Self::Deactivated
            | Self::LocalQueueStopped
            | Self::ClusterQueueStopped
            | Self::NodeFailures => "",
            Self::MaximumExecutionTimeExceeded => "MaximumExecutionTimeExceeded",
            Self::StartTimeout => "WaitForStart",
            Self::ClusterLost => "ClusterLost",
            Self::Residency => "Residency",
            Self::Drained => "Drained",
            Self::Superseded => "Superseded",
            Self::GrantRefused => "GrantRefused",
            Self::StoppedByAgent => "Stopped",
        }
    }

    /// The cause of an ordered stop. `evicted` is the cause of a plain eviction. `None` for a deleted job.
    pub(crate) const fn of_stop(reason: StopReason, evicted: Self) -> Option<Self> {
        match reason {
            StopReason::Cancelled => None,
            StopReason::Evicted => Some(evicted),
            StopReason::StartTimeout => Some(Self::StartTimeout),
            StopReason::Residency => Some(Self::Residency),
            StopReason::Drained => Some(Self::Drained),
            StopReason::Superseded => Some(Self::Superseded),
        }
    }
}

/// The preemptor of a workload.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Preempted {
    pub by: Uid,
    pub reason: PreemptionReason,
}

/// Why a preemption was allowed: Kueue's reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PreemptionReason {
    InClusterQueue,
    InCohortReclamation,
    InCohortReclaimWhileBorrowing,
    InCohortFairSharing,
}

impl PreemptionReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InClusterQueue => "InClusterQueue",
            Self::InCohortReclamation => "InCohortReclamation",
            Self::InCohortReclaimWhileBorrowing => "InCohortReclaimWhileBorrowing",
            Self::InCohortFairSharing => "InCohortFairSharing",
        }
    }
}

impl From<Right> for PreemptionReason {
    fn from(right: Right) -> Self {
        match right {
            Right::InClusterQueue => Self::InClusterQueue,
            Right::InCohortReclamation => Self::InCohortReclamation,
            Right::InCohortReclaimWhileBorrowing => Self::InCohortReclaimWhileBorrowing,
            Right::InCohortFairSharing => Self::InCohortFairSharing,
        }
    }
}

/// Text of an agent's refusal of a grant, for the audit log and for readers.
pub(crate) fn refusal_text(refusal: &GrantRefusal) -> String {
    match refusal {
        GrantRefusal::StaleFence { known } => format!("its agent knows the newer fence {known}"),
        GrantRefusal::NoHold => "its hold had expired".to_owned(),
        GrantRefusal::StillRuns { fence } => format!("attempt {fence} still runs there"),
        GrantRefusal::Lapsed => "it arrived after its lease had lapsed".to_owned(),
    }
}
