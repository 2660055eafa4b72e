//! Questions about the quota of a queue.

use crate::amount::Amount;
use crate::model::{QueueId, ShapeId, WorkloadId};
use crate::names::{FlavorId, ResourceId};
use crate::queue_state::QueueState;
use crate::quota::{NodeId, TreeId};

impl QueueState {
    /// The smallest nominal quota with which `asks` would be available to a queue now and within its maximum,
    /// if nothing else changes.
    pub fn nominal_for(&self, queue: QueueId, key: (FlavorId, ResourceId), asks: i64) -> i64 {
        let of = self.queue(queue);
        let nominal = of.setup.quota(key).nominal;
        let cell = of.node.zip(of.tree.and_then(|tree| self.forest.find_cell(tree, key)));
        let Some((node, cell)) = cell else { return nominal.0.saturating_add(asks) };
        // A unit of nominal quota adds one unit at the queue, and one in its cohort if it is lent.
        let asks = Amount(asks);
        let free = asks - self.forest.balance(node, cell);
        let most = asks - self.forest.cell(node, cell).potential;
        (nominal + free.max(most).floor()).0
    }

    /// Usage of a flavor and resource by a queue.
    pub fn used(&self, queue: QueueId, key: (FlavorId, ResourceId)) -> i64 {
        let queue = self.queue(queue);
        let cell = queue.node.zip(queue.tree.and_then(|tree| self.forest.find_cell(tree, key)));
        cell.map_or(0, |(node, cell)| self.forest.cell(node, cell).usage.0)
    }

    /// The quota node of a workload's queue.
    pub(crate) fn node_of(&self, id: WorkloadId) -> Option<NodeId> {
        self.queue(self.workloads.get(&id)?.queue).node
    }

    pub(crate) fn tree_of(&self, id: WorkloadId) -> Option<TreeId> {
        self.queue(self.workloads.get(&id)?.queue).tree
    }

    /// Whether a queue could use an amount of a flavor and resource without any other usage.
    pub fn could_ever_use(&self, queue: QueueId, key: (FlavorId, ResourceId), asks: i64) -> bool {
        let of = self.queue(queue);
        let cell = of.node.zip(of.tree.and_then(|tree| self.forest.find_cell(tree, key)));
        cell.is_some_and(|(node, cell)| Amount(asks) <= self.forest.cell(node, cell).potential)
    }

    /// Quota of a flavor and resource that a queue could use without any other usage.
    pub fn potential(&self, queue: QueueId, key: (FlavorId, ResourceId)) -> i64 {
        let of = self.queue(queue);
        let cell = of.node.zip(of.tree.and_then(|tree| self.forest.find_cell(tree, key)));
        cell.map_or(0, |(node, cell)| self.forest.cell(node, cell).potential.0)
    }

    /// Quota of a flavor and resource that a queue may use now, including borrowing.
    pub fn available(&self, queue: QueueId, key: (FlavorId, ResourceId)) -> i64 {
        let of = self.queue(queue);
        let cell = of.node.zip(of.tree.and_then(|tree| self.forest.find_cell(tree, key)));
        cell.map_or(0, |(node, cell)| self.forest.available(node, cell).0)
    }

    /// Quota that a queue may use now. Negative if more is used than exists: that much must be released
    /// first.
    pub fn balance(&self, queue: QueueId, key: (FlavorId, ResourceId)) -> i64 {
        let of = self.queue(queue);
        let cell = of.node.zip(of.tree.and_then(|tree| self.forest.find_cell(tree, key)));
        cell.map_or(0, |(node, cell)| self.forest.balance(node, cell).0)
    }

    /// Whether a queue borrows a flavor and resource, so that others may reclaim it.
    pub fn borrows(&self, queue: QueueId, key: (FlavorId, ResourceId)) -> bool {
        let of = self.queue(queue);
        let cell = of.node.zip(of.tree.and_then(|tree| self.forest.find_cell(tree, key)));
        cell.is_some_and(|(node, cell)| self.forest.borrows(node, cell))
    }

    /// The cluster queue at a node.
    pub(crate) fn queue_at(&self, node: NodeId) -> Option<QueueId> {
        self.queues.at_node(node)
    }

    /// The active queue at a node. Nothing is reclaimed from an inactive queue.
    pub(crate) fn active_queue_at(&self, node: NodeId) -> Option<QueueId> {
        self.queue_at(node).filter(|queue| self.queue(*queue).setup.inactive.is_none())
    }

    /// Request of all pods of a shape for a resource.
    pub(crate) fn request_of(&self, shape: ShapeId, resource: ResourceId) -> i64 {
        self.catalog.request_of_shape(self.shape_of(shape), resource)
    }
}
