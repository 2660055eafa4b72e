//! Changes of workloads: queued, reserved, evicted, requeued, removed.

use crate::model::{
    Holding, Marks, Moment, PodSetAdmission, Progress, QueueId, ShapeId, Workload, WorkloadId,
};
use crate::names::Id;
use crate::pending::{ClassKey, PendingPosition};
use crate::queue_state::QueueState;
use std::sync::Arc;

/// A new workload.
#[derive(Clone, Debug)]
pub struct NewWorkload {
    /// Namespace and name.
    pub key: Arc<str>,
    /// Breaks ties between otherwise equal workloads.
    pub uid: Arc<str>,
    pub queue: QueueId,
    /// Namespace and name of the local queue.
    pub local_queue: Arc<str>,
    pub shape: ShapeId,
    /// Position in time within the queue.
    pub since: Moment,
    /// Boxed, because most workloads have none.
    pub marks: Option<Box<Marks>>,
}

impl QueueState {
    pub(crate) fn position_of(&self, id: WorkloadId) -> (ClassKey, PendingPosition) {
        let of = &self.workloads[&id];
        (
            (of.local_queue.clone(), of.shape),
            PendingPosition::new(self.priority_of(of), of.since, of.uid.clone(), id),
        )
    }

    /// Adds a pending workload.
    pub fn add_pending(&mut self, new: NewWorkload) -> WorkloadId {
        let queue = new.queue;
        let id = self.insert(new);
        let (class, position) = self.position_of(id);
        self.pending[queue.index()].push(&class, position);
        self.mark_changed(queue);
        self.update_active(queue);
        id
    }

    /// Adds a pending workload that isn't evaluated until the workload itself changes.
    pub fn add_parked(&mut self, new: NewWorkload) -> WorkloadId {
        let queue = new.queue;
        let id = self.insert(new);
        let (class, position) = self.position_of(id);
        self.pending[queue.index()].park(&class, position, true);
        id
    }

    /// Adds a workload that already holds quota.
    pub fn add_holder(
        &mut self,
        new: NewWorkload,
        given: Vec<PodSetAdmission>,
        since: Moment,
        evicted: bool,
        admitted: bool,
    ) -> WorkloadId {
        let id = self.insert(new);
        self.reserve(id, given, since);
        if let Some(holding) = self.workloads.get_mut(id).and_then(|w| w.holding.as_mut()) {
            holding.admitted = admitted;
        }
        self.set_evicted(id, evicted);
        id
    }

    /// Reserves quota for a workload, which is no longer pending.
    pub(crate) fn reserve(&mut self, id: WorkloadId, given: Vec<PodSetAdmission>, since: Moment) {
        if self.workloads.get(&id).is_none() {
            return;
        }
        self.end_starvation(id);
        if self.workloads[&id].holding.is_some() {
            self.unindex_holder(id);
        }
        let Some(workload) = self.workloads.get_mut(id) else { return };
        workload.progress.clear_after_reservation();
        workload.holding = Some(Box::new(Holding { given, since, ..Holding::default() }));
        self.index_holder(id);
        self.charge_holder(id);
    }

    /// Reserves quota for a pending workload as decided elsewhere.
    pub fn reserve_pending(&mut self, id: WorkloadId, given: Vec<PodSetAdmission>, since: Moment) {
        let Some(queue) = self.workloads.get(&id).filter(|w| w.holding.is_none()).map(|w| w.queue) else {
            return;
        };
        let (class, position) = self.position_of(id);
        self.pending[queue.index()].remove(&class, &position);
        self.update_active(queue);
        self.reserve(id, given, since);
        self.mark_changed(queue);
    }

    /// Removes a workload: it finished, was deleted, or will return as a new one.
    pub fn remove(&mut self, id: WorkloadId) -> Option<Workload> {
        let queue = self.workloads.get(&id)?.queue;
        self.end_starvation(id);
        if self.workloads[&id].holding.is_some() {
            self.count_holder(id, false);
            self.unindex_holder(id);
            self.queues.get_mut(queue).generation += 1;
            self.quota_released(queue);
        } else {
            let (class, position) = self.position_of(id);
            self.pending[queue.index()].remove(&class, &position);
            self.update_active(queue);
            // The next workload of the queue may be the head now.
            self.mark_changed(queue);
        }
        self.drop_penalty(id);
        let removed = self.workloads.remove(id)?;
        self.shapes.release(removed.shape);
        Some(removed)
    }

    /// Releases the quota of a holder, which is pending again.
    pub fn requeue(&mut self, id: WorkloadId, since: Moment) {
        self.release_and_requeue(id, since, false);
    }

