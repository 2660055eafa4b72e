//! How far a workload's scan of flavors came, so that its next try goes on from there.

use crate::model::ShapeId;
use crate::names::ResourceId;
use crate::settings::Gates;

/// How far a scan came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Per pod set and resource, the place of the last flavor that was looked at; -1 after the last of the list.
    pub tried: Vec<Vec<(ResourceId, i32)>>,
    /// The queue's generation then.
    pub generation: u64,
    /// The queue's cycle then.
    pub cycle: u64,
    /// The workload's shape then.
    pub shape: Option<ShapeId>,
}

impl Scan {
    pub(crate) fn new(generation: u64, cycle: u64, shape: ShapeId) -> Self {
        Self { tried: Vec::new(), generation, cycle, shape: Some(shape) }
    }

    /// The place of the first flavor to try.
    pub(crate) fn next(&self, pod_set: usize, resource: ResourceId) -> usize {
        let tried = self.tried.get(pod_set).and_then(|set| set.iter().find(|(r, _)| *r == resource));
        tried.map_or(0, |(_, at)| usize::try_from(at + 1).unwrap_or(0))
    }

    /// Whether flavors are left that weren't looked at.
    pub fn pending(&self) -> bool {
        self.tried.iter().flatten().any(|(_, at)| *at != -1)
    }

    /// Whether it no longer says anything about how things are.
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
