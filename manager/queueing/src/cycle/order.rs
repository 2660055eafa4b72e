//! In which order the heads of one cycle are processed.

use super::Entry;
use crate::amount::Amount;
use crate::brain::Brain;
use crate::model::QueueId;
use crate::names::Id;
use crate::settings::Gates;
use crate::share::Share;
use crate::tree::{CellId, NodeId};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// What an entry is ordered by, where shares don't count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// It holds quota already.
    pub holds: bool,
    /// It makes others give way already.
    pub preemptor: bool,
    /// From how far away its quota comes.
    pub borrowing: u32,
    /// Its priority.
    pub priority: i64,
    /// Its place in time.
    pub since: i64,
}

/// What puts one entry before another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum First {
    /// It holds quota already.
    Holds,
    /// Others stop for it already.
    Displaces,
    /// It borrows nothing, or from less far away.
    BorrowsLess,
    /// Its share would be this, and the other's that.
    Share(Share, Share),
    /// Its priority.
    Priority,
    /// Its age.
    Age,
}

/// Who is processed first: who holds quota already, who borrows least, who matters most, who is oldest.
pub fn classical_order(a: &Rank, b: &Rank, gates: &Gates) -> Ordering {
    classical(a, b, gates).0
}

fn classical(a: &Rank, b: &Rank, gates: &Gates) -> (Ordering, First) {
    let levels = [
        (b.holds.cmp(&a.holds), First::Holds),
        (
            if gates.prioritize_preemptors { b.preemptor.cmp(&a.preemptor) } else { Ordering::Equal },
            First::Displaces,
        ),
        (a.borrowing.cmp(&b.borrowing), First::BorrowsLess),
        (
            if gates.priority_sorting_within_cohort { b.priority.cmp(&a.priority) } else { Ordering::Equal },
            First::Priority,
        ),
    ];
    levels.into_iter().find(|(order, _)| order.is_ne()).unwrap_or((a.since.cmp(&b.since), First::Age))
}

/// An entry's standing at one level of a tournament: the share of the node that stands for it there, with the entry admitted.
#[derive(Clone, Copy)]
struct Standing {
    share: Share,
    /// Whether that node would borrow something that the entry asks for.
    borrows: bool,
}

/// Gives out the entries one after another.
pub(super) enum Order {
    Classical(std::vec::IntoIter<usize>),
    Fair(Fair),
}

/// Tournaments per tree.
pub(super) struct Fair {
    /// Entries left, by the node of their queue.
    left: BTreeMap<NodeId, Vec<usize>>,
    ranks: Vec<Rank>,
    /// Standings of each entry from its queue up to below the root; empty where they have to be found anew.
    standings: Vec<Vec<Standing>>,
    usage: Vec<Vec<(CellId, Amount)>>,
}

fn rank(brain: &Brain, entry: &Entry) -> Rank {
    let workload = &brain.workloads[&entry.workload];
    Rank {
        holds: workload.holding.is_some(),
        preemptor: brain.is_preemptor(entry.workload),
        borrowing: entry.assignment.borrowing,
        priority: brain.priority_of(workload),
        since: workload.since,
    }
}

impl Order {
    pub(super) fn new(brain: &Brain, entries: &[Entry]) -> Self {
        let ranks: Vec<Rank> = entries.iter().map(|e| rank(brain, e)).collect();
        if brain.settings.fair_sharing.is_none() {
            let mut order: Vec<usize> = (0..entries.len()).collect();
            order.sort_by(|a, b| classical_order(&ranks[*a], &ranks[*b], &brain.settings.gates));
            return Self::Classical(order.into_iter());
        }
        let mut left: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
        for (at, entry) in entries.iter().enumerate().rev() {
            if let Some(node) = brain.queue(entry.queue).node {
                left.entry(node).or_default().push(at);
            }
        }
        let usage = entries.iter().map(|e| net_usage(brain, e)).collect();
        Self::Fair(Fair { left, ranks, standings: vec![Vec::new(); entries.len()], usage })
    }

    pub(super) fn pop(&mut self, brain: &mut Brain, _: &[Option<Entry>]) -> Option<usize> {
        match self {
            Self::Classical(order) => order.next(),
            Self::Fair(fair) => fair.pop(brain),
        }
    }
}

fn net_usage(brain: &Brain, entry: &Entry) -> Vec<(CellId, Amount)> {
    if brain.workloads[&entry.workload].holding.is_some() {
        return Vec::new();
    }
    crate::flavors::charge(brain, entry.queue, &entry.assignment.usage)
}

impl Fair {
    fn pop(&mut self, brain: &mut Brain) -> Option<usize> {
        let first = *self.left.first_key_value()?.0;
        let root = brain.forest.root(first);
        let winner = if root == first {
            first
        } else {
            self.stand(brain, root);
            self.tournament(brain, root)?
        };
        let at = self.left.get_mut(&winner)?.pop()?;
        if self.left[&winner].is_empty() {
            self.left.remove(&winner);
        }
        self.unsettle(brain, winner, root);
        Some(at)
    }

    fn head(&self, node: NodeId) -> Option<usize> {
        self.left.get(&node).and_then(|entries| entries.last().copied())
    }

