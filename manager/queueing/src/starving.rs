//! Who waits so long that room is kept for it: nobody behind it in its queue is looked at, and the quota that it asks for, as far
//! as its queue may use it, is given to nobody else. Room is kept in one flavor; in the others nobody is displaced for somebody
//! else where it would take what comes free.
//!
//! Who that is comes from outside, since it is a matter of time and of clusters. Nobody is where decisions are compared with
//! Kueue's, which knows no such thing.

use crate::brain::Brain;
use crate::cycle::{Entry, Outcome};
use crate::model::{QueueId, WorkloadId};
use crate::names::Id;
use std::cmp::Reverse;

impl Brain {
    /// Who comes first of those who wait in a queue and are asked for, looked at or not.
    pub fn first_waiting(&self, queue: QueueId, of: impl Fn(WorkloadId) -> bool) -> Option<WorkloadId> {
        self.pending[queue.index()].first(of)
    }

    /// Who starves in a queue.
    pub fn starving(&self, queue: QueueId) -> Option<WorkloadId> {
        self.starving.get(&queue).copied()
    }

    /// Everybody who starves.
    pub fn all_starving(&self) -> impl Iterator<Item = WorkloadId> + '_ {
        self.starving.values().copied()
    }

    /// From now on room is kept for a workload that waits in a queue, or for nobody.
    pub fn set_starving(&mut self, queue: QueueId, workload: Option<WorkloadId>) {
        let before = match workload {
            Some(id) => self.starving.insert(queue, id),
            None => self.starving.remove(&queue),
        };
        if before != workload {
            self.room_came_back(queue);
        }
    }

    /// Whether a workload starves.
    pub fn starves(&self, workload: WorkloadId) -> bool {
        !self.starving.is_empty() && self.starving.get(&self.workloads[&workload].queue) == Some(&workload)
    }

    /// A workload no longer waits, or nobody's end can help it: those behind it are looked at again.
    pub(crate) fn starves_no_more(&mut self, workload: WorkloadId) {
        if self.starves(workload) {
            let queue = self.workloads[&workload].queue;
            self.set_starving(queue, None);
        }
    }

    /// Places of entries whose workload starves: for whom others stop already first, as what is left beside them was counted on
    /// (simulation seed 30998); then higher priority, then older.
    pub(crate) fn starving_among(&self, entries: &[Entry]) -> Vec<usize> {
        if self.starving.is_empty() {
            return Vec::new();
        }
        let mut found: Vec<usize> =
            (0..entries.len()).filter(|at| self.starves(entries[*at].workload)).collect();
        found.sort_by_cached_key(|at| {
            let workload = &self.workloads[&entries[*at].workload];
            (
                !self.displaces(entries[*at].workload),
                Reverse(self.priority_of(workload)),
                workload.since,
                entries[*at].workload,
            )
        });
        found
    }

    /// Whether an entry can't be admitted whoever ends.
    pub(crate) fn is_hopeless(entry: &Entry) -> bool {
        matches!(entry.outcome, Outcome::NoFit | Outcome::Rejected)
    }
}
