//! Whose turn it is among the heads of one tree, for whoever asks: the order of a cycle, found on a copy of the books.
//!
//! Nothing is decided here and nothing changes. Every queue offers whom it looks at first, asleep or not, because who sleeps
//! is woken by the room that everybody waits for. The copy has no holders, so nobody is displaced in it.

use super::order::Order;
use super::{Cycle, Entry, First, Outcome};
use crate::amount::Amount;
use crate::brain::{Brain, NewWorkload};
use crate::flavors::{Assignment, Mode, groups};
use crate::model::{Displaced, Flavor, Queue, QueueId, ShapeId, WorkloadId};
use crate::names::{FlavorId, Id, ResourceId};
use crate::pending::{Before, Pending};
use crate::places::Anywhere;
use crate::tree::TreeId;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Queues of a tree that are looked at: each costs as much as a head in a cycle.
const CONTENDERS_MAX: usize = 1_000;

/// Who comes first, and what puts it there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Winner {
    /// Who.
    pub workload: WorkloadId,
    /// What puts it before the one that was asked for.
    pub by: First,
}

/// Those who may be served before a workload of what comes free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MayComeFirst {
    /// Of its own queue.
    pub before: usize,
    /// Of other queues.
    pub beside: usize,
    /// What all of them ask for, at most.
    pub asked: i64,
    /// What those ask for who need no more quota than there is declared.
    pub asked_of_quota: i64,
    /// Who comes first in one of the other queues.
    pub other: Option<WorkloadId>,
}

/// Workloads of one shape that wait in a queue.
struct Waiting {
    queue: QueueId,
    /// What each asks for.
    asks: i64,
    about: usize,
    most: usize,
    /// Whether the queue may ever have so much.
    able: bool,
}

impl Waiting {
    fn total(&self) -> i64 {
        self.asks.saturating_mul(i64::try_from(self.most).unwrap_or(i64::MAX))
    }
}

impl Brain {
    /// A copy with the same books of some trees, and nobody in them.
    fn sketch(&self, trees: impl IntoIterator<Item = TreeId>) -> Self {
        let mut sketch = Self::new(self.settings.clone());
        let none = |queue: &Queue| {
            let (holders, ranked, easiest) = Default::default();
            Queue { holders, ranked, easiest, stopping: 0, setup: queue.setup.clone(), ..*queue }
        };
        sketch.take_books(self, &trees.into_iter().collect());
        sketch.queues = self.queues.iter().map(none).collect();
        sketch.pending = vec![Pending::default(); self.pending.len()];
        sketch
    }

    /// A workload of another brain with the same books.
    fn copy(&mut self, of: &Self, id: WorkloadId) -> WorkloadId {
        let one = &of.workloads[&id];
        let shape = self.intern((**of.shape_of(one.shape)).clone());
        let (key, uid, local_queue, marks) =
            (one.key.clone(), one.uid.clone(), one.local_queue.clone(), one.marks.clone());
        let new = NewWorkload { key, uid, queue: one.queue, local_queue, shape, since: one.since, marks };
        let copy = self.wait(new);
        if of.is_preemptor(id) {
            self.pending[one.queue.index()].preemptor = Some(copy);
        }
        copy
    }

    fn tree_of(&self, id: WorkloadId) -> Option<TreeId> {
        self.queue(self.workloads.get(&id)?.queue).tree
    }

    /// What a workload that waits would meet if it were looked at now, nobody being displaced; and the copy of the books that
    /// knows the names in it.
    pub fn would_meet(&self, id: WorkloadId) -> (Self, Entry) {
        let mut sketch = self.sketch(self.tree_of(id));
        let copy = sketch.copy(self, id);
        // For whom others stop goes for no other flavor meanwhile (simulation seed 7004118).
        let begun = self.workloads[&id].displaces_for.as_ref().filter(|_| self.displaces(id));
        if let (Some(begun), Some(of)) = (begun, sketch.workloads.get_mut(copy)) {
            of.displaces_for =
                Some(Box::new(Displaced { flavors: begun.flavors.clone(), victims: Vec::new() }));
            sketch.queues[of.queue.index()].stopping = 1;
        }
        let entry = sketch.look_at(copy);
        (sketch, entry)
    }

