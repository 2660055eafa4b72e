//! Progress of a workload's search for flavors, from which the next evaluation continues.

use crate::model::ShapeId;
use crate::names::ResourceId;
use crate::settings::Gates;

/// Progress of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlavorScan {
    /// Per pod set and resource, the index of the last flavor evaluated; -1 after the last one.
    pub tried: Vec<Vec<(ResourceId, i32)>>,
    /// Generation of the queue at that time.
    pub generation: u64,
    /// Cycle of the queue at that time.
    pub cycle: u64,
    /// Shape of the workload at that time.
    pub shape: Option<ShapeId>,
}

impl FlavorScan {
    pub(crate) fn new(generation: u64, cycle: u64, shape: ShapeId) -> Self {
        Self { tried: Vec::new(), generation, cycle, shape: Some(shape) }
    }

    /// Index of the first flavor to try.
    pub(crate) fn next(&self, pod_set: usize, resource: ResourceId) -> usize {
        let tried = self.tried.get(pod_set).and_then(|set| set.iter().find(|(r, _)| *r == resource));
        tried.map_or(0, |(_, at)| usize::try_from(at + 1).unwrap_or(0))
    }

    /// Whether some flavors aren't evaluated yet.
    pub fn pending(&self) -> bool {
        self.tried.iter().flatten().any(|(_, at)| *at != -1)
    }

    /// Whether the queue or the shape has changed since the search, so that it must start again.
    pub(crate) fn outdated(&self, generation: u64, cycle: u64, shape: ShapeId, gates: &Gates) -> bool {
        if gates.preserve_flavor_scan_progress {
            if gates.scheduling_equivalence && self.shape != Some(shape) {
                return true;
            }
            if cycle.saturating_sub(self.cycle) <= 1 {
                return false;
            }
        }
        generation > self.generation
    }

    pub(crate) fn reorder(&mut self, order: &[usize]) {
        let mut tried: Vec<(usize, Vec<(ResourceId, i32)>)> =
            order.iter().copied().zip(std::mem::take(&mut self.tried)).collect();
        tried.sort_by_key(|(at, _)| *at);
        self.tried = tried.into_iter().map(|(_, t)| t).collect();
    }
}
