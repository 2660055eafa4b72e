//! How attempts end, and why workloads lose what they were given.
//!
//! Decisions compare these values; readers get text made from them in `views`.

pub use meridian_queueing::model::PreemptionReason;
use meridian_shared::ids::Uid;
use meridian_shared::protocol::{EndResult, GrantRefusal, StopReason};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AttemptEnd {
    /// As the agent that ran it reported.
    Reported(EndResult),
    /// The agent had no record of the grant: nothing runs, and the job's result is unknown.
    NoTrace,
    /// The agent refused the grant.
    GrantRefused(GrantRefusal),
    /// The cluster was disconnected until the lease had provably lapsed.
    LeaseLapsed,
    /// An operator declared the cluster's ledger lost.
    DeclaredLost,
}

impl AttemptEnd {
    /// Whether the job may have ended by itself in this attempt, unknown to the journal.
    pub(crate) fn leaves_result_open(&self) -> bool {
        match self {
            Self::NoTrace | Self::LeaseLapsed => true,
            Self::Reported(_) | Self::GrantRefused(_) | Self::DeclaredLost => false,
        }
    }
}

/// Why a workload lost its quota or its right to run before its job ended.
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
    /// The agent stopped the attempt without an order from this manager.
    StoppedByAgent,
    /// The job asks for other pods than the attempt has, and isn't elastic.
    JobChanged,
}

impl EvictionCause {
    pub const ALL: [Self; 14] = [
        Self::Preempted,
        Self::Deactivated,
        Self::MaximumExecutionTimeExceeded,
        Self::LocalQueueStopped,
        Self::ClusterQueueStopped,
        Self::StartTimeout,
        Self::NodeFailures,
        Self::ClusterLost,
        Self::Residency,
        Self::Drained,
        Self::Superseded,
        Self::GrantRefused,
        Self::StoppedByAgent,
        Self::JobChanged,
    ];

    /// Kueue's reason for the eviction. A lost cluster is `AdmissionCheck`, because in Kueue the check that
    /// stands for the worker clusters is part of every admission.
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
            Self::JobChanged => "JobChanged",
        }
    }

    /// Kueue's underlying cause, or a name of our own if Kueue has none. Empty if the reason says everything.
    pub const fn underlying(self) -> &'static str {
        match self {
            Self::Preempted
            | Self::Deactivated
            | Self::LocalQueueStopped
            | Self::ClusterQueueStopped
            | Self::NodeFailures
            | Self::JobChanged => "",
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

    /// The cause behind an ordered stop; `evicted` is used for a plain eviction. `None` for a deleted job,
    /// which isn't evicted.
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

/// Describes why an agent refused a grant, for the audit log and for users.
pub fn refusal_text(refusal: &GrantRefusal) -> String {
    match refusal {
        GrantRefusal::StaleFence { known } => format!("its agent knows the newer fence {known}"),
        GrantRefusal::NoHold => "its hold had expired".to_owned(),
        GrantRefusal::StillRuns { fence } => format!("attempt {fence} still runs there"),
        GrantRefusal::Lapsed => "it arrived after its lease had expired".to_owned(),
    }
}
