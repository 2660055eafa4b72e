//! Runs scheduling cycles until nothing changes.
//!
//! Workloads that are evicted in a cycle stop before the next cycle: they release their quota and are
//! requeued with their old queue time. So the first cycle shows a manager's decisions now, and the last cycle
//! shows the final state if no job ends and no job is submitted.

mod between_cycles;
mod preemption_guard;

use crate::load::{Loaded, ParkReason, RequeueTarget};
use meridian_queueing::QueueState;
use meridian_queueing::capacity_model::CapacityModel;
use meridian_queueing::cycle::{self, CycleEntry, CycleReport, EntryOutcome, Eviction, Requeued};
use meridian_queueing::model::{QueueId, WorkloadId};
use meridian_queueing::preemption::PreemptionReason;
use preemption_guard::PreemptionGuard;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most cycles per workload, if the caller sets no limit. Admitting, preempting and admitting a workload
/// again takes three; many more mean that workloads preempt each other forever.
pub const CYCLES_PER_WORKLOAD_MAX: u32 = 8;

/// The number of cycles to run, and the size of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CycleLimits {
    /// Number of cycles; `None` runs until nothing changes.
    pub cycles: Option<u32>,
    /// Number of workloads of each queue that one cycle evaluates.
    pub heads_per_queue: usize,
}

impl Default for CycleLimits {
    fn default() -> Self {
        Self { cycles: None, heads_per_queue: 1 }
    }
}

/// Why the run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Ending {
    /// Another cycle would change nothing.
    Settled,
    /// [`CycleLimits::cycles`] were run.
    CyclesReached,
    /// Decisions still change after [`CYCLES_PER_WORKLOAD_MAX`] cycles per workload.
    Unsettled,
}

/// One preemption. Cycles are counted from 1, here and below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedPreemption {
    pub cycle: u32,
    pub victim: WorkloadId,
    /// The queue that provided the quota of the victim.
    pub victim_queue: QueueId,
    pub preemptor: WorkloadId,
    pub right: PreemptionReason,
}

/// An eviction for a reason other than preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedEviction {
    pub cycle: u32,
    pub workload: WorkloadId,
    pub reason: Eviction,
}

/// A slice of an elastic workload was replaced by a newer slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedReplacement {
    pub cycle: u32,
    pub old: WorkloadId,
    pub new: WorkloadId,
}

/// An admission that was not undone in a later cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedAdmission {
    pub cycle: u32,
    /// Height of the cohort subtree that provides the quota; 0 is the queue's own quota.
    pub borrowing_level: u32,
}

/// The latest evaluation of a workload.
#[derive(Clone, Debug)]
pub struct Evaluation {
    pub cycle: u32,
    pub entry: CycleEntry,
    /// The evaluation of the previous cycle, if this one tried only the flavors that the previous one had
    /// left.
    pub previous: Option<Box<Evaluation>>,
}

/// Name and queue of a workload. Kept from the beginning, because the workload may be gone at the end.
#[derive(Clone, Debug)]
pub struct KnownWorkload {
    pub key: Arc<str>,
    pub queue: QueueId,
}

/// The decisions of all cycles.
#[derive(Clone, Debug)]
pub struct Decisions {
    /// Number of cycles that were run.
    pub cycles: u32,
    pub ending: Ending,
    pub heads_per_queue: usize,
    /// Every workload at the beginning.
    pub workloads: BTreeMap<WorkloadId, KnownWorkload>,
    /// Workloads that held quota at the beginning.
    pub held: BTreeSet<WorkloadId>,
    pub admitted: BTreeMap<WorkloadId, PlannedAdmission>,
    pub evaluations: BTreeMap<WorkloadId, Evaluation>,
    /// In the order of the decisions, like the next two fields.
    pub preempted: Vec<PlannedPreemption>,
    pub evicted: Vec<PlannedEviction>,
    pub replaced: Vec<PlannedReplacement>,
    /// Names of workloads that stand for the scale-up of a running gang.
    pub scale_ups: BTreeSet<Arc<str>>,
}

impl Decisions {
    fn new(state: &QueueState, heads_per_queue: usize) -> Self {
        let known = |workload: &meridian_queueing::model::Workload| KnownWorkload {
            key: workload.key.clone(),
            queue: workload.queue,
        };
        Self {
            cycles: 0,
            ending: Ending::Settled,
            heads_per_queue,
            workloads: state.workloads().map(|(id, workload)| (id, known(workload))).collect(),
            held: state.workloads().filter(|(_, w)| w.holding.is_some()).map(|(id, _)| id).collect(),
            admitted: BTreeMap::new(),
            evaluations: BTreeMap::new(),
            preempted: Vec::new(),
            evicted: Vec::new(),
            replaced: Vec::new(),
            scale_ups: BTreeSet::new(),
        }
    }

