//! Cycles over a brain, one after the other, until nothing changes.
//!
//! Between two cycles everybody who was told to stop has stopped: he gives his quota back and waits again, as old as he was.
//! So the first cycle is exactly what a scheduler would do now, and the last one is where things come to rest: as in the engine, nobody
//! displaces whom it gave way for, at however many removes.

use crate::in_turn::InTurn;
use crate::load::{Elsewhere, HeldBack, Loaded};
use meridian_queueing::cycle::{Entry, Eviction, Outcome as Came, Report, Requeued};
use meridian_queueing::model::{Given, Moment, QueueId, WorkloadId};
use meridian_queueing::places::Places;
use meridian_queueing::preempt::Right;
use meridian_queueing::{Brain, NewWorkload};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most cycles for every workload there is, where no number is asked for. Being admitted, displaced and admitted again takes
/// three; more is two workloads that displace each other forever.
pub const CYCLES_PER_WORKLOAD_MAX: u32 = 8;

/// How long to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most cycles; `None` goes on until nothing changes.
    pub cycles: Option<u32>,
    /// How many workloads of each queue one cycle looks at.
    pub heads_per_queue: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { cycles: None, heads_per_queue: 1 }
    }
}

/// Why no further cycle was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// Another cycle would change nothing.
    Settled,
    /// As many were run as were asked for.
    Asked,
    /// [`CYCLES_PER_WORKLOAD_MAX`] is reached, and things still change.
    Bound,
}

/// Somebody was told to stop for another's sake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// The cycle, from 1.
    pub cycle: u32,
    /// Who stops.
    pub victim: WorkloadId,
    /// The queue whose quota it had.
    pub of: QueueId,
    /// For whom.
    pub by: WorkloadId,
    /// By which right.
    pub right: Right,
}

/// The last look at a workload.
#[derive(Clone, Debug)]
pub struct Look {
    /// The cycle, from 1.
    pub cycle: u32,
    /// What was seen.
    pub entry: Entry,
    /// The look before, where this one only went on with the flavors that it had left.
    pub before: Option<Box<Look>>,
}

/// What all cycles came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Cycles that were run.
    pub cycles: u32,
    /// Why there were no more.
    pub end: End,
    /// How many workloads of each queue a cycle looked at.
    pub heads_per_queue: usize,
    /// Every workload at the beginning, with its name and queue.
    pub workloads: BTreeMap<WorkloadId, (Arc<str>, QueueId)>,
    /// Who held quota at the beginning.
    pub held: BTreeSet<WorkloadId>,
    /// Who was admitted and wasn't displaced later: the cycle, and from how far away quota came.
    pub admitted: BTreeMap<WorkloadId, (u32, u32)>,
    /// The last look at everybody who was looked at.
    pub looks: BTreeMap<WorkloadId, Look>,
    /// Who was told to stop for another's sake, in order.
    pub preempted: Vec<Preemption>,
    /// Who was told to stop for another reason: cycle, workload, reason.
    pub evicted: Vec<(u32, WorkloadId, Eviction)>,
    /// Slices that were replaced: cycle, old, new.
    pub replaced: Vec<(u32, WorkloadId, WorkloadId)>,
    /// Names of what gangs that run were to grow by.
    pub growths: BTreeSet<Arc<str>>,
}

impl Outcome {
    fn new(brain: &Brain, heads_per_queue: usize) -> Self {
        Self {
            cycles: 0,
            end: End::Settled,
            heads_per_queue,
            workloads: brain.workloads().map(|(id, w)| (id, (w.key.clone(), w.queue))).collect(),
            held: brain.workloads().filter(|(_, w)| w.holding.is_some()).map(|(id, _)| id).collect(),
            admitted: BTreeMap::new(),
            looks: BTreeMap::new(),
            preempted: Vec::new(),
            evicted: Vec::new(),
            replaced: Vec::new(),
            growths: BTreeSet::new(),
        }
    }

    fn record(&mut self, brain: &Brain, report: Report) {
        let cycle = self.cycles;
        let preempted = report
            .preempted
            .iter()
            .filter_map(|(victim, by, right)| Some((*victim, *by, *right, brain.workload(*victim)?.queue)));
        self.preempted.extend(preempted.map(|(victim, by, right, of)| Preemption {
            cycle,
            victim,
            of,
            by,
            right,
        }));
        self.evicted.extend(report.evicted.iter().map(|(workload, why)| (cycle, *workload, *why)));
        for (old, new) in &report.replaced {
            self.replaced.push((cycle, *old, *new));
            self.admitted.remove(old);
            self.looks.remove(old);
        }
        for entry in report.entries {
            if entry.outcome == Came::Admitted {
                self.admitted.insert(entry.workload, (cycle, entry.assignment.borrowing));
            }
            let before = self.looks.remove(&entry.workload).filter(|look| goes_on(look, cycle)).map(Box::new);
            self.looks.insert(entry.workload, Look { cycle, entry, before });
        }
    }
}

/// Whether a look in this cycle begins with the flavors that the last one had left.
fn goes_on(look: &Look, cycle: u32) -> bool {
    look.cycle + 1 == cycle && look.entry.outcome != Came::Admitted && look.entry.assignment.scan.pending()
}

