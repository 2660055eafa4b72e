//! Node labels that a flavor or pod set requires and no node of a cluster has.

use crate::asker::AskedWorld;
use crate::explain::case::Case;
use meridian_manager_core::facts::reason::Why;
use meridian_shared::ids::ClusterName;
use meridian_shared::packing::{Block, Misfit};
use std::collections::BTreeSet;

/// Most values of a label that are named.
const VALUES_MAX: usize = 4;

/// Message and remedy if no node of a cluster has a label that the workload's pods or flavors require.
pub(crate) fn unmet_label(
    world: &AskedWorld<'_>,
    case: &Case<'_>,
    cluster: &ClusterName,
    why: &Why,
) -> Option<(String, String)> {
    let Why::NoCapacity(Misfit::NoSuchNode { pod_set, .. }) = why else { return None };
    let set = case.gang.pod_sets.iter().find(|set| set.name == *pod_set)?;
    let capacity = world.live().cluster(cluster)?.capacity();
    let (blocks, pools) = (capacity.blocks(), capacity.provisionable());
    let (label, value) = set.node_selector.iter().find(|(label, value)| {
        let has = |block: &Block| block.nodes > 0 && block.labels.get(*label) == Some(*value);
        !blocks.iter().chain(pools).any(has)
    })?;
    let has = values_message(cluster, blocks, label);
    Some(match flavor_with(world, case, label, value) {
        Some(flavor) => (
            format!("flavor `{flavor}` wants `{label}={value}`; {has}"),
            format!("add nodes with this label there, or correct the nodeLabels of flavor `{flavor}`"),
        ),
        None => (
            format!("pod set `{pod_set}` selects `{label}={value}`; {has}"),
            "add nodes with this label there, or correct the nodeSelector of the pods".to_owned(),
        ),
    })
}

/// The flavor of the workload's quota that has a node label.
fn flavor_with(world: &AskedWorld<'_>, case: &Case<'_>, label: &str, value: &str) -> Option<String> {
    let queues = world.mirror().queue_state();
    let flavors: BTreeSet<_> =
        case.usage.iter().map(|((flavor, _), _)| queues.flavor_name(*flavor)).collect();
    let has = |flavor: &&&std::sync::Arc<str>| {
        let spec = world.state().catalog().flavor(flavor);
        spec.is_some_and(|spec| spec.node_labels.get(label).is_some_and(|of| of == value))
    };
    flavors.iter().find(has).map(|flavor| flavor.to_string())
}

fn values_message(cluster: &ClusterName, blocks: &[Block], label: &str) -> String {
    let present = blocks.iter().filter(|block| block.nodes > 0);
    let values: BTreeSet<&str> =
        present.filter_map(|block| block.labels.get(label)).map(String::as_str).collect();
    if values.is_empty() {
        return format!("no node of `{cluster}` has a label `{label}`");
    }
    let mut named: Vec<String> =
        values.iter().take(VALUES_MAX).map(|value| format!("`{label}={value}`")).collect();
    if let Some(more) = values.len().checked_sub(VALUES_MAX).filter(|more| *more > 0) {
        named.push(format!("{more} other values"));
    }
    let last = named.pop().unwrap_or_default();
    let has = if named.is_empty() { last } else { format!("{} and {last}", named.join(", ")) };
    format!("nodes of `{cluster}` have {has}")
}
