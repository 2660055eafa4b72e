//! Usage of placed pods.

use crate::assignment::Assignment;
use crate::resources::{PODS, Resources};
use crate::tree::{DomainId, Tree};
use meridian_shared::gang::{Amounts, add_scaled};
use std::collections::BTreeMap;

/// Usage of the pods of one assignment.
#[derive(Clone, Copy, Debug)]
pub struct Usage<'a> {
    pub assignment: &'a Assignment,
    /// Usage of one pod, without its `pods`.
    pub per_pod: &'a Amounts,
}

/// Assignments of earlier calls that no topology counts yet.
///
/// Start with an empty one per workload and pass it to
/// [`Topology::assign_with_assumed`](crate::Topology::assign_with_assumed) for each flavor in turn, so that
/// pod sets of flavors that share hosts don't take the same capacity twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assumed {
    by_domain: BTreeMap<Vec<String>, Amounts>,
}

impl Assumed {
    pub fn add(&mut self, usage: Usage<'_>) {
        for domain in &usage.assignment.domains {
            let taken = self.by_domain.entry(domain.values.clone()).or_default();
            add_scaled(taken, usage.per_pod, i64::from(domain.count));
            add_scaled(taken, &Amounts::from([(PODS.to_owned(), 1)]), i64::from(domain.count));
        }
    }

    /// Counts `amounts` in the domain with these values.
    pub fn add_amounts(&mut self, values: &[String], amounts: &Amounts) {
        add_scaled(self.by_domain.entry(values.to_vec()).or_default(), amounts, 1);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Vec<String>, &Amounts)> {
        self.by_domain.iter()
    }
}

/// Usage of the assignments made so far in one call, per leaf.
#[derive(Debug)]
pub(crate) struct Taken<'a> {
    tree: &'a Tree,
    resources: &'a Resources,
    rows: BTreeMap<DomainId, Vec<i64>>,
    shared: Option<&'a mut Assumed>,
}

impl<'a> Taken<'a> {
    /// Starts with the usage in `shared`. All later assignments are added to it too.
    pub(crate) fn new(tree: &'a Tree, resources: &'a Resources, shared: Option<&'a mut Assumed>) -> Self {
        let mut rows: BTreeMap<DomainId, Vec<i64>> = BTreeMap::new();
        for (values, amounts) in shared.as_deref().into_iter().flat_map(Assumed::iter) {
            if let Some(leaf) = tree.leaf(values) {
                resources.add(rows.entry(leaf).or_insert_with(|| vec![0; resources.len()]), amounts, 1);
            }
        }
        Self { tree, resources, rows, shared }
    }

    /// Counts the pods of an assignment.
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

    /// Usage of a leaf.
    pub(crate) fn row(&self, leaf: DomainId) -> Option<&[i64]> {
        self.rows.get(&leaf).map(Vec::as_slice)
    }
}