    /// Releases and requeues a workload, which isn't evaluated until the workload itself changes.
    pub fn requeue_parked(&mut self, id: WorkloadId, since: Moment) {
        self.release_and_requeue(id, since, true);
    }

    fn release_and_requeue(&mut self, id: WorkloadId, since: Moment, parked: bool) {
        let Some(queue) = self.workloads.get(&id).filter(|w| w.holding.is_some()).map(|w| w.queue) else {
            return;
        };
        self.count_holder(id, false);
        self.unindex_holder(id);
        self.queues.get_mut(queue).generation += 1;
        if let Some(workload) = self.workloads.get_mut(id) {
            workload.holding = None;
            workload.since = since;
            workload.progress.scan = None;
            if let Some(marks) = &mut workload.marks {
                // The workload has no assignment any more, so none of its nodes counts as lost.
                marks.lost_nodes.clear();
            }
        }
        let (class, position) = self.position_of(id);
        let pending = &mut self.pending[queue.index()];
        if parked {
            pending.park(&class, position, true);
        } else {
            pending.push(&class, position);
        }
        self.quota_released(queue);
        self.update_active(queue);
    }

    /// Marks a holder as stopping. Its quota stays reserved until it has stopped.
    pub fn evict(&mut self, id: WorkloadId) {
        self.set_evicted(id, true);
    }

    /// Cancels the eviction of a holder.
    pub fn cancel_eviction(&mut self, id: WorkloadId) {
        self.set_evicted(id, false);
    }

    /// Marks a holder as admitted: all checks are done.
    pub fn admit(&mut self, id: WorkloadId) {
        if let Some(holding) = self.workloads.get_mut(id).and_then(|w| w.holding.as_mut()) {
            holding.admitted = true;
        }
    }

    /// Reserves quota for a workload in a cycle and admits it if all checks are done. A holder keeps the time
    /// of its reservation.
    pub(crate) fn admit_in_cycle(&mut self, id: WorkloadId, given: Vec<PodSetAdmission>) {
        if let Some(since) = self.workloads[&id].holding.as_ref().map(|h| h.since) {
            self.suspend_usage(id);
            self.reserve(id, given, since);
        } else {
            self.charge_penalty(id);
            self.reserve(id, given, self.now);
            self.excluded.add_admitted(id);
        }
        if let Some(workload) = self.workloads.get_mut(id) {
            if let Some(marks) = &mut workload.marks {
                marks.lost_nodes.clear();
            }
            let pending = &mut self.pending[workload.queue.index()];
            if pending.preemptor() == Some(id) {
                pending.set_preemptor(None);
            }
        }
        if self.checks_are_done(id) {
            self.admit(id);
        }
    }

    /// Replaces the marks of a workload.
    pub fn set_marks(&mut self, id: WorkloadId, marks: Option<Box<Marks>>) {
        if let Some(workload) = self.workloads.get_mut(id) {
            workload.marks = marks;
        }
    }

    fn insert(&mut self, new: NewWorkload) -> WorkloadId {
        let NewWorkload { key, uid, queue, local_queue, shape, since, marks } = new;
        self.shapes.retain(shape);
        self.workloads.insert(Workload {
            key,
            uid,
            queue,
            local_queue,
            shape,
            since,
            marks,
            holding: None,
            progress: Progress::default(),
        })
    }

    /// Adds a holder to the indexes of its queue.
    fn index_holder(&mut self, id: WorkloadId) {
        let (of, candidate) = (&self.workloads[&id], self.as_candidate(id));
        self.queues.get_mut(of.queue).add_holder(&candidate, of.since, &of.assigned_flavors());
    }

    /// Reverses one call of [`Self::index_holder`].
    fn unindex_holder(&mut self, id: WorkloadId) {
        let (of, candidate) = (&self.workloads[&id], self.as_candidate(id));
        self.queues.get_mut(of.queue).remove_holder(&candidate, of.since, &of.assigned_flavors());
    }

    /// Sets whether a holder is stopping.
    fn set_evicted(&mut self, id: WorkloadId, evicted: bool) {
        if self.workloads.get(&id).and_then(|w| w.holding.as_ref()).is_none_or(|h| h.evicted == evicted) {
            return;
        }
        self.unindex_holder(id);
        if let Some(holding) = self.workloads.get_mut(id).and_then(|w| w.holding.as_mut()) {
            holding.evicted = evicted;
        }
        self.index_holder(id);
    }

    /// All workloads that hold quota.
    pub(crate) fn holders(&self) -> Vec<WorkloadId> {
        self.queues.iter().flat_map(|q| q.holders.iter().copied()).collect()
    }
}
