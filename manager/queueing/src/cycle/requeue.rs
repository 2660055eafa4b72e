//! Requeueing of entries that were not admitted: to be evaluated in the next cycle, or after a change.

use crate::cycle::{CycleEntry, EntryOutcome, Requeued, starved};
use crate::model::Obstacle;
use crate::queue_state::QueueState;

/// Whether victims are stopping for an entry that doesn't fit now, because others took the capacity. If
/// preemptors come first, no workload behind it may use the freed quota.
pub(super) fn must_await_victims(state: &QueueState, entry: &CycleEntry) -> bool {
    let waits = entry.outcome == EntryOutcome::NoCapacity
        || (entry.outcome == EntryOutcome::NoCandidates && state.settings().gates.prioritize_preemptors);
    waits && state.awaits_victims(entry.workload)
}

/// Requeues an entry that was not admitted. Equivalent workloads are parked with it, unless the obstacle is
/// its own.
pub(super) fn requeue_entry(
    state: &mut QueueState,
    entry: &CycleEntry,
    own_obstacle: bool,
) -> Option<Requeued> {
    if matches!(entry.outcome, EntryOutcome::Admitted | EntryOutcome::Evicted) || entry.second_pass {
        return None;
    }
    let id = entry.workload;
    let (class, position) = state.position_of(id);
    let (queue, shape) = (entry.queue, state.get(&id).shape);
    let strict = state.queue(queue).setup.strict;
    let is_mismatch = entry.outcome == EntryOutcome::Rejected
        && entry.obstacle == Some(Obstacle::Misconfigured)
        && state.get(&id).marks().wrong_namespace;
    let becomes_preemptor =
        matches!(entry.outcome, EntryOutcome::Preempting | EntryOutcome::Deferred | EntryOutcome::Migrating);
    let soon =
        becomes_preemptor || entry.outcome == EntryOutcome::Skipped || must_await_victims(state, entry);
    let unfinished = state.get(&id).progress.scan.as_ref().is_some_and(|scan| scan.pending());
    if starved::is_infeasible(entry) {
        state.end_starvation(id);
    }
    if becomes_preemptor {
        // The workload stays the head until it is admitted or removed.
        state.pending_mut(queue).set_preemptor(Some(id));
    }
    let mut active = if strict { !is_mismatch } else { soon || unfinished || state.is_starved(id) };
    active |= !soon && !unfinished && may_rescan(state, entry);
    let short_of_capacity = update_capacity_shortage(state, entry, active);
    let equivalents_wait = state.settings().gates.scheduling_equivalence
        && !strict
        && matches!(entry.outcome, EntryOutcome::NoFit | EntryOutcome::NoCandidates | EntryOutcome::Yields);
    let pending = state.pending_mut(queue);
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
    state.update_active(queue);
    Some(if active { Requeued::Active } else { Requeued::Parked })
}

/// Whether an overtaken workload is evaluated from its first flavor again before it is parked.
fn may_rescan(state: &mut QueueState, entry: &CycleEntry) -> bool {
    let id = entry.workload;
    let overtaken = state.progress_mut(id).is_some_and(|progress| std::mem::take(&mut progress.overtaken));
    let rescans = overtaken
        && state.settings().rescan_overtaken
        && entry.outcome != EntryOutcome::Rejected
        && state.agenda_mut().rescan(id);
    if rescans && let Some(progress) = state.progress_mut(id) {
        progress.scan = None;
    }
    rescans
}

/// Records whether a workload waits for cluster capacity, and returns that. An `active` workload continues
/// its scan, so the answer is kept in its progress.
fn update_capacity_shortage(state: &mut QueueState, entry: &CycleEntry, active: bool) -> bool {
    let id = entry.workload;
    // Freed cluster capacity requeues the workload, regardless of the flavor or victims that it waits for.
    let mut short_of_capacity = entry.outcome == EntryOutcome::NoCapacity;
    let preempted_in_vain = short_of_capacity && state.is_preemptor(id) && !must_await_victims(state, entry);
    if let Some(progress) = state.progress_mut(id) {
        progress.preempted_in_vain |= preempted_in_vain;
        short_of_capacity |= progress.short_of_capacity;
        progress.short_of_capacity = short_of_capacity && active;
    }
    if short_of_capacity {
        state.agenda_mut().mark_short_of_capacity(entry.queue);
    }
    short_of_capacity
}
