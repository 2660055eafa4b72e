//! Copies of the state for what-if questions.

use crate::amount::Amount;
use crate::model::{Holding, PendingPreemption, QueueId, QueueSetup, Shape, Workload, WorkloadId};
use crate::names::{FlavorId, ResourceId};
use crate::pending::Pending;
use crate::queue_state::{NewWorkload, QueueState};
use crate::quota::TreeId;
use std::sync::Arc;

impl QueueState {
    /// A copy with the usage of some trees, but without workloads.
    pub(crate) fn copy_of_quota(&self, trees: impl IntoIterator<Item = TreeId>) -> Self {
        Self {
            settings: self.settings.clone(),
            now: self.now,
            catalog: self.catalog.clone(),
            forest: self.forest.with_trees_only(&trees.into_iter().collect()),
            queues: self.queues.without_holders(),
            pending: vec![Pending::default(); self.pending.len()],
            ..Self::default()
        }
    }

    /// Copies a workload from the original state `of`. It is pending in this copy.
    pub(crate) fn copy_workload(&mut self, of: &Self, id: WorkloadId) -> WorkloadId {
        let one = of.get(&id);
        let shape = self.intern((**of.shape_of(one.shape)).clone());
        let copy = self.add_pending(NewWorkload {
            key: one.key.clone(),
            uid: one.uid.clone(),
            queue: one.queue,
            local_queue: one.local_queue.clone(),
            shape,
            since: one.since,
            marks: one.marks.clone(),
        });
        if of.is_preemptor(id) {
            self.pending_mut(one.queue).set_preemptor(Some(copy));
        }
        copy
    }

    /// Makes a copied workload wait for victims in some flavors, although this copy has no holders.
    pub(crate) fn assume_preemption(&mut self, copy: WorkloadId, flavors: Vec<Vec<(ResourceId, FlavorId)>>) {
        let Some(of) = self.workloads.get_mut(copy) else { return };
        of.progress.pending_preemption = Some(Box::new(PendingPreemption { flavors, victims: Vec::new() }));
        let queue = of.queue;
        self.queues.get_mut(queue).assume_stopping();
    }

    /// Replaces the declaration of a queue in a copy.
    pub(crate) fn assume_setup(&mut self, queue: QueueId, setup: QueueSetup) {
        self.queues.get_mut(queue).setup = Arc::new(setup);
    }

    /// Copies a holder from the original state `of`.
    pub(crate) fn copy_holder(&mut self, of: &Self, id: WorkloadId, holding: &Holding) -> WorkloadId {
        let one = of.get(&id);
        let shape = self.intern((**of.shape_of(one.shape)).clone());
        let new = NewWorkload {
            key: one.key.clone(),
            uid: one.uid.clone(),
            queue: one.queue,
            local_queue: one.local_queue.clone(),
            shape,
            since: one.since,
            marks: one.marks.clone(),
        };
        self.add_holder(new, holding.given.clone(), holding.since, holding.evicted, holding.admitted)
    }

    /// Submits a pending workload of a copy again, with another priority and as the newest one.
    pub(crate) fn resubmit(&mut self, id: WorkloadId, priority: i64) {
        let shape = Shape { priority, ..(**self.shape_of(self.get(&id).shape)).clone() };
        let Some(old) = self.remove(id) else { return };
        let shape = self.intern(shape);
        let Workload { key, uid, queue, local_queue, marks, .. } = old;
        // The number of the removed workload is reused.
        self.add_pending(NewWorkload { key, uid, queue, local_queue, shape, since: self.now(), marks });
    }

    /// Replaces nominal quotas of a queue in a copy.
    pub(crate) fn assume_nominal(&mut self, queue: QueueId, nominal: &[((FlavorId, ResourceId), i64)]) {
        let mut setup = (*self.queue(queue).setup).clone();
        let place = self.queue(queue).node.zip(self.queue(queue).tree);
        for (key, amount) in nominal {
            setup.quotas.entry(*key).or_default().nominal = Amount(*amount);
            if let Some((node, tree)) = place {
                let cell = self.forest.cell_id(tree, *key);
                self.forest.set_nominal(node, cell, Amount(*amount));
            }
        }
        self.assume_setup(queue, setup);
    }
}
