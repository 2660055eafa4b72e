//! How the nodes of a flavor are bought.

use crate::state::catalog::Catalog;
use meridian_objects::spec::{CapacityClass, Provisionable, ResourceFlavorSpec};
use std::collections::BTreeSet;

/// The class by the flavor's labels or, if they don't tell it, the class of the pools with these labels. If
/// the pools don't tell it either, or differ, the flavor counts as bought on demand.
pub(crate) fn capacity_class(catalog: &Catalog, flavor: &str) -> CapacityClass {
    let known = catalog.flavor(flavor).filter(|spec| !spec.node_labels.is_empty());
    let class = known.and_then(|spec| {
        CapacityClass::of_labels(&spec.node_labels).or_else(|| class_of_pools(catalog, spec))
    });
    class.unwrap_or(CapacityClass::OnDemand)
}

fn class_of_pools(catalog: &Catalog, flavor: &ResourceFlavorSpec) -> Option<CapacityClass> {
    let has_labels = |pool: &&Provisionable| {
        flavor.node_labels.iter().all(|(label, value)| pool.labels.get(label) == Some(value))
    };
    let pools = catalog.clusters().flat_map(|(_, spec)| &spec.provisionable).filter(has_labels);
    let classes: BTreeSet<CapacityClass> = pools.map(|pool| pool.capacity_class).collect();
    classes.first().filter(|_| classes.len() == 1).copied()
}
