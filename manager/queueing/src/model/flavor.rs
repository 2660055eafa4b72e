//! Resource flavors, and how a queue chooses among them.

use crate::model::Requests;
use crate::names::{FlavorId, ResourceId};
use meridian_shared::gang::{Taint, Toleration};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A resource flavor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flavor {
    /// Labels of its nodes.
    pub labels: BTreeMap<String, String>,
    /// Taints of its nodes.
    pub taints: Vec<Taint>,
    /// Tolerations added to its workloads.
    pub tolerations: Vec<Toleration>,
    /// Name of the topology of its nodes.
    pub topology: Option<Arc<str>>,
    /// Node labels of the topology's levels, if another component places the pods.
    pub levels: Option<Arc<[String]>>,
}

/// When the search continues to the next flavor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlavorFungibility {
    /// Try the next flavor before borrowing.
    pub next_rather_than_borrow: bool,
    /// Preempt before trying the next flavor.
    pub preempt_rather_than_next: bool,
    /// Prefer preemption to borrowing.
    pub prefers_preemption: bool,
}

/// Resources that a workload gets from one common flavor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceGroup {
    pub resources: Vec<ResourceId>,
    /// In the order in which they are tried.
    pub flavors: Vec<FlavorId>,
}

impl ResourceGroup {
    /// Index of the group's first resource among the requests; `requests.len()` if none is requested.
    pub(crate) fn first_among(&self, requests: &Requests) -> usize {
        requests.iter().position(|(resource, _)| self.resources.contains(resource)).unwrap_or(requests.len())
    }
}
