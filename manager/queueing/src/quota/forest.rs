//! The forest: nodes, trees, available quota, and changes of usage.

mod build;

use crate::amount::Amount;
use crate::names::{FlavorId, Id, ResourceId};
use crate::quota::{Cell, CellId, LimitKind, NodeId, Share, TreeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Unique among cohorts, and among cluster queues.
    pub name: Arc<str>,
    /// Whether it is a cohort.
    pub cohort: bool,
    pub parent: Option<NodeId>,
    /// Child cohorts, by name.
    pub cohorts: Vec<NodeId>,
    /// Cluster queues of the cohort, in the order of their declaration.
    pub queues: Vec<NodeId>,
    pub tree: TreeId,
    /// Distance to the furthest leaf.
    pub height: u32,
    /// Weight in billionths.
    pub weight: i64,
    cells: Vec<Cell>,
    /// Per resource of the tree: the most that the children can ever use, over all flavors.
    lendable: Vec<Amount>,
}

/// A tree, with the cells that all its nodes have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// Flavor and resource of each cell.
    pub cells: Vec<(FlavorId, ResourceId)>,
    index: BTreeMap<(FlavorId, ResourceId), CellId>,
    /// Distinct resources, and per cell the index of its resource.
    resources: Vec<ResourceId>,
    resource_of: Vec<u32>,
    pub root: Option<NodeId>,
    /// All cluster queues of the tree.
    pub queues: Vec<NodeId>,
}

/// Cohorts and cluster queues as trees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forest {
    nodes: Vec<Node>,
    trees: Vec<Tree>,
    cohorts: BTreeMap<Arc<str>, NodeId>,
    cyclic: BTreeSet<Arc<str>>,
}

/// Cohorts that are their own ancestors, and their descendants.
pub fn cyclic(parents: &BTreeMap<Arc<str>, Option<Arc<str>>>) -> BTreeSet<Arc<str>> {
    let mut broken = BTreeSet::new();
    for start in parents.keys() {
        let (mut at, mut steps) = (start, 0);
        while let Some(Some(parent)) = parents.get(at) {
            (at, steps) = (parent, steps + 1);
            if steps > parents.len() {
                broken.insert(start.clone());
                break;
            }
        }
    }
    broken
}

impl Forest {
    /// A copy that has the contents of these trees only. All nodes keep their numbers.
    pub(crate) fn with_trees_only(&self, trees: &BTreeSet<TreeId>) -> Self {
        let node = |node: &Node| match trees.contains(&node.tree) {
            true => node.clone(),
            false => Node {
                name: Arc::default(),
                cohorts: Vec::new(),
                queues: Vec::new(),
                cells: Vec::new(),
                lendable: Vec::new(),
                ..*node
            },
        };
        let tree = |(at, tree): (usize, &Tree)| {
            let wanted = trees.contains(&TreeId::new(u32::try_from(at).unwrap_or(u32::MAX)));
            if wanted { tree.clone() } else { Tree::default() }
        };
        Self {
            nodes: self.nodes.iter().map(node).collect(),
            trees: self.trees.iter().enumerate().map(tree).collect(),
            ..Self::default()
        }
    }

    /// The cell of a flavor and resource, if the tree has one.
    pub fn find_cell(&self, tree: TreeId, key: (FlavorId, ResourceId)) -> Option<CellId> {
        self.trees[tree.index()].index.get(&key).copied()
    }

    /// Sets or removes a limit.
    pub(crate) fn set_limit(&mut self, node: NodeId, cell: CellId, kind: LimitKind, limit: Option<Amount>) {
        let of = &mut self.nodes[node.index()];
        let quota = &mut of.cells[cell.index()].quota;
        match kind {
            LimitKind::Borrowing => quota.borrowing_limit = limit,
            LimitKind::Lending => quota.lending_limit = limit,
        }
        let tree = of.tree;
        self.derive(tree);
    }

    /// Replaces the nominal quota of a node.
    pub(crate) fn set_nominal(&mut self, node: NodeId, cell: CellId, nominal: Amount) {
        let of = &mut self.nodes[node.index()];
        let cell = &mut of.cells[cell.index()];
        (cell.quota.nominal, cell.declared) = (nominal, true);
        let tree = of.tree;
        self.derive(tree);
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes
            .iter()
            .enumerate()
            .map(|(at, node)| (NodeId::new(u32::try_from(at).unwrap_or(u32::MAX)), node))
    }

    pub fn tree(&self, id: TreeId) -> &Tree {
        &self.trees[id.index()]
    }

    /// Number of trees.
    pub fn trees(&self) -> usize {
        self.trees.len()
    }

    /// A cohort by name.
    pub fn cohort(&self, name: &str) -> Option<NodeId> {
        self.cohorts.get(name).copied()
    }

    /// All cohorts, by name.
    pub fn cohorts(&self) -> impl Iterator<Item = (&Arc<str>, NodeId)> {
        self.cohorts.iter().map(|(name, id)| (name, *id))
    }

    /// Cohorts without a node, because they are their own ancestors.
    pub fn in_cycles(&self) -> &BTreeSet<Arc<str>> {
        &self.cyclic
    }

