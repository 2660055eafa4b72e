//! Looks up and changes queue state by the names that cases use.

use crate::json::{FlavorUsage, fields, flavor_usage};
use anyhow::Context;
use meridian_queueing::model::{QueueId, WorkloadId};
use meridian_queueing::names::{FlavorId, Id, ResourceId};
use meridian_queueing::quota::NodeId;
use meridian_queueing::{Amount, QueueState};
use serde_json::Value;

/// Usage by names. Leaves out zeros, because missing entries are zero.
pub(crate) fn named_usage(
    state: &QueueState,
    usage: impl IntoIterator<Item = ((FlavorId, ResourceId), Amount)>,
) -> FlavorUsage {
    let mut named = FlavorUsage::new();
    for ((flavor, resource), amount) in usage.into_iter().filter(|(_, amount)| *amount != Amount::ZERO) {
        let resources = named.entry(state.flavor_name(flavor).to_string()).or_default();
        *resources.entry(state.resource_name(resource).to_string()).or_default() += amount.0;
    }
    named
}

/// Adds usage to cluster queues, without workloads.
pub(crate) fn add_usage(state: &mut QueueState, usage: &Value) -> anyhow::Result<()> {
    for (queue, of_queue) in fields(usage) {
        let node = node(state, queue)?;
        let tree = state.forest().node(node).tree;
        for (flavor, resources) in flavor_usage(of_queue)? {
            let flavor = state.flavor_id(&flavor);
            for (resource, amount) in resources {
                let resource = state.resource(&resource);
                let cell = state.cell_id(tree, (flavor, resource));
                state.add_usage(node, cell, Amount(amount));
            }
        }
    }
    Ok(())
}

/// Removes all usage of all queues.
pub(crate) fn clear_usage(state: &mut QueueState) {
    let queues: Vec<(NodeId, usize)> = state
        .forest()
        .nodes()
        .filter(|(_, node)| !node.cohort)
        .map(|(id, node)| (id, state.forest().tree(node.tree).cells.len()))
        .collect();
    for (node, cells) in queues {
        for index in 0..cells {
            let cell = Id::new(u32::try_from(index).unwrap_or(u32::MAX));
            let used = state.forest().cell(node, cell).usage;
            state.remove_usage(node, cell, used);
        }
    }
}

pub(crate) fn queue(state: &QueueState, name: &str) -> anyhow::Result<QueueId> {
    state.queue_id(name).with_context(|| format!("cluster queue `{name}` not found"))
}

/// The node of a cluster queue in the forest of cohorts.
pub(crate) fn node(state: &QueueState, name: &str) -> anyhow::Result<NodeId> {
    let queue = state.queue(queue(state, name)?);
    queue.node.with_context(|| format!("cluster queue `{name}` is not in the forest"))
}

pub(crate) fn cohort_or_queue(state: &QueueState, kind: &str, name: &str) -> anyhow::Result<NodeId> {
    if kind == "Cohort" {
        state.forest().cohort(name).with_context(|| format!("cohort `{name}` not found"))
    } else {
        node(state, name)
    }
}

pub(crate) fn workload_id(state: &QueueState, key: &str) -> anyhow::Result<WorkloadId> {
    state.find(key).with_context(|| format!("workload `{key}` not found"))
}

/// `NAMESPACE/NAME`; empty if the workload is gone.
pub(crate) fn workload_key(state: &QueueState, id: WorkloadId) -> String {
    state.workload(id).map(|workload| workload.key.to_string()).unwrap_or_default()
}

/// Names from the root cohort to the queue.
pub(crate) fn path(state: &QueueState, queue: QueueId) -> Vec<String> {
    let Some(node) = state.queue(queue).node else { return vec![state.queue(queue).setup.name.to_string()] };
    let mut names: Vec<String> = std::iter::once(node)
        .chain(state.forest().ancestors(node))
        .map(|ancestor| state.forest().node(ancestor).name.to_string())
        .collect();
    names.reverse();
    names
}
