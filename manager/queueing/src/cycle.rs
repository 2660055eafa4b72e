//! One cycle: every queue offers its head, each is judged against the same books, then they are processed in a fair order,
//! each against what those before it took.

mod back;
mod concessions;
mod contest;
mod crowded;
mod entry;
mod order;
mod passing;
mod room;

pub use contest::{MayComeFirst, Winner};
pub use entry::{Entry, Outcome, Requeued};
pub use order::{First, Rank, classical_order};
pub use passing::Passed;

use crate::amount::Amount;
use crate::brain::Brain;
use crate::flavors::{Assigner, Assignment, Mode};
use crate::model::{Delayed, Displaced, Given, QueueId, WorkloadId};
use crate::names::{FlavorId, Id, ResourceId};
use crate::pending::Pending;
use crate::places::Places;
use crate::preempt::{Books, Nobody, Right, Target, targets};
use crate::reason::Obstacle;
use crate::tree::{CellId, NodeId, TreeId};
use order::Order;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// Flavors of one resource group at most, as Kueue has it.
const FLAVORS_MAX: usize = 64;

/// What came of a cycle.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Every head that was looked at.
    pub entries: Vec<Entry>,
    /// Heads that nobody had to look at to know that they wait on.
    pub passed: Vec<Passed>,
    /// Who was told to stop so that another fits: victim, preemptor, right.
    pub preempted: Vec<(WorkloadId, WorkloadId, Right)>,
    /// Who was told to stop for another reason.
    pub evicted: Vec<(WorkloadId, Eviction)>,
    /// Slices that were replaced: old and new.
    pub replaced: Vec<(WorkloadId, WorkloadId)>,
    /// Entries whose victims were already another's, by queue.
    pub skipped_preemptions: BTreeMap<QueueId, u32>,
    /// How victims that overlapped were found anew, by queue.
    pub recomputed: BTreeMap<(QueueId, Recomputed), u32>,
}

impl Report {
    /// Whether anything was admitted or told to stop.
    pub fn progress(&self) -> bool {
        !self.preempted.is_empty()
            || !self.evicted.is_empty()
            || self.entries.iter().any(|e| e.outcome == Outcome::Admitted)
    }
}

/// Why a holder was told to stop, other than for another workload's sake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Eviction {
    /// A node of it is lost and nothing replaces it.
    NodeFailures,
    /// A variant with a better flavor takes over.
    FlavorMigration,
}

/// What looking for other victims came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Recomputed {
    /// It fits once the others' victims are gone.
    DeferredFit,
    /// There are other victims.
    NewTargets,
    /// There are none.
    Skipped,
}

/// What entries of one cycle took for the time being; it goes back when the cycle ends.
#[derive(Default)]
struct Borrowed {
    charges: Vec<(NodeId, CellId, Amount)>,
    /// What is only kept for who waits: nobody uses it, so nobody borrows by it (simulation seed 5720).
    kept: Vec<(NodeId, CellId, Amount)>,
    /// How many of those are for who starves: they come first.
    for_starving: usize,
    places: Vec<(WorkloadId, Assignment)>,
}

/// What a cycle works with.
struct Cycle<'a> {
    brain: &'a mut Brain,
    places: &'a mut dyn Places,
    victims: BTreeSet<WorkloadId>,
    /// What those hold, by queue and cell.
    freed: Vec<(NodeId, CellId, Amount)>,
    borrowed: Borrowed,
    /// Who starves, and found nobody who may be displaced for it.
    unserved: Vec<WorkloadId>,
    /// What a node leaves to those below it of a cell once all victims so far are gone, where that was found out since there
    /// were more of them: it has only become less.
    left: Vec<(NodeId, CellId, Amount)>,
    report: Report,
}

impl Brain {
    /// Runs one cycle over every queue.
    pub fn cycle(&mut self, places: &mut dyn Places, second_pass: bool) -> Report {
        let queues: Vec<QueueId> = self.active.iter().copied().collect();
        self.cycle_over(places, &queues, 1, second_pass)
    }

    /// Runs one cycle over every queue, with up to `heads` of each.
    pub fn cycle_with_heads(&mut self, places: &mut dyn Places, heads: usize, second_pass: bool) -> Report {
        let queues: Vec<QueueId> = self.active.iter().copied().collect();
        self.cycle_over(places, &queues, heads, second_pass)
    }

