//! Reasons as data: which flavor and resource each is about, and its words.

use meridian_queueing::Brain;
use meridian_queueing::cycle::Entry;
use meridian_queueing::flavors::Assignment;
use meridian_queueing::model::Shape;
use meridian_queueing::names::FlavorId;
use meridian_queueing::reason::{Obstacle, Reason};
use serde::{Deserialize, Serialize};

/// Why a flavor doesn't serve, or not yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// The pod set; left out where one reason is everybody's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_set: Option<String>,
    /// The flavor, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavor: Option<String>,
    /// The resource, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// A word that stays.
    pub reason: String,
    /// In words.
    pub message: String,
}

/// Whether waiting doesn't help: only other declarations do.
pub(super) fn for_good(obstacle: Option<Obstacle>) -> bool {
    matches!(obstacle, Some(Obstacle::ExceedsMaxQuota | Obstacle::NoMatchingFlavor))
}

/// Every reason of an assignment, once.
pub(super) fn of_assignment(brain: &Brain, shape: &Shape, assignment: &Assignment) -> Vec<Why> {
    let several = shape.pod_sets.len() > 1;
    let mut all: Vec<Why> = Vec::new();
    for (at, reason) in assignment.reasons() {
        let name = shape.pod_sets.get(at).filter(|_| several).map(|set| set.name.to_string());
        let why = Why { pod_set: name, ..of(brain, reason) };
        if !all.contains(&why) {
            all.push(why);
        }
    }
    all
}

/// The flavors that others of the same cycle took first.
pub(super) fn taken(brain: &Brain, entry: &Entry) -> Vec<Why> {
    let mut flavors: Vec<FlavorId> = entry
        .assignment
        .pod_sets
        .iter()
        .flat_map(|set| set.flavors.iter().map(|(_, choice)| choice.flavor))
        .collect();
    flavors.sort_unstable();
    flavors.dedup();
    let why = |flavor: FlavorId| {
        let name = brain.flavor_name(flavor).to_string();
        let message = format!("others took quota of flavor {name} first");
        Why { pod_set: None, flavor: Some(name), resource: None, reason: "TakenByOthers".to_owned(), message }
    };
    flavors.into_iter().map(why).collect()
}

/// One reason.
pub(super) fn of(brain: &Brain, reason: &Reason) -> Why {
    let (word, flavor, resource) = match reason {
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
    Why {
        pod_set: None,
        flavor: flavor.map(|f| brain.flavor_name(f).to_string()),
        resource: resource.map(|r| brain.resource_name(r).to_string()),
        reason: word.to_owned(),
        message: reason.text(brain),
    }
}