    /// Finds the standings that aren't known.
    fn stand(&mut self, brain: &mut Brain, root: NodeId) {
        let tree = brain.forest.node(root).tree;
        for node in brain.forest.tree(tree).queues.clone() {
            let Some(at) = self.head(node) else { continue };
            if !self.standings[at].is_empty() {
                continue;
            }
            for (cell, amount) in &self.usage[at] {
                brain.forest.add(node, *cell, *amount);
            }
            let path: Vec<NodeId> = std::iter::once(node).chain(brain.forest.ancestors(node)).collect();
            self.standings[at] = path[..path.len() - 1]
                .iter()
                .map(|n| Standing {
                    share: brain.forest.share(*n),
                    borrows: self.usage[at].iter().any(|(cell, amount)| {
                        let here = brain.forest.cell(*n, *cell);
                        *amount > Amount::ZERO && here.declared && here.borrows_with(Amount::ZERO)
                    }),
                })
                .collect();
            for (cell, amount) in &self.usage[at] {
                brain.forest.remove(node, *cell, *amount);
            }
        }
    }

    /// Forgets the standings that an admission at `winner` may change: those of entries below the same child of the root.
    fn unsettle(&mut self, brain: &Brain, winner: NodeId, root: NodeId) {
        let top =
            std::iter::once(winner).chain(brain.forest.ancestors(winner)).take_while(|n| *n != root).last();
        for (node, entries) in &self.left {
            let theirs =
                std::iter::once(*node).chain(brain.forest.ancestors(*node)).take_while(|n| *n != root).last();
            if theirs == top {
                for at in entries {
                    self.standings[*at].clear();
                }
            }
        }
    }

    /// The queue whose entry wins below a cohort.
    fn tournament(&self, brain: &Brain, cohort: NodeId) -> Option<NodeId> {
        let node = brain.forest.node(cohort);
        let below = node.cohorts.iter().filter_map(|child| self.tournament(brain, *child));
        let own = node.queues.iter().copied().filter(|queue| self.left.contains_key(queue));
        let depth = |queue: NodeId| brain.forest.ancestors(queue).position(|at| at == cohort).unwrap_or(0);
        below.chain(own).reduce(|best, current| {
            let (a, b) = (self.head(current), self.head(best));
            let better = a
                .zip(b)
                .is_some_and(|(a, b)| self.less(a, depth(current), b, depth(best), &brain.settings.gates));
            if better { current } else { best }
        })
    }

    fn less(&self, a: usize, a_depth: usize, b: usize, b_depth: usize, gates: &Gates) -> bool {
        self.compare(a, a_depth, b, b_depth, gates).is_some_and(|(order, _)| order.is_lt())
    }

    fn compare(
        &self,
        a: usize,
        a_depth: usize,
        b: usize,
        b_depth: usize,
        gates: &Gates,
    ) -> Option<(Ordering, First)> {
        let (x, y) = (&self.ranks[a], &self.ranks[b]);
        if gates.prioritize_preemptors && x.preemptor != y.preemptor {
            return Some((y.preemptor.cmp(&x.preemptor), First::Displaces));
        }
        let (s, t) = (self.standings[a].get(a_depth)?, self.standings[b].get(b_depth)?);
        if gates.fair_prioritize_non_borrowing && s.borrows != t.borrows {
            return Some((s.borrows.cmp(&t.borrows), First::BorrowsLess));
        }
        let order = s.share.order(&t.share);
        if order.is_ne() {
            return Some((order, First::Share(s.share, t.share)));
        }
        if gates.priority_sorting_within_cohort && x.priority != y.priority {
            return Some((y.priority.cmp(&x.priority), First::Priority));
        }
        Some((x.since.cmp(&y.since), First::Age))
    }

    /// What puts one queue's entry before another's, where they meet.
    fn first(&self, brain: &Brain, a: usize, b: usize, nodes: (NodeId, NodeId)) -> Option<First> {
        let above: Vec<NodeId> = brain.forest.ancestors(nodes.0).collect();
        let (b_depth, cohort) =
            brain.forest.ancestors(nodes.1).enumerate().find(|(_, node)| above.contains(node))?;
        let a_depth = above.iter().position(|node| *node == cohort)?;
        self.compare(a, a_depth, b, b_depth, &brain.settings.gates).map(|(_, first)| first)
    }
}

impl Order {
    /// Which entry comes first of all, and what puts it before the one `than` where that is another one.
    pub(crate) fn first(
        mut self,
        brain: &mut Brain,
        entries: &[Entry],
        than: usize,
    ) -> Option<(usize, First)> {
        let first = match &mut self {
            Self::Classical(order) => order.next()?,
            Self::Fair(fair) => {
                let root = brain.forest.root(*fair.left.first_key_value()?.0);
                fair.stand(brain, root);
                let winner = fair.tournament(brain, root)?;
                fair.head(winner)?
            }
        };
        let why = match &self {
            Self::Classical(_) => {
                classical(&rank(brain, &entries[first]), &rank(brain, &entries[than]), &brain.settings.gates)
                    .1
            }
            Self::Fair(fair) => {
                let nodes =
                    brain.queue(entries[first].queue).node.zip(brain.queue(entries[than].queue).node)?;
                fair.first(brain, first, than, nodes).unwrap_or(First::Age)
            }
        };
        Some((first, why))
    }
}

impl Brain {
    /// Queues of a tree, for who walks it.
    pub fn queues_below(&self, node: NodeId) -> Vec<QueueId> {
        let tree = self.forest.node(node).tree;
        self.forest.tree(tree).queues.iter().filter_map(|n| self.queue_of_node[n.index()]).collect()
    }
}
