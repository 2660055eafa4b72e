//! Runs of cycles until nothing changes.

use crate::capacity_model::CapacityModel;
use crate::cycle::{
    Cycle, CycleEntry, CycleReport, EntryOrder, EntryOutcome, FLAVORS_MAX, Nominee, Requeued, requeue,
    skipped, starved,
};
use crate::model::{Delayed, QueueId, Workload, WorkloadId};
use crate::pending::Pending;
use crate::queue_state::QueueState;
use crate::quota::TreeId;

/// Runs one cycle over all queues. `second_pass` also evaluates holders again that need it.
pub fn run_once(state: &mut QueueState, capacity: &mut dyn CapacityModel, second_pass: bool) -> CycleReport {
    run_once_with_heads(state, capacity, 1, second_pass)
}

/// Runs a cycle with up to `heads` workloads of each queue.
pub fn run_once_with_heads(
    state: &mut QueueState,
    capacity: &mut dyn CapacityModel,
    heads: usize,
    second_pass: bool,
) -> CycleReport {
    let queues: Vec<QueueId> = state.agenda().active_queues().collect();
    cycle_over(state, capacity, &queues, heads, second_pass)
}

/// Runs cycles in all changed trees until nothing changes. `each` gets the report of every cycle. If `each`
/// returns false, the run ends, and the next run continues with the remaining trees.
pub fn run(
    state: &mut QueueState,
    capacity: &mut dyn CapacityModel,
    mut each: impl FnMut(&mut QueueState, CycleReport) -> bool,
) {
    let mut last = state.agenda_mut().take_resume_after();
    while let Some(tree) = state.agenda_mut().take_next_changed(last) {
        last = Some(tree);
        if !run_tree(state, tree, capacity, &mut each) {
            state.agenda_mut().interrupt_after(tree);
            return;
        }
    }
}

/// Runs cycles in one tree until nothing changes. False if `each` interrupted the run.
fn run_tree(
    state: &mut QueueState,
    tree: TreeId,
    capacity: &mut dyn CapacityModel,
    each: &mut impl FnMut(&mut QueueState, CycleReport) -> bool,
) -> bool {
    let (mut unsettled, mut interrupted) = (0, false);
    state.agenda_mut().clear_rescans();
    loop {
        let mut queues: Vec<QueueId> = state
            .forest()
            .tree(tree)
            .queues
            .iter()
            .filter_map(|node| state.queue_at(*node))
            .filter(|queue| state.agenda().is_active(*queue))
            .collect();
        let mut skipped = Vec::new();
        queues.iter().for_each(|queue| skipped::skip_unchanged(state, *queue, &mut skipped));
        queues.retain(|queue| state.agenda().is_active(*queue));
        if queues.is_empty() && skipped.is_empty() {
            break;
        }
        let rescans_before = state.agenda().rescans();
        let mut report = if queues.is_empty() {
            CycleReport::default()
        } else {
            cycle_over(state, capacity, &queues, 1, false)
        };
        let rescans = state.agenda().rescans() > rescans_before;
        report.skipped = skipped;
        let is_settled =
            report.progress() || report.entries.iter().any(|e| e.requeued == Some(Requeued::Parked));
        unsettled = if is_settled { 0 } else { unsettled + 1 };
        // All flavors are evaluated once; then the workload waits for a change. Otherwise an overtaken
        // workload would be evaluated forever while others come first and take nothing.
        if is_settled && !rescans {
            state.agenda_mut().clear_rescans();
        }
        // An entry that found no capacity with one flavor continues with the next.
        let tries_next_flavor =
            |e: &CycleEntry| e.outcome == EntryOutcome::NoCapacity && e.assignment.scan.pending();
        let go_on = is_settled
            || rescans
            || (unsettled <= FLAVORS_MAX && report.entries.iter().any(tries_next_flavor));
        interrupted = !each(state, report);
        if interrupted && is_settled {
            state.agenda_mut().mark_changed(tree);
            return false;
        }
        if !go_on {
            break;
        }
    }
    // Changes by this tree's own decisions are already evaluated.
    state.agenda_mut().unmark_changed(tree);
    !interrupted
}

