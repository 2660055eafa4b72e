//! Which trees and queues the next cycles evaluate.

use crate::model::{QueueId, WorkloadId};
use crate::quota::TreeId;
use std::collections::BTreeSet;
use std::ops::Bound;

#[derive(Clone, Debug, Default)]
pub(crate) struct Agenda {
    /// Trees with changes since their last evaluation.
    changed: BTreeSet<TreeId>,
    /// The tree after which an interrupted run continues.
    resume_after: Option<TreeId>,
    /// Queues with a head to evaluate.
    active: BTreeSet<QueueId>,
    /// Queues with a workload that waits for cluster capacity.
    short_of_capacity: BTreeSet<QueueId>,
    /// Workloads evaluated from their first flavor again since the last progress.
    rescanned: BTreeSet<WorkloadId>,
}

impl Agenda {
    /// Trees with changes to evaluate.
    pub(crate) fn changed_trees(&self) -> impl Iterator<Item = TreeId> + '_ {
        self.changed.iter().copied()
    }

    pub(crate) fn mark_changed(&mut self, tree: TreeId) {
        self.changed.insert(tree);
    }

    pub(crate) fn unmark_changed(&mut self, tree: TreeId) {
        self.changed.remove(&tree);
    }

    /// Takes the next changed tree after `last`, round-robin, so that no tree waits for all others.
    pub(crate) fn take_next_changed(&mut self, last: Option<TreeId>) -> Option<TreeId> {
        let after = last
            .and_then(|last| self.changed.range((Bound::Excluded(last), Bound::Unbounded)).next().copied());
        let tree = after.or_else(|| self.changed.first().copied())?;
        self.changed.remove(&tree);
        Some(tree)
    }

    /// Interrupts a run. The next run continues after `tree`.
    pub(crate) fn interrupt_after(&mut self, tree: TreeId) {
        self.resume_after = Some(tree);
    }

    /// The tree after which an interrupted run continues.
    pub(crate) fn take_resume_after(&mut self) -> Option<TreeId> {
        self.resume_after.take()
    }

    pub(crate) fn active_queues(&self) -> impl Iterator<Item = QueueId> + '_ {
        self.active.iter().copied()
    }

    pub(crate) fn is_active(&self, queue: QueueId) -> bool {
        self.active.contains(&queue)
    }

    /// Sets whether a queue has a head to evaluate.
    pub(super) fn set_active(&mut self, queue: QueueId, active: bool) {
        if active {
            self.active.insert(queue);
        } else {
            self.active.remove(&queue);
        }
    }

    /// Resets the agenda after trees and queues were declared again: all `trees` count as changed.
    pub(super) fn reset(&mut self, trees: impl IntoIterator<Item = TreeId>) {
        self.changed = trees.into_iter().collect();
    }

    pub(super) fn clear_active(&mut self) {
        self.active.clear();
    }

    /// Records that a workload of the queue waits for cluster capacity.
    pub(crate) fn mark_short_of_capacity(&mut self, queue: QueueId) {
        self.short_of_capacity.insert(queue);
    }

    pub(super) fn take_short_of_capacity(&mut self) -> BTreeSet<QueueId> {
        std::mem::take(&mut self.short_of_capacity)
    }

    /// Allows one more evaluation of all flavors of a workload. False if it had one since the last progress.
    pub(crate) fn rescan(&mut self, workload: WorkloadId) -> bool {
        self.rescanned.insert(workload)
    }

    /// Number of workloads that were evaluated again since the last progress.
    pub(crate) fn rescans(&self) -> usize {
        self.rescanned.len()
    }

    pub(crate) fn clear_rescans(&mut self) {
        self.rescanned.clear();
    }
}
