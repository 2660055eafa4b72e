//! What is left for an entry once those before it in the cycle took and gave back theirs.

use super::{Cycle, Entry};
use crate::amount::Amount;
use crate::model::{Displaces, WorkloadId};
use crate::preempt::Target;
use crate::tree::{CellId, Forest, NodeId};
use std::collections::BTreeSet;

impl Cycle<'_> {
    /// Whether the entry fits in quota, and whether its places are free, once all victims so far and its own are gone.
    pub(super) fn fits(&mut self, entry: &Entry) -> (bool, bool) {
        let Some(node) = self.brain.node_of(entry.workload) else { return (false, false) };
        let asks = self.net_charge(entry);
        let topology = self.brain.settings.gates.topology;
        if !topology && self.is_available(node, &asks) {
            // What others give back makes it no less.
            return (true, true);
        }
        if entry.targets.is_empty() && self.is_exhausted(node, &asks) {
            return (false, false);
        }
        let own: BTreeSet<WorkloadId> =
            entry.targets.iter().map(|t| t.workload).filter(|own| !self.victims.contains(own)).collect();
        self.count_victims(false);
        own.iter().for_each(|victim| self.brain.suspend_usage(*victim));
        let quota = self.is_available(node, &asks);
        let placed = quota && self.brain.still_free(entry.workload, &entry.assignment);
        if entry.targets.is_empty() {
            self.note_left(node, &asks);
        }
        own.iter().for_each(|victim| self.brain.resume_usage(*victim));
        self.count_victims(true);
        (quota, placed)
    }

    /// Notes what the node above leaves as the books are now.
    fn note_left(&mut self, node: NodeId, asks: &[(CellId, Amount)]) {
        let Some(parent) = self.brain.forest.node(node).parent else { return };
        for (cell, _) in asks {
            self.left.retain(|(of, at, _)| (*of, *at) != (parent, *cell));
            self.left.push((parent, *cell, self.brain.forest.balance(parent, *cell)));
        }
    }

    /// Whether others of the cohort, looked at before, found less there than a queue that keeps nothing for itself asks for.
    fn is_exhausted(&self, node: NodeId, asks: &[(CellId, Amount)]) -> bool {
        let parent = self.brain.forest.node(node).parent;
        asks.iter().any(|(cell, amount)| {
            let keeps_nothing = self.brain.forest.cell(node, *cell).keeps_nothing();
            keeps_nothing
                && *amount > Amount::ZERO
                && self.left.iter().any(|(of, at, left)| Some(*of) == parent && at == cell && left < amount)
        })
    }

    /// More give back what they hold.
    pub(super) fn add_victims(&mut self, targets: &[Target]) {
        for Target { workload, .. } in targets {
            if !self.victims.insert(*workload) {
                continue;
            }
            let held = self.brain.node_of(*workload).zip(self.brain.workloads[workload].holding.as_ref());
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
            self.left.clear();
        }
    }

    /// Counts what the victims of this cycle hold as used, or not. What each queue's hold together comes to the same as one after
    /// the other.
    pub(super) fn count_victims(&mut self, used: bool) {
        count(&mut self.brain.forest, &self.freed, used);
        if self.brain.topologies.knows_any() {
            self.victims.iter().for_each(|victim| self.brain.place_usage(*victim, used));
        }
    }

    pub(super) fn is_available(&self, node: NodeId, asks: &[(CellId, Amount)]) -> bool {
        asks.iter().all(|(cell, amount)| *amount <= self.brain.forest.available(node, *cell))
    }

    /// Whether the quota is free while the victims of this cycle still hold theirs. What is only kept for others doesn't count
    /// here: that it is left for them was checked before.
    pub(super) fn is_free_now(&mut self, entry: &Entry) -> bool {
        let Some(node) = self.brain.node_of(entry.workload) else { return false };
        let asks = self.net_charge(entry);
        if self.is_available(node, &asks) {
            // Nor without what others of this cycle took.
            return true;
        }
        self.count_borrowed(false);
        let free = self.is_available(node, &asks);
        self.count_borrowed(true);
        free
    }

    /// Keeps room for an entry that nobody may be displaced for, so that others don't take it first.
    pub(super) fn keep_room(&mut self, entry: &Entry) {
        let setup = self.brain.queue(entry.queue).setup.clone();
        let preempts =
            self.brain.settings.gates.prioritize_preemptors && self.brain.is_preemptor(entry.workload);
        let preempts = preempts || self.brain.starves(entry.workload);
        if setup.preemption.reclaim_within_cohort == Displaces::Any && !preempts {
            return;
        }
        let Some(node) = self.brain.node_of(entry.workload) else { return };
        // A queue that uses more than it may, since its quota was lowered, keeps nothing.
        for (cell, amount) in self.brain.room_to_keep(entry.workload, entry.queue, &entry.assignment) {
            let amount = amount.floor();
            self.brain.forest.add(node, cell, amount);
            self.borrowed.kept.push((node, cell, amount));
        }
        self.brain.place_assignment(entry.workload, &entry.assignment, true);
        self.borrowed.places.push((entry.workload, entry.assignment.clone()));
    }

    /// Counts what entries of this cycle took and keep as used, or not.
    pub(super) fn count_borrowed(&mut self, used: bool) {
        count(&mut self.brain.forest, &self.borrowed.charges, used);
        self.count_kept(used);
    }

    /// Counts what is only kept as used, or not.
    pub(super) fn count_kept(&mut self, used: bool) {
        count(&mut self.brain.forest, &self.borrowed.kept, used);
    }
}

fn count(forest: &mut Forest, charges: &[(NodeId, CellId, Amount)], used: bool) {
    for (node, cell, amount) in charges {
        if used {
            forest.add(*node, *cell, *amount);
        } else {
            forest.remove(*node, *cell, *amount);
        }
    }
}
