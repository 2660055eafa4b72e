//! Topology settings of a flavor.

use meridian_shared::gang::Toleration;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Topology settings of a flavor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flavor {
    /// Name of the topology, for messages.
    pub topology: String,
    /// Node labels of the levels, from the widest to the narrowest.
    pub levels: Vec<String>,
    /// Labels that nodes of the flavor have.
    pub node_labels: BTreeMap<String, String>,
    /// Tolerations added to pods of the flavor.
    pub tolerations: Vec<Toleration>,
    pub profile: Profile,
}

/// Placement rules. The defaults are Kueue's; each is named after Kueue's gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Profile {
    /// `TASProfileMixed`: unconstrained pods fill the fullest domains first instead of the emptiest.
    pub mixed: bool,
    /// `TASBalancedPlacement`: preferred pod sets are spread evenly over the domains they need.
    pub balanced: bool,
    /// `TASRespectNodeAffinityPreferred`: domains of preferred nodes come first.
    pub preferred_affinity: bool,
    /// `TASHandleOverlappingFlavors`: usage of other flavors on the same hosts counts.
    pub overlapping_flavors: bool,
    /// `ElasticJobsViaWorkloadSlicesWithTAS`: a changed pod count keeps existing pods in their domains.
    pub elastic: bool,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            mixed: true,
            balanced: false,
            preferred_affinity: false,
            overlapping_flavors: true,
            elastic: false,
        }
    }
}