    fn record(&mut self, state: &QueueState, report: CycleReport) {
        let cycle = self.cycles;
        for (victim, preemptor, right) in report.preempted {
            if let Some(workload) = state.workload(victim) {
                let victim_queue = workload.queue;
                self.preempted.push(PlannedPreemption { cycle, victim, victim_queue, preemptor, right });
            }
        }
        for (workload, reason) in report.evicted {
            self.evicted.push(PlannedEviction { cycle, workload, reason });
        }
        for (old, new) in report.replaced {
            self.replaced.push(PlannedReplacement { cycle, old, new });
            self.admitted.remove(&old);
            self.evaluations.remove(&old);
        }
        for entry in report.entries {
            if entry.outcome == EntryOutcome::Admitted {
                let borrowing_level = entry.assignment.borrowing;
                self.admitted.insert(entry.workload, PlannedAdmission { cycle, borrowing_level });
            }
            let previous = self
                .evaluations
                .remove(&entry.workload)
                .filter(|earlier| continues_scan(earlier, cycle))
                .map(Box::new);
            self.evaluations.insert(entry.workload, Evaluation { cycle, entry, previous });
        }
    }
}

/// Whether the evaluation in `cycle` continues with the flavors that the earlier evaluation had left.
fn continues_scan(earlier: &Evaluation, cycle: u32) -> bool {
    earlier.cycle + 1 == cycle
        && earlier.entry.outcome != EntryOutcome::Admitted
        && earlier.entry.assignment.scan.pending()
}

/// Facts about workloads that a plan needs in addition to the queue state. Entries are consumed as cycles use
/// them.
struct PlanExtras<'l> {
    parked: &'l BTreeMap<WorkloadId, ParkReason>,
    requeue_targets: &'l mut BTreeMap<WorkloadId, RequeueTarget>,
    scale_ups: &'l mut BTreeMap<WorkloadId, WorkloadId>,
}

/// Runs cycles on the loaded objects. Afterwards `loaded` has the queue state after the last cycle.
pub fn decide(loaded: &mut Loaded, capacity: &mut dyn CapacityModel, limits: &CycleLimits) -> Decisions {
    let Loaded { state, parked, requeue_targets, scale_ups, notes, .. } = loaded;
    let mut decisions = Decisions::new(state, limits.heads_per_queue);
    decisions.scale_ups =
        scale_ups.values().filter_map(|id| Some(state.workload(*id)?.key.clone())).collect();
    let mut extras = PlanExtras { parked, requeue_targets, scale_ups };
    let workloads = u32::try_from(decisions.workloads.len()).unwrap_or(u32::MAX);
    let cycles_max =
        limits.cycles.unwrap_or_else(|| workloads.saturating_add(1).saturating_mul(CYCLES_PER_WORKLOAD_MAX));
    let idle_max = longest_scan(state);
    let mut idle = 0;
    let mut capacity = PreemptionGuard::new(capacity, extras.scale_ups);
    while decisions.cycles < cycles_max {
        decisions.cycles += 1;
        let report = cycle::run_once_with_heads(state, &mut capacity, limits.heads_per_queue, true);
        capacity.record(&report.preempted);
        let no_heads = report.entries.is_empty();
        let scan_unfinished = report
            .entries
            .iter()
            .any(|e| e.requeued == Some(Requeued::Active) && e.assignment.scan.pending());
        let changed = report.progress()
            || !report.replaced.is_empty()
            || report.entries.iter().any(|e| e.requeued == Some(Requeued::Parked));
        decisions.record(state, report);
        between_cycles::merge_scale_ups(state, extras.scale_ups, &mut decisions);
        idle = if changed { 0 } else { idle + 1 };
        let stopping = state.workloads().any(|(_, w)| w.evicted());
        if !stopping && (no_heads || (idle > 0 && !scan_unfinished) || idle > idle_max) {
            return decisions;
        }
        // Give admissions of the next cycle a later time, because of equal candidates the latest is preempted
        // first.
        state.set_now(state.now().saturating_add(1));
        if decisions.cycles < cycles_max && stopping {
            notes.extend(between_cycles::finish_evictions(state, &mut extras, &mut decisions));
            idle = 0;
        }
    }
    decisions.ending = if limits.cycles.is_some() { Ending::CyclesReached } else { Ending::Unsettled };
    decisions
}

/// Number of cycles without a change after which nothing will change. More than one, because a flavor scan
/// may continue over several cycles.
fn longest_scan(state: &QueueState) -> usize {
    let groups = state.queue_list().flat_map(|(_, id)| &state.queue(id).setup.groups);
    groups.map(|group| group.flavors.len()).max().unwrap_or(0)
}
