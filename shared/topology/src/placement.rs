//! One search: the level and the domains for a pod set, and the leaves below them.

mod balance;
mod capacity;
mod choose;
mod count;
mod descend;
mod labels;
mod node_filter;
mod order;
mod search;
mod shape;

use crate::exclusions::Exclusions;
use crate::placement_error::PlacementError;
use crate::topology::Topology;
use crate::usage::Taken;
use node_filter::NodeFilter;
use search::Search;
pub(crate) use search::{Placement, Query};
use shape::Shape;

/// Places the pods of `query`. Fails if the request is invalid or doesn't fit.
pub(crate) fn find(
    topology: &Topology,
    query: &Query<'_>,
    taken: &Taken<'_>,
) -> Result<Placement, PlacementError> {
    let tree = topology.tree();
    let flavor = topology.flavor();
    let shape = Shape::of(query, tree)?;
    let filter = NodeFilter::of(query.workers, flavor, tree.is_by_host())?;
    let least_free = shape.unconstrained && flavor.profile.mixed;
    let mut search = Search {
        topology,
        shape,
        table: vec![Default::default(); tree.len()],
        exclusions: Exclusions::default(),
        least_free,
    };
    search.count_leaves(query, &filter, taken);
    let balanced = if flavor.profile.balanced && !search.shape.required && !search.shape.unconstrained {
        search.balance()
    } else {
        None
    };
    if let Some(leaves) = balanced {
        return Ok(search.placement(&leaves));
    }
    let (depth, domains) = search.choose_level()?;
    let leaves = search.descend(depth, domains);
    // The sums exclude a partial placement, but check, because it must never be returned.
    if search.is_whole(&leaves) { Ok(search.placement(&leaves)) } else { Err(search.insufficient(depth, 0)) }
}
