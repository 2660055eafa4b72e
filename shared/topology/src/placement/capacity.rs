//! Capacity per domain, and its sums from the leaves up.

use super::shape::Shape;
use crate::tree::{DomainId, Tree};

/// Pods that a domain can hold; in the second pass, pods that are placed in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DomainCapacity {
    pub(super) pods: i64,
    /// Whole slices. 0 below the slice level.
    pub(super) slices: i64,
    /// Pods that fit together with the leader, at the cheapest position for it.
    pub(super) pods_with_leader: i64,
    /// Whole slices that fit together with the leader.
    pub(super) slices_with_leader: i64,
    /// 1 if the leader fits somewhere below, else 0.
    pub(super) leaders: i64,
    /// Sum of the preference scores of the nodes.
    pub(super) affinity: i64,
}

/// Capacity of every domain, indexed by [`DomainId`].
pub(super) type CapacityTable = Vec<DomainCapacity>;

/// Sums the capacity of everything below `domain`, which is at `depth`. The leader is assumed at the position
/// that costs the fewest pods.
///
/// `layered` rounds each child down to whole slices of its layer, so that pods that can't be grouped don't
/// count.
pub(super) fn sum_up(
    tree: &Tree,
    shape: &Shape<'_>,
    table: &mut [DomainCapacity],
    domain: DomainId,
    depth: usize,
    layered: bool,
) {
    let children = tree.children(domain);
    if children.is_empty() {
        if depth == shape.slice_depth {
            let capacity = &mut table[domain.at()];
            capacity.slices = capacity.pods / shape.slice_size;
            capacity.slices_with_leader = capacity.pods_with_leader / shape.slice_size;
        }
        return;
    }
    let whole = if layered { shape.inner_size(depth + 1).unwrap_or(1) } else { 1 };
    let mut sum = DomainCapacity::default();
    // The cost of the leader, in pods and in slices, at its cheapest position.
    let mut cost: Option<(i64, i64)> = None;
    for child in children.iter() {
        sum_up(tree, shape, table, child, depth + 1, layered);
        let capacity = table[child.at()];
        let (pods, pods_with_leader) =
            (capacity.pods / whole * whole, capacity.pods_with_leader / whole * whole);
        sum.pods += pods;
        sum.slices += capacity.slices;
        sum.leaders = sum.leaders.max(capacity.leaders);
        sum.affinity += capacity.affinity;
        if shape.leaders == 0 || capacity.leaders > 0 {
            let (least_pods, least_slices) = cost.unwrap_or((i64::MAX, i64::MAX));
            cost = Some((
                least_pods.min(pods - pods_with_leader),
                least_slices.min(capacity.slices - capacity.slices_with_leader),
            ));
        }
    }
    if let Some((pods, slices)) = cost {
        sum.pods_with_leader = sum.pods - pods;
        sum.slices_with_leader = sum.slices - slices;
    }
    if depth == shape.slice_depth {
        sum.slices = sum.pods / shape.slice_size;
        sum.slices_with_leader = sum.pods_with_leader / shape.slice_size;
    }
    table[domain.at()] = sum;
}
