//! Workloads that hold quota.

use super::reasons::{self, FlavorReason};
use crate::decide::Decisions;
use meridian_queueing::cycle::EntryOutcome;
use meridian_queueing::model::{Delayed, Holding, PodSetAdmission, Shape, Workload, WorkloadId, amount_of};
use meridian_queueing::{Amount, QueueState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    pub workload: String,
    pub cluster_queue: String,
    /// In the form `NAMESPACE/NAME`.
    pub local_queue: String,
    pub priority: i64,
    pub state: HolderState,
    /// The cycle that reserved the quota; left out if the workload held it before the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycle: Option<u32>,
    /// Left out if the workload held its quota before the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub borrowing: Option<BorrowedFrom>,
    /// Admission checks that are not ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<String>,
    pub pod_sets: Vec<AssignedPodSet>,
    /// Why the pods are not placed yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<FlavorReason>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum HolderState {
    Admitted,
    /// An admission check or the placement of pods is still missing.
    QuotaReserved,
    /// The workload is being evicted.
    Stopping,
}

impl HolderState {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admitted => "Admitted",
            Self::QuotaReserved => "QuotaReserved",
            Self::Stopping => "Stopping",
        }
    }
}

/// The cohort that provides the quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BorrowedFrom {
    /// Height of the cohort's subtree; 0 is the queue's own quota.
    pub level: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cohort: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssignedPodSet {
    pub name: String,
    /// Number of admitted pods.
    pub count: u32,
    /// Number of requested pods; larger than `count` after partial admission.
    pub of: u32,
    /// Assigned flavor and amount by resource.
    pub resources: BTreeMap<String, AssignedResource>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<PlacedTopology>,
    /// The pods are placed later, once admission checks are ready.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub topology_pending: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssignedResource {
    pub flavor: String,
    /// Quantity for all pods together.
    pub amount: String,
}

/// The topology domains in which the pods of a set are placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlacedTopology {
    /// Node labels of the levels, the widest first.
    pub levels: Vec<String>,
    pub domains: Vec<PlacedDomain>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlacedDomain {
    /// Label values of the levels.
    pub values: Vec<String>,
    /// Number of pods.
    pub count: u32,
}

/// All holders, by queue and name.
pub(super) fn list(state: &QueueState, decisions: &Decisions) -> Vec<Holder> {
    let mut all: Vec<Holder> = Vec::new();
    for (id, workload) in state.workloads() {
        all.extend(workload.holding.as_ref().map(|holding| holder(state, decisions, id, workload, holding)));
    }
    all.sort_by(|a, b| (&a.cluster_queue, &a.workload).cmp(&(&b.cluster_queue, &b.workload)));
    all
}

fn holder(
    state: &QueueState,
    decisions: &Decisions,
    id: WorkloadId,
    workload: &Workload,
    holding: &Holding,
) -> Holder {
    let shape = state.shape_of(workload.shape);
    let holder_state = match (holding.evicted, holding.admitted) {
        (true, _) => HolderState::Stopping,
        (false, true) => HolderState::Admitted,
        (false, false) => HolderState::QuotaReserved,
    };
    let admission = decisions.admitted.get(&id);
    let checks_open = holder_state == HolderState::QuotaReserved && !workload.marks().checks_ready;
    let checks =
        if checks_open { state.checks_of(id).map(ToString::to_string).collect() } else { Vec::new() };
    let second_pass = decisions.evaluations.get(&id).filter(|e| e.entry.outcome != EntryOutcome::Admitted);
    Holder {
        workload: workload.key.to_string(),
        cluster_queue: state.queue(workload.queue).setup.name.to_string(),
        local_queue: workload.local_queue.to_string(),
        priority: shape.priority,
        state: holder_state,
        cycle: admission.map(|admission| admission.cycle),
        borrowing: admission.map(|admission| borrowed_from(state, workload, admission.borrowing_level)),
        checks,
        pod_sets: holding
            .given
            .iter()
            .enumerate()
            .map(|(at, given)| pod_set(state, shape, at, given))
            .collect(),
        reasons: second_pass
            .map(|evaluation| reasons::of_assignment(state, shape, &evaluation.entry.assignment))
            .unwrap_or_default(),
    }
}

fn borrowed_from(state: &QueueState, workload: &Workload, level: u32) -> BorrowedFrom {
    let node = state.queue(workload.queue).node.filter(|_| level > 0);
    let cohort = node.and_then(|node| {
        state.forest().ancestors(node).find(|ancestor| state.forest().node(*ancestor).height >= level)
    });
    BorrowedFrom { level, cohort: cohort.map(|cohort| state.forest().node(cohort).name.to_string()) }
}

fn pod_set(state: &QueueState, shape: &Shape, at: usize, given: &PodSetAdmission) -> AssignedPodSet {
    let declared = shape.pod_sets.get(at);
    let resources = given.flavors.iter().map(|(resource, flavor)| {
        let amount = state.amount_text(*resource, Amount(amount_of(&given.usage, *resource)));
        let flavor = state.flavor_name(*flavor).to_string();
        (state.resource_name(*resource).to_string(), AssignedResource { flavor, amount })
    });
    AssignedPodSet {
        name: declared.map(|set| set.name.to_string()).unwrap_or_default(),
        count: given.count,
        of: declared.map_or(given.count, |set| set.count),
        resources: resources.collect(),
        topology: given.placement.as_ref().map(|placement| PlacedTopology {
            levels: placement.levels.clone(),
            domains: placement
                .domains
                .iter()
                .map(|domain| PlacedDomain { values: domain.values.clone(), count: domain.count })
                .collect(),
        }),
        topology_pending: given.placement.is_none() && given.delayed == Some(Delayed::Pending),
    }
}