    /// Decides until nothing more changes, in the trees where something did. `each` sees the report of every cycle; where it
    /// returns false, the rest is left to the next run, which goes on with the other trees first.
    pub fn run(&mut self, places: &mut dyn Places, mut each: impl FnMut(&mut Self, Report) -> bool) {
        let mut last = self.left_off.take();
        while let Some(tree) = self.next_changed(last) {
            last = Some(tree);
            let (mut looks, mut enough) = (0, false);
            self.looked_again.clear();
            loop {
                let mut queues: Vec<QueueId> = self
                    .forest
                    .tree(tree)
                    .queues
                    .iter()
                    .filter_map(|n| self.queue_at(*n))
                    .filter(|q| self.active.contains(q))
                    .collect();
                let mut passed = Vec::new();
                queues.iter().for_each(|queue| self.pass_by(*queue, &mut passed));
                queues.retain(|queue| self.active.contains(queue));
                if queues.is_empty() && passed.is_empty() {
                    break;
                }
                let looked_again = self.looked_again.len();
                let mut report = if queues.is_empty() {
                    Report::default()
                } else {
                    self.cycle_over(places, &queues, 1, false)
                };
                let looks_again = self.looked_again.len() > looked_again;
                report.passed = passed;
                // Who found no place for one flavor goes on with the next.
                let next_flavor = |e: &Entry| e.outcome == Outcome::NoPlace && e.assignment.scan.pending();
                let settled =
                    report.progress() || report.entries.iter().any(|e| e.requeued == Some(Requeued::Parked));
                looks = if settled { 0 } else { looks + 1 };
                // A list of flavors is looked through once, and then it waits for a change (simulation seed 1235).
                // Who was passed over isn't looked at again for ever, while others come first and take nothing.
                if settled && !looks_again {
                    self.looked_again.clear();
                }
                let go_on = settled
                    || looks_again
                    || (looks <= FLAVORS_MAX && report.entries.iter().any(next_flavor));
                enough = !each(self, report);
                if enough && settled {
                    self.changed.insert(tree);
                    self.left_off = Some(tree);
                    return;
                }
                if !go_on {
                    break;
                }
            }
            // What this tree's own decisions changed in it is decided.
            self.changed.remove(&tree);
            if enough {
                self.left_off = Some(tree);
                return;
            }
        }
    }

    /// The next tree to be decided on: one behind the last, so that none waits for all the others.
    fn next_changed(&mut self, last: Option<TreeId>) -> Option<TreeId> {
        let after = last
            .and_then(|last| self.changed.range((Bound::Excluded(last), Bound::Unbounded)).next().copied());
        let tree = after.or_else(|| self.changed.first().copied())?;
        self.changed.remove(&tree);
        Some(tree)
    }

