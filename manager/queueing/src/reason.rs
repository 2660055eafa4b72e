//! Why a workload waits, in types; the words come last.

use crate::amount::Amount;
use crate::brain::Brain;
use crate::names::{FlavorId, ResourceId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Why a flavor doesn't serve, or not yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// No resource group gives it.
    ResourceNotCovered {
        /// Resource.
        resource: ResourceId,
    },
    /// The flavor isn't there.
    FlavorNotFound {
        /// Flavor.
        flavor: FlavorId,
    },
    /// A taint that the pods don't tolerate.
    Taint {
        /// Flavor.
        flavor: FlavorId,
        /// The taint, as Kubernetes writes it.
        taint: String,
    },
    /// Node selector or affinity don't match the flavor's labels.
    Affinity {
        /// Flavor.
        flavor: FlavorId,
    },
    /// The pods ask for a place in a topology, and the flavor has none.
    NoTopology {
        /// Flavor.
        flavor: FlavorId,
    },
    /// The flavor's topology isn't known yet.
    TopologyUnknown {
        /// Flavor.
        flavor: FlavorId,
    },
    /// The flavor's topology lacks the level that is asked for.
    NoLevel {
        /// Flavor.
        flavor: FlavorId,
    },
    /// The flavor serves only pods that ask for a place in its topology.
    TopologyOnly {
        /// Flavor.
        flavor: FlavorId,
    },
    /// More than the queue could ever use.
    ExceedsMax {
        /// Flavor.
        flavor: FlavorId,
        /// Resource.
        resource: ResourceId,
        /// What the pod sets before it take.
        before: Amount,
        /// What is asked for.
        asks: i64,
        /// The most.
        most: Amount,
    },
    /// Not enough is unused.
    Short {
        /// Flavor.
        flavor: FlavorId,
        /// Resource.
        resource: ResourceId,
        /// How much is missing.
        missing: Amount,
    },
    /// The slice that it replaces has another flavor.
    SliceFlavor {
        /// Flavor that was tried.
        flavor: FlavorId,
        /// The slice's.
        original: Option<FlavorId>,
    },
    /// The entry was nominated for another flavor in this cycle.
    NotNominated {
        /// Flavor.
        flavor: FlavorId,
        /// Resource.
        resource: ResourceId,
    },
    /// The variant may not use it.
    NotAllowed {
        /// Flavor.
        flavor: FlavorId,
    },
    /// The pods can't be placed.
    Placement(Arc<str>),
    /// The flavors given can't serve together.
    TopologyFlavors(Arc<str>),
}

/// What stands in the way as a whole; the names are Kueue's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Obstacle {
    /// Its pods have no place.
    TopologyPlacementFailed,
    /// Quota is used.
    WaitingForQuota,
    /// It asks for more than there could ever be.
    ExceedsMaxQuota,
    /// No flavor serves it.
    NoMatchingFlavor,
    /// Victims are stopping for it.
    WaitingForPreemptedWorkloads,
    /// Something about it or its queue is wrong.
    Misconfigured,
    /// Its queue is stopped.
    Suspended,
    /// It is to be looked at again.
    PendingEvaluation,
    /// A gate holds it back.
    AdmissionGated,
}

impl Obstacle {
    /// Kueue's word.
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
    /// In words.
    pub fn text(&self, brain: &Brain) -> String {
        let flavor = |f: &FlavorId| brain.flavor_name(*f).to_string();
        let resource = |r: &ResourceId| brain.resource_name(*r).to_string();
        let amount = |r: &ResourceId, a: Amount| brain.amount_text(*r, a);
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
                format!("flavor {} serves only workloads that ask for a place in its topology", flavor(f))
            }
            Self::ExceedsMax { flavor: f, resource: r, before, asks, most } => {
                let before = if *before == Amount::ZERO {
                    String::new()
                } else {
                    format!(" after {} for the pod sets before", amount(r, *before))
                };
                format!(
                    "asks for {} {} in flavor {}{before}, the most there could ever be is {}",
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
