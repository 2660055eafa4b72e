//! The forest of cohorts and cluster queues: quota, use, and what is available where.
//!
//! Every node has one cell per flavor and resource that is known in its tree. A node's subtree quota is its own and what its
//! children lend; use beyond what a node keeps for itself counts at its parent too. Adding and removing the same use in any
//! order leaves every cell as it was.

use crate::amount::Amount;
use crate::names::{FlavorId, ResourceId, id};
use crate::share::Share;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A cohort or a cluster queue in the forest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u32);

/// A tree of the forest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TreeId(pub u32);

/// A flavor and resource, by its place in the cells of one tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CellId(pub u32);

use crate::names::Id;
id!(NodeId, TreeId, CellId);

/// Weights are counted in billionths: the smallest that Kueue accepts.
pub const WEIGHT_ONE: i64 = 1_000_000_000;

/// Quota of one flavor and resource at one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Quota {
    /// Its own.
    pub nominal: Amount,
    /// Most that it borrows; `None` is no limit.
    pub borrowing_limit: Option<Amount>,
    /// Most that it lends; `None` is no limit.
    pub lending_limit: Option<Amount>,
}

/// What a limit is put on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// What is borrowed.
    Borrows,
    /// What is lent.
    Lends,
}

/// Quotas by flavor and resource.
pub type Quotas = BTreeMap<(FlavorId, ResourceId), Quota>;

/// A cohort as it is declared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CohortSetup {
    /// The cohort above.
    pub parent: Option<Arc<str>>,
    /// Its own quotas.
    pub quotas: Quotas,
    /// Its weight in billionths.
    pub weight: i64,
}

impl Default for CohortSetup {
    fn default() -> Self {
        Self { parent: None, quotas: Quotas::new(), weight: WEIGHT_ONE }
    }
}

/// One flavor and resource at one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// As declared.
    pub quota: Quota,
    /// Whether a quota is declared here, or by something below.
    pub declared: bool,
    /// Own quota and what the children lend.
    pub subtree: Amount,
    /// What it keeps from its parent.
    pub local: Amount,
    /// What counts against the subtree quota.
    pub usage: Amount,
    /// The most that could ever be used here.
    pub potential: Amount,
}

impl Cell {
    /// Free of what it keeps for itself.
    pub fn local_available(&self) -> Amount {
        (self.local - self.usage).floor()
    }

    /// Whether all of it is lent out.
    pub(crate) fn keeps_nothing(&self) -> bool {
        self.local == Amount::ZERO
    }

    /// Whether `more` would need what isn't the node's own subtree quota.
    pub fn borrows_with(&self, more: Amount) -> bool {
        self.subtree < self.usage + more
    }
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name; cohorts and cluster queues have names of their own.
    pub name: Arc<str>,
    /// Whether it is a cohort.
    pub cohort: bool,
    /// The cohort above.
    pub parent: Option<NodeId>,
    /// Cohorts below, by name.
    pub cohorts: Vec<NodeId>,
    /// Cluster queues below, in the order of their declaration.
    pub queues: Vec<NodeId>,
    /// Its tree.
    pub tree: TreeId,
    /// Distance to the furthest leaf.
    pub height: u32,
    /// Weight in billionths.
    pub weight: i64,
    cells: Vec<Cell>,
    /// Per resource of the tree: the most that its children can ever get, all flavors together.
    lendable: Vec<Amount>,
}

/// A tree: the cells that every node of it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// Flavor and resource of each cell.
    pub cells: Vec<(FlavorId, ResourceId)>,
    index: BTreeMap<(FlavorId, ResourceId), CellId>,
    /// Resources, and for each cell its place among them.
    resources: Vec<ResourceId>,
    resource_of: Vec<u32>,
    /// Its root.
    pub root: Option<NodeId>,
    /// Its cluster queues.
    pub queues: Vec<NodeId>,
}

