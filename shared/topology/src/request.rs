//! Requests: pod sets to place, and options of a call.

use crate::assignment::Assignment;
use meridian_shared::gang::{Amounts, PodSet, Requirement, Toleration};
use meridian_shared::topology::{Constraint, SliceLayer, TopologyRequest};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A weighted preference for nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PreferredTerm {
    /// 1 to 100; 0 has no effect.
    pub weight: i32,
    /// Conditions on the labels of a node, all of which must hold. An empty list matches no node.
    pub requirements: Vec<Requirement>,
}

/// Pods of one template to place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSetRequest {
    /// Unique within the workload.
    pub name: String,
    /// Number of pods.
    pub count: u32,
    /// Request of one pod, in base units. The resource `pods` is added automatically.
    pub per_pod: Amounts,
    /// Topology request. `None` means the implied request: anywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologyRequest>,
    /// Required node labels. Like all node constraints, they apply only if the lowest level is the host.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: terms are ORed, requirements within a term ANDed. No terms match every node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub affinity: Vec<Vec<Requirement>>,
    /// Preferred node affinity, used if [`Profile::preferred_affinity`](crate::Profile::preferred_affinity)
    /// is on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preferred: Vec<PreferredTerm>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Pod sets of one group are placed together: the smaller is the leader (one pod), the larger the
    /// workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Assignment before a change of the pod count, which is kept if
    /// [`Profile::elastic`](crate::Profile::elastic) is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Assignment>,
}

impl PodSetRequest {
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

    /// Node label of the level at which all pods should share a domain, if the request names one.
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

    /// Whether every requested level is one of `levels`.
    pub fn uses_levels_of(&self, levels: &[String]) -> bool {
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

/// Lost nodes of an admitted workload.
#[derive(Clone, Copy, Debug)]
pub struct LostNodes<'a> {
    /// Assignments of its pod sets, by name.
    pub admitted: &'a BTreeMap<String, Assignment>,
    /// Names of the lost nodes. Only the first is replaced; a workload with more lost nodes must be placed
    /// from scratch.
    pub nodes: &'a [String],
    /// The pods can't move (the workload is a single pod), so the assignment isn't changed.
    pub pinned: bool,
}

/// Options of one call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// Ignore all usage counted by [`Topology::add_usage`](crate::Topology::add_usage), to check whether the
    /// pod sets could ever fit.
    pub simulate_empty: bool,
    /// Only replace lost nodes.
    pub lost: Option<LostNodes<'a>>,
}
