//! Starvation guard: quota is reserved for a head that has waited too long. No workload behind the head is
//! evaluated, and its requested quota, as far as its queue may use it, isn't given to others.
//!
//! Quota is reserved in one flavor only. In other flavors, a preemption is skipped if the starved head would
//! take the freed quota.
//!
//! The caller determines the starved heads, because they depend on time and clusters. Kueue has no such rule,
//! so comparisons with Kueue set none.

use crate::model::{QueueId, WorkloadId};
use crate::names::Id;
use crate::queue_state::QueueState;

impl QueueState {
    /// The first pending workload of a queue that satisfies `of`, active or parked.
    pub fn first_pending(&self, queue: QueueId, of: impl Fn(WorkloadId) -> bool) -> Option<WorkloadId> {
        self.pending[queue.index()].first_matching(of)
    }

    pub fn starved_head(&self, queue: QueueId) -> Option<WorkloadId> {
        self.starved_heads.get(&queue).copied()
    }

    pub fn starved_heads(&self) -> impl Iterator<Item = WorkloadId> + '_ {
        self.starved_heads.values().copied()
    }

    /// Sets or removes the starved head of a queue.
    pub fn set_starved_head(&mut self, queue: QueueId, workload: Option<WorkloadId>) {
        let before = match workload {
            Some(id) => self.starved_heads.insert(queue, id),
            None => self.starved_heads.remove(&queue),
        };
        if before != workload {
            self.quota_released(queue);
        }
    }

    pub fn is_starved(&self, workload: WorkloadId) -> bool {
        !self.starved_heads.is_empty()
            && self.starved_heads.get(&self.workloads[&workload].queue) == Some(&workload)
    }

    /// Ends the reservation of a workload that is no longer pending or could never start, and requeues the
    /// workloads behind it.
    pub(crate) fn end_starvation(&mut self, workload: WorkloadId) {
        if self.is_starved(workload) {
            let queue = self.workloads[&workload].queue;
            self.set_starved_head(queue, None);
        }
    }
}
