//! Trials of remedies: a workload is evaluated again on a changed copy of the state.
//!
//! Unlike the other questions, a trial knows the holders of the tree, so it includes preemption.

use crate::amount::Amount;
use crate::capacity_model::CapacityModel;
use crate::cycle::{Cycle, CycleEntry, Nominee};
use crate::model::{Assignment, Mode, PreemptionRule, QueueId, Target, WorkloadId};
use crate::names::{FlavorId, ResourceId};
use crate::queue_state::{NewWorkload, QueueState};
use crate::quota::TreeId;
use std::collections::{BTreeMap, BTreeSet};

/// Most holders that a trial copies. With more, none is copied, so the trial finds no preemption and may miss
/// a remedy, but never suggests a wrong one.
const HOLDERS_MAX: usize = 1_024;

/// Changes to the state of a trial.
#[derive(Clone, Debug, Default)]
pub struct TrialChanges {
    /// Nominal quotas of the workload's queue.
    pub nominal: Vec<((FlavorId, ResourceId), i64)>,
    /// The workload is submitted again with this priority.
    pub priority: Option<i64>,
    /// Holders that have ended.
    pub ended: Vec<WorkloadId>,
    /// A stopped queue that is started.
    pub started: Option<QueueId>,
}

/// Capacity of clusters in a trial. Its arguments are workloads of the real state, not copies.
pub trait TrialCapacity {
    /// Whether a cluster fits the workload after these holders have stopped.
    fn fits_without(&self, gone: &[WorkloadId]) -> bool;

    /// Whether the workload may preempt a holder, regardless of policies.
    fn may_preempt(&self, holder: WorkloadId) -> bool;
}

/// Result of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trial {
    /// The workload is admitted.
    Admitted,
    /// The workload preempts these workloads, and is admitted once they have stopped.
    Preempts(Vec<WorkloadId>),
    Pending,
}

/// Quota that a queue would borrow for a workload while it may not preempt others for that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForbiddenBorrowing {
    pub key: (FlavorId, ResourceId),
    /// Nominal quota of the queue.
    pub nominal: i64,
    /// Amount that the queue would use, above its nominal quota.
    pub asks: i64,
}

struct CopiedCapacity<'a> {
    capacity: &'a dyn TrialCapacity,
    /// Holders of the real state by their copies.
    originals: BTreeMap<WorkloadId, WorkloadId>,
}

impl CapacityModel for CopiedCapacity<'_> {
    fn fits(&mut self, _: &QueueState, _: WorkloadId, victims: &[Target]) -> bool {
        let gone: Vec<WorkloadId> =
            victims.iter().filter_map(|target| self.originals.get(&target.workload).copied()).collect();
        self.capacity.fits_without(&gone)
    }

    fn fits_now(&mut self, _: &QueueState, _: WorkloadId) -> bool {
        self.capacity.fits_without(&[])
    }

    fn may_preempt(&self, _: WorkloadId, holder: WorkloadId) -> bool {
        self.originals.get(&holder).is_some_and(|holder| self.capacity.may_preempt(*holder))
    }

    fn take(&mut self, _: &QueueState, _: WorkloadId, _: &Assignment) -> bool {
        self.capacity.fits_without(&[])
    }
}

/// Evaluates a pending workload on a copy of the state with some changes and without other pending workloads.
pub fn try_changes(
    state: &QueueState,
    id: WorkloadId,
    changes: &TrialChanges,
    capacity: &dyn TrialCapacity,
) -> Trial {
    let mut copy = state.copy_of_quota(state.tree_of(id));
    let originals = copy_holders(&mut copy, state, state.tree_of(id), &changes.ended);
    apply_changes(&mut copy, state.get(&id).queue, changes);
    let copied = copy.copy_workload(state, id);
    if let Some(priority) = changes.priority {
        copy.resubmit(copied, priority);
    }
    decide_trial(&mut copy, copied, CopiedCapacity { capacity, originals })
}

