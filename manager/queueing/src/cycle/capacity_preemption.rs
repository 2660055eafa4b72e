//! Preemption for cluster capacity: quota is available, but every eligible cluster is full.

use crate::cycle::nominate::nomination;
use crate::cycle::{Cycle, CycleEntry, FLAVORS_MAX};
use crate::model::{Mode, Target};

impl Cycle<'_> {
    /// Preempts workloads to free cluster capacity for an entry that has quota, by the rules for reclaiming
    /// quota, as Kueue does for topologies. Tries other flavors that may have capacity first, then preemption
    /// in the first flavor that allows it.
    pub(super) fn preempt_for_capacity(&mut self, entry: &mut CycleEntry) -> bool {
        let workload = entry.workload;
        let fits = entry.assignment.mode() == Mode::Fit;
        let stays = self.state.queue(entry.queue).setup.fungibility.preempt_rather_than_next;
        let goes_on = entry.assignment.scan.pending() && !stays && !self.state.is_starved(workload);
        let lacks_capacity = fits || self.state.get(&workload).progress.short_of_capacity;
        if entry.assignment.replaces.is_some() || goes_on || !lacks_capacity {
            return false;
        }
        // Quota reserved for starved heads isn't available.
        if fits && self.fits(entry).is_full() && self.preempt_for_capacity_in_flavor(entry) {
            return true;
        }
        if stays
            || self.state.awaits_victims(workload)
            || !self.state.get(&workload).marks().pinned.is_empty()
        {
            return false;
        }
        let last = (entry.assignment.clone(), std::mem::take(&mut entry.targets));
        self.clear_scan(workload);
        for _ in 0..FLAVORS_MAX {
            self.count_reserved(false);
            self.assign(entry, None);
            self.count_reserved(true);
            let another = !fits || nomination(&entry.assignment) != nomination(&last.0);
            if another
                && entry.assignment.mode() == Mode::Fit
                && self.fits(entry).is_full()
                && self.preempt_for_capacity_in_flavor(entry)
            {
                return true;
            }
            if !entry.assignment.scan.pending() {
                break;
            }
        }
        self.clear_scan(workload);
        (entry.assignment, entry.targets) = last;
        false
    }

    /// Preempts for capacity in the assigned flavors.
    fn preempt_for_capacity_in_flavor(&mut self, entry: &mut CycleEntry) -> bool {
        if !self.is_free_now(entry) {
            return false;
        }
        let without_victims = (entry.assignment.clone(), std::mem::take(&mut entry.targets));
        entry.assignment.set_mode(Mode::Preempt);
        entry.targets = self.victims_for_capacity(entry);
        self.drop_victims_of_lenders(entry);
        if entry.targets.is_empty() || self.serves_a_starved_head(entry) {
            (entry.assignment, entry.targets) = without_victims;
            return false;
        }
        self.add_victims(&entry.targets);
        self.take(entry);
        self.preempt(entry, None);
        true
    }

    /// Victims that would free capacity, without the victims of other entries. Empty if something other than
    /// capacity is missing.
    fn victims_for_capacity(&mut self, entry: &CycleEntry) -> Vec<Target> {
        self.capacity.assume_assignment(self.state, entry.workload, Some(&entry.assignment));
        if self.capacity.fits_now(self.state, entry.workload)
            || self.capacity.may_fit_soon(self.state, entry.workload)
        {
            return Vec::new();
        }
        self.searches.clear();
        self.count_victims(false);
        self.count_reserved(false);
        self.state.excluded_mut().swap_victims(&mut self.victims);
        let found = self.find_targets(entry.workload, &entry.assignment);
        self.state.excluded_mut().swap_victims(&mut self.victims);
        self.count_reserved(true);
        self.count_victims(true);
        found
    }
}
