//! The order in which the entries of a cycle are processed.

use crate::amount::Amount;
use crate::cycle::CycleEntry;
use crate::queue_state::QueueState;
use crate::quota::{CellId, NodeId, Share};
use crate::settings::Gates;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Sort key of an entry without fair sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryKey {
    /// Whether it holds quota already.
    pub holds: bool,
    /// Whether it is the preemptor of its queue.
    pub preemptor: bool,
    /// Height of the subtree that provides the quota; 0 if the queue doesn't borrow.
    pub borrowing: u32,
    pub priority: i64,
    /// Position in time.
    pub since: i64,
}

/// Why one entry precedes another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Precedence {
    /// The workload holds quota already.
    Holds,
    /// The workload's victims are stopping already.
    Preempting,
    /// The workload doesn't borrow, or borrows from a lower subtree.
    BorrowsLess,
    /// The entry's share would be smaller. Has the shares of this entry and of the other one, each as if that
    /// entry were admitted.
    Share(Share, Share),
    Priority,
    Age,
}

/// Order without fair sharing: holders first, then by borrowing, priority and age.
pub fn classical_order(a: &EntryKey, b: &EntryKey, gates: &Gates) -> Ordering {
    classical(a, b, gates).0
}

fn classical(a: &EntryKey, b: &EntryKey, gates: &Gates) -> (Ordering, Precedence) {
    let levels = [
        (b.holds.cmp(&a.holds), Precedence::Holds),
        (
            if gates.prioritize_preemptors { b.preemptor.cmp(&a.preemptor) } else { Ordering::Equal },
            Precedence::Preempting,
        ),
        (a.borrowing.cmp(&b.borrowing), Precedence::BorrowsLess),
        (
            if gates.priority_sorting_within_cohort { b.priority.cmp(&a.priority) } else { Ordering::Equal },
            Precedence::Priority,
        ),
    ];
    levels.into_iter().find(|(order, _)| order.is_ne()).unwrap_or((a.since.cmp(&b.since), Precedence::Age))
}

/// An entry at one level of a tournament: the state of its ancestor there if the entry were admitted.
#[derive(Clone, Copy)]
struct TournamentState {
    share: Share,
    /// Whether the ancestor would borrow anything that the entry requests.
    borrows: bool,
}

/// Yields the entries in order.
pub(crate) enum EntryOrder {
    Classical(std::vec::IntoIter<usize>),
    Tournament(Tournament),
}

/// One tournament per tree.
pub(crate) struct Tournament {
    /// Remaining entries, by the node of their queue.
    left: BTreeMap<NodeId, Vec<usize>>,
    ranks: Vec<EntryKey>,
    /// Tournament state of each entry from its queue up to below the root. Empty if it must be computed.
    states: Vec<Vec<TournamentState>>,
    usage: Vec<Vec<(CellId, Amount)>>,
}

fn rank(state: &QueueState, entry: &CycleEntry) -> EntryKey {
    let workload = state.get(&entry.workload);
    EntryKey {
        holds: workload.holding.is_some(),
        preemptor: state.is_preemptor(entry.workload),
        borrowing: entry.assignment.borrowing,
        priority: state.priority_of(workload),
        since: workload.since,
    }
}

impl EntryOrder {
    pub(crate) fn new(state: &QueueState, entries: &[CycleEntry]) -> Self {
        let ranks: Vec<EntryKey> = entries.iter().map(|e| rank(state, e)).collect();
        if state.settings().fair_sharing.is_none() {
            let mut order: Vec<usize> = (0..entries.len()).collect();
            order.sort_by(|a, b| classical_order(&ranks[*a], &ranks[*b], &state.settings().gates));
            return Self::Classical(order.into_iter());
        }
        let mut left: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
        for (at, entry) in entries.iter().enumerate().rev() {
            if let Some(node) = state.queue(entry.queue).node {
                left.entry(node).or_default().push(at);
            }
        }
        let usage = entries.iter().map(|e| net_usage(state, e)).collect();
        Self::Tournament(Tournament { left, ranks, states: vec![Vec::new(); entries.len()], usage })
    }

    pub(super) fn pop(&mut self, state: &mut QueueState) -> Option<usize> {
        match self {
            Self::Classical(order) => order.next(),
            Self::Tournament(tournament) => tournament.pop(state),
        }
    }

    /// The first entry, and why it precedes `than`.
    pub(crate) fn first(
        mut self,
        state: &mut QueueState,
        entries: &[CycleEntry],
        than: usize,
    ) -> Option<(usize, Precedence)> {
        let first = match &mut self {
            Self::Classical(order) => order.next()?,
            Self::Tournament(tournament) => {
                let root = state.forest().root(*tournament.left.first_key_value()?.0);
                tournament.compute_states(state, root);
                let winner = tournament.winner_below(state, root)?;
                tournament.head(winner)?
            }
        };
        let why = match &self {
            Self::Classical(_) => {
                let (one, other) = (rank(state, &entries[first]), rank(state, &entries[than]));
                classical(&one, &other, &state.settings().gates).1
            }
            Self::Tournament(tournament) => {
                let (a, b) = (state.queue(entries[first].queue), state.queue(entries[than].queue));
                tournament.precedence(state, (first, a.node?), (than, b.node?)).unwrap_or(Precedence::Age)
            }
        };
        Some((first, why))
    }
}

