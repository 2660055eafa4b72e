//! The name of the table row of each reason.

use meridian_manager_core::facts::reason::{Denied, NoQuota, NoRoute, Why};
use meridian_queueing::model::Inactive;
use meridian_shared::packing::Misfit;

/// The row of a reason. A new reason doesn't compile without one.
pub(super) fn row_of(why: &Why) -> &'static str {
    match why {
        Why::Route(NoRoute::NoLocalQueue { .. }) => "NoLocalQueue",
        Why::Route(NoRoute::NoClusterQueue { .. }) => "NoClusterQueue",
        Why::Route(NoRoute::NamespaceNotSelected { .. }) => "NamespaceNotSelected",
        Why::Route(NoRoute::SelectsNoNamespace { .. }) => "SelectsNoNamespace",
        Why::Route(NoRoute::Stopped { .. }) => "Stopped",
        Why::Quota(NoQuota::NotCovered { .. }) => "NotCovered",
        Why::Quota(NoQuota::NoMatchingFlavor { .. }) => "NoMatchingFlavor",
        Why::Quota(NoQuota::ExceedsQuota { .. }) => "ExceedsQuota",
        Why::Quota(NoQuota::Used(_)) => "Used",
        Why::Forbidden(Denied::Listed { .. }) => "Listed",
        Why::Forbidden(Denied::NotAllowed { .. }) => "NotAllowed",
        Why::Forbidden(Denied::NotRequested) => "NotRequested",
        Why::Forbidden(Denied::UnknownPlace) => "UnknownPlace",
        Why::Forbidden(Denied::NoPolicy) => "NoPolicy",
        Why::NoCluster => "NoCluster",
        Why::NotInQueue => "NotInQueue",
        Why::NoWorkersConfig { .. } => "NoWorkersConfig",
        Why::Cordoned => "Cordoned",
        Why::NotConnected => "NotConnected",
        Why::Recovering => "Recovering",
        Why::NotAdmitted => "NotAdmitted",
        Why::Quarantined { .. } => "Quarantined",
        Why::NoReport => "NoReport",
        Why::NotGuarded => "NotGuarded",
        Why::Capped { .. } => "Capped",
        Why::NoCapacity(Misfit::NoSuchNode { .. }) => "NoSuchNode",
        Why::NoCapacity(Misfit::PodTooLarge { .. }) => "PodTooLarge",
        Why::NoCapacity(Misfit::NotEnoughCapacity { .. }) => "NotEnoughCapacity",
        Why::NoCapacity(Misfit::NoDomain { .. }) => "NoDomain",
        Why::CapacityReserved { .. } => "CapacityReserved",
        Why::ReservedForStarved => "ReservedForStarved",
        Why::Refused { .. } => "Refused",
        Why::BackedOff => "BackedOff",
        Why::NotChosen { .. } => "NotChosen",
        Why::RecoveryOpen => "RecoveryOpen",
        Why::RulesDoubted => "RulesDoubted",
        Why::RulesUnheard => "RulesUnheard",
        Why::Preempts { .. } => "Preempts",
        Why::Overtaken => "Overtaken",
        Why::Inactive { why, .. } => row_of_inactive(why),
        Why::BackOff => "BackOff",
        Why::Damaged => "Damaged",
    }
}

pub(super) fn row_of_inactive(why: &Inactive) -> &'static str {
    match why {
        Inactive::Stopped => "Stopped",
        Inactive::FlavorNotFound(_) => "FlavorNotFound",
        Inactive::AdmissionCheck(_) => "AdmissionCheck",
        Inactive::CheckInactive(_) => "CheckInactive",
        Inactive::WorkersCheck(..) => "WorkersCheck",
        // A cycle of cohorts is refused when it is applied, and topologies are the agents' concern.
        Inactive::CohortCycle | Inactive::TopologyNotFound(_) => "",
    }
}
