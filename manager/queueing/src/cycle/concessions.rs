//! What an entry does without: pods, where fewer do, or its turn, where another has waited too long.

use super::{Cycle, Entry};
use crate::flavors::Mode;

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

    /// Whether only what is kept for who starves stands in the entry's way.
    pub(super) fn fits_but_for_the_starving(&mut self, entry: &Entry) -> bool {
        let kept = self.borrowed.kept[..self.borrowed.for_starving].to_vec();
        if kept.is_empty() {
            return false;
        }
        for (node, cell, amount) in &kept {
            self.brain.forest.remove(*node, *cell, *amount);
        }
        let (quota, placed) = self.fits(entry);
        for (node, cell, amount) in &kept {
            self.brain.forest.add(*node, *cell, *amount);
        }
        quota && placed
    }
}