/// Evaluates a workload that isn't part of the state, on a copy in which it is pending in a queue, without
/// other pending workloads. `None` if the queue has no quota node.
pub fn try_in(
    state: &QueueState,
    queue: QueueId,
    workload: impl FnOnce(&mut QueueState) -> NewWorkload,
    capacity: &dyn TrialCapacity,
) -> Option<Trial> {
    state.queue(queue).node?;
    let tree = state.queue(queue).tree;
    let mut copy = state.copy_of_quota(tree);
    let originals = copy_holders(&mut copy, state, tree, &[]);
    let new = workload(&mut copy);
    let added = copy.add_pending(new);
    Some(decide_trial(&mut copy, added, CopiedCapacity { capacity, originals }))
}

fn decide_trial(state: &mut QueueState, id: WorkloadId, mut model: CopiedCapacity<'_>) -> Trial {
    let entry = decide(state, id, &mut model);
    let capacity = model.capacity;
    match entry.assignment.mode() {
        Mode::Fit if capacity.fits_without(&[]) => Trial::Admitted,
        Mode::Preempt if !entry.targets.is_empty() => {
            let original = |target: &Target| model.originals.get(&target.workload).copied();
            Trial::Preempts(entry.targets.iter().filter_map(original).collect())
        }
        _ => Trial::Pending,
    }
}

/// Quota that the queue of a workload would borrow although it may not preempt others while it borrows. Empty
/// unless the queue could otherwise reclaim quota from its cohort.
pub fn forbidden_borrowing(
    state: &QueueState,
    id: WorkloadId,
    usage: &[((FlavorId, ResourceId), i64)],
) -> Vec<ForbiddenBorrowing> {
    let queue = state.queue(state.get(&id).queue);
    let policies = &queue.setup.preemption;
    let reclaims = !matches!(policies.reclaim_within_cohort, PreemptionRule::Never | PreemptionRule::Unset);
    let Some((node, tree)) = queue.node.zip(queue.tree).filter(|_| reclaims) else { return Vec::new() };
    if state.settings().fair_sharing.is_some() || policies.borrow_within_cohort.is_some() {
        return Vec::new();
    }
    let would_borrow = |(key, amount): &((FlavorId, ResourceId), i64)| {
        let here = state.forest().cell(node, state.forest().find_cell(tree, *key)?);
        let (nominal, asks) = (here.quota.nominal, here.usage + Amount(*amount));
        (nominal < asks).then_some(ForbiddenBorrowing { key: *key, nominal: nominal.0, asks: asks.0 })
    };
    usage.iter().filter_map(would_borrow).collect()
}

/// Copies the holders of a tree, except those that have ended. Returns the originals by their copies; empty
/// if there are too many.
fn copy_holders(
    copy: &mut QueueState,
    of: &QueueState,
    tree: Option<TreeId>,
    ended: &[WorkloadId],
) -> BTreeMap<WorkloadId, WorkloadId> {
    let ended: BTreeSet<WorkloadId> = ended.iter().copied().collect();
    let queues = of.queue_list().map(|(_, queue)| of.queue(queue)).filter(|queue| queue.tree == tree);
    let holders: Vec<WorkloadId> = queues.flat_map(|queue| &queue.holders).copied().collect();
    let copies = holders.len() <= HOLDERS_MAX;
    let mut originals = BTreeMap::new();
    for holder in holders {
        let (one, node) = (of.get(&holder), of.node_of(holder));
        let Some((holding, node)) = one.holding.as_ref().zip(node) else { continue };
        let leaves = ended.contains(&holder);
        if !leaves && !copies {
            continue;
        }
        for (cell, amount) in &holding.charge {
            copy.remove_usage(node, *cell, *amount);
        }
        if !leaves {
            originals.insert(copy.copy_holder(of, holder, holding), holder);
        }
    }
    originals
}

fn apply_changes(copy: &mut QueueState, queue: QueueId, changes: &TrialChanges) {
    if let Some(started) = changes.started {
        let mut setup = (*copy.queue(started).setup).clone();
        setup.inactive = None;
        copy.assume_setup(started, setup);
    }
    if !changes.nominal.is_empty() {
        copy.assume_nominal(queue, &changes.nominal);
    }
}

fn decide(state: &mut QueueState, id: WorkloadId, capacity: &mut dyn CapacityModel) -> CycleEntry {
    let queue = state.get(&id).queue;
    let mut cycle = Cycle::new(state, capacity);
    cycle
        .nominate(&[Nominee { workload: id, second_pass: false }])
        .pop()
        .unwrap_or_else(|| CycleEntry::new(id, queue, false))
}
