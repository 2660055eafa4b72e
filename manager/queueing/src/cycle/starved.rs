//! Entries of starved heads, and how other entries yield to them.

use crate::cycle::{Cycle, CycleEntry, EntryOutcome, FLAVORS_MAX};
use crate::model::{Mode, Obstacle, WorkloadId};
use crate::queue_state::QueueState;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Indexes of the entries of starved heads: those with stopping victims first, because the victims were
/// chosen before the other reservations; then by priority and age. Pinned by
/// `semantics::starvation::starved_preemptor_comes_first`.
pub(super) fn starved_entries(state: &QueueState, entries: &[CycleEntry]) -> Vec<usize> {
    if state.starved_heads().next().is_none() {
        return Vec::new();
    }
    let mut found: Vec<usize> =
        (0..entries.len()).filter(|at| state.is_starved(entries[*at].workload)).collect();
    found.sort_by_cached_key(|at| {
        let workload = &state.get(&entries[*at].workload);
        let id = entries[*at].workload;
        (!state.awaits_victims(id), Reverse(state.priority_of(workload)), workload.since, id)
    });
    found
}

/// Whether an entry can't be admitted even if all others end.
pub(super) fn is_infeasible(entry: &CycleEntry) -> bool {
    matches!(entry.outcome, EntryOutcome::NoFit | EntryOutcome::Rejected)
}

impl Cycle<'_> {
    /// Tries the remaining flavors of a starved head for which no cluster has capacity in this flavor. If
    /// none helps, reserves the quota of this flavor. Trying one flavor per cycle would reserve alternating
    /// flavors: others would preempt for quota that is reserved again by the time their victims have stopped.
    pub(super) fn try_other_flavors_or_reserve(&mut self, entry: &mut CycleEntry) {
        let workload = entry.workload;
        let mut first = entry.assignment.clone();
        for _ in 0..FLAVORS_MAX {
            if !self.state.get(&workload).progress.scan.as_ref().is_some_and(|scan| scan.pending()) {
                break;
            }
            // Quota reserved for other starved heads must not count as borrowed.
            self.count_reserved(false);
            self.assign(entry, None);
            self.count_reserved(true);
            self.drop_victims_of_lenders(entry);
            if !self.fits(entry).is_full() {
                continue;
            }
            let mode = entry.assignment.mode();
            if mode == Mode::Fit
                && self.is_free_now(entry)
                && (self.capacity.take(self.state, workload, &entry.assignment)
                    || self.take_fewer_pods(entry))
            {
                return self.admit(entry, None);
            }
            let may_preempt =
                mode == Mode::Preempt && !entry.targets.is_empty() && !self.has_taken_targets(entry);
            if may_preempt && self.capacity.fits(self.state, workload, &entry.targets) {
                self.add_victims(&entry.targets);
                self.take(entry);
                return self.preempt(entry, None);
            }
        }
        if self.preempt_for_capacity(entry) {
            return;
        }
        self.clear_scan(workload);
        first.scan.tried.clear();
        (entry.assignment, entry.targets) = (first, Vec::new());
        entry.end(EntryOutcome::NoCapacity, Obstacle::TopologyPlacementFailed);
        self.reserve_all(entry);
    }

    /// Whether the entry's victims would free enough for a starved head that has no quota yet. A starved head
    /// comes first in all its flavors, not only in the flavor with reserved quota, so the head would get the
    /// freed quota. Pinned by `semantics::starvation::no_preemption_that_only_serves_a_starved_head`.
    pub(super) fn serves_a_starved_head(&mut self, entry: &CycleEntry) -> bool {
        let all: BTreeSet<WorkloadId> = entry.targets.iter().map(|target| target.workload).collect();
        if self.unserved.is_empty() || all.iter().all(|victim| self.state.get(victim).evicted()) {
            return false;
        }
        let own: Vec<WorkloadId> = all.difference(&self.victims).copied().collect();
        let mut gone = self.victims.union(&all).copied().collect();
        self.count_victims(false);
        own.iter().for_each(|victim| self.state.suspend_usage(*victim));
        self.state.excluded_mut().swap_victims(&mut gone);
        let unserved = self.unserved.clone();
        let served = unserved.into_iter().any(|starved| self.would_be_served(starved));
        self.state.excluded_mut().swap_victims(&mut gone);
        own.iter().for_each(|victim| self.state.resume_usage(*victim));
        self.count_victims(true);
        served
    }

    /// Whether a starved head fits or finds victims by the current state. Quota reserved for it counts as
    /// free.
    fn would_be_served(&mut self, starved: WorkloadId) -> bool {
        let Some(node) = self.state.node_of(starved) else { return false };
        let queue = self.state.get(&starved).queue;
        let reserved: Vec<_> =
            self.temporary.reserved.iter().filter(|(of, ..)| *of == node).copied().collect();
        self.state.count_charges(&reserved, false);
        self.clear_scan(starved);
        let (assignment, targets) = self.first_assignment(starved, queue, None);
        self.capacity.assume_assignment(self.state, starved, None);
        self.state.count_charges(&reserved, true);
        match assignment.mode() {
            Mode::Fit | Mode::DeferredFit => true,
            Mode::Preempt => !targets.is_empty(),
            Mode::NoFit => false,
        }
    }

    /// Whether the entry would fit without the quota reserved for starved heads.
    pub(super) fn fits_without_starved_reservations(&mut self, entry: &CycleEntry) -> bool {
        let reserved = self.temporary.reserved[..self.temporary.reserved_for_starved].to_vec();
        if reserved.is_empty() {
            return false;
        }
        self.known_left.clear();
        self.state.count_charges(&reserved, false);
        let fit = self.fits(entry);
        self.known_left.clear();
        self.state.count_charges(&reserved, true);
        fit.is_full()
    }
}