/// Decides on what was loaded. Its brain is left as it is after the last cycle.
pub fn decide(loaded: &mut Loaded, places: &mut dyn Places, limits: &Limits) -> Outcome {
    let Loaded { brain, held_back, elsewhere, growths, notes, .. } = loaded;
    let mut outcome = Outcome::new(brain, limits.heads_per_queue);
    outcome.growths = growths.values().filter_map(|id| Some(brain.workload(*id)?.key.clone())).collect();
    let mut aside = Aside { held_back, elsewhere, growths };
    let workloads = u32::try_from(outcome.workloads.len()).unwrap_or(u32::MAX);
    let bound =
        limits.cycles.unwrap_or_else(|| workloads.saturating_add(1).saturating_mul(CYCLES_PER_WORKLOAD_MAX));
    let patience = longest_scan(brain);
    let mut idle = 0;
    let mut places = InTurn::new(places, aside.growths);
    while outcome.cycles < bound {
        outcome.cycles += 1;
        let report = brain.cycle_with_heads(&mut places, limits.heads_per_queue, true);
        places.displaced(&report.preempted);
        let nobody = report.entries.is_empty();
        let unfinished =
            report.entries.iter().any(|e| e.requeued == Some(Requeued::Awake) && e.assignment.scan.pending());
        let changed = report.progress()
            || !report.replaced.is_empty()
            || report.entries.iter().any(|e| e.requeued == Some(Requeued::Parked));
        outcome.record(brain, report);
        let_grow(brain, aside.growths, &mut outcome);
        idle = if changed { 0 } else { idle + 1 };
        let stopping = brain.workloads().any(|(_, w)| w.evicted());
        if !stopping && (nobody || (idle > 0 && !unfinished) || idle > patience) {
            return outcome;
        }
        // Who is admitted in the next one is admitted later: of equals who came last gives way first.
        brain.now = brain.now.saturating_add(1);
        if outcome.cycles < bound && stopping {
            notes.extend(let_stop(brain, &mut aside, &mut outcome));
            idle = 0;
        }
    }
    outcome.end = if limits.cycles.is_some() { End::Asked } else { End::Bound };
    outcome
}

/// Cycles without a change after which there will be none: a scan of flavors may go on from cycle to cycle.
fn longest_scan(brain: &Brain) -> usize {
    let groups = brain.queue_list().flat_map(|(_, id)| &brain.queue(id).setup.groups);
    groups.map(|group| group.flavors.len()).max().unwrap_or(0)
}

/// Gangs whose growth was admitted hold that too, as long as they hold anything.
fn let_grow(brain: &mut Brain, growths: &mut BTreeMap<WorkloadId, WorkloadId>, outcome: &mut Outcome) {
    let admitted = growths
        .iter()
        .filter(|(_, growth)| outcome.admitted.contains_key(growth))
        .map(|(id, growth)| (*id, *growth));
    for (id, growth) in admitted.collect::<Vec<_>>() {
        growths.remove(&id);
        outcome.admitted.remove(&growth);
        outcome.looks.remove(&growth);
        let more = brain
            .remove(growth)
            .and_then(|growth| growth.holding)
            .map(|holding| holding.given)
            .unwrap_or_default();
        let Some(runs) = brain.workload(id).filter(|of| !of.evicted()).cloned() else { continue };
        let Some(holding) = runs.holding else { continue };
        let shape = (**brain.shape_of(runs.shape)).clone();
        brain.remove(id);
        let new = NewWorkload {
            key: runs.key,
            uid: runs.uid,
            queue: runs.queue,
            local_queue: runs.local_queue,
            shape: brain.intern(shape),
            since: runs.since,
            marks: runs.marks,
        };
        let given = holding.given.into_iter().zip(more).map(|(has, more)| with_more(has, more)).collect();
        let again = brain.hold(new, given, holding.since, false, holding.admitted);
        debug_assert_eq!(again, id, "the number that came free last is given first");
    }
}

/// What a pod set was given, and more of the same.
fn with_more(has: Given, more: Given) -> Given {
    let mut usage = has.usage;
    for (resource, amount) in more.usage {
        match usage.iter_mut().find(|(known, _)| *known == resource) {
            Some((_, known)) => *known = known.saturating_add(amount),
            None => usage.push((resource, amount)),
        }
    }
    Given { usage, count: has.count.saturating_add(more.count), ..has }
}

/// Everybody who was told to stop has stopped, and waits where its local queue leads now, for all that it wants: what is to be said of
/// who waits nowhere.
fn let_stop(brain: &mut Brain, loaded: &mut Aside<'_>, outcome: &mut Outcome) -> Vec<String> {
    let mut notes = Vec::new();
    let stopping: Vec<(WorkloadId, Moment)> =
        brain.workloads().filter(|(_, w)| w.evicted()).map(|(id, w)| (id, w.since)).collect();
    for (id, since) in stopping {
        outcome.admitted.remove(&id);
        outcome.looks.remove(&id);
        if let Some(growth) = loaded
            .growths
            .remove(&id)
            .filter(|growth| brain.workload(*growth).is_some_and(|w| w.holding.is_none()))
        {
            brain.remove(growth);
            outcome.looks.remove(&growth);
        }
        match (loaded.elsewhere.remove(&id), loaded.held_back.contains_key(&id)) {
            (None, true) => brain.requeue_aside(id, since),
            (None, false) => brain.requeue(id, since),
            (Some(Elsewhere::Nowhere(why)), _) => {
                let stopped = brain.remove(id);
                notes.extend(
                    stopped.map(|w| format!("workload `{}` waits nowhere once it has stopped: {why}", w.key)),
                );
            }
            (Some(Elsewhere::In(next)), aside) => {
                brain.remove(id);
                let (new, shape) = *next;
                let new = NewWorkload { shape: brain.intern(shape), ..new };
                let again = if aside { brain.wait_aside(new) } else { brain.wait(new) };
                debug_assert_eq!(again, id, "the number that came free last is given first");
            }
        }
    }
    notes
}

/// What was loaded beside the brain, and is used up.
struct Aside<'l> {
    held_back: &'l BTreeMap<WorkloadId, HeldBack>,
    elsewhere: &'l mut BTreeMap<WorkloadId, Elsewhere>,
    growths: &'l mut BTreeMap<WorkloadId, WorkloadId>,
}
