//! Nomination: chooses flavors and victims for every head, all by the same state.

use crate::cycle::{Cycle, CycleEntry};
use crate::flavors::{FlavorAssigner, topology};
use crate::model::{Assignment, FlavorScan, Mode, Obstacle, QueueId, Target, WorkloadId};
use crate::names::{FlavorId, ResourceId};
use crate::pod_set_reducer;
use crate::preemption::{NoCandidatesOracle, StateOracle, find_targets};
use std::sync::Arc;

/// A workload to evaluate in a cycle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nominee {
    pub(crate) workload: WorkloadId,
    /// Whether the workload holds quota already.
    pub(crate) second_pass: bool,
}

impl Cycle<'_> {
    /// Evaluates all nominees by the same state.
    pub(crate) fn nominate(&mut self, nominees: &[Nominee]) -> Vec<CycleEntry> {
        let mut entries = Vec::with_capacity(nominees.len());
        for Nominee { workload: id, second_pass } in nominees {
            let workload = self.state.get(id);
            let queue = workload.queue;
            let mut entry = CycleEntry::new(*id, queue, *second_pass);
            let marks = workload.marks();
            let setup = &self.state.queue(queue).setup;
            if marks.checks_failed {
                entry.reject(Obstacle::PendingEvaluation, Arc::from("its admission checks have failed"));
            } else if setup.inactive.is_some() || self.state.queue(queue).node.is_none() {
                entry.reject(
                    Obstacle::Suspended,
                    Arc::from(format!("cluster queue {} is inactive", setup.name)),
                );
            } else if let Some(why) = &marks.unfit {
                entry.reject(Obstacle::Misconfigured, why.clone());
            } else {
                if self.state.is_starved(*id) {
                    // A starved head evaluates all its flavors in every cycle. Otherwise it would leave a
                    // flavor to others and reclaim it in the next cycle. Pinned by
                    // `semantics::starvation::starved_head_evaluates_all_flavors_every_cycle`.
                    self.clear_scan(*id);
                }
                self.assign(&mut entry, None);
            }
            entries.push(entry);
        }
        entries
    }

    /// Chooses flavors and victims by the current state.
    pub(super) fn assign(
        &mut self,
        entry: &mut CycleEntry,
        nominated: Option<&[Vec<(ResourceId, FlavorId)>]>,
    ) {
        let workload = entry.workload;
        self.clear_outdated_scan(entry);
        self.short_of_capacity = false;
        // A workload with stopping victims in one flavor doesn't try another flavor: those victims would have
        // stopped for nothing.
        let stays = nominated.is_none()
            && self.state.settings().gates.prioritize_preemptors
            && self.state.awaits_victims(workload);
        let pending = self.state.get(&workload).progress.pending_preemption.as_ref().filter(|_| stays);
        let preempting = pending.map(|pending| pending.flavors.clone());
        if preempting.is_some() {
            self.clear_scan(workload);
        }
        let (mut assignment, targets) =
            self.first_assignment(workload, entry.queue, preempting.as_deref().or(nominated));
        topology::place_with_victims(self.state, workload, &mut assignment, &targets);
        if preempting.is_some() || !self.state.get(&workload).marks().pinned.is_empty() {
            // Nor does it try the next flavor while no cluster has capacity in this one.
            assignment.scan.tried.clear();
        }
        let scan = assignment.scan.pending().then(|| Box::new(assignment.scan.clone()));
        let short_of_capacity = self.short_of_capacity && targets.is_empty();
        if let Some(progress) = self.state.progress_mut(workload) {
            progress.scan = scan;
            progress.short_of_capacity |= short_of_capacity;
        }
        (entry.assignment, entry.targets) = (assignment, targets);
    }

    fn clear_outdated_scan(&mut self, entry: &CycleEntry) {
        let (of, queue) = (self.state.get(&entry.workload), self.state.queue(entry.queue));
        let gates = &self.state.settings().gates;
        let is_outdated =
            |scan: &FlavorScan| scan.outdated(queue.generation, queue.cycles(), of.shape, gates);
        let scan = of.progress.scan.as_deref();
        let has_changed = scan.is_some_and(|scan| queue.generation > scan.generation);
        if scan.is_some_and(is_outdated) {
            self.clear_scan(entry.workload);
        } else if has_changed && let Some(progress) = self.state.progress_mut(entry.workload) {
            // The search continues after flavors that may have quota or capacity by now.
            progress.overtaken = true;
        }
    }

    /// Searches victims for an assignment.
    pub(super) fn find_targets(&mut self, workload: WorkloadId, assignment: &Assignment) -> Vec<Target> {
        let found = find_targets(self.state, self.capacity, &self.searches, workload, assignment);
        self.short_of_capacity |= found.short_of_capacity;
        found.targets
    }

    /// Assigns flavors and victims for all pods, or for fewer if partial admission is allowed.
    pub(super) fn first_assignment(
        &mut self,
        workload: WorkloadId,
        queue: QueueId,
        nominated: Option<&[Vec<(ResourceId, FlavorId)>]>,
    ) -> (Assignment, Vec<Target>) {
        let replaces = self.state.replaced_slice(workload);
        let slice: Vec<Target> = replaces.iter().map(|w| Target { workload: *w, reason: None }).collect();
        let full = self.assign_counts(workload, queue, replaces, nominated, None);
        self.capacity.assume_assignment(self.state, workload, None);
        match full.mode() {
            Mode::Fit => return (full, slice),
            Mode::Preempt => {
                self.capacity.assume_assignment(self.state, workload, Some(&full));
                let found = self.find_targets(workload, &full);
                if !found.is_empty() {
                    return (full, slice.into_iter().chain(found).collect());
                }
                // Victims would free quota, but no cluster capacity. If the workload fits without victims,
                // even by borrowing, prefer that.
                let alone = (self.short_of_capacity && nominated.is_none())
                    .then(|| self.assign_alone(workload, queue, replaces));
                if let Some(alone) = alone.filter(|alone| alone.mode() == Mode::Fit) {
                    self.capacity.assume_assignment(self.state, workload, None);
                    return (alone, slice);
                }
            }
            Mode::NoFit | Mode::DeferredFit => {}
        }
        let shape = self.state.shape_of(self.state.get(&workload).shape).clone();
        if !self.state.settings().gates.partial_admission || !shape.may_shrink() {
            return (full, Vec::new());
        }
        let sets: Vec<(u32, u32)> = shape.pod_sets.iter().map(|s| s.count).zip(shape.least()).collect();
        let mut attempt = |counts: &[u32]| {
            let assignment = self.assign_counts(workload, queue, replaces, nominated, Some(counts));
            self.capacity.assume_assignment(self.state, workload, Some(&assignment));
            match assignment.mode() {
                Mode::Fit => Some((assignment, Vec::new())),
                Mode::Preempt => {
                    let found = self.find_targets(workload, &assignment);
                    (!found.is_empty()).then_some((assignment, found))
                }
                Mode::NoFit | Mode::DeferredFit => None,
            }
        };
        if let Some((assignment, found)) = pod_set_reducer::search(&sets, &mut attempt) {
            self.capacity.assume_assignment(self.state, workload, Some(&assignment));
            return (assignment, slice.into_iter().chain(found).collect());
        }
        self.capacity.assume_assignment(self.state, workload, None);
        (self.with_obstacle_of_fewest_pods(full, workload, queue, nominated), Vec::new())
    }

    /// For a workload that doesn't fit even with its fewest pods, explains the obstacle of these or reserves
    /// their quota.
    fn with_obstacle_of_fewest_pods(
        &mut self,
        mut full: Assignment,
        workload: WorkloadId,
        queue: QueueId,
        nominated: Option<&[Vec<(ResourceId, FlavorId)>]>,
    ) -> Assignment {
        let is_starved = self.state.is_starved(workload);
        let for_good = full.obstacle == Some(Obstacle::ExceedsMaxQuota);
        let explains = for_good && !self.state.settings().brief;
        if full.mode() != Mode::NoFit || !(is_starved || explains) {
            return full;
        }
        let fewest = self.state.shape_of(self.state.get(&workload).shape).least();
        let least = self.assign_counts(workload, queue, full.replaces, nominated, Some(&fewest));
        if is_starved {
            // Reserve quota for the fewest pods.
            return least;
        }
        // The reported obstacle is still that of the full size, as in Kueue.
        full.barrier = least.barrier.or(Some(Obstacle::WaitingForQuota));
        full
    }

    pub(super) fn assign_counts(
        &mut self,
        workload: WorkloadId,
        queue: QueueId,
        replaces: Option<WorkloadId>,
        nominated: Option<&[Vec<(ResourceId, FlavorId)>]>,
        counts: Option<&[u32]>,
    ) -> Assignment {
        let mut oracle = StateOracle::new(self.capacity, &mut self.searches);
        FlavorAssigner::new(self.state, workload, queue, &mut oracle, replaces)
            .nominated(nominated)
            .assign(counts)
    }

    /// The flavors of a workload without any preemption.
    fn assign_alone(
        &mut self,
        workload: WorkloadId,
        queue: QueueId,
        replaces: Option<WorkloadId>,
    ) -> Assignment {
        self.searches.clear();
        FlavorAssigner::new(self.state, workload, queue, &mut NoCandidatesOracle, replaces).assign(None)
    }
}

/// The flavors of an assignment, per pod set.
pub(super) fn nomination(assignment: &Assignment) -> Vec<Vec<(ResourceId, FlavorId)>> {
    assignment.pod_sets.iter().map(|set| set.flavors.iter().map(|(r, c)| (*r, c.flavor)).collect()).collect()
}