fn net_usage(state: &QueueState, entry: &CycleEntry) -> Vec<(CellId, Amount)> {
    if state.get(&entry.workload).holding.is_some() {
        return Vec::new();
    }
    state.charge_of(entry.queue, &entry.assignment.usage)
}

impl Tournament {
    fn pop(&mut self, state: &mut QueueState) -> Option<usize> {
        let first = *self.left.first_key_value()?.0;
        let root = state.forest().root(first);
        let winner = if root == first {
            first
        } else {
            self.compute_states(state, root);
            self.winner_below(state, root)?
        };
        let at = self.left.get_mut(&winner)?.pop()?;
        if self.left[&winner].is_empty() {
            self.left.remove(&winner);
        }
        self.invalidate(state, winner, root);
        Some(at)
    }

    fn head(&self, node: NodeId) -> Option<usize> {
        self.left.get(&node).and_then(|entries| entries.last().copied())
    }

    /// Computes missing tournament states.
    fn compute_states(&mut self, state: &mut QueueState, root: NodeId) {
        let tree = state.forest().node(root).tree;
        for node in state.forest().tree(tree).queues.clone() {
            let Some(at) = self.head(node) else { continue };
            if !self.states[at].is_empty() {
                continue;
            }
            for (cell, amount) in &self.usage[at] {
                state.add_usage(node, *cell, *amount);
            }
            let path: Vec<NodeId> = std::iter::once(node).chain(state.forest().ancestors(node)).collect();
            self.states[at] = path[..path.len() - 1]
                .iter()
                .map(|n| TournamentState {
                    share: state.forest().share(*n),
                    borrows: self.usage[at].iter().any(|(cell, amount)| {
                        let here = state.forest().cell(*n, *cell);
                        *amount > Amount::ZERO && here.declared && here.borrows_with(Amount::ZERO)
                    }),
                })
                .collect();
            for (cell, amount) in &self.usage[at] {
                state.remove_usage(node, *cell, *amount);
            }
        }
    }

    /// Drops tournament states that an admission at `winner` may change: those below the same child of the
    /// root.
    fn invalidate(&mut self, state: &QueueState, winner: NodeId, root: NodeId) {
        let top =
            std::iter::once(winner).chain(state.forest().ancestors(winner)).take_while(|n| *n != root).last();
        for (node, entries) in &self.left {
            let theirs = std::iter::once(*node)
                .chain(state.forest().ancestors(*node))
                .take_while(|n| *n != root)
                .last();
            if theirs == top {
                for at in entries {
                    self.states[*at].clear();
                }
            }
        }
    }

    /// The queue of the winning entry below a cohort.
    fn winner_below(&self, state: &QueueState, cohort: NodeId) -> Option<NodeId> {
        let node = state.forest().node(cohort);
        let below = node.cohorts.iter().filter_map(|child| self.winner_below(state, *child));
        let own = node.queues.iter().copied().filter(|queue| self.left.contains_key(queue));
        let depth = |queue: NodeId| state.forest().ancestors(queue).position(|at| at == cohort).unwrap_or(0);
        below.chain(own).reduce(|best, current| {
            let gates = &state.settings().gates;
            let is_better = self.head(current).zip(self.head(best)).is_some_and(|(a, b)| {
                self.compare(a, depth(current), b, depth(best), gates).is_some_and(|(order, _)| order.is_lt())
            });
            if is_better { current } else { best }
        })
    }

    /// Order of two entries and the reason for it. Each entry is compared by its state at the given height
    /// above its queue.
    fn compare(
        &self,
        a: usize,
        a_depth: usize,
        b: usize,
        b_depth: usize,
        gates: &Gates,
    ) -> Option<(Ordering, Precedence)> {
        let (x, y) = (&self.ranks[a], &self.ranks[b]);
        if gates.prioritize_preemptors && x.preemptor != y.preemptor {
            return Some((y.preemptor.cmp(&x.preemptor), Precedence::Preempting));
        }
        let (s, t) = (self.states[a].get(a_depth)?, self.states[b].get(b_depth)?);
        if gates.fair_prioritize_non_borrowing && s.borrows != t.borrows {
            return Some((s.borrows.cmp(&t.borrows), Precedence::BorrowsLess));
        }
        let order = s.share.order(&t.share);
        if order.is_ne() {
            return Some((order, Precedence::Share(s.share, t.share)));
        }
        if gates.priority_sorting_within_cohort && x.priority != y.priority {
            return Some((y.priority.cmp(&x.priority), Precedence::Priority));
        }
        Some((x.since.cmp(&y.since), Precedence::Age))
    }

    /// Why the entry of one queue precedes that of another, at their common ancestor.
    fn precedence(
        &self,
        state: &QueueState,
        one: (usize, NodeId),
        other: (usize, NodeId),
    ) -> Option<Precedence> {
        let ((a, a_node), (b, b_node)) = (one, other);
        let above: Vec<NodeId> = state.forest().ancestors(a_node).collect();
        let (b_depth, cohort) =
            state.forest().ancestors(b_node).enumerate().find(|(_, node)| above.contains(node))?;
        let a_depth = above.iter().position(|node| *node == cohort)?;
        self.compare(a, a_depth, b, b_depth, &state.settings().gates).map(|(_, first)| first)
    }
}
