//! Partial admission.

use crate::cycle::nominate::nomination;
use crate::cycle::{Cycle, CycleEntry};
use crate::model::Mode;
use crate::pod_set_reducer;

impl Cycle<'_> {
    /// Takes the capacity for fewer pods, if partial admission is allowed and no cluster fits all.
    pub(super) fn take_fewer_pods(&mut self, entry: &mut CycleEntry) -> bool {
        let (workload, queue) = (entry.workload, entry.queue);
        let shape = self.state.shape_of(self.state.get(&workload).shape).clone();
        if !self.state.settings().gates.partial_admission
            || !shape.may_shrink()
            || entry.assignment.replaces.is_some()
        {
            return false;
        }
        let all = entry.assignment.counts();
        let sets: Vec<(u32, u32)> = shape
            .pod_sets
            .iter()
            .zip(&all)
            .map(|(set, all)| (*all, set.min_count.map_or(*all, |least| least.min(*all))))
            .collect();
        // Keep the flavors, because the scan has already moved past them.
        let flavors = nomination(&entry.assignment);
        let scan = self.state.progress_mut(workload).and_then(|progress| progress.scan.take());
        // A preempting entry is already charged. If its victims counted too, available quota would seem to be
        // used.
        self.count_victims(false);
        let found = pod_set_reducer::search(&sets, &mut |counts| {
            let assignment = self.assign_counts(workload, queue, None, Some(&flavors), Some(counts));
            self.capacity.assume_assignment(self.state, workload, Some(&assignment));
            (assignment.mode() == Mode::Fit && self.capacity.fits_now(self.state, workload))
                .then_some(assignment)
        });
        self.count_victims(true);
        if let Some(progress) = self.state.progress_mut(workload) {
            progress.scan = scan;
        }
        let Some(smaller) = found else {
            self.capacity.assume_assignment(self.state, workload, None);
            return false;
        };
        let larger = std::mem::replace(&mut entry.assignment, smaller);
        let taken = self.is_free_now(entry) && self.capacity.take(self.state, workload, &entry.assignment);
        if !taken {
            self.capacity.assume_assignment(self.state, workload, None);
            entry.assignment = larger;
        }
        taken
    }
}
