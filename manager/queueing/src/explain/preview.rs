//! Previews: the outcome of an evaluation now, without changing the state.

use crate::capacity_model::UnlimitedCapacity;
use crate::cycle::{Cycle, CycleEntry, Nominee};
use crate::model::{Flavor, Mode, QueueId, WorkloadId};
use crate::queue_state::{NewWorkload, QueueState};
use crate::quota::TreeId;
use std::collections::BTreeSet;

/// Evaluates a pending workload without preemption. Returns its entry, and the copy of the state that has the
/// entry's names.
pub fn preview(state: &QueueState, id: WorkloadId) -> (QueueState, CycleEntry) {
    let mut copy = state.copy_of_quota(state.tree_of(id));
    let copied = copy.copy_workload(state, id);
    // While the workload's victims stop in one flavor, it doesn't try another flavor.
    let pending = state.get(&id).progress.pending_preemption.as_ref().filter(|_| state.awaits_victims(id));
    if let Some(pending) = pending {
        copy.assume_preemption(copied, pending.flavors.clone());
    }
    let entry = evaluate(&mut copy, copied);
    (copy, entry)
}

/// Previews a workload that isn't part of the state, in a queue as if it were active and all its flavors
/// existed. `None` if the queue has no quota node.
pub fn preview_in(
    state: &QueueState,
    queue: QueueId,
    workload: impl FnOnce(&mut QueueState) -> NewWorkload,
) -> Option<(QueueState, CycleEntry)> {
    state.queue(queue).node?;
    let mut copy = state.copy_of_quota(state.queue(queue).tree);
    let mut setup = (*state.queue(queue).setup).clone();
    setup.inactive = None;
    for flavor in
        setup.groups.iter().flat_map(|group| &group.flavors).filter(|flavor| state.flavor(**flavor).is_none())
    {
        copy.set_flavor(*flavor, Some(Flavor::default()));
    }
    copy.assume_setup(queue, setup);
    let new = workload(&mut copy);
    let id = copy.add_pending(new);
    let entry = evaluate(&mut copy, id);
    Some((copy, entry))
}

/// Which of these pending workloads would fit, each alone, after the workloads of `gone` have released their
/// quota.
pub fn would_fit(state: &QueueState, all: &[WorkloadId], gone: &[WorkloadId]) -> Vec<bool> {
    let trees: BTreeSet<TreeId> = all.iter().filter_map(|id| state.tree_of(*id)).collect();
    let mut copy = state.copy_of_quota(trees.iter().copied());
    // Quota released in other trees doesn't matter.
    let gone = gone.iter().filter(|id| state.tree_of(**id).is_some_and(|tree| trees.contains(&tree)));
    let holders = gone.filter_map(|id| Some((state.node_of(*id)?, state.workload(*id)?.holding.as_ref()?)));
    for (node, (cell, amount)) in
        holders.flat_map(|(node, holding)| holding.charge.iter().map(move |part| (node, part)))
    {
        copy.remove_usage(node, *cell, *amount);
    }
    let copies: Vec<WorkloadId> = all.iter().map(|id| copy.copy_workload(state, *id)).collect();
    copies.into_iter().map(|id| evaluate(&mut copy, id).assignment.mode() == Mode::Fit).collect()
}

/// The entry of a workload by the current state.
fn evaluate(state: &mut QueueState, id: WorkloadId) -> CycleEntry {
    let queue = state.get(&id).queue;
    let mut unlimited = UnlimitedCapacity;
    let mut cycle = Cycle::new(state, &mut unlimited);
    cycle
        .nominate(&[Nominee { workload: id, second_pass: false }])
        .pop()
        .unwrap_or_else(|| CycleEntry::new(id, queue, false))
}
