//! Requests of whole pod sets.

use crate::model::{Delayed, PodSet, PodSetAdmission, Requests, Shape, Workload};
use crate::names::{FlavorId, ResourceId};
use meridian_topology::Assignment as TopologyAssignment;
use std::collections::BTreeMap;

/// Requests of all pods of a set, and its current admission, if any.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestTotal {
    pub(crate) requests: Requests,
    pub(crate) count: u32,
    pub(crate) flavors: BTreeMap<ResourceId, FlavorId>,
    pub(crate) placement: Option<TopologyAssignment>,
    pub(crate) delayed: Option<Delayed>,
}

impl RequestTotal {
    /// The requests, scaled to another number of pods.
    pub(crate) fn scaled(&self, count: u32) -> Self {
        let mut scaled = self.clone();
        if self.placement.is_none() && self.count != 0 && self.count != count {
            for (_, amount) in &mut scaled.requests {
                *amount = (*amount / i64::from(self.count)).saturating_mul(i64::from(count));
            }
            scaled.count = count;
        }
        scaled
    }
}

/// Requests per pod set: of the admission if the workload holds quota, otherwise of its shape.
pub(crate) fn request_totals(shape: &Shape, workload: &Workload) -> Vec<RequestTotal> {
    let Some(holding) = &workload.holding else {
        let total = |(at, set): (usize, &PodSet)| {
            let count = shape.count(at);
            let requests =
                set.per_pod.iter().map(|(r, a)| (*r, a.max(&0).saturating_mul(i64::from(count)))).collect();
            RequestTotal { requests, count, ..RequestTotal::default() }
        };
        return shape.pod_sets.iter().enumerate().map(total).collect();
    };
    let total = |(at, given): (usize, &PodSetAdmission)| {
        let mut total = RequestTotal {
            requests: given.usage.clone(),
            count: given.count,
            flavors: given.flavors.clone(),
            placement: given.placement.clone(),
            delayed: given.delayed,
        };
        // Reclaimable pods don't count; a partially admitted set stays reduced.
        let needed = shape.pod_sets.get(at).map_or(given.count, |_| shape.count(at));
        if needed < total.count {
            for (_, amount) in &mut total.requests {
                *amount = (*amount / i64::from(total.count)).saturating_mul(i64::from(needed));
            }
            total.count = needed;
        }
        total
    };
    holding.given.iter().enumerate().map(total).collect()
}
