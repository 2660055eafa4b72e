//! The tree of domains as flat tables: domains are numbered level by level, and within a level in the order
//! of their values.
//!
//! So the children of a domain are a range, the leaves below a domain are a range, and comparing two numbers
//! of one level compares their values.

use crate::assignment::{Assignment, DomainCount};
use crate::node::Node;
use meridian_shared::gang::{Amounts, Taint, add_scaled};
use meridian_shared::packing::HOSTNAME_LABEL;
use std::collections::BTreeMap;
use std::ops::Range;

/// Number of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DomainId(u32);

impl DomainId {
    /// Index in a table of all domains.
    pub(crate) fn at(self) -> usize {
        self.0 as usize
    }
}

/// A range of domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DomainRange {
    start: u32,
    end: u32,
}

impl DomainRange {
    pub(crate) fn iter(self) -> impl DoubleEndedIterator<Item = DomainId> {
        (self.start..self.end).map(DomainId)
    }

    pub(crate) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    pub(crate) fn is_empty(self) -> bool {
        self.start == self.end
    }
}

#[derive(Debug)]
struct Domain {
    value: String,
    parent: Option<DomainId>,
    children: DomainRange,
}

/// Labels and taints of the node of a leaf.
#[derive(Debug)]
pub(crate) struct LeafNode {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: Vec<Taint>,
}

/// The tree. It never changes after construction.
#[derive(Debug)]
pub(crate) struct Tree {
    levels: Vec<String>,
    runs: Vec<DomainRange>,
    domains: Vec<Domain>,
    /// Nodes per leaf, if the lowest level is the host.
    leaf_nodes: Vec<LeafNode>,
    /// Leaves by host, if the lowest level is the host.
    hosts: BTreeMap<String, DomainId>,
    nodes: BTreeMap<String, DomainId>,
}

/// A leaf during construction.
struct Leaf<'a> {
    values: Vec<&'a str>,
    first: &'a Node,
    nodes: Vec<&'a str>,
    capacity: Amounts,
}

impl Tree {
    /// The tree over `nodes`, all of which have every level, and the capacity of each leaf, in leaf order.
    pub(crate) fn new(levels: &[String], nodes: &[&Node]) -> (Self, Vec<Amounts>) {
        let by_host = levels.last().is_some_and(|level| level == HOSTNAME_LABEL);
        let mut sorted = nodes.to_vec();
        sorted.sort_by(|a, b| a.name.cmp(&b.name));
        let mut leaves: BTreeMap<Vec<&str>, Leaf<'_>> = BTreeMap::new();
        for node in sorted {
            let values: Vec<&str> =
                levels.iter().map(|level| node.labels.get(level).map_or("", String::as_str)).collect();
            // A host is one domain, even if nodes with its name differ in other labels.
            let key = if by_host { values.last().copied().into_iter().collect() } else { values.clone() };
            let leaf = leaves.entry(key).or_insert_with(|| Leaf {
                values,
                first: node,
                nodes: Vec::new(),
                capacity: Amounts::new(),
            });
            add_scaled(&mut leaf.capacity, &node.allocatable, 1);
            leaf.nodes.push(&node.name);
        }
        let mut leaves: Vec<Leaf<'_>> = leaves.into_values().collect();
        leaves.sort_by(|a, b| a.values.cmp(&b.values));
        let mut tree =
            Self::of_values(levels, &leaves.iter().map(|leaf| leaf.values.as_slice()).collect::<Vec<_>>());
        for (id, leaf) in tree.leaves().iter().zip(&leaves) {
            tree.nodes.extend(leaf.nodes.iter().map(|node| ((*node).to_owned(), id)));
            if by_host {
                tree.hosts.insert(leaf.values.last().copied().unwrap_or_default().to_owned(), id);
                tree.leaf_nodes
                    .push(LeafNode { labels: leaf.first.labels.clone(), taints: leaf.first.taints.clone() });
            }
        }
        (tree, leaves.into_iter().map(|leaf| leaf.capacity).collect())
    }

    /// Domains for the sorted values of leaves.
    fn of_values(levels: &[String], leaves: &[&[&str]]) -> Self {
        let mut domains: Vec<Domain> = Vec::new();
        let mut runs: Vec<DomainRange> = Vec::new();
        let mut parents: Vec<Option<DomainId>> = vec![None; leaves.len()];
        for depth in 0..levels.len() {
            let start = number(domains.len());
            for (index, values) in leaves.iter().enumerate() {
                let same = index > 0 && leaves[index - 1][..=depth] == values[..=depth];
                if !same {
                    let id = number(domains.len());
                    if let Some(parent) = parents[index] {
                        let children = &mut domains[parent.at()].children;
                        children.start = if children.is_empty() { id } else { children.start };
                        children.end = id + 1;
                    }
                    domains.push(Domain {
                        value: values[depth].to_owned(),
                        parent: parents[index],
                        children: DomainRange { start: 0, end: 0 },
                    });
                }
                parents[index] = Some(DomainId(number(domains.len()) - 1));
            }
            runs.push(DomainRange { start, end: number(domains.len()) });
        }
        Self {
            levels: levels.to_vec(),
            runs,
            domains,
            leaf_nodes: Vec::new(),
            hosts: BTreeMap::new(),
            nodes: BTreeMap::new(),
        }
    }