fn cycle_over(
    state: &mut QueueState,
    capacity: &mut dyn CapacityModel,
    queues: &[QueueId],
    heads: usize,
    second_pass: bool,
) -> CycleReport {
    let mut nominees: Vec<Nominee> = Vec::new();
    if second_pass {
        let again = state.workloads().filter(|(_, w)| needs_second_pass(state, w));
        nominees.extend(again.map(|(workload, _)| Nominee { workload, second_pass: true }));
    }
    for queue in queues {
        let before = nominees.len();
        for _ in 0..heads {
            let Some(head) = pop_head(state, *queue) else { break };
            nominees.push(Nominee { workload: head, second_pass: false });
        }
        // Count only cycles in which the queue had a head, because cycles of other trees don't make a flavor
        // scan outdated.
        if nominees.len() > before {
            state.count_cycle(*queue);
        }
    }
    let mut cycle = Cycle::new(state, capacity);
    let entries = cycle.nominate(&nominees);
    let mut order = EntryOrder::new(cycle.state, &entries);
    let starved = starved::starved_entries(cycle.state, &entries);
    let mut entries: Vec<Option<CycleEntry>> = entries.into_iter().map(Some).collect();
    let mut done = Vec::with_capacity(entries.len());
    for mut entry in starved.into_iter().filter_map(|at| entries[at].take()) {
        cycle.process(&mut entry);
        // A skipped starved head comes first again in the next cycle. Pinned by
        // `semantics::starvation::overtaken_starved_head_keeps_its_precedence`.
        if matches!(entry.outcome, EntryOutcome::NoCandidates | EntryOutcome::Skipped) {
            cycle.unserved.push(entry.workload);
        }
        done.push(entry);
    }
    cycle.temporary.reserved_for_starved = cycle.temporary.reserved.len();
    while let Some(at) = order.pop(cycle.state) {
        let Some(mut entry) = entries[at].take() else { continue };
        cycle.process(&mut entry);
        done.push(entry);
    }
    done.extend(entries.into_iter().flatten());
    cycle.finish(done)
}

/// Takes the head of a queue.
fn pop_head(state: &mut QueueState, queue: QueueId) -> Option<WorkloadId> {
    let starved = state.starved_head(queue);
    let (position, class) = state.ask_ordered(queue, Pending::head)?;
    if let Some(passed) = starved.filter(|id| *id != position.workload) {
        // The workload is no longer the head, so its quota would be reserved in some cycles and not in
        // others.
        state.end_starvation(passed);
    }
    // `remove` would also forget the preemptor, which must stay.
    let pending = state.pending_mut(queue);
    let preemptor = pending.preemptor();
    pending.remove(&class, &position);
    pending.set_preemptor(preemptor);
    state.update_active(queue);
    Some(position.workload)
}

/// Whether a holder must be evaluated again: its topology assignment is delayed, or it lost a node.
fn needs_second_pass(state: &QueueState, workload: &Workload) -> bool {
    let Some(holding) = workload.holding.as_ref().filter(|h| !h.evicted) else { return false };
    let marks = workload.marks();
    let is_delayed = marks.checks_ready
        && !holding.admitted
        && holding.given.iter().any(|g| g.placement.is_none() && g.delayed == Some(Delayed::Pending));
    is_delayed || state.has_lost_node(workload)
}

impl Cycle<'_> {
    /// Releases the temporary usage, marks the victims, and requeues the entries that were not admitted.
    fn finish(mut self, done: Vec<CycleEntry>) -> CycleReport {
        self.count_temporary(false);
        for (workload, assignment) in std::mem::take(&mut self.temporary.assignments) {
            self.state.place_assignment(workload, &assignment, false);
        }
        let vacated = std::mem::take(&mut self.temporary.vacated);
        vacated.iter().for_each(|placed| self.state.count_placed(placed, false));
        self.state.excluded_mut().clear_admitted();
        for (victim, ..) in &self.report.preempted {
            self.state.evict(*victim);
        }
        for (victim, _) in &self.report.evicted {
            self.state.evict(*victim);
        }
        let mut report = std::mem::take(&mut self.report);
        for mut entry in done {
            let own_obstacle = self.capacity.has_own_obstacle(entry.workload);
            entry.requeued = requeue::requeue_entry(self.state, &entry, own_obstacle);
            report.entries.push(entry);
        }
        for (old, _) in &report.replaced {
            self.state.remove(*old);
        }
        if !vacated.is_empty() {
            // No other entry could get that capacity in this cycle.
            self.state.requeue_all();
        }
        report
    }
}
