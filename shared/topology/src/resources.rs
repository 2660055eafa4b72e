//! Resources by number, and the number of pods that fit into free capacity.

use meridian_shared::gang::{Amounts, add_scaled};
use std::collections::BTreeMap;

/// The resource of which every pod takes one.
pub const PODS: &str = "pods";

/// Upper bound for the pods of a domain (Kubernetes counts pods in 32 bits).
const PODS_MAX: i64 = i32::MAX as i64;

/// Dense numbers of the resources that at least one node has. Other resources need no number, because their
/// free amount is always zero.
#[derive(Debug)]
pub(crate) struct Resources(BTreeMap<String, usize>);

impl Resources {
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

    /// A row of amounts by resource name, without zeros.
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

    /// Adds the usage of `count` pods to a row of amounts. A negative count subtracts it.
    pub(crate) fn add_pods(&self, row: &mut [i64], per_pod: &Amounts, count: i64) {
        self.add(row, per_pod, count);
        if let Some(cell) = self.get(PODS).and_then(|at| row.get_mut(at)) {
            *cell = cell.saturating_add(count);
        }
    }
}

/// Request of one pod, prepared for many comparisons.
#[derive(Debug)]
pub(crate) struct Demand {
    /// Number of the resource, amount, name; in the order of names.
    entries: Vec<(Option<usize>, i64, String)>,
}

impl Demand {
    /// The demand of one pod, including its `pods`.
    pub(crate) fn of(per_pod: &Amounts, resources: &Resources) -> Self {
        let mut all = per_pod.clone();
        add_scaled(&mut all, &Amounts::from([(PODS.to_owned(), 1)]), 1);
        Self { entries: all.into_iter().map(|(name, amount)| (resources.get(&name), amount, name)).collect() }
    }

    /// Number of pods that fit into `left`, and the limiting resource (the first by name on a tie).
    pub(crate) fn fits(&self, left: &[i64]) -> (i64, Option<&str>) {
        let mut least = (0, None);
        for (resource, amount, name) in &self.entries {
            let have = resource.and_then(|at| left.get(at)).copied().unwrap_or(0);
            // A zero request doesn't limit.
            let count = have.checked_div(*amount).map_or(PODS_MAX, |count| count.clamp(0, PODS_MAX));
            if least.1.is_none() || count < least.0 {
                least = (count, Some(name.as_str()));
            }
        }
        least
    }

    /// Subtracts one pod from `left`.
    pub(crate) fn take(&self, left: &mut [i64]) {
        for (resource, amount, _) in &self.entries {
            if let Some(cell) = resource.and_then(|at| left.get_mut(at)) {
                *cell = cell.saturating_sub(*amount);
            }
        }
    }
}
