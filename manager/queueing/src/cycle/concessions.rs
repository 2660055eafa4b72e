//! What an entry does without: pods, where fewer do, or its turn, where another has waited too long.

use super::{Cycle, Entry, FLAVORS_MAX};
use crate::cycle::Outcome;
use crate::flavors::Mode;
use crate::reason::Obstacle;

impl Cycle<'_> {
    /// Takes the room for fewer pods, where fewer do and there is room for no more.
    pub(super) fn take_smaller(&mut self, entry: &mut Entry) -> bool {
        let (workload, queue) = (entry.workload, entry.queue);
        let shape = self.brain.shape_of(self.brain.workloads[&workload].shape).clone();
        if !self.brain.settings.gates.partial_admission || !shape.may_shrink() || entry.assignment.replaces.is_some() {
            return false;
        }
        let all = entry.assignment.counts();
        let sets: Vec<(u32, u32)> = shape.pod_sets.iter().zip(&all).map(|(set, all)| (*all, set.min_count.map_or(*all, |least| least.min(*all)))).collect();
        let found = crate::reduce::search(&sets, &mut |counts| {
            self.places.shrink(workload, Some(counts));
            if !self.places.has_room(self.brain, workload) {
                return None;
            }
            let assignment = self.assign_counts(workload, queue, None, None, Some(counts));
            (assignment.mode() == Mode::Fit).then_some(assignment)
        });
        let Some(assignment) = found.filter(|smaller| self.places.take(self.brain, workload, smaller)) else {
            self.places.shrink(workload, None);
            return false;
        };
        entry.assignment = assignment;
        true
    }

    /// Goes on with the other flavors at once for who starves and has no place in this one; keeps the quota of this one where
    /// no other helps. From cycle to cycle it would keep now one flavor and now another, and others would be displaced for
    /// quota that is kept again when they have stopped (simulation seed 1004603).
    pub(super) fn go_on_or_keep(&mut self, entry: &mut Entry) {
        let workload = entry.workload;
        let mut first = entry.assignment.clone();
        for _ in 0..FLAVORS_MAX {
            if !self.brain.workloads[&workload].scan.as_ref().is_some_and(|scan| scan.pending()) {
                break;
            }
            // By what is only kept for others who starve nobody borrows (simulation seed 860).
            self.count_kept(false);
            self.assign(entry, None);
            self.count_kept(true);
            self.spare_lenders(entry);
            let fits = self.fits(entry) == (true, true);
            if !fits {
                continue;
            }
            let mode = entry.assignment.mode();
            if mode == Mode::Fit && self.is_free_now(entry) && (self.places.take(self.brain, workload, &entry.assignment) || self.take_smaller(entry)) {
                return self.admit(entry, None);
            }
            let taken = entry.targets.iter().any(|target| self.victims.contains(&target.workload));
            let may_preempt = mode == Mode::Preempt && !entry.targets.is_empty() && !taken;
            if may_preempt && self.places.fits(self.brain, workload, &entry.targets) {
                self.add_victims(&entry.targets);
                self.take(entry);
                return self.preempt(entry, None);
            }
        }
        self.forget_scan(workload);
        first.scan.tried.clear();
        (entry.assignment, entry.targets) = (first, Vec::new());
        (entry.outcome, entry.obstacle) = (Outcome::NoPlace, Some(Obstacle::TopologyPlacementFailed));
        self.keep_all(entry);
    }

    /// Whether only what is kept for who starves stands in the entry's way.
    pub(super) fn fits_but_for_the_starving(&mut self, entry: &Entry) -> bool {
        let kept = self.borrowed.kept[..self.borrowed.for_starving].to_vec();
        if kept.is_empty() {
            return false;
        }
        self.left.clear();
        for (node, cell, amount) in &kept {
            self.brain.forest.remove(*node, *cell, *amount);
        }
        let (quota, placed) = self.fits(entry);
        self.left.clear();
        for (node, cell, amount) in &kept {
            self.brain.forest.add(*node, *cell, *amount);
        }
        quota && placed
    }
}
