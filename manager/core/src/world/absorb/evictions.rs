use meridian_shared::protocol::StopReason;

/// How a stay ended whose cluster was not heard.
pub(crate) const LAPSED: &str = "the lease lapsed";

/// How it ended where an operator declared its cluster lost.
pub(crate) const DECLARED_LOST: &str = "an operator declared the cluster lost";

/// How an attempt ended for an agent that knew nothing of its grant.
pub(crate) const UNKNOWN: &str = "its agent had no trace of it, and nothing runs";

/// Kueue's word for losing what a check had given: there, the check of a worker cluster takes part in every admission.
pub(crate) const ADMISSION_CHECK: &str = "AdmissionCheck";

pub(crate) const PREEMPTED: (&str, &str) = ("Preempted", "");

pub(crate) const DEACTIVATED: (&str, &str) = ("Deactivated", "");

pub(crate) const TIME_IS_UP: (&str, &str) = ("Deactivated", "MaximumExecutionTimeExceeded");

pub(crate) const CLUSTER_LOST: (&str, &str) = (ADMISSION_CHECK, "ClusterLost");

/// Which eviction an ordered stop is: Kueue's word, and our own where that says less.
pub(crate) const fn eviction_of(
    reason: StopReason,
    taken_back: (&'static str, &'static str),
) -> Option<(&'static str, &'static str)> {
    match reason {
        // It was deleted.
        StopReason::Cancelled => None,
        StopReason::Evicted => Some(taken_back),
        StopReason::StartTimeout => Some(("PodsReadyTimeout", "WaitForStart")),
        StopReason::Residency => Some((ADMISSION_CHECK, "Residency")),
        StopReason::Drained => Some((ADMISSION_CHECK, "Drained")),
        StopReason::Superseded => Some((ADMISSION_CHECK, "Superseded")),
    }
}