    pub fn cell(&self, node: NodeId, cell: CellId) -> &Cell {
        &self.nodes[node.index()].cells[cell.index()]
    }

    /// The cells of a node with their flavor and resource.
    pub fn cells(&self, node: NodeId) -> impl Iterator<Item = ((FlavorId, ResourceId), &Cell)> {
        let node = &self.nodes[node.index()];
        self.trees[node.tree.index()].cells.iter().copied().zip(&node.cells)
    }

    /// Ancestors of a node, parent first.
    pub fn ancestors(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        std::iter::successors(self.nodes[node.index()].parent, |at| self.nodes[at.index()].parent)
    }

    /// The root of the node's tree.
    pub fn root(&self, node: NodeId) -> NodeId {
        self.ancestors(node).last().unwrap_or(node)
    }

    fn available_here(&self, node: NodeId, cell: CellId) -> Amount {
        let of = &self.nodes[node.index()];
        let here = &of.cells[cell.index()];
        let Some(parent) = of.parent else { return here.subtree - here.usage };
        let mut above = self.available_here(parent, cell);
        if let Some(limit) = here.quota.borrowing_limit {
            let stored = here.subtree - here.local;
            let used = (here.usage - here.local).floor();
            above = above.min(stored - used + limit);
        }
        here.local_available() + above
    }

    /// Additional quota that a cluster queue can use without preemption.
    pub fn available(&self, node: NodeId, cell: CellId) -> Amount {
        self.available_here(node, cell).floor()
    }

    /// Additional quota that a node can use; negative if more is used than exists.
    pub fn balance(&self, node: NodeId, cell: CellId) -> Amount {
        self.available_here(node, cell)
    }

    /// Adds usage at a node, and at its ancestors as far as the node borrows it. A negative amount is
    /// removed.
    pub fn add(&mut self, node: NodeId, cell: CellId, amount: Amount) {
        if amount < Amount::ZERO {
            return self.remove(node, cell, Amount::ZERO - amount);
        }
        let (mut node, mut amount) = (node, amount);
        loop {
            let of = &mut self.nodes[node.index()];
            let here = &mut of.cells[cell.index()];
            let kept = here.local_available();
            here.usage = here.usage + amount;
            match of.parent {
                Some(parent) if amount > kept => (node, amount) = (parent, amount - kept),
                _ => return,
            }
        }
    }

    /// Reverses one call of [`Self::add`].
    pub fn remove(&mut self, node: NodeId, cell: CellId, amount: Amount) {
        if amount < Amount::ZERO {
            return self.add(node, cell, Amount::ZERO - amount);
        }
        let (mut node, mut amount) = (node, amount);
        loop {
            let of = &mut self.nodes[node.index()];
            let here = &mut of.cells[cell.index()];
            let above = here.usage - here.local;
            here.usage = here.usage - amount;
            match of.parent {
                Some(parent) if above > Amount::ZERO => (node, amount) = (parent, amount.min(above)),
                _ => return,
            }
        }
    }

    /// Height of the lowest subtree around a cluster queue that has `amount` left, and whether that subtree
    /// is smaller than the whole tree. Height zero is the queue itself.
    pub fn lowest_fit(&self, queue: NodeId, cell: CellId, amount: Amount) -> (u32, bool) {
        let of = &self.nodes[queue.index()];
        let here = &of.cells[cell.index()];
        if of.parent.is_none() || here.quota.nominal >= here.usage + amount {
            return (0, of.parent.is_some());
        }
        let mut left = amount - here.local_available();
        let mut last = queue;
        for at in self.ancestors(queue) {
            let node = &self.nodes[at.index()];
            let cell = &node.cells[cell.index()];
            if !cell.borrows_with(left) {
                return (node.height, node.parent.is_some());
            }
            left = left - cell.local_available();
            last = at;
        }
        (self.nodes[last.index()].height, false)
    }

    /// The dominant resource share of a node if it used `more` in addition.
    pub fn share_with(&self, node: NodeId, more: &dyn Fn(CellId) -> Amount) -> Share {
        let of = &self.nodes[node.index()];
        let Some(parent) = of.parent else { return Share::none(of.weight) };
        let tree = &self.trees[of.tree.index()];
        let lendable = &self.nodes[parent.index()].lendable;
        let mut share = Share::none(of.weight);
        for (resource, lendable) in lendable.iter().enumerate() {
            let mut borrowed = Amount::ZERO;
            for (at, cell) in of.cells.iter().enumerate() {
                if tree.resource_of[at] as usize == resource && cell.declared {
                    let cell_id = CellId::new(u32::try_from(at).unwrap_or(u32::MAX));
                    borrowed = borrowed + (more(cell_id) + cell.usage - cell.subtree).floor();
                }
            }
            share.consider(tree.resources[resource], borrowed, *lendable);
        }
        share
    }

    /// The dominant resource share of a node.
    pub fn share(&self, node: NodeId) -> Share {
        self.share_with(node, &|_| Amount::ZERO)
    }

    /// Whether the node uses more than its subtree quota of a cell.
    pub fn borrows(&self, node: NodeId, cell: CellId) -> bool {
        self.cell(node, cell).borrows_with(Amount::ZERO)
    }
}
