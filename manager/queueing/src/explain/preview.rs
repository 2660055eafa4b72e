//! Previews: the outcome of an evaluation now, without changing the state.

use crate::capacity_model::UnlimitedCapacity;
use crate::cycle::{Cycle, CycleEntry, Nominee};
use crate::model::{Flavor, Mode, QueueId, WorkloadId};
use crate::queue_state::{NewWorkload, QueueState};
use crate::quota::TreeId;
use std::collections::BTreeSet;

impl QueueState {
    /// Evaluates a pending workload without preemption. Returns its entry, and the copy of the state that has
    /// the entry's names.
    pub fn preview(&self, id: WorkloadId) -> (Self, CycleEntry) {
        let mut copy = self.copy_of_quota(self.tree_of(id));
        let copied = copy.copy_workload(self, id);
        // While the workload's victims stop in one flavor, it doesn't try another flavor.
        let pending = self.get(&id).progress.pending_preemption.as_ref().filter(|_| self.awaits_victims(id));
        if let Some(pending) = pending {
            copy.assume_preemption(copied, pending.flavors.clone());
        }
        let entry = copy.evaluate(copied);
        (copy, entry)
    }

    /// Previews a workload that isn't part of the state, in a queue as if it were active and all its flavors
    /// existed. `None` if the queue has no quota node.
    pub fn preview_in(
        &self,
        queue: QueueId,
        workload: impl FnOnce(&mut Self) -> NewWorkload,
    ) -> Option<(Self, CycleEntry)> {
        self.queue(queue).node?;
        let mut copy = self.copy_of_quota(self.queue(queue).tree);
        let mut setup = (*self.queue(queue).setup).clone();
        setup.inactive = None;
        for flavor in setup
            .groups
            .iter()
            .flat_map(|group| &group.flavors)
            .filter(|flavor| self.flavor(**flavor).is_none())
        {
            copy.set_flavor(*flavor, Some(Flavor::default()));
        }
        copy.assume_setup(queue, setup);
        let new = workload(&mut copy);
        let id = copy.add_pending(new);
        let entry = copy.evaluate(id);
        Some((copy, entry))
    }

    /// Which of these pending workloads would fit, each alone, after the workloads of `gone` have released
    /// their quota.
    pub fn would_fit(&self, all: &[WorkloadId], gone: &[WorkloadId]) -> Vec<bool> {
        let trees: BTreeSet<TreeId> = all.iter().filter_map(|id| self.tree_of(*id)).collect();
        let mut copy = self.copy_of_quota(trees.iter().copied());
        // Quota released in other trees doesn't matter.
        let gone = gone.iter().filter(|id| self.tree_of(**id).is_some_and(|tree| trees.contains(&tree)));
        let holders = gone.filter_map(|id| Some((self.node_of(*id)?, self.workload(*id)?.holding.as_ref()?)));
        for (node, (cell, amount)) in
            holders.flat_map(|(node, holding)| holding.charge.iter().map(move |part| (node, part)))
        {
            copy.remove_usage(node, *cell, *amount);
        }
        let copies: Vec<WorkloadId> = all.iter().map(|id| copy.copy_workload(self, *id)).collect();
        copies.into_iter().map(|id| copy.evaluate(id).assignment.mode() == Mode::Fit).collect()
    }

    /// The entry of a workload by the current state.
    fn evaluate(&mut self, id: WorkloadId) -> CycleEntry {
        let queue = self.get(&id).queue;
        let mut unlimited = UnlimitedCapacity;
        let mut cycle = Cycle::new(self, &mut unlimited);
        cycle
            .nominate(&[Nominee { workload: id, second_pass: false }])
            .pop()
            .unwrap_or_else(|| CycleEntry::new(id, queue, false))
    }
}
