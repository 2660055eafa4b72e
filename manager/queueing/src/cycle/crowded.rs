//! Who gives way where there is quota, and every cluster that may run the workload is full.

use super::{Cycle, Entry, FLAVORS_MAX};
use crate::flavors::Mode;
use crate::preempt::{Target, targets};
use std::mem::swap;

impl Cycle<'_> {
    /// Tells others to stop so that there is room for an entry that has its quota: by the rights by which quota is taken from
    /// them, as Kueue does for places in a topology. Where another flavor may have room, that is looked at first; where none has,
    /// the first in which others may give way.
    pub(super) fn make_room(&mut self, entry: &mut Entry) -> bool {
        let workload = entry.workload;
        let fits = entry.assignment.mode() == Mode::Fit;
        let stays = self.brain.queue(entry.queue).setup.fungibility.preempt_rather_than_next;
        let goes_on = entry.assignment.scan.pending() && !stays && !self.brain.starves(workload);
        let crowded = fits || self.brain.workloads[&workload].placeless;
        if entry.assignment.replaces.is_some() || goes_on || !crowded {
            return false;
        }
        // What is kept for others who starve isn't free for it.
        if fits && self.fits(entry) == (true, true) && self.make_room_in_flavor(entry) {
            return true;
        }
        if stays
            || self.brain.displaces(workload)
            || !self.brain.workloads[&workload].marks().pinned.is_empty()
        {
            return false;
        }
        let last = (entry.assignment.clone(), std::mem::take(&mut entry.targets));
        self.forget_scan(workload);
        for _ in 0..FLAVORS_MAX {
            self.count_kept(false);
            self.assign(entry, None);
            self.count_kept(true);
            let another = !fits || super::nomination(&entry.assignment) != super::nomination(&last.0);
            if another
                && entry.assignment.mode() == Mode::Fit
                && self.fits(entry) == (true, true)
                && self.make_room_in_flavor(entry)
            {
                return true;
            }
            if !entry.assignment.scan.pending() {
                break;
            }
        }
        self.forget_scan(workload);
        (entry.assignment, entry.targets) = last;
        false
    }

    fn make_room_in_flavor(&mut self, entry: &mut Entry) -> bool {
        if !self.is_free_now(entry) {
            return false;
        }
        let as_it_fits = (entry.assignment.clone(), std::mem::take(&mut entry.targets));
        entry.assignment.set_mode(Mode::Preempt);
        entry.targets = self.victims_for_room(entry);
        self.spare_lenders(entry);
        if entry.targets.is_empty() || self.frees_for_the_starving(entry) {
            (entry.assignment, entry.targets) = as_it_fits;
            return false;
        }
        self.add_victims(&entry.targets);
        self.take(entry);
        self.preempt(entry, None);
        true
    }

    /// Who would have to end, other than those who stop for others; nobody where room isn't what is short.
    fn victims_for_room(&mut self, entry: &Entry) -> Vec<Target> {
        self.places.mean(self.brain, entry.workload, Some(&entry.assignment));
        if self.places.has_room(self.brain, entry.workload)
            || self.places.room_may_come(self.brain, entry.workload)
        {
            return Vec::new();
        }
        self.brain.searched.clear();
        self.count_victims(false);
        self.count_kept(false);
        swap(&mut self.victims, &mut self.brain.gone);
        let found = targets(self.brain, self.places, entry.workload, &entry.assignment);
        swap(&mut self.victims, &mut self.brain.gone);
        self.count_kept(true);
        self.count_victims(true);
        found
    }
}
