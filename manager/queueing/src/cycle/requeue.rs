//! Requeueing of entries that were not admitted: to be evaluated in the next cycle, or after a change.

use crate::cycle::{CycleEntry, EntryOutcome, Requeued};
use crate::model::Obstacle;
use crate::queue_state::QueueState;

impl QueueState {
    /// Whether victims are stopping for an entry that doesn't fit now, because others took the capacity. If
    /// preemptors come first, no workload behind it may use the freed quota.
    pub(super) fn must_await_victims(&self, entry: &CycleEntry) -> bool {
        let waits = entry.outcome == EntryOutcome::NoCapacity
            || (entry.outcome == EntryOutcome::NoCandidates && self.settings().gates.prioritize_preemptors);
        waits && self.awaits_victims(entry.workload)
    }

    /// Requeues an entry that was not admitted. Equivalent workloads are parked with it, unless the obstacle
    /// is its own.
    pub(super) fn requeue_entry(&mut self, entry: &CycleEntry, own_obstacle: bool) -> Option<Requeued> {
        if matches!(entry.outcome, EntryOutcome::Admitted | EntryOutcome::Evicted) || entry.second_pass {
            return None;
        }
        let id = entry.workload;
        let (class, position) = self.position_of(id);
        let (queue, shape) = (entry.queue, self.get(&id).shape);
        let strict = self.queue(queue).setup.strict;
        let is_mismatch = entry.outcome == EntryOutcome::Rejected
            && entry.obstacle == Some(Obstacle::Misconfigured)
            && self.get(&id).marks().wrong_namespace;
        let becomes_preemptor = matches!(
            entry.outcome,
            EntryOutcome::Preempting | EntryOutcome::Deferred | EntryOutcome::Migrating
        );
        let soon =
            becomes_preemptor || entry.outcome == EntryOutcome::Skipped || self.must_await_victims(entry);
        let unfinished = self.get(&id).progress.scan.as_ref().is_some_and(|scan| scan.pending());
        if Self::is_infeasible(entry) {
            self.end_starvation(id);
        }
        if becomes_preemptor {
            // The workload stays the head until it is admitted or removed.
            self.pending_mut(queue).set_preemptor(Some(id));
        }
        let mut active = if strict { !is_mismatch } else { soon || unfinished || self.is_starved(id) };
        active |= !soon && !unfinished && self.may_rescan(entry);
        let short_of_capacity = self.update_capacity_shortage(entry, active);
        let equivalents_wait = self.settings().gates.scheduling_equivalence
            && !strict
            && matches!(
                entry.outcome,
                EntryOutcome::NoFit | EntryOutcome::NoCandidates | EntryOutcome::Yields
            );
        let pending = self.pending_mut(queue);
        if active {
            pending.push(&class, position);
        } else {
            pending.park(&class, position, is_mismatch);
            if own_obstacle {
                // If an agent refused only this workload, equivalent workloads must still be evaluated.
                pending.note_short_of_capacity(&class, short_of_capacity);
            } else if short_of_capacity {
                pending.park_shape_for_capacity(shape);
            } else if equivalents_wait {
                pending.park_shape(shape);
            }
        }
        self.update_active(queue);
        Some(if active { Requeued::Active } else { Requeued::Parked })
    }

    /// Whether an overtaken workload is evaluated from its first flavor again before it is parked.
    fn may_rescan(&mut self, entry: &CycleEntry) -> bool {
        let id = entry.workload;
        let overtaken = self.progress_mut(id).is_some_and(|progress| std::mem::take(&mut progress.overtaken));
        let rescans = overtaken
            && self.settings().rescan_overtaken
            && entry.outcome != EntryOutcome::Rejected
            && self.agenda_mut().rescan(id);
        if rescans && let Some(progress) = self.progress_mut(id) {
            progress.scan = None;
        }
        rescans
    }

    /// Records whether a workload waits for cluster capacity, and returns that. An `active` workload
    /// continues its scan, so the answer is kept in its progress.
    fn update_capacity_shortage(&mut self, entry: &CycleEntry, active: bool) -> bool {
        let id = entry.workload;
        // Freed cluster capacity requeues the workload, regardless of the flavor or victims that it waits
        // for.
        let mut short_of_capacity = entry.outcome == EntryOutcome::NoCapacity;
        let preempted_in_vain = short_of_capacity && self.is_preemptor(id) && !self.must_await_victims(entry);
        if let Some(progress) = self.progress_mut(id) {
            progress.preempted_in_vain |= preempted_in_vain;
            short_of_capacity |= progress.short_of_capacity;
            progress.short_of_capacity = short_of_capacity && active;
        }
        if short_of_capacity {
            self.agenda_mut().mark_short_of_capacity(entry.queue);
        }
        short_of_capacity
    }
}