    /// The same of one that isn't here, in a queue that is taken for one that admits: as if it weren't stopped, and every flavor
    /// that it names were there, for machines of any kind. `None` where the queue has no place among cohorts.
    pub fn would_meet_in(
        &self,
        queue: QueueId,
        come: impl FnOnce(&mut Self) -> NewWorkload,
    ) -> Option<(Self, Entry)> {
        self.queue(queue).node?;
        let mut sketch = self.sketch(self.queue(queue).tree);
        let mut setup = (*self.queue(queue).setup).clone();
        setup.inactive = None;
        for flavor in setup
            .groups
            .iter()
            .flat_map(|group| &group.flavors)
            .filter(|flavor| self.flavor(**flavor).is_none())
        {
            sketch.set_flavor(*flavor, Some(Flavor::default()));
        }
        sketch.queues[queue.index()].setup = Arc::new(setup);
        let new = come(&mut sketch);
        let one = sketch.wait(new);
        let entry = sketch.look_at(one);
        Some((sketch, entry))
    }

    /// Which of these that wait would get their quota if each alone were looked at when those of `gone` have given back what they
    /// hold.
    pub fn would_fit(&self, all: &[WorkloadId], gone: &[WorkloadId]) -> Vec<bool> {
        let trees: BTreeSet<TreeId> = all.iter().filter_map(|id| self.tree_of(*id)).collect();
        let mut sketch = self.sketch(trees.iter().copied());
        // What ends in other trees changes nothing in these.
        let gone = gone.iter().filter(|id| self.tree_of(**id).is_some_and(|tree| trees.contains(&tree)));
        let holders =
            gone.filter_map(|id| Some((self.node_of(*id)?, self.workloads.get(id)?.holding.as_ref()?)));
        for (node, (cell, amount)) in
            holders.flat_map(|(node, holding)| holding.charge.iter().map(move |part| (node, part)))
        {
            sketch.forest.remove(node, *cell, *amount);
        }
        let copies: Vec<WorkloadId> = all.iter().map(|id| sketch.copy(self, *id)).collect();
        copies.into_iter().map(|copy| sketch.look_at(copy).assignment.mode() == Mode::Fit).collect()
    }

    /// Whether a queue could use so much of a flavor and resource if nobody else did.
    pub fn could_ever_use(&self, queue: QueueId, key: (FlavorId, ResourceId), asks: i64) -> bool {
        let of = self.queue(queue);
        let cell = of.node.zip(of.tree.and_then(|tree| self.forest.find_cell(tree, key)));
        cell.is_some_and(|(node, cell)| Amount(asks) <= self.forest.cell(node, cell).potential)
    }

    /// What a queue could use of a flavor and resource if nobody else did.
    pub fn most(&self, queue: QueueId, key: (FlavorId, ResourceId)) -> i64 {
        let of = self.queue(queue);
        let cell = of.node.zip(of.tree.and_then(|tree| self.forest.find_cell(tree, key)));
        cell.map_or(0, |(node, cell)| self.forest.cell(node, cell).potential.0)
    }

    /// What a queue may use of a flavor and resource now, borrowed or not.
    pub fn free(&self, queue: QueueId, key: (FlavorId, ResourceId)) -> i64 {
        let of = self.queue(queue);
        let cell = of.node.zip(of.tree.and_then(|tree| self.forest.find_cell(tree, key)));
        cell.map_or(0, |(node, cell)| self.forest.available(node, cell).0)
    }

    /// The same, and below zero where more is used than there is quota for: so much more has to come free first.
    pub fn balance(&self, queue: QueueId, key: (FlavorId, ResourceId)) -> i64 {
        let of = self.queue(queue);
        let cell = of.node.zip(of.tree.and_then(|tree| self.forest.find_cell(tree, key)));
        cell.map_or(0, |(node, cell)| self.forest.balance(node, cell).0)
    }

