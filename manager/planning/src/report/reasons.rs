//! Why a flavor can't be assigned: a stable name, the flavor and resource, and a message.

use meridian_queueing::QueueState;
use meridian_queueing::cycle::CycleEntry;
use meridian_queueing::flavors::Assignment;
use meridian_queueing::model::Shape;
use meridian_queueing::model::{Obstacle, Reason};
use meridian_queueing::names::FlavorId;
use serde::{Deserialize, Serialize};

/// Why a flavor can't be assigned, or not yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FlavorReason {
    /// Left out if the workload has one pod set, or if the reason concerns all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_set: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Stable name, for programs.
    pub reason: String,
    pub message: String,
}

/// Whether only another spec or another quota can help.
pub(super) fn is_permanent(obstacle: Option<Obstacle>) -> bool {
    matches!(obstacle, Some(Obstacle::ExceedsMaxQuota | Obstacle::NoMatchingFlavor))
}

/// The distinct reasons of an assignment.
pub(super) fn of_assignment(state: &QueueState, shape: &Shape, assignment: &Assignment) -> Vec<FlavorReason> {
    let names_pod_set = shape.pod_sets.len() > 1;
    let mut all: Vec<FlavorReason> = Vec::new();
    for (at, reason) in assignment.reasons() {
        let pod_set = shape.pod_sets.get(at).filter(|_| names_pod_set).map(|set| set.name.to_string());
        let reason = FlavorReason { pod_set, ..flavor_reason(state, reason) };
        if !all.contains(&reason) {
            all.push(reason);
        }
    }
    all
}

/// One reason for each flavor that earlier entries of the same cycle took quota of.
pub(super) fn taken_by_others(state: &QueueState, entry: &CycleEntry) -> Vec<FlavorReason> {
    let mut flavors: Vec<FlavorId> = entry
        .assignment
        .pod_sets
        .iter()
        .flat_map(|set| set.flavors.iter().map(|(_, choice)| choice.flavor))
        .collect();
    flavors.sort_unstable();
    flavors.dedup();
    let reason = |flavor: FlavorId| {
        let name = state.flavor_name(flavor).to_string();
        FlavorReason {
            pod_set: None,
            message: format!("other workloads took the quota of flavor {name} in the same cycle"),
            flavor: Some(name),
            resource: None,
            reason: "TakenByOthers".to_owned(),
        }
    };
    flavors.into_iter().map(reason).collect()
}

pub(super) fn flavor_reason(state: &QueueState, reason: &Reason) -> FlavorReason {
    let (name, flavor, resource) = match reason {
        Reason::ResourceNotCovered { resource } => ("ResourceNotCovered", None, Some(*resource)),
        Reason::FlavorNotFound { flavor } => ("FlavorNotFound", Some(*flavor), None),
        Reason::Taint { flavor, .. } => ("UntoleratedTaint", Some(*flavor), None),
        Reason::Affinity { flavor } => ("NodeAffinityMismatch", Some(*flavor), None),
        Reason::NoTopology { flavor } => ("NoTopology", Some(*flavor), None),
        Reason::TopologyUnknown { flavor } => ("TopologyUnknown", Some(*flavor), None),
        Reason::NoLevel { flavor } => ("NoTopologyLevel", Some(*flavor), None),
        Reason::TopologyOnly { flavor } => ("TopologyOnly", Some(*flavor), None),
        Reason::ExceedsMax { flavor, resource, .. } => ("ExceedsMaxQuota", Some(*flavor), Some(*resource)),
        Reason::Short { flavor, resource, .. } => ("InsufficientUnusedQuota", Some(*flavor), Some(*resource)),
        Reason::SliceFlavor { flavor, .. } => ("OtherFlavorThanSlice", Some(*flavor), None),
        Reason::NotNominated { flavor, resource } => ("NotNominated", Some(*flavor), Some(*resource)),
        Reason::NotAllowed { flavor } => ("FlavorNotAllowed", Some(*flavor), None),
        Reason::Placement(_) => ("TopologyPlacementFailed", None, None),
        Reason::TopologyFlavors(_) => ("TopologyFlavorsConflict", None, None),
    };
    FlavorReason {
        pod_set: None,
        flavor: flavor.map(|flavor| state.flavor_name(flavor).to_string()),
        resource: resource.map(|resource| state.resource_name(resource).to_string()),
        reason: name.to_owned(),
        message: reason.text(state.catalog()),
    }
}