/// A cluster queue's part in the forest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Its name.
    pub name: Arc<str>,
    /// The cohort it is in.
    pub cohort: Option<Arc<str>>,
    /// Its quotas.
    pub quotas: Quotas,
    /// Its weight in billionths.
    pub weight: i64,
}

/// Cohorts and cluster queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forest {
    nodes: Vec<Node>,
    trees: Vec<Tree>,
    cohorts: BTreeMap<Arc<str>, NodeId>,
    cyclic: BTreeSet<Arc<str>>,
}

/// Cohorts that are their own ancestors, or below one that is.
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
    /// Builds the forest. The answer's second part is the node of each leaf, in order: `None` where its cohort is in a cycle.
    pub fn build(cohorts: &BTreeMap<Arc<str>, CohortSetup>, leaves: &[Leaf]) -> (Self, Vec<Option<NodeId>>) {
        let mut setups: BTreeMap<Arc<str>, CohortSetup> = cohorts.clone();
        let implicit = leaves
            .iter()
            .filter_map(|leaf| leaf.cohort.clone())
            .chain(cohorts.values().filter_map(|c| c.parent.clone()));
        for name in implicit {
            setups.entry(name).or_default();
        }
        let parents = setups.iter().map(|(name, c)| (name.clone(), c.parent.clone())).collect();
        let mut forest = Self { cyclic: cyclic(&parents), ..Self::default() };
        for (name, setup) in
            setups.iter().filter(|(name, _)| !forest.cyclic.contains(*name)).collect::<Vec<_>>()
        {
            let id = forest.push(name.clone(), true, setup.weight);
            forest.cohorts.insert(name.clone(), id);
        }
        for (name, setup) in &setups {
            let (Some(id), Some(parent)) = (forest.cohorts.get(name).copied(), &setup.parent) else {
                continue;
            };
            let parent = forest.cohorts.get(parent).copied();
            forest.nodes[id.index()].parent = parent;
            if let Some(parent) = parent {
                forest.nodes[parent.index()].cohorts.push(id);
            }
        }
        let mut places = Vec::with_capacity(leaves.len());
        for leaf in leaves {
            let parent = leaf.cohort.as_ref().map(|cohort| forest.cohorts.get(cohort).copied());
            if parent == Some(None) {
                places.push(None);
                continue;
            }
            let id = forest.push(leaf.name.clone(), false, leaf.weight);
            if let Some(parent) = parent.flatten() {
                forest.nodes[id.index()].parent = Some(parent);
                forest.nodes[parent.index()].queues.push(id);
            }
            places.push(Some(id));
        }
        forest.plant();
        for (name, setup) in &setups {
            if let Some(id) = forest.cohorts.get(name).copied() {
                forest.declare(id, &setup.quotas);
            }
        }
        for (leaf, place) in leaves.iter().zip(&places) {
            if let Some(id) = place {
                forest.declare(*id, &leaf.quotas);
            }
        }
        for tree in 0..forest.trees.len() {
            forest.settle(TreeId::new(u32::try_from(tree).unwrap_or(u32::MAX)));
        }
        (forest, places)
    }

    /// A copy in which only some trees have anything. In the others nodes keep their numbers, and nothing else.
    pub(crate) fn only(&self, trees: &BTreeSet<TreeId>) -> Self {
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

    fn push(&mut self, name: Arc<str>, cohort: bool, weight: i64) -> NodeId {
        let id = NodeId::new(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        let tree = TreeId(0);
        self.nodes.push(Node {
            name,
            cohort,
            parent: None,
            cohorts: Vec::new(),
            queues: Vec::new(),
            tree,
            height: 0,
            weight,
            cells: Vec::new(),
            lendable: Vec::new(),
        });
        id
    }

    /// Gives every root a tree, and every node its tree and height.
    fn plant(&mut self) {
        for root in 0..self.nodes.len() {
            if self.nodes[root].parent.is_some() {
                continue;
            }
            let tree = TreeId::new(u32::try_from(self.trees.len()).unwrap_or(u32::MAX));
            let root = NodeId::new(u32::try_from(root).unwrap_or(u32::MAX));
            let mut order = vec![root];
            let mut at = 0;
            let mut queues = Vec::new();
            while at < order.len() {
                let node = &mut self.nodes[order[at].index()];
                node.tree = tree;
                if !node.cohort {
                    queues.push(order[at]);
                }
                queues.extend(&node.queues);
                for queue in node.queues.clone() {
                    self.nodes[queue.index()].tree = tree;
                }
                let below = self.nodes[order[at].index()].cohorts.clone();
                order.extend(below);
                at += 1;
            }
            for id in order.iter().rev() {
                let node = &self.nodes[id.index()];
                let own = u32::from(!node.queues.is_empty() || !node.cohorts.is_empty());
                let height =
                    node.cohorts.iter().map(|c| self.nodes[c.index()].height + 1).max().unwrap_or(0).max(own);
                self.nodes[id.index()].height = height;
            }
            self.trees.push(Tree { root: Some(root), queues, ..Tree::default() });
        }
    }

    fn declare(&mut self, id: NodeId, quotas: &Quotas) {
        let tree = self.nodes[id.index()].tree;
        for (key, quota) in quotas {
            let cell = self.cell_id(tree, *key);
            let cell = &mut self.nodes[id.index()].cells[cell.index()];
            cell.quota = *quota;
            cell.declared = true;
        }
    }

    /// The place of a flavor and resource in the tree's cells; a new one gets a cell at every node.
    pub fn cell_id(&mut self, tree: TreeId, key: (FlavorId, ResourceId)) -> CellId {
        if let Some(cell) = self.trees[tree.index()].index.get(&key) {
            return *cell;
        }
        let of = &mut self.trees[tree.index()];
        let cell = CellId::new(u32::try_from(of.cells.len()).unwrap_or(u32::MAX));
        of.cells.push(key);
        of.index.insert(key, cell);
        let resource = of.resources.iter().position(|r| *r == key.1).unwrap_or_else(|| {
            of.resources.push(key.1);
            of.resources.len() - 1
        });
        of.resource_of.push(u32::try_from(resource).unwrap_or(u32::MAX));
        let resources = of.resources.len();
        for node in self.nodes.iter_mut().filter(|n| n.tree == tree) {
            node.cells.push(Cell::default());
            node.lendable.resize(resources, Amount::ZERO);
        }
        cell
    }

    /// The place of a flavor and resource that the tree knows.
    pub fn find_cell(&self, tree: TreeId, key: (FlavorId, ResourceId)) -> Option<CellId> {
        self.trees[tree.index()].index.get(&key).copied()
    }

    /// Derives quotas of subtrees, what could ever be available, and the use of cohorts from that of their queues.
    fn settle(&mut self, tree: TreeId) {
        let Some(root) = self.trees[tree.index()].root else { return };
        self.gather(root);
        self.spread(root);
    }

    fn gather(&mut self, id: NodeId) {
        let below: Vec<NodeId> =
            self.nodes[id.index()].cohorts.iter().chain(&self.nodes[id.index()].queues).copied().collect();
        for child in &below {
            self.gather(*child);
        }
        for at in 0..self.nodes[id.index()].cells.len() {
            let (mut subtree, mut used, mut declared) = (Amount::ZERO, Amount::ZERO, false);
            for child in &below {
                let cell = &self.nodes[child.index()].cells[at];
                subtree = subtree + (cell.subtree - cell.local);
                used = used + (cell.usage - cell.local).floor();
                declared |= cell.declared;
            }
            let node = &mut self.nodes[id.index()];
            let cell = &mut node.cells[at];
            cell.subtree = cell.quota.nominal + subtree;
            cell.declared |= declared;
            cell.local =
                cell.quota.lending_limit.map_or(Amount::ZERO, |limit| (cell.subtree - limit).floor());
            if node.cohort {
                cell.usage = used;
            }
        }
    }

    fn spread(&mut self, id: NodeId) {
        let of = self.nodes[id.index()].tree.index();
        let parent = self.nodes[id.index()].parent;
        let mut lendable = vec![Amount::ZERO; self.trees[of].resources.len()];
        for at in 0..self.nodes[id.index()].cells.len() {
            let above = parent.map(|p| self.nodes[p.index()].cells[at].potential);
            let cell = &mut self.nodes[id.index()].cells[at];
            cell.potential = match above {
                None => cell.subtree,
                Some(above) => {
                    let most = cell.local + above;
                    cell.quota.borrowing_limit.map_or(most, |limit| most.min(cell.subtree + limit))
                }
            };
            let resource = self.trees[of].resource_of[at] as usize;
            lendable[resource] = lendable[resource] + cell.potential;
        }
        self.nodes[id.index()].lendable = lendable;
        let below: Vec<NodeId> =
            self.nodes[id.index()].cohorts.iter().chain(&self.nodes[id.index()].queues).copied().collect();
        for child in below {
            self.spread(child);
        }
    }

    /// Takes a limit away, or puts one in its place.
    pub(crate) fn limit(&mut self, node: NodeId, cell: CellId, side: Side, limit: Option<Amount>) {
        let of = &mut self.nodes[node.index()];
        let quota = &mut of.cells[cell.index()].quota;
        match side {
            Side::Borrows => quota.borrowing_limit = limit,
            Side::Lends => quota.lending_limit = limit,
        }
        let tree = of.tree;
        self.settle(tree);
    }

    /// One node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Every node.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes
            .iter()
            .enumerate()
            .map(|(at, node)| (NodeId::new(u32::try_from(at).unwrap_or(u32::MAX)), node))
    }

    /// One tree.
    pub fn tree(&self, id: TreeId) -> &Tree {
        &self.trees[id.index()]
    }

    /// How many trees there are.
    pub fn trees(&self) -> usize {
        self.trees.len()
    }

    /// A cohort by name.
    pub fn cohort(&self, name: &str) -> Option<NodeId> {
        self.cohorts.get(name).copied()
    }

    /// Every cohort, by name.
    pub fn cohorts(&self) -> impl Iterator<Item = (&Arc<str>, NodeId)> {
        self.cohorts.iter().map(|(name, id)| (name, *id))
    }

    /// Cohorts that can't be decided on, because they are their own ancestors.
    pub fn in_cycles(&self) -> &BTreeSet<Arc<str>> {
        &self.cyclic
    }

    /// One cell.
    pub fn cell(&self, node: NodeId, cell: CellId) -> &Cell {
        &self.nodes[node.index()].cells[cell.index()]
    }

    /// The cells of a node with their flavor and resource.
    pub fn cells(&self, node: NodeId) -> impl Iterator<Item = ((FlavorId, ResourceId), &Cell)> {
        let node = &self.nodes[node.index()];
        self.trees[node.tree.index()].cells.iter().copied().zip(&node.cells)
    }

    /// Ancestors of a node, its parent first.
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

    /// What a cluster queue could use more now, without displacing anybody.
    pub fn available(&self, node: NodeId, cell: CellId) -> Amount {
        self.available_here(node, cell).floor()
    }

    /// The same without the floor: below zero in debt.
    pub fn balance(&self, node: NodeId, cell: CellId) -> Amount {
        self.available_here(node, cell)
    }

    /// Adds use at a node, and at its ancestors what it doesn't keep for itself.
    pub fn add(&mut self, node: NodeId, cell: CellId, amount: Amount) {
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

    /// Takes use away again.
    pub fn remove(&mut self, node: NodeId, cell: CellId, amount: Amount) {
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

    /// Height of the lowest subtree around a cluster queue that holds `amount` more, and whether that is smaller than the whole
    /// tree. Zero is the queue itself.
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

    /// The dominant resource share of a node, as if it used `more` besides.
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

    /// Whether the node uses more than its subtree's own quota of a cell.
    pub fn borrows(&self, node: NodeId, cell: CellId) -> bool {
        self.cell(node, cell).borrows_with(Amount::ZERO)
    }
}
