//! Why a flavor can't be assigned: a stable name, the flavor and resource, and a message.

use meridian_queueing::cycle::CycleEntry;
use meridian_queueing::explain::{self, ForbiddenBorrowing, Trial, TrialCapacity, TrialChanges};
use meridian_queueing::flavors::Assignment;
use meridian_queueing::model::{Obstacle, Reason, Shape, WorkloadId};
use meridian_queueing::names::FlavorId;
use meridian_queueing::{Amount, QueueState};
use serde::{Deserialize, Serialize};

/// Why a flavor can't be assigned now or ever.
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

/// Whether only a changed spec or changed quota can help.
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

/// The name of [`forbidden_borrowing`] reasons.
pub(super) const BORROWS: &str = "BorrowsWhileReclaiming";

/// If the queue may not preempt in its cohort only because it would borrow: one reason for each quota that it
/// would have to borrow.
pub(super) fn forbidden_borrowing(state: &QueueState, entry: &CycleEntry) -> Vec<FlavorReason> {
    // The workload may have started or ended since.
    if state.workload(entry.workload).is_none_or(|of| of.holding.is_some()) {
        return Vec::new();
    }
    let usage: Vec<_> = entry.assignment.usage.iter().map(|(key, amount)| (*key, amount.0)).collect();
    let borrowed = explain::forbidden_borrowing(state, entry.workload, &usage);
    let nominal = borrowed.iter().map(|one| (one.key, one.asks)).collect();
    let changes = TrialChanges { nominal, ..TrialChanges::default() };
    if borrowed.is_empty()
        || explain::try_changes(state, entry.workload, &changes, &QuotaOnly) == Trial::Pending
    {
        return Vec::new();
    }
    let reason = |one: &ForbiddenBorrowing| {
        let (flavor, resource) = one.key;
        let amount = |amount: i64| state.amount_text(resource, Amount(amount));
        let (flavor, name) =
            (state.flavor_name(flavor).to_string(), state.resource_name(resource).to_string());
        FlavorReason {
            pod_set: None,
            message: format!(
                "would have to borrow {} {name} in flavor {flavor} (nominal quota {}), and with \
                 `borrowWithinCohort: Never` a borrowing queue can't preempt in its cohort",
                amount(one.asks - one.nominal),
                amount(one.nominal)
            ),
            flavor: Some(flavor),
            resource: Some(name),
            reason: BORROWS.to_owned(),
        }
    };
    borrowed.iter().map(reason).collect()
}

/// A capacity model in which clusters always have capacity.
struct QuotaOnly;

impl TrialCapacity for QuotaOnly {
    fn fits_without(&self, _: &[WorkloadId]) -> bool {
        true
    }

    fn may_preempt(&self, _: WorkloadId) -> bool {
        true
    }
}

/// One reason for each flavor of which earlier entries of the same cycle took quota.
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