    /// Trees in which something is to be decided.
    pub fn changed_trees(&self) -> impl Iterator<Item = TreeId> + '_ {
        self.changed.iter().copied()
    }

    fn cycle_over(
        &mut self,
        places: &mut dyn Places,
        queues: &[QueueId],
        heads: usize,
        second_pass: bool,
    ) -> Report {
        let mut chosen: Vec<(WorkloadId, bool)> = Vec::new();
        if second_pass {
            chosen.extend(
                self.workloads().filter(|(_, w)| self.needs_second_pass(w)).map(|(id, _)| (id, true)),
            );
        }
        for queue in queues {
            let before = chosen.len();
            for _ in 0..heads {
                let Some(head) = self.pop_head(*queue) else { break };
                chosen.push((head, false));
            }
            // A queue counts the cycles that it took part in: those of other trees say nothing about how old a scan is.
            self.queues[queue.index()].cycles += u64::from(chosen.len() > before);
        }
        let mut cycle = Cycle::new(self, places);
        let entries = cycle.nominate(&chosen);
        let mut order = Order::new(cycle.brain, &entries);
        let starving = cycle.brain.starving_among(&entries);
        let mut entries: Vec<Option<Entry>> = entries.into_iter().map(Some).collect();
        let mut done = Vec::with_capacity(entries.len());
        for mut entry in starving.into_iter().filter_map(|at| entries[at].take()) {
            cycle.process(&mut entry);
            // Skipped, it comes first again in the next cycle (simulation seed 1795424291355118).
            if matches!(entry.outcome, Outcome::NoCandidates | Outcome::Skipped) {
                cycle.unserved.push(entry.workload);
            }
            done.push(entry);
        }
        cycle.borrowed.for_starving = cycle.borrowed.kept.len();
        while let Some(at) = order.pop(cycle.brain, &entries) {
            let Some(mut entry) = entries[at].take() else { continue };
            cycle.process(&mut entry);
            done.push(entry);
        }
        done.extend(entries.into_iter().flatten());
        cycle.finish(done)
    }

    /// Takes the head of a queue out of it.
    fn pop_head(&mut self, queue: QueueId) -> Option<WorkloadId> {
        let starving = self.starving(queue);
        let (place, class) = self.ordered(queue, Pending::head)?;
        if let Some(passed) = starving.filter(|id| *id != place.workload) {
            // It is no longer the head: what was kept for it would be kept in some cycles and not in others (simulation seed 902380).
            self.starves_no_more(passed);
        }
        // Who preempts stays known as such.
        let preemptor = self.pending[queue.index()].preemptor;
        self.pending[queue.index()].remove(&class, &place);
        self.pending[queue.index()].preemptor = preemptor;
        self.note_active(queue);
        Some(place.workload)
    }

    /// Whether a holder is to be looked at again: its place is still to come, or a node of it is lost.
    fn needs_second_pass(&self, workload: &crate::model::Workload) -> bool {
        let Some(holding) = workload.holding.as_ref().filter(|h| !h.evicted) else { return false };
        let marks = workload.marks();
        let to_come = marks.checks_ready
            && !holding.admitted
            && holding.given.iter().any(|g| g.placement.is_none() && g.delayed == Some(Delayed::Pending));
        to_come || self.lost_a_node(workload)
    }

    /// Whether a node of its placement is lost.
    pub(crate) fn lost_a_node(&self, workload: &crate::model::Workload) -> bool {
        let lost = &workload.marks().lost_nodes;
        let Some(holding) = workload.holding.as_ref().filter(|_| !lost.is_empty()) else { return false };
        let mut domains = holding.given.iter().filter_map(|g| g.placement.as_ref()).flat_map(|p| &p.domains);
        domains.any(|domain| domain.values.last().is_some_and(|node| lost.contains(node)))
    }
}

impl<'a> Cycle<'a> {
    fn new(brain: &'a mut Brain, places: &'a mut dyn Places) -> Self {
        let (victims, freed, borrowed, unserved, left) = Default::default();
        Self { brain, places, victims, freed, borrowed, unserved, left, report: Report::default() }
    }
}