    /// Whether a queue uses more of a flavor and resource than its own quota, so that others may take it back.
    pub fn borrows(&self, queue: QueueId, key: (FlavorId, ResourceId)) -> bool {
        let of = self.queue(queue);
        let cell = of.node.zip(of.tree.and_then(|tree| self.forest.find_cell(tree, key)));
        cell.is_some_and(|(node, cell)| self.forest.borrows(node, cell))
    }

    /// Who, of another queue, would be served before a workload that its own queue looks at first, of what comes free of a
    /// flavor and resource. `None` where nobody would.
    pub fn served_before(&self, id: WorkloadId, key: (FlavorId, ResourceId)) -> Option<Winner> {
        let of = self.workloads.get(&id)?;
        let tree = self.queue(of.queue).tree?;
        let others = self
            .forest
            .tree(tree)
            .queues
            .iter()
            .filter_map(|node| self.queue_at(*node))
            .filter(|queue| *queue != of.queue);
        let others = others.filter(|queue| {
            self.queue(*queue).setup.inactive.is_none() && !self.pending[queue.index()].is_empty()
        });
        let heads: Vec<WorkloadId> =
            others.take(CONTENDERS_MAX).filter_map(|queue| self.front(queue)).collect();
        if heads.is_empty() {
            return None;
        }
        let mut sketch = self.sketch([tree]);
        // As if all that is shared came free, and everybody still had what it has: of that shares are made.
        let root = self.forest.root(self.queue(of.queue).node?);
        for cell in self.forest.cells(root).filter_map(|(key, _)| self.forest.find_cell(tree, key)) {
            let used = self.forest.cell(root, cell).usage;
            sketch.forest.remove(root, cell, used);
        }
        let all: Vec<(WorkloadId, WorkloadId)> =
            std::iter::once(id).chain(heads).map(|id| (id, sketch.copy(self, id))).collect();
        let takes = |assignment: &Assignment| {
            assignment.mode() != Mode::NoFit
                && assignment.usage.iter().any(|(of, amount)| *of == key && *amount > Amount::ZERO)
        };
        let copies: Vec<WorkloadId> = all.iter().map(|(_, copy)| *copy).collect();
        let (copy, by) = sketch.first_of(&copies, takes)?;
        let workload = all.iter().find(|(_, of)| *of == copy).map(|(id, _)| *id)?;
        (workload != id).then_some(Winner { workload, by })
    }

    /// Queues of a workload's tree, other than its own, that may be given this flavor of this resource.
    fn beside(
        &self,
        id: WorkloadId,
        (flavor, resource): (FlavorId, ResourceId),
    ) -> impl Iterator<Item = QueueId> {
        let of = self.workloads.get(&id).and_then(|of| Some((of.queue, self.queue(of.queue).tree?)));
        let all = of.into_iter().flat_map(|(mine, tree)| {
            let others = self.forest.tree(tree).queues.iter().filter_map(|node| self.queue_at(*node));
            others.filter(move |queue| *queue != mine)
        });
        all.filter(move |queue| {
            let setup = &self.queue(*queue).setup;
            setup.inactive.is_none()
                && setup.group_of(resource).is_some_and(|group| group.flavors.contains(&flavor))
        })
    }

    /// What those pods of a shape ask for of a resource who may be given it in this flavor, by what they select and tolerate.
    fn asks_of(&self, queue: QueueId, shape: ShapeId, (flavor, resource): (FlavorId, ResourceId)) -> i64 {
        let (of, group) = (self.shape_of(shape), self.queue(queue).setup.group_of(resource));
        let Some(group) = group.filter(|_| self.asks(shape, resource) > 0) else { return 0 };
        let may_be = |sets: &Vec<usize>| self.unsuitable(queue, of, sets, group, flavor).is_none();
        let asks = |sets: Vec<usize>| {
            sets.iter().map(|set| self.asks_in(of, *set, resource)).fold(0, i64::saturating_add)
        };
        groups(of).into_iter().filter(may_be).map(asks).fold(0, i64::saturating_add)
    }

