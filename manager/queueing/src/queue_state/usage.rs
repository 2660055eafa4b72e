//! Quota and topology usage of holders and assignments.

use crate::amount::Amount;
use crate::model::{
    Assignment, Charge, Mode, QueueId, Usage, Workload, WorkloadId, amount_of, request_totals,
};
use crate::names::{FlavorId, ResourceId};
use crate::queue_state::QueueState;
use crate::quota::{CellId, NodeId, TreeId};

/// Usage of a holder by flavor and resource.
fn usage_of(state: &QueueState, workload: &Workload) -> Usage {
    let mut usage = Usage::new();
    for total in request_totals(state.shape_of(workload.shape), workload) {
        for (resource, flavor) in &total.flavors {
            let (key, amount) = ((*flavor, *resource), Amount(amount_of(&total.requests, *resource)));
            match usage.iter_mut().find(|(k, _)| *k == key) {
                Some((_, sum)) => *sum = *sum + amount,
                None => usage.push((key, amount)),
            }
        }
    }
    usage
}

impl QueueState {
    /// Computes the charge of a holder and adds it to the usage.
    pub(super) fn charge_holder(&mut self, id: WorkloadId) {
        let workload = &self.workloads[&id];
        let usage = usage_of(self, workload);
        let Some((node, tree)) = self.queue(workload.queue).node.zip(self.queue(workload.queue).tree) else {
            return;
        };
        let charge: Charge =
            usage.iter().map(|(key, amount)| (self.forest.cell_id(tree, *key), *amount)).collect();
        for (cell, amount) in &charge {
            self.forest.add(node, *cell, *amount);
        }
        self.place_usage(id, true);
        if let Some(holding) = self.workloads.get_mut(id).and_then(|w| w.holding.as_mut()) {
            holding.charge = charge;
        }
    }

    /// Adds or removes the usage of a holder.
    pub(super) fn count_holder(&mut self, id: WorkloadId, add: bool) {
        let Some(workload) = self.workloads.get(&id) else { return };
        let Some(node) = self.queues.get(workload.queue).node else { return };
        let Some(holding) = &workload.holding else { return };
        for (cell, amount) in &holding.charge {
            if add {
                self.forest.add(node, *cell, *amount);
            } else {
                self.forest.remove(node, *cell, *amount);
            }
        }
        self.place_usage(id, add);
    }

    /// Removes the usage of a holder temporarily.
    pub(crate) fn suspend_usage(&mut self, id: WorkloadId) {
        self.count_holder(id, false);
    }

    /// Reverses one call of [`Self::suspend_usage`].
    pub(crate) fn resume_usage(&mut self, id: WorkloadId) {
        self.count_holder(id, true);
    }

    /// The charge of a request with the flavors of an assignment.
    pub(crate) fn charge_of_request(&self, id: WorkloadId, assignment: &Assignment) -> Charge {
        let workload = &self.workloads[&id];
        let Some(tree) = self.queue(workload.queue).tree else { return Charge::new() };
        let shape = self.shape_of(workload.shape);
        let old = assignment
            .replaces
            .and_then(|old| self.workloads.get(&old))
            .map(|old| request_totals(self.shape_of(old.shape), old));
        let mut charge = Charge::new();
        for (at, set) in assignment.pod_sets.iter().enumerate() {
            let pods = old.as_ref().and_then(|old| old.get(at)).map_or(i64::from(set.count), |old| {
                i64::from(request_totals(shape, workload)[at].count) - i64::from(old.count)
            });
            for (resource, amount) in &set.requests {
                let (Some(choice), true) = (set.flavor(*resource), *amount != 0) else { continue };
                let amount = if old.is_some() && set.count > 0 {
                    (*amount / i64::from(set.count)).saturating_mul(pods)
                } else {
                    *amount
                };
                let Some(cell) = self.forest.find_cell(tree, (choice.flavor, *resource)) else { continue };
                match charge.iter_mut().find(|(c, _)| *c == cell) {
                    Some((_, sum)) => *sum = *sum + Amount(amount),
                    None => charge.push((cell, Amount(amount))),
                }
            }
        }
        charge
    }

    /// The quota to reserve for an entry that waits for others to end: its request, within what its queue may
    /// use.
    pub fn quota_to_reserve(
        &self,
        workload: WorkloadId,
        queue: QueueId,
        assignment: &Assignment,
    ) -> Vec<(CellId, Amount)> {
        if self.workloads[&workload].holding.is_some() {
            return Vec::new();
        }
        let Some(node) = self.queue(queue).node else { return Vec::new() };
        let whole = self.charge_of(queue, &assignment.usage);
        if assignment.mode() != Mode::Preempt {
            return whole;
        }
        let within_limits = |(cell, amount): (CellId, Amount)| {
            let here = self.forest.cell(node, cell);
            let own = here.quota.nominal - here.usage;
            let amount = match (assignment.borrowing > 0, here.quota.borrowing_limit) {
                (false, _) => amount.min(own).floor(),
                (true, None) => amount,
                (true, Some(limit)) => amount.min(here.quota.nominal + limit - here.usage),
            };
            (cell, amount)
        };
        whole.into_iter().map(within_limits).collect()
    }

    /// Usage by cells of the queue's tree. Unknown cells are omitted.
    pub(crate) fn charge_of(&self, queue: QueueId, usage: &Usage) -> Vec<(CellId, Amount)> {
        let Some(tree) = self.queue(queue).tree else { return Vec::new() };
        usage
            .iter()
            .filter_map(|(key, amount)| self.forest.find_cell(tree, *key).map(|cell| (cell, *amount)))
            .collect()
    }

    /// Adds quota usage at a node.
    pub fn add_usage(&mut self, node: NodeId, cell: CellId, amount: Amount) {
        self.forest.add(node, cell, amount);
    }

    /// Reverses one call of [`Self::add_usage`].
    pub fn remove_usage(&mut self, node: NodeId, cell: CellId, amount: Amount) {
        self.forest.remove(node, cell, amount);
    }

    /// Adds or removes several charges.
    pub(crate) fn count_charges(&mut self, charges: &[(NodeId, CellId, Amount)], used: bool) {
        for (node, cell, amount) in charges {
            if used {
                self.forest.add(*node, *cell, *amount);
            } else {
                self.forest.remove(*node, *cell, *amount);
            }
        }
    }

    /// The cell of a flavor and resource. A new one gets a cell at every node of the tree.
    pub fn cell_id(&mut self, tree: TreeId, key: (FlavorId, ResourceId)) -> CellId {
        self.forest.cell_id(tree, key)
    }
}
