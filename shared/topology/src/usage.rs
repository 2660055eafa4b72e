//! What placed pods take, and how often a demand fits into what is left.

use crate::assignment::Assignment;
use crate::tree::{DomainId, Tree};
use meridian_shared::gang::{Amounts, add_scaled};
use std::collections::BTreeMap;

/// The resource of which every pod takes one.
pub const PODS: &str = "pods";
/// No domain counts for more pods than this (Kubernetes counts pods in 32 bits).
const PODS_MAX: i64 = i32::MAX as i64;

/// What the pods of one assignment take.
#[derive(Clone, Copy, Debug)]
pub struct Usage<'a> {
    /// Where they are.
    pub assignment: &'a Assignment,
    /// What each takes, without its `pods`.
    pub per_pod: &'a Amounts,
}

/// What earlier answers took that no topology counts yet.
///
/// Start with an empty one per workload and hand it to [`Topology::assign_beside`](crate::Topology::assign_beside) for each
/// flavor in turn, so that pod sets in flavors that share hosts don't take the same room twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assumed {
    by_domain: BTreeMap<Vec<String>, Amounts>,
}

impl Assumed {
    /// Counts the pods of `usage`.
    pub fn add(&mut self, usage: Usage<'_>) {
        for domain in &usage.assignment.domains {
            let taken = self.by_domain.entry(domain.values.clone()).or_default();
            add_scaled(taken, usage.per_pod, i64::from(domain.count));
            add_scaled(taken, &Amounts::from([(PODS.to_owned(), 1)]), i64::from(domain.count));
        }
    }

    /// Counts `amounts` in the domain of these values.
    pub fn add_amounts(&mut self, values: &[String], amounts: &Amounts) {
        add_scaled(self.by_domain.entry(values.to_vec()).or_default(), amounts, 1);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Vec<String>, &Amounts)> {
        self.by_domain.iter()
    }
}

/// Dense numbers of the resources that some node has. A resource that no node has is never free, so it needs none.
#[derive(Debug)]
pub(crate) struct Resources(BTreeMap<String, usize>);

impl Resources {
    /// Numbers for every resource of `capacities`.
    pub(crate) fn of(capacities: &[Amounts]) -> Self {
        let mut names: BTreeMap<String, usize> =
            capacities.iter().flat_map(BTreeMap::keys).map(|name| (name.clone(), 0)).collect();
        for (index, number) in names.values_mut().enumerate() {
            *number = index;
        }
        Self(names)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, name: &str) -> Option<usize> {
        self.0.get(name).copied()
    }

    /// A row by the resources' names, without what is zero.
    pub(crate) fn named(&self, row: &[i64]) -> Amounts {
        let amounts = self.0.iter().filter_map(|(name, at)| Some((name.clone(), *row.get(*at)?)));
        amounts.filter(|(_, amount)| *amount != 0).collect()
    }

    /// Adds `by` times `each` to a row of amounts.
    pub(crate) fn add(&self, row: &mut [i64], each: &Amounts, by: i64) {
        for (name, amount) in each {
            if let Some(cell) = self.get(name).and_then(|at| row.get_mut(at)) {
                *cell = cell.saturating_add(amount.saturating_mul(by));
            }
        }
    }

    /// Adds what `count` pods take to a row of amounts; a negative count takes it away.
    pub(crate) fn add_pods(&self, row: &mut [i64], per_pod: &Amounts, count: i64) {
        self.add(row, per_pod, count);
        if let Some(cell) = self.get(PODS).and_then(|at| row.get_mut(at)) {
            *cell = cell.saturating_add(count);
        }
    }
}

/// What one pod takes, compiled for many comparisons.
#[derive(Debug)]
pub(crate) struct Demand {
    /// Number of the resource, amount, name; in the order of names.
    entries: Vec<(Option<usize>, i64, String)>,
}

impl Demand {
    /// The demand of one pod, its `pods` included.
    pub(crate) fn of(per_pod: &Amounts, resources: &Resources) -> Self {
        let mut all = per_pod.clone();
        add_scaled(&mut all, &Amounts::from([(PODS.to_owned(), 1)]), 1);
        Self { entries: all.into_iter().map(|(name, amount)| (resources.get(&name), amount, name)).collect() }
    }

    /// How many such pods fit into `left`, and the resource that limits them (the first by name of equals).
    pub(crate) fn fits(&self, left: &[i64]) -> (i64, Option<&str>) {
        let mut least = (0, None);
        for (resource, amount, name) in &self.entries {
            let have = resource.and_then(|at| left.get(at)).copied().unwrap_or(0);
            // nothing asked for: it doesn't limit
            let count = have.checked_div(*amount).map_or(PODS_MAX, |count| count.clamp(0, PODS_MAX));
            if least.1.is_none() || count < least.0 {
                least = (count, Some(name.as_str()));
            }
        }
        least
    }

    /// Takes one such pod out of `left`.
    pub(crate) fn take(&self, left: &mut [i64]) {
        for (resource, amount, _) in &self.entries {
            if let Some(cell) = resource.and_then(|at| left.get_mut(at)) {
                *cell = cell.saturating_sub(*amount);
            }
        }
    }
}

/// What the answers of this call took so far, per leaf.
#[derive(Debug)]
pub(crate) struct Taken<'a> {
    tree: &'a Tree,
    resources: &'a Resources,
    rows: BTreeMap<DomainId, Vec<i64>>,
    shared: Option<&'a mut Assumed>,
}

impl<'a> Taken<'a> {
    /// What `shared` counts so far; it learns of everything that is taken from now on.
    pub(crate) fn new(tree: &'a Tree, resources: &'a Resources, shared: Option<&'a mut Assumed>) -> Self {
        let mut rows: BTreeMap<DomainId, Vec<i64>> = BTreeMap::new();
        for (values, amounts) in shared.as_deref().into_iter().flat_map(Assumed::iter) {
            if let Some(leaf) = tree.leaf(values) {
                resources.add(rows.entry(leaf).or_insert_with(|| vec![0; resources.len()]), amounts, 1);
            }
        }
        Self { tree, resources, rows, shared }
    }

    /// Counts the pods of an answer.
    pub(crate) fn add(&mut self, assignment: &Assignment, per_pod: &Amounts) {
        for domain in &assignment.domains {
            if let Some(leaf) = self.tree.leaf(&domain.values) {
                let row = self.rows.entry(leaf).or_insert_with(|| vec![0; self.resources.len()]);
                self.resources.add_pods(row, per_pod, i64::from(domain.count));
            }
        }
        if let Some(shared) = &mut self.shared {
            shared.add(Usage { assignment, per_pod });
        }
    }

    /// What was taken of a leaf.
    pub(crate) fn row(&self, leaf: DomainId) -> Option<&[i64]> {
        self.rows.get(&leaf).map(Vec::as_slice)
    }
}