impl Cycle<'_> {
    fn nominate(&mut self, chosen: &[(WorkloadId, bool)]) -> Vec<Entry> {
        let mut entries = Vec::with_capacity(chosen.len());
        for (id, second_pass) in chosen {
            let workload = &self.brain.workloads[id];
            let queue = workload.queue;
            let mut entry = Entry::new(*id, queue, *second_pass);
            let marks = workload.marks();
            let setup = &self.brain.queue(queue).setup;
            if marks.checks_failed {
                entry.reject(Obstacle::PendingEvaluation, Arc::from("its admission checks have failed"));
            } else if setup.inactive.is_some() || self.brain.queue(queue).node.is_none() {
                entry.reject(
                    Obstacle::Suspended,
                    Arc::from(format!("cluster queue {} is inactive", setup.name)),
                );
            } else if let Some(why) = &marks.unfit {
                entry.reject(Obstacle::Misconfigured, why.clone());
            } else {
                if self.brain.starves(*id) {
                    // It comes first for all that it may have: in the middle of its list it would leave to others what it takes back
                    // from them in the next cycle, and those would have displaced somebody in vain (simulation seed 1795361736851182).
                    self.forget_scan(*id);
                }
                self.assign(&mut entry, None);
            }
            entries.push(entry);
        }
        entries
    }

    /// Chooses flavors and victims as the books are now.
    fn assign(&mut self, entry: &mut Entry, nominated: Option<&[Vec<(ResourceId, FlavorId)>]>) {
        let workload = entry.workload;
        let of = &self.brain.workloads[&workload];
        let generation = self.brain.queue(entry.queue).generation;
        let outdated = of.scan.as_ref().is_some_and(|scan| {
            scan.outdated(
                generation,
                self.brain.queue(entry.queue).cycles,
                of.shape,
                &self.brain.settings.gates,
            )
        });
        if outdated && let Some(of) = self.brain.workloads.get_mut(workload) {
            of.scan = None;
        }
        self.brain.roomless = false;
        // While others stop so that it gets one flavor, it doesn't go for another: those would have stopped in vain.
        let stays = nominated.is_none()
            && self.brain.settings.gates.prioritize_preemptors
            && self.brain.displaces(workload);
        let begun = self.brain.workloads[&workload]
            .displaces_for
            .as_ref()
            .filter(|_| stays)
            .map(|begun| begun.flavors.clone());
        if begun.is_some() {
            self.forget_scan(workload);
        }
        let (mut assignment, targets) =
            self.first_assignment(workload, entry.queue, begun.as_deref().or(nominated));
        self.brain.place_with_victims(workload, &mut assignment, &targets);
        if begun.is_some() || !self.brain.workloads[&workload].marks().pinned.is_empty() {
            // Nor does it go on with the next one when it has no place in this one yet (simulation seed 3266).
            assignment.scan.tried.clear();
        }
        let scan = assignment.scan.pending().then(|| Box::new(assignment.scan.clone()));
        let roomless = self.brain.roomless && targets.is_empty();
        if let Some(of) = self.brain.workloads.get_mut(workload) {
            of.scan = scan;
            of.placeless |= roomless;
        }
        (entry.assignment, entry.targets) = (assignment, targets);
    }

    fn first_assignment(
        &mut self,
        workload: WorkloadId,
        queue: QueueId,
        nominated: Option<&[Vec<(ResourceId, FlavorId)>]>,
    ) -> (Assignment, Vec<Target>) {
        let replaces = self.brain.replaced_slice(workload);
        let slice: Vec<Target> = replaces.iter().map(|w| Target { workload: *w, right: None }).collect();
        let mut full = self.assign_counts(workload, queue, replaces, nominated, None);
        self.places.mean(self.brain, workload, None);
        match full.mode() {
            Mode::Fit => return (full, slice),
            Mode::Preempt => {
                self.places.mean(self.brain, workload, Some(&full));
                let found = targets(self.brain, self.places, workload, &full);
                if !found.is_empty() {
                    return (full, slice.into_iter().chain(found).collect());
                }
                // Others could give way by quota, and no room would come of it: where it fits without them that is what is left, even if
                // it borrows there (simulation seed 7009389).
                let alone = (self.brain.roomless && nominated.is_none())
                    .then(|| self.assign_alone(workload, queue, replaces));
                if let Some(alone) = alone.filter(|alone| alone.mode() == Mode::Fit) {
                    self.places.mean(self.brain, workload, None);
                    return (alone, slice);
                }
            }
            Mode::NoFit | Mode::DeferredFit => {}
        }
        let shape = self.brain.shape_of(self.brain.workloads[&workload].shape).clone();
        if self.brain.settings.gates.partial_admission && shape.may_shrink() {
            let sets: Vec<(u32, u32)> = shape.pod_sets.iter().map(|s| s.count).zip(shape.least()).collect();
            let mut attempt = |counts: &[u32]| {
                let assignment = self.assign_counts(workload, queue, replaces, nominated, Some(counts));
                self.places.mean(self.brain, workload, Some(&assignment));
                match assignment.mode() {
                    Mode::Fit => Some((assignment, Vec::new())),
                    Mode::Preempt => {
                        let found = targets(self.brain, self.places, workload, &assignment);
                        (!found.is_empty()).then_some((assignment, found))
                    }
                    Mode::NoFit | Mode::DeferredFit => None,
                }
            };
            if let Some((assignment, found)) = crate::reduce::search(&sets, &mut attempt) {
                self.places.mean(self.brain, workload, Some(&assignment));
                return (assignment, slice.into_iter().chain(found).collect());
            }
            self.places.mean(self.brain, workload, None);
            let (starves, for_good) =
                (self.brain.starves(workload), full.obstacle == Some(Obstacle::ExceedsMaxQuota));
            if full.mode() == Mode::NoFit && (starves || (for_good && !self.brain.settings.brief)) {
                let least = self.assign_counts(workload, queue, replaces, nominated, Some(&shape.least()));
                if starves {
                    // Room is kept for the fewest pods that do.
                    return (least, Vec::new());
                }
                // Kueue's word stays that of all pods.
                full.barrier = least.barrier.or(Some(Obstacle::WaitingForQuota));
            }
        }
        (full, Vec::new())
    }

    fn assign_counts(
        &mut self,
        workload: WorkloadId,
        queue: QueueId,
        replaces: Option<WorkloadId>,
        nominated: Option<&[Vec<(ResourceId, FlavorId)>]>,
        counts: Option<&[u32]>,
    ) -> Assignment {
        let mut oracle = Books { places: self.places };
        Assigner { brain: self.brain, workload, queue, oracle: &mut oracle, replaces, nominated, lazy: false }
            .assign(counts)
    }

    /// The flavors that a workload gets if nobody gives way.
    fn assign_alone(
        &mut self,
        workload: WorkloadId,
        queue: QueueId,
        replaces: Option<WorkloadId>,
    ) -> Assignment {
        Assigner {
            brain: self.brain,
            workload,
            queue,
            oracle: &mut Nobody,
            replaces,
            nominated: None,
            lazy: false,
        }
        .assign(None)
    }

    fn process(&mut self, entry: &mut Entry) {
        if entry.outcome == Outcome::Rejected {
            return;
        }
        if self.brain.settings.gates.concurrent_admission
            && self.brain.sibling(entry.workload, true).is_some()
        {
            entry.skip(Obstacle::PendingEvaluation, "a variant with a better flavor is admitted");
            return;
        }
        let fits = self.refresh(entry);
        let mode = entry.assignment.mode();
        let workload = &self.brain.workloads[&entry.workload];
        if self.brain.settings.gates.failed_node_fail_fast
            && self.brain.lost_a_node(workload)
            && mode != Mode::Fit
        {
            entry.outcome = Outcome::Evicted;
            self.report.evicted.push((entry.workload, Eviction::NodeFailures));
            return;
        }
        match mode {
            // Another flavor has the quota, and no place.
            Mode::NoFit if self.make_room(entry) => return,
            Mode::Preempt if entry.targets.is_empty() && self.make_room(entry) => return,
            Mode::NoFit => {
                (entry.outcome, entry.obstacle) = (Outcome::NoFit, entry.assignment.obstacle);
                return;
            }
            Mode::Preempt if entry.targets.is_empty() => {
                (entry.outcome, entry.obstacle) = (Outcome::NoCandidates, Some(Obstacle::WaitingForQuota));
                self.keep_room(entry);
                return;
            }
            Mode::Preempt => {
                let gates = &self.brain.settings.gates;
                let gated = self.brain.workloads[&entry.workload].marks().gated;
                if (gates.concurrent_admission || gates.orchestrated_preemption) && gated {
                    (entry.outcome, entry.obstacle) = (Outcome::Gated, Some(Obstacle::AdmissionGated));
                    self.forget_scan(entry.workload);
                    return;
                }
            }
            Mode::DeferredFit => {
                (entry.outcome, entry.obstacle) =
                    (Outcome::Deferred, Some(Obstacle::WaitingForPreemptedWorkloads));
                self.forget_scan(entry.workload);
                self.keep_all(entry);
                return;
            }
            Mode::Fit => {}
        }
        if entry.targets.iter().any(|t| self.victims.contains(&t.workload)) {
            self.skip(entry, "another workload's victims are among those that it needs");
            *self.report.skipped_preemptions.entry(entry.queue).or_default() += 1;
            return;
        }
        if !fits {
            // Who makes others stop already stays first in its queue: who is behind it would be given what they free (simulation
            // seed 4302).
            if !self.brain.displaces(entry.workload) && self.fits_but_for_the_starving(entry) {
                (entry.outcome, entry.obstacle) = (Outcome::GivesWay, Some(Obstacle::WaitingForQuota));
                self.forget_scan(entry.workload);
                return;
            }
            self.skip(entry, "it no longer fits after another workload of this cycle");
            let displaces =
                self.brain.settings.gates.prioritize_preemptors && self.brain.displaces(entry.workload);
            if displaces || self.brain.starves(entry.workload) {
                // Who comes after it would displace others together with those who stop for it, and in vain (simulation seed 85086).
                self.keep_all(entry);
            }
            if mode == Mode::Preempt {
                *self.report.skipped_preemptions.entry(entry.queue).or_default() += 1;
            }
            return;
        }
        // The room that was found for it may be taken, or kept, since (simulation seed 901250).
        if mode == Mode::Preempt && !self.places.fits(self.brain, entry.workload, &entry.targets) {
            self.skip(entry, "the room went to another workload of this cycle");
            *self.report.skipped_preemptions.entry(entry.queue).or_default() += 1;
            return;
        }
        if mode == Mode::Preempt && self.frees_for_the_starving(entry) {
            (entry.outcome, entry.obstacle) = (Outcome::GivesWay, Some(Obstacle::WaitingForQuota));
            self.forget_scan(entry.workload);
            return;
        }
        if mode == Mode::Fit && !self.is_free_now(entry) {
            (entry.outcome, entry.obstacle) =
                (Outcome::Deferred, Some(Obstacle::WaitingForPreemptedWorkloads));
            self.forget_scan(entry.workload);
            self.keep_all(entry);
            return;
        }
        self.add_victims(&entry.targets);
        let slice = entry.assignment.replaces;
        if mode == Mode::Preempt {
            self.take(entry);
            self.preempt(entry, slice);
            return;
        }
        if self.brain.settings.gates.concurrent_admission
            && let Some(worse) = self.brain.sibling(entry.workload, false)
        {
            self.take(entry);
            if !self.brain.may_migrate(entry.workload) {
                entry.obstacle = Some(Obstacle::PendingEvaluation);
                return;
            }
            (entry.outcome, entry.obstacle) =
                (Outcome::Migrating, Some(Obstacle::WaitingForPreemptedWorkloads));
            self.report.evicted.push((worse, Eviction::FlavorMigration));
            self.forget_scan(entry.workload);
            return;
        }
        if !self.places.take(self.brain, entry.workload, &entry.assignment) {
            if !self.brain.starves(entry.workload) && self.make_room(entry) {
                return;
            }
            if self.take_smaller(entry) {
                return self.admit(entry, slice);
            }
            (entry.outcome, entry.obstacle) = (Outcome::NoPlace, Some(Obstacle::TopologyPlacementFailed));
            if self.brain.is_awaiting_victims(entry) {
                self.take(entry);
            } else if self.brain.starves(entry.workload) {
                self.go_on_or_keep(entry);
            }
            return;
        }
        self.admit(entry, slice);
    }

    fn skip(&mut self, entry: &mut Entry, why: &str) {
        entry.skip(Obstacle::WaitingForQuota, why);
        if let Some(of) = self.brain.workloads.get_mut(entry.workload) {
            of.passed_over = of.scan.is_some();
        }
        if !self.brain.settings.gates.preserve_flavor_scan_progress {
            self.forget_scan(entry.workload);
        }
    }

    fn forget_scan(&mut self, workload: WorkloadId) {
        if let Some(of) = self.brain.workloads.get_mut(workload) {
            of.scan = None;
        }
    }

    fn admit(&mut self, entry: &mut Entry, slice: Option<WorkloadId>) {
        let now = self.brain.now;
        let given: Vec<Given> =
            entry.assignment.pod_sets.iter().map(crate::flavors::PodSetAssignment::given).collect();
        let id = entry.workload;
        entry.outcome = Outcome::Admitted;
        let again = self.brain.workloads[&id].holding.is_some();
        if again {
            self.brain.suspend_usage(id);
            let since = self.brain.workloads[&id].holding.as_ref().map_or(now, |h| h.since);
            self.brain.reserve(id, given, since);
        } else {
            self.brain.penalize(id);
            self.brain.reserve(id, given, now);
            self.brain.hidden.insert(id);
        }
        if let Some(workload) = self.brain.workloads.get_mut(id) {
            if let Some(marks) = &mut workload.marks {
                marks.lost_nodes.clear();
            }
            let queue = workload.queue;
            if self.brain.pending[queue.index()].preemptor == Some(id) {
                self.brain.pending[queue.index()].preemptor = None;
            }
        }
        if self.brain.nothing_to_check(id) {
            self.brain.admit(id);
        }
        if let Some(old) = slice {
            self.report.replaced.push((old, id));
        }
    }

    fn preempt(&mut self, entry: &mut Entry, slice: Option<WorkloadId>) {
        (entry.outcome, entry.obstacle) = (Outcome::Preempting, Some(Obstacle::WaitingForPreemptedWorkloads));
        for target in entry.targets.iter().filter(|t| Some(t.workload) != slice) {
            if let (Some(right), false) = (target.right, self.brain.workloads[&target.workload].evicted()) {
                self.report.preempted.push((target.workload, entry.workload, right));
            }
        }
        self.places.keep(self.brain, entry.workload, &entry.targets);
        self.forget_scan(entry.workload);
        let displaced = entry.targets.iter().filter(|target| target.right.is_some());
        let victims =
            displaced.map(|target| (*target, self.brain.workloads[&target.workload].uid.clone())).collect();
        let flavors = nomination(&entry.assignment);
        if let Some(of) = self.brain.workloads.get_mut(entry.workload) {
            of.displaces_for = Some(Box::new(Displaced { flavors, victims }));
        }
    }

    /// Takes what the entry needs, until the cycle ends.
    fn take(&mut self, entry: &Entry) {
        let taken = self.charge(entry);
        self.borrowed.charges.extend(taken);
    }

    /// Keeps what the entry needs, until the cycle ends: it comes free when the victims of others are gone.
    fn keep_all(&mut self, entry: &Entry) {
        let taken = self.charge(entry);
        self.borrowed.kept.extend(taken);
    }

    fn charge(&mut self, entry: &Entry) -> Vec<(NodeId, CellId, Amount)> {
        let Some(node) = self.brain.node_of(entry.workload) else { return Vec::new() };
        let charges: Vec<_> =
            self.net_charge(entry).into_iter().map(|(cell, amount)| (node, cell, amount)).collect();
        for (node, cell, amount) in &charges {
            self.brain.forest.add(*node, *cell, *amount);
        }
        if charges.iter().any(|(_, _, amount)| *amount < Amount::ZERO) {
            // It replaces what is larger.
            self.left.clear();
        }
        self.brain.place_assignment(entry.workload, &entry.assignment, true);
        self.borrowed.places.push((entry.workload, entry.assignment.clone()));
        charges
    }

    /// What the entry adds to the use of quota: nothing where it holds quota already.
    fn net_charge(&self, entry: &Entry) -> Vec<(CellId, Amount)> {
        if self.brain.workloads[&entry.workload].holding.is_some() {
            return Vec::new();
        }
        crate::flavors::charge(self.brain, entry.queue, &entry.assignment.usage)
    }

    /// Looks again where entries before this one changed what its assignment was made from. True when it fits now.
    fn refresh(&mut self, entry: &mut Entry) -> bool {
        let gates = &self.brain.settings.gates;
        let (mode, places_matter) = (entry.assignment.mode(), gates.topology && gates.topology_recompute);
        if entry.targets.is_empty() && !places_matter && matches!(mode, Mode::NoFit | Mode::Preempt) {
            // Whether it fits doesn't matter then.
            return false;
        }
        let (quota, placed) = self.fits(entry);
        let gates = &self.brain.settings.gates;
        let displaced = quota && !placed && gates.topology_recompute;
        let overlaps = gates.recompute_on_target_overlap
            && entry.targets.iter().any(|t| self.victims.contains(&t.workload));
        let outdated = gates.prioritize_preemptors
            && mode == Mode::Preempt
            && quota
            && placed
            && self.may_have_lost_its_right(entry);
        if !displaced && !overlaps && !outdated {
            return quota && placed;
        }
        if overlaps {
            self.count_victims(false);
            std::mem::swap(&mut self.victims, &mut self.brain.gone);
        }
        self.forget_scan(entry.workload);
        let nominated = nomination(&entry.assignment);
        self.count_kept(false);
        self.assign(entry, Some(&nominated));
        self.count_kept(true);
        self.spare_lenders(entry);
        if overlaps {
            std::mem::swap(&mut self.victims, &mut self.brain.gone);
            self.count_victims(true);
        }
        if overlaps && entry.assignment.mode() == Mode::Fit {
            entry.assignment.set_mode(Mode::DeferredFit);
        }
        let (quota, placed) = self.fits(entry);
        if overlaps {
            let anew = if entry.assignment.mode() == Mode::DeferredFit {
                Recomputed::DeferredFit
            } else if !entry.targets.is_empty()
                && quota
                && placed
                && !entry.targets.iter().any(|t| self.victims.contains(&t.workload))
            {
                Recomputed::NewTargets
            } else {
                Recomputed::Skipped
            };
            *self.report.recomputed.entry((entry.queue, anew)).or_default() += 1;
        }
        quota && placed
    }

    /// Whether entries before this one may have used up what lets it displace others: in a hierarchy, what its subtree has of its
    /// own. Its victims would stop in vain, as the next cycle no longer chooses it (simulation seed 82155). In a flat cohort that
    /// is its own queue's, and nobody else uses it.
    fn may_have_lost_its_right(&self, entry: &Entry) -> bool {
        let Some(node) = self.brain.node_of(entry.workload) else { return false };
        !self.brain.hidden.is_empty() && self.brain.forest.ancestors(node).nth(1).is_some()
    }

    /// Takes nothing back from queues that borrow nothing yet: they would only once others have stopped for them (simulation
    /// seed 3908).
    pub(super) fn spare_lenders(&mut self, entry: &mut Entry) {
        let Some(tree) = self.brain.queue(entry.queue).tree else { return };
        let contested: Vec<CellId> = entry
            .assignment
            .contested()
            .into_iter()
            .filter_map(|key| self.brain.forest.find_cell(tree, key))
            .collect();
        self.count_borrowed(false);
        let lends = |target: &Target| {
            let of = &self.brain.workloads[&target.workload];
            let node =
                self.brain.queue(of.queue).node.filter(|_| of.queue != entry.queue && target.right.is_some());
            node.is_some_and(|node| !contested.iter().any(|cell| self.brain.forest.borrows(node, *cell)))
        };
        let unjust = entry.targets.iter().any(lends);
        self.count_borrowed(true);
        if unjust {
            entry.targets.clear();
        }
    }

    /// Gives back what was taken for the time of the cycle, marks victims, and puts back who wasn't admitted.
    fn finish(mut self, done: Vec<Entry>) -> Report {
        self.count_borrowed(false);
        for (workload, assignment) in std::mem::take(&mut self.borrowed.places) {
            self.brain.place_assignment(workload, &assignment, false);
        }
        self.brain.hidden.clear();
        for (victim, ..) in &self.report.preempted {
            self.brain.evict(*victim);
        }
        for (victim, _) in &self.report.evicted {
            self.brain.evict(*victim);
        }
        let mut report = std::mem::take(&mut self.report);
        for mut entry in done {
            let apart = self.places.is_apart(entry.workload);
            entry.requeued = self.brain.put_back(&entry, apart);
            report.entries.push(entry);
        }
        for (old, _) in &report.replaced {
            self.brain.remove(*old);
        }
        report
    }
}

