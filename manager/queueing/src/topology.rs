//! Places in topologies, for pod sets that ask for them.

use crate::brain::Brain;
use crate::flavors::Assignment;
use crate::model::{Placement, PodSet, WorkloadId};
use crate::names::FlavorId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pod sets that want a place, by the flavor whose nodes they get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requests {
    pub(crate) by_flavor: BTreeMap<Arc<str>, (FlavorId, Vec<Wanted>)>,
}

/// One pod set that wants a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) pod_set: usize,
    pub(crate) count: u32,
    pub(crate) implied: bool,
}

/// A pod set that has no place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoPlace {
    pub(crate) pod_set: usize,
    pub(crate) flavor: FlavorId,
    pub(crate) reason: Arc<str>,
}

impl Brain {
    /// Whether nodes of a flavor's topology are known.
    pub(crate) fn has_topology(&self, _flavor: FlavorId) -> bool {
        false
    }

    pub(crate) fn has_levels(&self, _flavor: FlavorId, _set: &PodSet) -> bool {
        false
    }

    pub(crate) fn topology_requests(&self, _workload: WorkloadId, _assignment: &Assignment) -> Option<Requests> {
        None
    }

    pub(crate) fn find_places(&self, _requests: &Requests, _workload: WorkloadId, _empty: bool) -> Result<Vec<(usize, Placement)>, NoPlace> {
        Ok(Vec::new())
    }
}

/// Nodes of every flavor that has a topology.
#[derive(Clone, Debug, Default)]
pub(crate) struct Topologies {}

impl Brain {
    pub(crate) fn place_usage(&mut self, _id: WorkloadId, _add: bool) {}
    pub(crate) fn place_with_victims(&mut self, _id: WorkloadId, _assignment: &mut Assignment, _targets: &[crate::preempt::Target]) {}
    pub(crate) fn place_assignment(&mut self, _id: WorkloadId, _assignment: &Assignment, _add: bool) {}
    pub(crate) fn still_free(&self, _id: WorkloadId, _assignment: &Assignment) -> bool {
        true
    }
}

impl crate::flavors::Assigner<'_> {
    pub(crate) fn place(&mut self, _assignment: &mut Assignment) {}
}
