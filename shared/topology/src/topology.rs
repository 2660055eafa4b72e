//! The topology of one flavor: its tree and the free capacity.

use crate::flavor::Flavor;
use crate::node::Node;
use crate::request::PodSetRequest;
use crate::resources::{Demand, Resources};
use crate::tree::{DomainId, Tree};
use crate::usage::Usage;
use meridian_shared::gang::Amounts;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The topology of one flavor and its free capacity. A clone shares the tree and copies only the amounts.
#[derive(Clone, Debug)]
pub struct Topology {
    flavor: Arc<Flavor>,
    tree: Arc<Tree>,
    resources: Arc<Resources>,
    /// Per leaf and resource: capacity of the nodes, less pods outside topologies.
    free: Vec<i64>,
    /// Per leaf and resource: usage of placed pods.
    used: Vec<i64>,
}

impl Topology {
    /// The topology of `flavor` over the `nodes` that are ready, schedulable, of the flavor, and have every
    /// level.
    pub fn new(flavor: Flavor, nodes: &[Node]) -> Self {
        let belongs =
            |node: &&Node| !flavor.levels.is_empty() && node.belongs_to(&flavor.levels, &flavor.node_labels);
        let nodes: Vec<&Node> = nodes.iter().filter(belongs).collect();
        let (tree, capacities) = Tree::new(&flavor.levels, &nodes);
        let resources = Resources::of(&capacities);
        let mut free = vec![0; capacities.len() * resources.len()];
        if !free.is_empty() {
            for (row, capacity) in free.chunks_exact_mut(resources.len()).zip(&capacities) {
                resources.add(row, capacity, 1);
            }
        }
        let used = vec![0; free.len()];
        Self { flavor: Arc::new(flavor), tree: Arc::new(tree), resources: Arc::new(resources), free, used }
    }

    pub fn flavor(&self) -> &Flavor {
        &self.flavor
    }

    /// Whether the lowest level is the host. Then assignments name nodes, and flavors may share hosts.
    pub fn is_by_host(&self) -> bool {
        self.tree.is_by_host()
    }

    /// Whether the topology has every level of `request`.
    pub fn has_levels(&self, request: &PodSetRequest) -> bool {
        request.uses_levels_of(self.tree.levels())
    }

    /// Counts one pod on `node` that no topology placed. It counts even with [`Options::simulate_empty`].
    pub fn occupy(&mut self, node: &str, per_pod: &Amounts) {
        if let Some(leaf) = self.tree.leaf_of_node(node) {
            let row = self.row(leaf);
            self.resources.add_pods(&mut self.free[row], per_pod, -1);
        }
    }

    /// Counts placed pods. Skips unknown domains, whose node is gone or not ready.
    pub fn add_usage(&mut self, usage: Usage<'_>) {
        self.count(usage, 1);
    }

    /// Reverses one call of [`Self::add_usage`].
    pub fn remove_usage(&mut self, usage: Usage<'_>) {
        self.count(usage, -1);
    }

    /// Counts pods placed by another flavor, if both may share hosts and the profile counts overlapping
    /// flavors.
    pub fn add_sibling_usage(&mut self, usage: Usage<'_>) {
        if self.is_by_host() && self.flavor.profile.overlapping_flavors {
            self.count(usage, 1);
        }
    }

    /// Reverses one call of [`Self::add_sibling_usage`].
    pub fn remove_sibling_usage(&mut self, usage: Usage<'_>) {
        if self.is_by_host() && self.flavor.profile.overlapping_flavors {
            self.count(usage, -1);
        }
    }

    /// Names of the nodes in the tree, by the values that name their domain in an assignment.
    pub fn nodes_by_domain(&self) -> BTreeMap<Vec<String>, Vec<&str>> {
        self.tree.nodes_by_leaf()
    }

    /// Usage of a domain by placed pods, including those of other flavors. `None` if the domain is unknown.
    pub fn used_in(&self, values: &[String]) -> Option<Amounts> {
        let row = self.row(self.tree.leaf(values)?);
        self.used.get(row).map(|used| self.resources.named(used))
    }

    /// Whether all of `usages` fit together, each in its domains. Unlike Kueue, counts the resource `pods`,
    /// and all usages at once.
    pub fn fit_together(&self, usages: &[Usage<'_>]) -> bool {
        let mut rows: BTreeMap<DomainId, Vec<i64>> = BTreeMap::new();
        for usage in usages {
            let demand = Demand::of(usage.per_pod, &self.resources);
            for domain in &usage.assignment.domains {
                let Some(leaf) = self.tree.leaf(&domain.values) else { return false };
                let left = rows.entry(leaf).or_insert_with(|| self.left(leaf, false));
                if demand.fits(left).0 < i64::from(domain.count) {
                    return false;
                }
                self.resources.add_pods(left, usage.per_pod, -i64::from(domain.count));
            }
        }
        true
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(crate) fn resources(&self) -> &Resources {
        &self.resources
    }

    /// Free capacity of a leaf.
    pub(crate) fn left(&self, leaf: DomainId, simulate_empty: bool) -> Vec<i64> {
        let mut left = Vec::with_capacity(self.resources.len());
        self.left_into(leaf, simulate_empty, &mut left);
        left
    }

    /// Writes the free amounts into a reused buffer.
    pub(crate) fn left_into(&self, leaf: DomainId, simulate_empty: bool, left: &mut Vec<i64>) {
        let row = self.row(leaf);
        left.clear();
        left.extend_from_slice(&self.free[row.clone()]);
        if !simulate_empty {
            for (left, used) in left.iter_mut().zip(&self.used[row]) {
                *left = left.saturating_sub(*used);
            }
        }
    }

    fn count(&mut self, usage: Usage<'_>, sign: i64) {
        for domain in &usage.assignment.domains {
            if let Some(leaf) = self.tree.leaf(&domain.values) {
                let row = self.row(leaf);
                self.resources.add_pods(
                    &mut self.used[row],
                    usage.per_pod,
                    sign.saturating_mul(i64::from(domain.count)),
                );
            }
        }
    }

    fn row(&self, leaf: DomainId) -> std::ops::Range<usize> {
        let start = self.tree.leaf_at(leaf) * self.resources.len();
        start..start + self.resources.len()
    }
}
