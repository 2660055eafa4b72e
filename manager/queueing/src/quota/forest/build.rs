//! Construction of the forest, and derivation of subtree quotas, potentials and the usage of cohorts.

use super::{Node, cyclic};
use crate::amount::Amount;
use crate::names::{FlavorId, Id, ResourceId};
use crate::quota::{Cell, CellId, CohortSetup, Forest, Leaf, NodeId, Quotas, Tree, TreeId};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Forest {
    /// Builds the forest. Also returns the node of each leaf, in order; `None` if its cohort is in a cycle.
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
        let mut nodes = Vec::with_capacity(leaves.len());
        for leaf in leaves {
            let parent = leaf.cohort.as_ref().map(|cohort| forest.cohorts.get(cohort).copied());
            if parent == Some(None) {
                nodes.push(None);
                continue;
            }
            let id = forest.push(leaf.name.clone(), false, leaf.weight);
            if let Some(parent) = parent.flatten() {
                forest.nodes[id.index()].parent = Some(parent);
                forest.nodes[parent.index()].queues.push(id);
            }
            nodes.push(Some(id));
        }
        forest.number_trees();
        for (name, setup) in &setups {
            if let Some(id) = forest.cohorts.get(name).copied() {
                forest.declare(id, &setup.quotas);
            }
        }
        for (leaf, node) in leaves.iter().zip(&nodes) {
            if let Some(id) = node {
                forest.declare(*id, &leaf.quotas);
            }
        }
        for tree in 0..forest.trees.len() {
            forest.derive(TreeId::new(u32::try_from(tree).unwrap_or(u32::MAX)));
        }
        (forest, nodes)
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

    /// Numbers the trees, and sets the tree and height of every node.
    fn number_trees(&mut self) {
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

    /// The cell of a flavor and resource. A new one gets a cell at every node of the tree.
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

    /// Derives subtree quotas, potentials, and the usage of cohorts from that of their queues.
    pub(super) fn derive(&mut self, tree: TreeId) {
        let Some(root) = self.trees[tree.index()].root else { return };
        self.derive_subtrees(root);
        self.derive_potentials(root);
    }

    fn derive_subtrees(&mut self, id: NodeId) {
        let below: Vec<NodeId> =
            self.nodes[id.index()].cohorts.iter().chain(&self.nodes[id.index()].queues).copied().collect();
        for child in &below {
            self.derive_subtrees(*child);
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

    fn derive_potentials(&mut self, id: NodeId) {
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
            self.derive_potentials(child);
        }
    }
}
