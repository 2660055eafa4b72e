//! What is asked: pod sets, the shape they want, and by which rules the answer is found.

use crate::assignment::Assignment;
use meridian_shared::gang::{Amounts, PodSet, Requirement, Toleration};
use meridian_shared::topology::{Constraint, SliceLayer, TopologyRequest};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A wish about nodes, and how much it weighs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PreferredTerm {
    /// Weight, 1 to 100; 0 counts for nothing.
    pub weight: i32,
    /// What a node's labels must satisfy, all of it. Empty is satisfied by no node.
    pub requirements: Vec<Requirement>,
}

/// Pods of one template that want a place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSetRequest {
    /// Name, unique within the workload.
    pub name: String,
    /// Pods.
    pub count: u32,
    /// What one pod asks for, in base units; the resource `pods` is added by itself.
    pub per_pod: Amounts,
    /// Shape. `None` is the implied request: anywhere with room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologyRequest>,
    /// Labels that a node must have; like all wishes about nodes it counts only where the lowest level is the host.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: terms are ORed, requirements within a term ANDed. No term asks for nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub affinity: Vec<Vec<Requirement>>,
    /// Preferred node affinity, heeded where [`Profile::preferred_affinity`] is on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preferred: Vec<PreferredTerm>,
    /// Tolerations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Pod sets of the same group are placed together: the smaller one is the leader (one pod), the other the workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Where the pods of the smaller or larger predecessor run, which [`Profile::elastic`] keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Assignment>,
}

impl PodSetRequest {
    /// The request of `set`.
    pub fn of(set: &PodSet) -> Self {
        Self {
            name: set.name.clone(),
            count: set.count,
            per_pod: set.per_pod.clone(),
            topology: set.topology.clone(),
            node_selector: set.node_selector.clone(),
            affinity: set.affinity.clone(),
            tolerations: set.tolerations.clone(),
            group: set.group.clone(),
            ..Self::default()
        }
    }

    /// Node label of the level that all pods should share, if the request says one; `levels` is what there is.
    pub(crate) fn level<'a>(&'a self, levels: &'a [String]) -> Option<&'a str> {
        let Some(topology) = &self.topology else {
            return levels.last().map(String::as_str);
        };
        match &topology.constraint {
            Some(Constraint::Required(level) | Constraint::Preferred(level)) => Some(level),
            _ if topology.is_slices_only() => levels.first().map(String::as_str),
            Some(Constraint::Unconstrained) => levels.last().map(String::as_str),
            None => None,
        }
    }

    /// Layers of slices, the widest first.
    /// Whether every level that is asked for is one of these.
    pub fn asks_within(&self, levels: &[String]) -> bool {
        let known = |level: &str| levels.iter().any(|other| other == level);
        self.level(levels).is_some_and(known) && self.slices().iter().all(|layer| known(&layer.level))
    }

    pub(crate) fn slices(&self) -> &[SliceLayer] {
        self.topology.as_ref().map_or(&[], |topology| &topology.slices)
    }

    pub(crate) fn is_required(&self) -> bool {
        self.topology.as_ref().is_some_and(TopologyRequest::is_required)
    }

    pub(crate) fn is_unconstrained(&self) -> bool {
        let free = |topology: &TopologyRequest| {
            topology.constraint == Some(Constraint::Unconstrained) || topology.is_slices_only()
        };
        self.topology.as_ref().is_none_or(free)
    }
}

/// By which rules places are chosen; the defaults are Kueue's. Each is named after the gate that switches it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Profile {
    /// `TASProfileMixed`: unconstrained pods fill the fullest domains first instead of the emptiest.
    pub mixed: bool,
    /// `TASBalancedPlacement`: preferred pod sets are spread evenly over the domains they need.
    pub balanced: bool,
    /// `TASRespectNodeAffinityPreferred`: domains of preferred nodes go before all others.
    pub preferred_affinity: bool,
    /// `TASHandleOverlappingFlavors`: what other flavors use on the same hosts counts.
    pub overlapping_flavors: bool,
    /// `ElasticJobsViaWorkloadSlicesWithTAS`: a changed pod count keeps the pods where they are.
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

/// An admitted workload that lost a node.
#[derive(Clone, Copy, Debug)]
pub struct Lost<'a> {
    /// Where its pod sets are, by name.
    pub admitted: &'a BTreeMap<String, Assignment>,
    /// Names of the lost nodes. Only the first is replaced: who loses more starts anew.
    pub nodes: &'a [String],
    /// The pods can't move (the workload is a single pod), so everything stays as it is.
    pub pinned: bool,
}

/// How to answer one call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// Answer as if nothing that [`Topology::add_usage`](crate::Topology::add_usage) added were there: could it fit at all?
    pub simulate_empty: bool,
    /// Only replace what was lost.
    pub lost: Option<Lost<'a>>,
}
