//! What an entry does without: pods, where fewer do, or its turn, where another has waited too long.

use super::{Cycle, Entry, FLAVORS_MAX};
use crate::cycle::Outcome;
use crate::flavors::Mode;
use crate::model::WorkloadId;
use crate::reason::Obstacle;
use std::collections::BTreeSet;

impl Cycle<'_> {
    /// Takes the room for fewer pods, where fewer do and there is room for no more.
    pub(super) fn take_smaller(&mut self, entry: &mut Entry) -> bool {
        let (workload, queue) = (entry.workload, entry.queue);
        let shape = self.brain.shape_of(self.brain.workloads[&workload].shape).clone();
        if !self.brain.settings.gates.partial_admission
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
        // Of the same flavors: a scan goes on behind them (simulation seed 3001647).
        let flavors = super::nomination(&entry.assignment);
        let scan = self.brain.workloads.get_mut(workload).and_then(|of| of.scan.take());
        // Whoever displaces others in this cycle is charged already: counted beside its victims it would leave less than there is
        // (simulation seed 1492).
        self.count_victims(false);
        let found = crate::reduce::search(&sets, &mut |counts| {
            let assignment = self.assign_counts(workload, queue, None, Some(&flavors), Some(counts));
            self.places.mean(self.brain, workload, Some(&assignment));
            (assignment.mode() == Mode::Fit && self.places.has_room(self.brain, workload))
                .then_some(assignment)
        });
        self.count_victims(true);
        if let Some(of) = self.brain.workloads.get_mut(workload) {
            of.scan = scan;
        }
        let Some(smaller) = found else {
            self.places.mean(self.brain, workload, None);
            return false;
        };
        let larger = std::mem::replace(&mut entry.assignment, smaller);
        let taken = self.is_free_now(entry) && self.places.take(self.brain, workload, &entry.assignment);
        if !taken {
            self.places.mean(self.brain, workload, None);
            entry.assignment = larger;
        }
        taken
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
            if mode == Mode::Fit
                && self.is_free_now(entry)
                && (self.places.take(self.brain, workload, &entry.assignment) || self.take_smaller(entry))
            {
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
        if self.make_room(entry) {
            return;
        }
        self.forget_scan(workload);
        first.scan.tried.clear();
        (entry.assignment, entry.targets) = (first, Vec::new());
        (entry.outcome, entry.obstacle) = (Outcome::NoPlace, Some(Obstacle::TopologyPlacementFailed));
        self.keep_all(entry);
    }

    /// Whether somebody who starves, and found nobody in this cycle, would be served once the entry's victims are gone. It comes
    /// first for all that it may have, and not only for the flavor that room is kept in: they would stop for the entry in vain
    /// (simulation seed 81164).
    pub(super) fn frees_for_the_starving(&mut self, entry: &Entry) -> bool {
        let of_all: BTreeSet<WorkloadId> = entry.targets.iter().map(|target| target.workload).collect();
        if self.unserved.is_empty() || of_all.iter().all(|victim| self.brain.workloads[victim].evicted()) {
            return false;
        }
        let own: Vec<WorkloadId> = of_all.difference(&self.victims).copied().collect();
        let mut gone = self.victims.union(&of_all).copied().collect();
        self.count_victims(false);
        own.iter().for_each(|victim| self.brain.suspend_usage(*victim));
        std::mem::swap(&mut gone, &mut self.brain.gone);
        let unserved = self.unserved.clone();
        let served = unserved.into_iter().any(|starving| self.would_be_served(starving));
        std::mem::swap(&mut gone, &mut self.brain.gone);
        own.iter().for_each(|victim| self.brain.resume_usage(*victim));
        self.count_victims(true);
        served
    }

    /// Whether somebody who starves finds something as the books are now. What is kept for it is its own.
    fn would_be_served(&mut self, starving: WorkloadId) -> bool {
        let Some(node) = self.brain.node_of(starving) else { return false };
        let queue = self.brain.workloads[&starving].queue;
        let kept: Vec<_> = self.borrowed.kept.iter().filter(|(of, ..)| *of == node).copied().collect();
        kept.iter().for_each(|(node, cell, amount)| self.brain.forest.remove(*node, *cell, *amount));
        self.forget_scan(starving);
        let (assignment, targets) = self.first_assignment(starving, queue, None);
        self.places.mean(self.brain, starving, None);
        kept.iter().for_each(|(node, cell, amount)| self.brain.forest.add(*node, *cell, *amount));
        match assignment.mode() {
            Mode::Fit | Mode::DeferredFit => true,
            Mode::Preempt => !targets.is_empty(),
            Mode::NoFit => false,
        }
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
