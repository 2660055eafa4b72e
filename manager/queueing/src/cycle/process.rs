//! Processes an entry by the state that previous entries left.

use crate::cycle::nominate::nomination;
use crate::cycle::{Cycle, CycleEntry, EntryOutcome, Eviction, requeue};
use crate::model::{Mode, Obstacle, PendingPreemption, PodSetAdmission, PodSetAssignment, WorkloadId};

impl Cycle<'_> {
    /// Processes an entry: admits it, preempts for it, reserves quota for it, or leaves it pending.
    pub(super) fn process(&mut self, entry: &mut CycleEntry) {
        if entry.outcome == EntryOutcome::Rejected {
            return;
        }
        if self.state.settings().gates.concurrent_admission
            && self.state.sibling(entry.workload, true).is_some()
        {
            entry.skip(Obstacle::PendingEvaluation, "a variant with a better flavor is admitted");
            return;
        }
        let fits = self.refresh(entry);
        let mode = entry.assignment.mode();
        let fails_fast = self.state.settings().gates.failed_node_fail_fast;
        if fails_fast && self.state.has_lost_node(self.state.get(&entry.workload)) && mode != Mode::Fit {
            entry.outcome = EntryOutcome::Evicted;
            self.report.evicted.push((entry.workload, Eviction::NodeFailures));
            return;
        }
        if self.ends_without_capacity(entry, mode) || self.ends_overtaken(entry, mode, fits) {
            return;
        }
        self.add_victims(&entry.targets);
        let slice = entry.assignment.replaces;
        if mode == Mode::Preempt {
            self.take(entry);
            self.preempt(entry, slice);
            return;
        }
        if self.state.settings().gates.concurrent_admission
            && let Some(worse) = self.state.sibling(entry.workload, false)
        {
            self.migrate(entry, worse);
            return;
        }
        if self.capacity.take(self.state, entry.workload, &entry.assignment) {
            return self.admit(entry, slice);
        }
        if !self.state.is_starved(entry.workload) && self.preempt_for_capacity(entry) {
            return;
        }
        if self.take_fewer_pods(entry) {
            return self.admit(entry, slice);
        }
        entry.end(EntryOutcome::NoCapacity, Obstacle::TopologyPlacementFailed);
        if requeue::must_await_victims(self.state, entry) {
            self.take(entry);
        } else if self.state.is_starved(entry.workload) {
            self.try_other_flavors_or_reserve(entry);
        }
    }

    /// Whether processing ends because the entry doesn't fit, may not preempt, or waits for victims of
    /// others.
    fn ends_without_capacity(&mut self, entry: &mut CycleEntry, mode: Mode) -> bool {
        match mode {
            // Another flavor has quota, but no cluster capacity.
            Mode::NoFit if self.preempt_for_capacity(entry) => true,
            Mode::Preempt if entry.targets.is_empty() && self.preempt_for_capacity(entry) => true,
            Mode::NoFit => {
                (entry.outcome, entry.obstacle) = (EntryOutcome::NoFit, entry.assignment.obstacle);
                true
            }
            Mode::Preempt if entry.targets.is_empty() => {
                entry.end(EntryOutcome::NoCandidates, Obstacle::WaitingForQuota);
                self.reserve_for(entry);
                true
            }
            Mode::Preempt => {
                let gates = &self.state.settings().gates;
                let is_gated = (gates.concurrent_admission || gates.orchestrated_preemption)
                    && self.state.get(&entry.workload).marks().gated;
                if is_gated {
                    entry.end(EntryOutcome::Gated, Obstacle::AdmissionGated);
                    self.clear_scan(entry.workload);
                }
                is_gated
            }
            Mode::DeferredFit => {
                self.defer(entry);
                true
            }
            Mode::Fit => false,
        }
    }

    /// Whether processing ends because previous entries or starved heads come first.
    fn ends_overtaken(&mut self, entry: &mut CycleEntry, mode: Mode, fits: bool) -> bool {
        if self.has_taken_targets(entry) {
            self.skip(entry, "another workload of this cycle already preempts victims that it needs");
            self.count_skipped_preemption(entry);
            return true;
        }
        if !fits {
            // A preemptor stays the head of its queue. If it yielded, the next workload of the queue would
            // get the quota that its victims free.
            let awaits_victims = self.state.awaits_victims(entry.workload);
            if !awaits_victims && self.fits_without_starved_reservations(entry) {
                self.yield_to_starved(entry);
                return true;
            }
            self.skip(entry, "it no longer fits after another workload of this cycle");
            let preempts = self.state.settings().gates.prioritize_preemptors && awaits_victims;
            if preempts || self.state.is_starved(entry.workload) {
                // Otherwise a later entry would count on these victims too, and preempt others for nothing.
                // Pinned by `semantics::starvation::victims_of_an_overtaken_preemptor_serve_no_other`.
                self.reserve_all(entry);
            }
            if mode == Mode::Preempt {
                self.count_skipped_preemption(entry);
            }
            return true;
        }
        // A previous entry may have taken or reserved the capacity found before.
        if mode == Mode::Preempt && !self.capacity.fits(self.state, entry.workload, &entry.targets) {
            self.skip(entry, "another workload of this cycle took the cluster capacity");
            self.count_skipped_preemption(entry);
            return true;
        }
        if mode == Mode::Preempt && self.serves_a_starved_head(entry) {
            self.yield_to_starved(entry);
            return true;
        }
        if mode == Mode::Fit && !self.is_free_now(entry) {
            self.defer(entry);
            return true;
        }
        false
    }

    /// Defers an entry that fits once the victims of others are gone.
    fn defer(&mut self, entry: &mut CycleEntry) {
        entry.end(EntryOutcome::Deferred, Obstacle::WaitingForPreemptedWorkloads);
        self.clear_scan(entry.workload);
        self.reserve_all(entry);
    }

    fn yield_to_starved(&mut self, entry: &mut CycleEntry) {
        entry.end(EntryOutcome::Yields, Obstacle::WaitingForQuota);
        self.clear_scan(entry.workload);
    }

    fn count_skipped_preemption(&mut self, entry: &CycleEntry) {
        *self.report.skipped_preemptions.entry(entry.queue).or_default() += 1;
    }

    /// Evicts a variant with a worse flavor, if the entry's flavor is acceptable.
    fn migrate(&mut self, entry: &mut CycleEntry, worse: WorkloadId) {
        self.take(entry);
        if !self.state.may_migrate(entry.workload) {
            entry.obstacle = Some(Obstacle::PendingEvaluation);
            return;
        }
        entry.end(EntryOutcome::Migrating, Obstacle::WaitingForPreemptedWorkloads);
        self.report.evicted.push((worse, Eviction::FlavorMigration));
        self.clear_scan(entry.workload);
    }

    fn skip(&mut self, entry: &mut CycleEntry, why: &str) {
        entry.skip(Obstacle::WaitingForQuota, why);
        if let Some(progress) = self.state.progress_mut(entry.workload) {
            progress.overtaken = progress.scan.is_some();
        }
        if !self.state.settings().gates.preserve_flavor_scan_progress {
            self.clear_scan(entry.workload);
        }
    }

    /// Admits an entry. `slice` is the slice that it replaces.
    pub(super) fn admit(&mut self, entry: &mut CycleEntry, slice: Option<WorkloadId>) {
        let given: Vec<PodSetAdmission> =
            entry.assignment.pod_sets.iter().map(PodSetAssignment::given).collect();
        let id = entry.workload;
        entry.outcome = EntryOutcome::Admitted;
        let vacated = self.state.vacated(id, &entry.assignment);
        self.state.admit_in_cycle(id, given);
        vacated.iter().for_each(|placed| self.state.count_placed(placed, true));
        self.temporary.vacated.extend(vacated);
        if let Some(old) = slice {
            self.report.replaced.push((old, id));
        }
    }

    /// Preempts the targets of an entry. `slice` is the slice that it replaces.
    pub(super) fn preempt(&mut self, entry: &mut CycleEntry, slice: Option<WorkloadId>) {
        entry.end(EntryOutcome::Preempting, Obstacle::WaitingForPreemptedWorkloads);
        for target in entry.targets.iter().filter(|t| Some(t.workload) != slice) {
            if let (Some(reason), false) = (target.reason, self.state.get(&target.workload).evicted()) {
                self.report.preempted.push((target.workload, entry.workload, reason));
            }
        }
        self.capacity.reserve(self.state, entry.workload, &entry.targets);
        self.clear_scan(entry.workload);
        let victims = entry.targets.iter().filter(|target| target.reason.is_some());
        let victims = victims.map(|target| (*target, self.state.get(&target.workload).uid.clone())).collect();
        let flavors = nomination(&entry.assignment);
        if let Some(progress) = self.state.progress_mut(entry.workload) {
            progress.pending_preemption = Some(Box::new(PendingPreemption { flavors, victims }));
        }
    }
}
