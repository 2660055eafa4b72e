//! Why a workload is pending, as types. They hold numbers; names are looked up only to build the text.

use crate::amount::Amount;
use crate::model::Catalog;
use crate::names::{FlavorId, ResourceId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Why a flavor doesn't fit now, or never will.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// No resource group covers the resource.
    ResourceNotCovered { resource: ResourceId },
    /// The flavor doesn't exist.
    FlavorNotFound { flavor: FlavorId },
    /// The pods don't tolerate a taint.
    Taint {
        flavor: FlavorId,
        /// The taint in the notation of Kubernetes.
        taint: String,
    },
    /// Node selector or affinity don't match the flavor's labels.
    Affinity { flavor: FlavorId },
    /// The pods request a topology, and the flavor has none.
    NoTopology { flavor: FlavorId },
    /// The flavor's topology isn't known yet.
    TopologyUnknown { flavor: FlavorId },
    /// The flavor's topology lacks the requested level.
    NoLevel { flavor: FlavorId },
    /// The flavor only accepts pods that request its topology.
    TopologyOnly { flavor: FlavorId },
    /// The request exceeds the maximum that the queue could ever use.
    ExceedsMax {
        flavor: FlavorId,
        resource: ResourceId,
        /// Requests of the previous pod sets.
        before: Amount,
        asks: i64,
        most: Amount,
    },
    /// Not enough unused quota.
    Short { flavor: FlavorId, resource: ResourceId, missing: Amount },
    /// The replaced slice has another flavor.
    SliceFlavor {
        /// The flavor tried.
        flavor: FlavorId,
        /// The flavor of the slice.
        original: Option<FlavorId>,
    },
    /// The entry was nominated for another flavor in this cycle.
    NotNominated { flavor: FlavorId, resource: ResourceId },
    /// The variant may not use the flavor.
    NotAllowed { flavor: FlavorId },
    /// The pods can't be placed.
    Placement(Arc<str>),
    /// The assigned flavors can't be used together.
    TopologyFlavors(Arc<str>),
}

/// The main reason why a workload is pending. The names are Kueue's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Obstacle {
    /// The pods can't be placed in the topology.
    TopologyPlacementFailed,
    /// Quota is in use.
    WaitingForQuota,
    /// The request exceeds the maximum of the quota.
    ExceedsMaxQuota,
    NoMatchingFlavor,
    /// Victims are stopping.
    WaitingForPreemptedWorkloads,
    /// The workload or its queue is invalid.
    Misconfigured,
    /// The queue is stopped.
    Suspended,
    /// The workload will be evaluated again.
    PendingEvaluation,
    /// A gate is closed.
    AdmissionGated,
}

impl Obstacle {
    /// The name in Kueue's API.
    pub const fn word(self) -> &'static str {
        match self {
            Self::TopologyPlacementFailed => "TopologyPlacementFailed",
            Self::WaitingForQuota => "WaitingForQuota",
            Self::ExceedsMaxQuota => "ExceedsMaxQuota",
            Self::NoMatchingFlavor => "NoMatchingFlavor",
            Self::WaitingForPreemptedWorkloads => "WaitingForPreemptedWorkloads",
            Self::Misconfigured => "Misconfigured",
            Self::Suspended => "Suspended",
            Self::PendingEvaluation => "PendingEvaluation",
            Self::AdmissionGated => "AdmissionGated",
        }
    }
}

impl Reason {
    /// The message for users.
    pub fn text(&self, names: &Catalog) -> String {
        let flavor = |f: &FlavorId| names.flavor_name(*f).to_string();
        let resource = |r: &ResourceId| names.resource_name(*r).to_string();
        let amount = |r: &ResourceId, a: Amount| names.amount_text(*r, a);
        match self {
            Self::ResourceNotCovered { resource: r } => {
                format!("no resource group of the queue covers {}", resource(r))
            }
            Self::FlavorNotFound { flavor: f } => format!("flavor {} not found", flavor(f)),
            Self::Taint { flavor: f, taint } => format!("untolerated taint {taint} in flavor {}", flavor(f)),
            Self::Affinity { flavor: f } => format!("flavor {} doesn't match node affinity", flavor(f)),
            Self::NoTopology { flavor: f } => format!("flavor {} has no topology", flavor(f)),
            Self::TopologyUnknown { flavor: f } => {
                format!("the topology of flavor {} isn't known", flavor(f))
            }
            Self::NoLevel { flavor: f } => {
                format!("flavor {} doesn't have the requested topology level", flavor(f))
            }
            Self::TopologyOnly { flavor: f } => {
                format!("flavor {} only accepts workloads that request its topology", flavor(f))
            }
            Self::ExceedsMax { flavor: f, resource: r, before, asks, most } => {
                let before = if *before == Amount::ZERO {
                    String::new()
                } else {
                    format!(" after {} for previous pod sets", amount(r, *before))
                };
                format!(
                    "requests {} {} in flavor {}{before}, the maximum is {}",
                    amount(r, Amount(*asks)),
                    resource(r),
                    flavor(f),
                    amount(r, *most)
                )
            }
            Self::Short { flavor: f, resource: r, missing } => {
                format!(
                    "insufficient unused quota for {} in flavor {}, {} more needed",
                    resource(r),
                    flavor(f),
                    amount(r, *missing)
                )
            }
            Self::SliceFlavor { flavor: f, original } => {
                let original = original.as_ref().map_or("none".to_owned(), flavor);
                format!("flavor {} isn't the one that its pods already have, which is {original}", flavor(f))
            }
            Self::NotNominated { flavor: f, resource: r } => {
                format!("flavor {} wasn't nominated for {}", flavor(f), resource(r))
            }
            Self::NotAllowed { flavor: f } => format!("flavor {} isn't the one of this variant", flavor(f)),
            Self::Placement(text) | Self::TopologyFlavors(text) => text.to_string(),
        }
    }
}