    /// Those who wait before a workload, in its queue or in others, and may be served first of what comes free of a flavor and
    /// resource: who asks for more than there ever is takes nothing, unless that much comes free for the others.
    pub fn may_come_first(
        &self,
        id: WorkloadId,
        key: (FlavorId, ResourceId),
        before: Option<&Before<'_>>,
    ) -> MayComeFirst {
        let Some(of) = self.workloads.get(&id) else { return MayComeFirst::default() };
        let one = |queue: QueueId, shape: ShapeId, (about, most): (usize, usize)| {
            let asks = self.asks_of(queue, shape, key);
            let fewer = self.shape_of(shape).may_shrink();
            Waiting { queue, asks, about, most, able: fewer || self.could_ever_use(queue, key, asks) }
        };
        let mine = before.into_iter().flat_map(Before::each).map(|(shape, n)| one(of.queue, shape, n));
        let theirs = self
            .beside(id, key)
            .flat_map(|queue| self.waiting_in(queue).map(move |(shape, n)| one(queue, shape, (n, n))));
        let all: Vec<Waiting> =
            mine.chain(theirs).filter(|waiting| waiting.asks > 0 && waiting.most > 0).collect();
        let (mut able, mut rest): (Vec<Waiting>, Vec<Waiting>) =
            all.into_iter().partition(|waiting| waiting.able);
        let sum = |able: &[Waiting]| able.iter().map(Waiting::total).fold(0, i64::saturating_add);
        let asked_of_quota = sum(&able);
        loop {
            let comes = self.asks(of.shape, key.1).saturating_add(sum(&able));
            let (more, left): (Vec<Waiting>, Vec<Waiting>) =
                rest.into_iter().partition(|waiting| waiting.asks <= comes);
            rest = left;
            if more.is_empty() {
                break;
            }
            able.extend(more);
        }
        let count = |own: bool| {
            able.iter()
                .filter(|waiting| (waiting.queue == of.queue) == own)
                .map(|waiting| waiting.about)
                .sum()
        };
        let other = able.iter().map(|waiting| waiting.queue).find(|queue| *queue != of.queue);
        MayComeFirst {
            before: count(true),
            beside: count(false),
            asked: sum(&able),
            asked_of_quota,
            other: other.and_then(|queue| self.front(queue)),
        }
    }

    /// Whether a workload could use what its queue might ever have of a flavor and resource.
    pub fn may_ever_fit(&self, id: WorkloadId, key: (FlavorId, ResourceId)) -> bool {
        self.workloads
            .get(&id)
            .is_some_and(|of| self.could_ever_use(of.queue, key, self.asks(of.shape, key.1)))
    }

    /// Who is processed first of these heads, but for those that `counts` says don't matter, and what puts it before the first
    /// of them. `None` where that one itself doesn't count.
    fn first_of(
        &mut self,
        heads: &[WorkloadId],
        counts: impl Fn(&Assignment) -> bool,
    ) -> Option<(WorkloadId, First)> {
        let chosen: Vec<(WorkloadId, bool)> = heads.iter().map(|id| (*id, false)).collect();
        let mut anywhere = Anywhere;
        let mut cycle = Cycle::new(self, &mut anywhere);
        let mut entries = cycle.nominate(&chosen);
        entries.retain(|entry| entry.outcome != Outcome::Rejected && counts(&entry.assignment));
        let asked = entries.iter().position(|entry| Some(&entry.workload) == heads.first())?;
        let (first, by) = Order::new(self, &entries).first(self, &entries, asked)?;
        Some((entries[first].workload, by))
    }

    /// What a workload would meet as the books are now.
    fn look_at(&mut self, id: WorkloadId) -> Entry {
        let queue = self.workloads[&id].queue;
        let mut anywhere = Anywhere;
        let mut cycle = Cycle::new(self, &mut anywhere);
        cycle.nominate(&[(id, false)]).pop().unwrap_or_else(|| Entry::new(id, queue, false))
    }
}
