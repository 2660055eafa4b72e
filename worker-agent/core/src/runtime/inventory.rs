//! The interface to the source of a cluster's nodes.

use super::{Answer, Error, NodePool, NodeSpec};
use meridian_shared::ids::Region;
use std::fmt;

/// The nodes and pools of a cluster at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    pub nodes: Vec<NodeSpec>,
    pub pools: Vec<NodePool>,
    /// Where the nodes are, if the source knows.
    pub region: Option<Region>,
}

/// Reports the nodes of the cluster: what pods may use of each (allocatable), labels, taints, and the part
/// that is used by pods which this agent did not start ([`NodeSpec::foreign_use`]).
///
/// Level-triggered: [`InventorySource::changed`] carries no data, and every read is complete. Reads may
/// repeat, and two agents (an old one and its successor) may read at the same time; a source changes nothing.
///
/// A read that failed or timed out means that the inventory is *unknown*: the last one stays in use. A node
/// is gone only when a complete, current read lacks it, because a node that is gone moves or ends the gangs
/// on it.
pub trait InventorySource: Send + fmt::Debug {
    /// Name for logs.
    fn name(&self) -> &'static str;

    /// Reads everything. Fails if that is not possible completely.
    fn read(&mut self) -> Answer<'_, Result<Inventory, Error>>;

    /// Completes when a read may give another result. Must be safe to drop.
    fn changed(&mut self) -> Answer<'_, ()>;
}
