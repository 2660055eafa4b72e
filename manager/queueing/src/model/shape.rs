//! Shapes: what workloads request. Workloads of one shape are equivalent for decisions.

use crate::names::{FlavorId, ResourceId, id};
use meridian_shared::gang::{Amounts, Requirement, Toleration};
use meridian_topology::{PreferredTerm, TopologyRequest};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A [`Shape`]. Workloads of one shape are equivalent for decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShapeId(pub u32);

id!(ShapeId);

/// Amounts by resource, in the order of the resources' names.
pub type Requests = Vec<(ResourceId, i64)>;

/// The amount of a resource; zero if it isn't requested.
pub fn amount_of(requests: &[(ResourceId, i64)], resource: ResourceId) -> i64 {
    requests.iter().find(|(r, _)| *r == resource).map_or(0, |(_, a)| *a)
}

/// Pods of one template.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodSet {
    pub name: Arc<str>,
    pub count: u32,
    /// Fewest pods for partial admission, if allowed.
    pub min_count: Option<u32>,
    /// Quota request of one pod.
    pub per_pod: Requests,
    /// Resource request of one pod on its node.
    pub on_node: Amounts,
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity; terms are alternatives.
    pub affinity: Vec<Vec<Requirement>>,
    pub tolerations: Vec<Toleration>,
    /// Preferred node affinity.
    pub preferred: Vec<PreferredTerm>,
    pub topology: Option<TopologyRequest>,
    /// Pod sets of one group get the same flavors and are placed together.
    pub group: Option<String>,
}

impl PodSet {
    /// Whether it requests a topology.
    pub fn requests_topology(&self) -> bool {
        self.topology.is_some()
    }
}

/// All properties of a workload that a decision depends on, except its identity and queueing time.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Shape {
    /// Separates workloads by properties that this crate doesn't know. Compared first.
    pub tag: u64,
    pub pod_sets: Vec<PodSet>,
    /// Pods per set without reclaimable pods, if there are any.
    pub counts: Option<Vec<u32>>,
    /// The only flavors that may be used, if restricted.
    pub allowed_flavors: Option<Vec<FlavorId>>,
    pub priority: i64,
}

impl Shape {
    /// Pods of a set, without reclaimable pods.
    pub fn count(&self, pod_set: usize) -> u32 {
        self.counts.as_ref().and_then(|c| c.get(pod_set).copied()).unwrap_or(self.pod_sets[pod_set].count)
    }

    /// Whether partial admission is allowed.
    pub fn may_shrink(&self) -> bool {
        self.pod_sets.iter().any(|set| set.min_count.is_some())
    }

    /// Fewest pods of each set for partial admission.
    pub fn least(&self) -> Vec<u32> {
        self.pod_sets.iter().map(|set| set.min_count.unwrap_or(set.count)).collect()
    }

    /// Groups of pod sets that get common flavors, in the order of their first members.
    pub(crate) fn groups(&self) -> Vec<Vec<usize>> {
        let mut groups: Vec<(Option<&String>, Vec<usize>)> = Vec::new();
        for (at, set) in self.pod_sets.iter().enumerate() {
            match groups.iter_mut().find(|(name, _)| name.is_some() && *name == set.group.as_ref()) {
                Some((_, members)) => members.push(at),
                None => groups.push((set.group.as_ref(), vec![at])),
            }
        }
        groups.into_iter().map(|(_, members)| members).collect()
    }
}
