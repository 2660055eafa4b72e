//! Whether a flavor suits the pods, regardless of quota.

use crate::model::{PodSet, QueueId, Reason, ResourceGroup, Shape};
use crate::names::FlavorId;
use crate::queue_state::QueueState;
use meridian_shared::gang::TaintEffect;
use std::collections::BTreeMap;

/// Why the flavor is unsuitable for these pod sets, regardless of quota.
pub(crate) fn flavor_mismatch(
    state: &QueueState,
    queue: QueueId,
    shape: &Shape,
    group: &[usize],
    resource_group: &ResourceGroup,
    flavor: FlavorId,
) -> Option<Reason> {
    let Some(spec) = state.flavor(flavor) else { return Some(Reason::FlavorNotFound { flavor }) };
    for at in group {
        let set = &shape.pod_sets[*at];
        if (state.settings().gates.topology || state.settings().placed_by_others)
            && let Some(why) = topology_mismatch(state, queue, set, flavor, resource_group)
        {
            return Some(why);
        }
        let untolerated = spec.taints.iter().find(|taint| {
            taint.effect != TaintEffect::PreferNoSchedule
                && !set.tolerations.iter().chain(&spec.tolerations).any(|t| t.covers(taint))
        });
        if let Some(taint) = untolerated {
            return Some(Reason::Taint { flavor, taint: taint.to_string() });
        }
        let selected = set.node_selector.iter().all(|(k, v)| spec.labels.get(k).is_none_or(|has| has == v));
        if !selected || !matches_affinity(set, &spec.labels) {
            return Some(Reason::Affinity { flavor });
        }
    }
    None
}

fn topology_mismatch(
    state: &QueueState,
    queue: QueueId,
    set: &PodSet,
    flavor: FlavorId,
    resource_group: &ResourceGroup,
) -> Option<Reason> {
    let spec = state.flavor(flavor)?;
    if set.requests_topology() {
        if spec.topology.is_none() {
            // The flavor may still provide resources that aren't on nodes.
            let overlaps = set
                .on_node
                .keys()
                .any(|name| state.resource_id(name).is_some_and(|r| resource_group.resources.contains(&r)));
            return overlaps.then_some(Reason::NoTopology { flavor });
        }
        if !state.has_topology(flavor) && spec.levels.is_none() {
            return Some(Reason::TopologyUnknown { flavor });
        }
        return (!state.has_levels(flavor, set)).then_some(Reason::NoLevel { flavor });
    }
    let implied = state.queue(queue).topology_only;
    (!implied && spec.topology.is_some()).then_some(Reason::TopologyOnly { flavor })
}

/// Whether the required node affinity matches a flavor's labels. Keys without a label of the flavor are
/// ignored.
fn matches_affinity(set: &PodSet, labels: &BTreeMap<String, String>) -> bool {
    let mut any = set.affinity.is_empty();
    for term in &set.affinity {
        let mut known = term.iter().filter(|r| labels.contains_key(&r.key)).peekable();
        if known.peek().is_none() {
            return true;
        }
        any |= known.all(|r| r.matches(labels));
    }
    any
}
