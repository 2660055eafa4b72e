//! Requeueing of inadmissible workloads after a change.

use crate::model::QueueId;
use crate::names::Id;
use crate::queue_state::QueueState;
use crate::quota::TreeId;

impl QueueState {
    pub(crate) fn mark_changed(&mut self, queue: QueueId) {
        if let Some(tree) = self.queue(queue).tree {
            self.agenda.mark_changed(tree);
        }
    }

    /// Updates whether the queue has a head to evaluate.
    pub(crate) fn update_active(&mut self, id: QueueId) {
        let queue = self.queues.get(id);
        let active =
            queue.node.is_some() && queue.setup.inactive.is_none() && self.pending[id.index()].has_head();
        self.agenda.set_active(id, active);
    }

    /// Counts a cycle in which a queue had a head.
    pub(crate) fn count_cycle(&mut self, queue: QueueId) {
        self.queues.get_mut(queue).count_cycle();
    }

    /// Requeues all inadmissible workloads of a queue's tree, because quota of the queue was released.
    pub fn quota_released(&mut self, queue: QueueId) {
        let Some(tree) = self.queues.get(queue).tree else { return };
        self.requeue_tree(tree);
    }

    /// Requeues all inadmissible workloads of a tree.
    pub fn requeue_tree(&mut self, tree: TreeId) {
        self.agenda.mark_changed(tree);
        let queues: Vec<QueueId> =
            self.forest.tree(tree).queues.iter().filter_map(|node| self.queue_at(*node)).collect();
        for queue in queues {
            if self.pending[queue.index()].requeue_parked() {
                self.update_active(queue);
            }
        }
    }

    /// Requeues the workloads that wait for cluster capacity only.
    pub fn requeue_for_capacity(&mut self) {
        for queue in self.agenda.take_short_of_capacity() {
            self.pending[queue.index()].requeue_for_capacity();
            self.mark_changed(queue);
            self.update_active(queue);
        }
    }

    /// Requeues all inadmissible workloads.
    pub fn requeue_all(&mut self) {
        for tree in 0..self.forest.trees() {
            self.requeue_tree(TreeId::new(u32::try_from(tree).unwrap_or(u32::MAX)));
        }
    }
}