/// The flavors of an assignment, per pod set.
fn nomination(assignment: &Assignment) -> Vec<Vec<(ResourceId, FlavorId)>> {
    assignment.pod_sets.iter().map(|set| set.flavors.iter().map(|(r, c)| (*r, c.flavor)).collect()).collect()
}

impl Brain {
    /// Whether a workload is the one that makes others of its queue's tree give way.
    pub(crate) fn is_preemptor(&self, workload: WorkloadId) -> bool {
        let queue = self.workloads[&workload].queue;
        self.pending[queue.index()].preemptor == Some(workload)
    }

    /// How much is kept for an entry that waits for others to end: what it asks for, within what its queue may use.
    pub fn room_to_keep(
        &self,
        workload: WorkloadId,
        queue: QueueId,
        assignment: &Assignment,
    ) -> Vec<(CellId, Amount)> {
        if self.workloads[&workload].holding.is_some() {
            return Vec::new();
        }
        let Some(node) = self.queue(queue).node else { return Vec::new() };
        let whole = crate::flavors::charge(self, queue, &assignment.usage);
        if assignment.mode() != Mode::Preempt {
            return whole;
        }
        let kept = |(cell, amount): (CellId, Amount)| {
            let here = self.forest.cell(node, cell);
            let own = here.quota.nominal - here.usage;
            let amount = match (assignment.borrowing > 0, here.quota.borrowing_limit) {
                (false, _) => amount.min(own).floor(),
                (true, None) => amount,
                (true, Some(limit)) => amount.min(here.quota.nominal + limit - here.usage),
            };
            (cell, amount)
        };
        whole.into_iter().map(kept).collect()
    }
}