    /// Node labels of the levels.
    pub(crate) fn levels(&self) -> &[String] {
        &self.levels
    }

    /// Depth of the level with this node label.
    pub(crate) fn depth(&self, level: &str) -> Option<usize> {
        self.levels.iter().position(|own| own == level)
    }

    /// Depth of the leaves.
    pub(crate) fn lowest(&self) -> usize {
        self.levels.len().saturating_sub(1)
    }

    /// Whether the lowest level is the host.
    pub(crate) fn is_by_host(&self) -> bool {
        self.levels.last().is_some_and(|level| level == HOSTNAME_LABEL)
    }

    /// Number of domains of all levels.
    pub(crate) fn len(&self) -> usize {
        self.domains.len()
    }

    /// The domains of a level.
    pub(crate) fn level(&self, depth: usize) -> DomainRange {
        self.runs.get(depth).copied().unwrap_or(DomainRange { start: 0, end: 0 })
    }

    /// The domains of the lowest level.
    pub(crate) fn leaves(&self) -> DomainRange {
        self.level(self.lowest())
    }

    /// Index of a leaf in a table of leaves.
    pub(crate) fn leaf_at(&self, leaf: DomainId) -> usize {
        leaf.at() - self.leaves().range().start
    }

    pub(crate) fn leaf_node(&self, leaf: DomainId) -> Option<&LeafNode> {
        self.leaf_nodes.get(self.leaf_at(leaf))
    }

    pub(crate) fn children(&self, domain: DomainId) -> DomainRange {
        self.domains[domain.at()].children
    }

    /// The domain of level `depth` that contains `leaf`.
    pub(crate) fn ancestor(&self, leaf: DomainId, depth: usize) -> DomainId {
        let mut domain = leaf;
        for _ in depth..self.lowest() {
            domain = self.domains[domain.at()].parent.unwrap_or(domain);
        }
        domain
    }

    /// Depth of a domain's level.
    pub(crate) fn depth_of(&self, domain: DomainId) -> usize {
        self.runs.partition_point(|run| run.end <= domain.0)
    }

    /// The leaf of the node with this name.
    pub(crate) fn leaf_of_node(&self, node: &str) -> Option<DomainId> {
        self.nodes.get(node).copied()
    }

    /// The leaf with these values, given as in an assignment.
    pub(crate) fn leaf(&self, values: &[String]) -> Option<DomainId> {
        if self.is_by_host() {
            let [host] = values else { return None };
            return self.hosts.get(host).copied();
        }
        if values.len() != self.levels.len() {
            return None;
        }
        let mut run = self.level(0);
        let mut found = None;
        for value in values {
            let range = run.range();
            let at = range.start
                + self.domains[range].binary_search_by(|domain| domain.value.as_str().cmp(value)).ok()?;
            run = self.domains[at].children;
            found = Some(DomainId(number(at)));
        }
        found
    }

    /// Names of nodes by the values of their leaf, in the form of an assignment.
    pub(crate) fn nodes_by_leaf(&self) -> BTreeMap<Vec<String>, Vec<&str>> {
        let mut all: BTreeMap<Vec<String>, Vec<&str>> = BTreeMap::new();
        for (name, leaf) in &self.nodes {
            all.entry(self.values(*leaf, self.named_levels().len())).or_default().push(name);
        }
        all
    }

    /// The levels that an assignment names.
    fn named_levels(&self) -> &[String] {
        if self.is_by_host() { &self.levels[self.lowest()..] } else { &self.levels[..] }
    }

    /// The assignment for pod counts per leaf. Leaves without pods are omitted.
    pub(crate) fn assignment(&self, mut counts: Vec<(DomainId, u32)>) -> Assignment {
        counts.retain(|(_, count)| *count > 0);
        counts.sort();
        let levels = self.named_levels();
        let domains = counts
            .into_iter()
            .map(|(leaf, count)| DomainCount { values: self.values(leaf, levels.len()), count })
            .collect();
        Assignment { levels: levels.to_vec(), domains }
    }

    /// The values of a leaf at the lowest `levels` levels.
    fn values(&self, leaf: DomainId, levels: usize) -> Vec<String> {
        let path = std::iter::successors(Some(leaf), |domain| self.domains[domain.at()].parent);
        let mut values: Vec<String> =
            path.take(levels).map(|domain| self.domains[domain.at()].value.clone()).collect();
        values.reverse();
        values
    }
}

/// A domain number. 32 bits suffice, because more than 4 billion domains don't fit into memory.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
