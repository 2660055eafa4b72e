//! The state of one search, its input and its result.

use super::capacity::{CapacityTable, DomainCapacity};
use super::shape::Shape;
use crate::assignment::Assignment;
use crate::exclusions::Exclusions;
use crate::placement_error::{LayerFit, PlacementError};
use crate::request::PodSetRequest;
use crate::topology::Topology;
use crate::tree::DomainId;
use meridian_shared::topology::SliceLayer;

/// The pods to place together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query<'a> {
    /// The workers. Their shape and node constraints apply.
    pub(crate) workers: &'a PodSetRequest,
    /// The leader: one pod in addition to the workers.
    pub(crate) leader: Option<&'a PodSetRequest>,
    /// Ignore the pods that are already placed.
    pub(crate) simulate_empty: bool,
    /// Only consider this domain.
    pub(crate) within: Option<DomainId>,
}

/// Result of a search.
#[derive(Debug)]
pub(crate) struct Placement {
    pub(crate) workers: Assignment,
    pub(crate) leader: Option<Assignment>,
}

/// State of one search.
#[derive(Debug)]
pub(crate) struct Search<'a> {
    pub(crate) topology: &'a Topology,
    pub(crate) shape: Shape<'a>,
    pub(crate) table: CapacityTable,
    pub(crate) exclusions: Exclusions,
    /// Fill the fullest domains first.
    pub(crate) least_free: bool,
}

impl Search<'_> {
    pub(super) fn insufficient(&self, depth: usize, fit: i64) -> PlacementError {
        let topology = self.topology.flavor().topology.clone();
        let exclusions = self.exclusions.clone();
        if self.shape.layers.len() < 2 {
            return PlacementError::InsufficientCapacity {
                topology,
                fit: clamp_count(fit),
                requested: clamp_count(self.shape.slices()),
                sliced: self.shape.slice_size > 1,
                exclusions,
            };
        }
        let most = |best: DomainId, other: DomainId| {
            if self.table[other.at()].slices > self.table[best.at()].slices { other } else { best }
        };
        let best = self.topology.tree().level(depth).iter().reduce(most);
        let layer = |layer: &SliceLayer| {
            let target = self.topology.tree().depth(&layer.level)?;
            let size = i64::from(layer.size);
            Some(LayerFit {
                level: layer.level.clone(),
                fit: clamp_count(self.slices_below(best?, depth, target, size)),
                requested: clamp_count(self.shape.count / size),
            })
        };
        PlacementError::InsufficientCapacityInLayers {
            topology,
            layers: self.shape.layers.iter().filter_map(layer).collect(),
            exclusions,
        }
    }

    /// Slices of `size` that fit into the domains of depth `target` below `domain`.
    fn slices_below(&self, domain: DomainId, depth: usize, target: usize, size: i64) -> i64 {
        if depth >= target {
            return self.table[domain.at()].pods / size;
        }
        self.topology
            .tree()
            .children(domain)
            .iter()
            .map(|child| self.slices_below(child, depth + 1, target, size))
            .sum()
    }

    /// Whether the leaves hold all whole slices and the leader.
    pub(super) fn is_whole(&self, leaves: &[DomainId]) -> bool {
        let sum = |pick: fn(&DomainCapacity) -> i64| {
            leaves.iter().map(|leaf| pick(&self.table[leaf.at()])).sum::<i64>()
        };
        sum(|capacity| capacity.pods) == self.shape.slices() * self.shape.slice_size
            && sum(|capacity| capacity.leaders) == self.shape.leaders
    }

    /// The assignments for the counts in the table.
    pub(super) fn placement(&self, leaves: &[DomainId]) -> Placement {
        let tree = self.topology.tree();
        let count = |pick: fn(&DomainCapacity) -> i64| {
            leaves.iter().map(|leaf| (*leaf, clamp_count(pick(&self.table[leaf.at()])))).collect()
        };
        let leader = (self.shape.leaders > 0).then(|| tree.assignment(count(|capacity| capacity.leaders)));
        Placement { workers: tree.assignment(count(|capacity| capacity.pods)), leader }
    }
}

/// Converts a count, which is never negative and never above the largest request.
fn clamp_count(count: i64) -> u32 {
    u32::try_from(count.max(0)).unwrap_or(u32::MAX)
}
