//! Quota and usage during a cycle: amounts that previous entries took, and amounts that their victims will
//! release.

use crate::amount::Amount;
use crate::cycle::{Cycle, CycleEntry};
use crate::model::{PreemptionRule, Target, WorkloadId};
use crate::quota::{CellId, NodeId};
use std::collections::BTreeSet;

/// Whether an entry fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryFit {
    /// Quota is available.
    pub(super) quota: bool,
    /// The domains of its topology assignment have enough capacity.
    pub(super) placed: bool,
}

impl EntryFit {
    pub(super) fn is_full(self) -> bool {
        self.quota && self.placed
    }
}

impl Cycle<'_> {
    /// Whether quota and domains are available to the entry after all victims so far and its own are gone.
    pub(super) fn fits(&mut self, entry: &CycleEntry) -> EntryFit {
        let Some(node) = self.state.node_of(entry.workload) else {
            return EntryFit { quota: false, placed: false };
        };
        let asks = self.net_charge(entry);
        let topology = self.state.settings().gates.topology;
        if !topology && self.is_available(node, &asks) {
            // It fits already, and released quota can't change that.
            return EntryFit { quota: true, placed: true };
        }
        if entry.targets.is_empty() && self.is_exhausted(node, &asks) {
            return EntryFit { quota: false, placed: false };
        }
        let own: BTreeSet<WorkloadId> =
            entry.targets.iter().map(|t| t.workload).filter(|own| !self.victims.contains(own)).collect();
        self.count_victims(false);
        own.iter().for_each(|victim| self.state.suspend_usage(*victim));
        let quota = self.is_available(node, &asks);
        let placed = quota && self.state.still_free(entry.workload, &entry.assignment);
        if entry.targets.is_empty() {
            self.note_left(node, &asks);
        }
        own.iter().for_each(|victim| self.state.resume_usage(*victim));
        self.count_victims(true);
        EntryFit { quota, placed }
    }

    /// Records what the parent node leaves in the current state.
    fn note_left(&mut self, node: NodeId, asks: &[(CellId, Amount)]) {
        let Some(parent) = self.state.forest().node(node).parent else { return };
        for (cell, _) in asks {
            self.known_left.retain(|(of, at, _)| (*of, *at) != (parent, *cell));
            self.known_left.push((parent, *cell, self.state.forest().balance(parent, *cell)));
        }
    }

    /// Whether the parent is known to have less left than the request of a queue that lends all its quota.
    fn is_exhausted(&self, node: NodeId, asks: &[(CellId, Amount)]) -> bool {
        let parent = self.state.forest().node(node).parent;
        asks.iter().any(|(cell, amount)| {
            let keeps_nothing = self.state.forest().cell(node, *cell).keeps_nothing();
            keeps_nothing
                && *amount > Amount::ZERO
                && self
                    .known_left
                    .iter()
                    .any(|(of, at, left)| Some(*of) == parent && at == cell && left < amount)
        })
    }

    /// Adds victims. Their usage counts as released.
    pub(super) fn add_victims(&mut self, targets: &[Target]) {
        for Target { workload, .. } in targets {
            if !self.victims.insert(*workload) {
                continue;
            }
            let held = self.state.node_of(*workload).zip(self.state.get(workload).holding.as_ref());
            for (node, (cell, amount)) in
                held.into_iter().flat_map(|(node, holding)| holding.charge.iter().map(move |of| (node, *of)))
            {
                match self.freed.binary_search_by_key(&(node, cell), |(node, cell, _)| (*node, *cell)) {
                    Ok(at) => self.freed[at].2 = self.freed[at].2 + amount,
                    Err(at) => self.freed.insert(at, (node, cell, amount)),
                }
            }
        }
        if !targets.is_empty() {
            self.known_left.clear();
        }
    }

    /// Adds or removes the usage of the victims of this cycle. Their usage is summed per queue first, which
    /// gives the same result.
    pub(super) fn count_victims(&mut self, used: bool) {
        self.state.count_charges(&self.freed, used);
        if self.state.topologies().knows_any() {
            self.state.place_usages(&self.victims, used);
        }
    }

    pub(super) fn is_available(&self, node: NodeId, asks: &[(CellId, Amount)]) -> bool {
        asks.iter().all(|(cell, amount)| *amount <= self.state.forest().available(node, *cell))
    }

    /// Whether quota is available while the victims of this cycle still hold theirs. Ignores reserved quota,
    /// which was checked before.
    pub(super) fn is_free_now(&mut self, entry: &CycleEntry) -> bool {
        let Some(node) = self.state.node_of(entry.workload) else { return false };
        let asks = self.net_charge(entry);
        if self.is_available(node, &asks) {
            // Quota that is available beside the other entries' usage is also available without it.
            return true;
        }
        self.count_temporary(false);
        let free = self.is_available(node, &asks);
        self.count_temporary(true);
        free
    }

    /// Reserves quota for an entry without candidates, so that other entries don't take it first.
    pub(super) fn reserve_for(&mut self, entry: &CycleEntry) {
        let setup = &self.state.queue(entry.queue).setup;
        let is_preemptor =
            self.state.settings().gates.prioritize_preemptors && self.state.is_preemptor(entry.workload);
        let comes_first = is_preemptor || self.state.is_starved(entry.workload);
        if setup.preemption.reclaim_within_cohort == PreemptionRule::Any && !comes_first {
            return;
        }
        let Some(node) = self.state.node_of(entry.workload) else { return };
        // A queue above its limit, because its quota was lowered, reserves nothing.
        for (cell, amount) in self.state.quota_to_reserve(entry.workload, entry.queue, &entry.assignment) {
            let amount = amount.floor();
            self.state.add_usage(node, cell, amount);
            self.temporary.reserved.push((node, cell, amount));
        }
        self.state.place_assignment(entry.workload, &entry.assignment, true);
        self.temporary.assignments.push((entry.workload, entry.assignment.clone()));
    }

    /// Adds or removes the quota that entries of this cycle took and reserved.
    pub(super) fn count_temporary(&mut self, used: bool) {
        self.state.count_charges(&self.temporary.charges, used);
        self.count_reserved(used);
    }

    /// Adds or removes the quota that is only reserved.
    pub(super) fn count_reserved(&mut self, used: bool) {
        self.state.count_charges(&self.temporary.reserved, used);
    }

    /// Like [`Self::count_reserved`], but does nothing if reserved quota `counts`.
    pub(super) fn count_reserved_unless(&mut self, counts: bool, used: bool) {
        if !counts {
            self.count_reserved(used);
        }
    }

    /// Takes the quota that the entry needs, until the cycle ends.
    pub(super) fn take(&mut self, entry: &CycleEntry) {
        let taken = self.charge(entry);
        self.temporary.charges.extend(taken);
    }

    /// Reserves the quota that the entry needs until the cycle ends. The quota becomes free when the victims
    /// of others are gone.
    pub(super) fn reserve_all(&mut self, entry: &CycleEntry) {
        let taken = self.charge(entry);
        self.temporary.reserved.extend(taken);
    }

    /// Counts what the entry needs in addition. What it will give back, as a smaller slice, isn't counted: it
    /// is free only once the larger slice has ended.
    fn charge(&mut self, entry: &CycleEntry) -> Vec<(NodeId, CellId, Amount)> {
        let Some(node) = self.state.node_of(entry.workload) else { return Vec::new() };
        let needed = |(cell, amount): (CellId, Amount)| (node, cell, amount.max(Amount::ZERO));
        let charges: Vec<_> = self.net_charge(entry).into_iter().map(needed).collect();
        self.state.count_charges(&charges, true);
        self.state.place_assignment(entry.workload, &entry.assignment, true);
        self.temporary.assignments.push((entry.workload, entry.assignment.clone()));
        charges
    }

    /// Additional quota usage of the entry. Empty if the workload already holds quota.
    fn net_charge(&self, entry: &CycleEntry) -> Vec<(CellId, Amount)> {
        if self.state.get(&entry.workload).holding.is_some() {
            return Vec::new();
        }
        self.state.charge_of(entry.queue, &entry.assignment.usage)
    }
}
