//! Where entries wait that weren't admitted: looked at again at once, or once something changes.

use super::{Entry, Outcome, Requeued};
use crate::brain::Brain;
use crate::model::WorkloadId;
use crate::names::Id;
use crate::reason::Obstacle;

impl Brain {
    /// Whether others are stopping for an entry that can't be served now, as others took the room: until they are gone nobody
    /// behind it takes what they give up, where who displaces comes first.
    pub(super) fn is_awaiting_victims(&self, entry: &Entry) -> bool {
        let waits = entry.outcome == Outcome::NoPlace
            || (entry.outcome == Outcome::NoCandidates && self.settings.gates.prioritize_preemptors);
        waits && self.displaces(entry.workload)
    }

    /// Whether a workload is its queue's preemptor and somebody of its tree is still stopping.
    pub(crate) fn displaces(&self, workload: WorkloadId) -> bool {
        if !self.is_preemptor(workload) {
            return false;
        }
        let Some(node) = self.node_of(workload) else { return false };
        let tree = self.forest.node(node).tree;
        let mut queues = self.forest.tree(tree).queues.iter().filter_map(|node| self.queue_at(*node));
        queues.any(|queue| self.queue(queue).stopping > 0)
    }

    /// Puts an entry that wasn't admitted back where it waits. Who is alike waits with it, but where what keeps it out is its own.
    pub(super) fn put_back(&mut self, entry: &Entry, apart: bool) -> Option<Requeued> {
        if matches!(entry.outcome, Outcome::Admitted | Outcome::Evicted) || entry.second_pass {
            return None;
        }
        let id = entry.workload;
        let (class, place) = self.place_of(id);
        let (queue, shape) = (entry.queue, self.workloads[&id].shape);
        let strict = self.queue(queue).setup.strict;
        let misfit = entry.outcome == Outcome::Rejected && entry.obstacle == Some(Obstacle::Misconfigured);
        let mismatch = misfit && self.workloads[&id].marks().wrong_namespace;
        let soon = matches!(
            entry.outcome,
            Outcome::Skipped | Outcome::Preempting | Outcome::Deferred | Outcome::Migrating
        ) || self.is_awaiting_victims(entry);
        let unfinished = self.workloads[&id].scan.as_ref().is_some_and(|s| s.pending());
        if Self::is_hopeless(entry) {
            self.starves_no_more(id);
        }
        let starves = self.starves(id);
        let pending = &mut self.pending[queue.index()];
        if matches!(entry.outcome, Outcome::Preempting | Outcome::Deferred | Outcome::Migrating) {
            // It stays first until it is admitted or gone.
            pending.preemptor = Some(id);
        }
        let mut awake = if strict { !mismatch } else { soon || unfinished || starves };
        let over = self
            .workloads
            .get_mut(id)
            .is_some_and(|w| !soon && !unfinished && std::mem::take(&mut w.passed_over));
        if over
            && self.settings.look_again
            && entry.outcome != Outcome::Rejected
            && self.looked_again.insert(id)
        {
            awake = true;
            if let Some(workload) = self.workloads.get_mut(id) {
                workload.scan = None;
            }
        }
        // Room that comes free wakes it, whichever flavor or victims it would be for. A scan that goes on remembers.
        let mut placeless = entry.outcome == Outcome::NoPlace;
        let in_vain =
            entry.outcome == Outcome::NoPlace && self.is_preemptor(id) && !self.is_awaiting_victims(entry);
        if let Some(workload) = self.workloads.get_mut(id) {
            workload.in_vain |= in_vain;
            placeless |= workload.placeless;
            workload.placeless = placeless && awake;
        }
        if placeless {
            self.placeless.insert(queue);
        }
        let pending = &mut self.pending[queue.index()];
        if awake {
            pending.push(&class, place);
        } else {
            pending.park(&class, place, mismatch);
            let alike = self.settings.gates.scheduling_equivalence
                && !strict
                && matches!(entry.outcome, Outcome::NoFit | Outcome::NoCandidates | Outcome::GivesWay);
            if apart {
                // Whoever came after one that an agent had refused was never asked about (simulation seed 3016125).
                pending.note_placeless(&class, placeless);
            } else if placeless {
                pending.sleep_placeless(shape);
            } else if alike {
                pending.sleep(shape);
            }
        }
        self.note_active(queue);
        Some(if awake { Requeued::Awake } else { Requeued::Parked })
    }
}
