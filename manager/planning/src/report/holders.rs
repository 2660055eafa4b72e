//! Who holds quota, and what of it.

use super::reasons::{self, Why};
use crate::decide::Outcome;
use meridian_queueing::cycle::Outcome as Came;
use meridian_queueing::model::{self, Delayed, Workload, WorkloadId, amount_of};
use meridian_queueing::{Amount, Brain};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A workload that holds quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// Namespace and name.
    pub workload: String,
    /// Its cluster queue.
    pub cluster_queue: String,
    /// Its local queue: namespace and name.
    pub local_queue: String,
    /// Its priority.
    pub priority: i64,
    /// Whether it may run.
    pub state: State,
    /// The cycle of this plan in which it got what it holds; none where it held that before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycle: Option<u32>,
    /// From how far away its quota came, where this plan gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub borrowing: Option<Borrowing>,
    /// Admission checks that must agree before it may run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<String>,
    /// What each pod set was given.
    pub pod_sets: Vec<PodSet>,
    /// Why it has no place yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Why>,
}

/// Whether a holder may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum State {
    /// It may.
    Admitted,
    /// A check or a place is still to come.
    QuotaReserved,
    /// It was told to stop.
    Stopping,
}

impl State {
    /// The word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Admitted => "Admitted",
            Self::QuotaReserved => "QuotaReserved",
            Self::Stopping => "Stopping",
        }
    }
}

/// From how far away quota came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Borrowing {
    /// Height of the subtree that holds it; 0 is the queue's own quota.
    pub level: u32,
    /// The cohort at that height.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cohort: Option<String>,
}

/// What one pod set was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSet {
    /// Its name.
    pub name: String,
    /// Pods that start.
    pub count: u32,
    /// Pods that were asked for; more than `count` where it was admitted smaller.
    pub of: u32,
    /// By resource: the flavor, and what all pods take together.
    pub resources: BTreeMap<String, Given>,
    /// Where its pods lie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
    /// Whether that is still to come.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub topology_pending: bool,
}

/// What was given of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Given {
    /// Of which flavor.
    pub flavor: String,
    /// How much, all pods together.
    pub amount: String,
}

/// Where the pods of a set lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// Node labels of the levels, from the top.
    pub levels: Vec<String>,
    /// Domains with pods.
    pub domains: Vec<Domain>,
}

/// Pods in one domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Domain {
    /// Values of the levels.
    pub values: Vec<String>,
    /// Pods.
    pub count: u32,
}

/// Everybody who holds quota, by queue and name.
pub(super) fn list(brain: &Brain, outcome: &Outcome) -> Vec<Holder> {
    let mut all: Vec<Holder> =
        brain.workloads().filter_map(|(id, workload)| one(brain, outcome, id, workload)).collect();
    all.sort_by(|a, b| (&a.cluster_queue, &a.workload).cmp(&(&b.cluster_queue, &b.workload)));
    all
}

fn one(brain: &Brain, outcome: &Outcome, id: WorkloadId, workload: &Workload) -> Option<Holder> {
    let holding = workload.holding.as_ref()?;
    let shape = brain.shape_of(workload.shape);
    let state = match (holding.evicted, holding.admitted) {
        (true, _) => State::Stopping,
        (false, true) => State::Admitted,
        (false, false) => State::QuotaReserved,
    };
    let decided = outcome.admitted.get(&id);
    let checks: Vec<String> = if state == State::QuotaReserved && !workload.marks().checks_ready {
        brain.checks_of(id).map(ToString::to_string).collect()
    } else {
        Vec::new()
    };
    let refused = outcome.looks.get(&id).filter(|look| look.entry.outcome != Came::Admitted);
    Some(Holder {
        workload: workload.key.to_string(),
        cluster_queue: brain.queue(workload.queue).setup.name.to_string(),
        local_queue: workload.local_queue.to_string(),
        priority: shape.priority,
        state,
        cycle: decided.map(|(cycle, _)| *cycle),
        borrowing: decided.map(|(_, level)| borrowing(brain, workload, *level)),
        checks,
        pod_sets: holding
            .given
            .iter()
            .enumerate()
            .map(|(at, given)| pod_set(brain, shape, at, given))
            .collect(),
        reasons: refused
            .map(|look| reasons::of_assignment(brain, shape, &look.entry.assignment))
            .unwrap_or_default(),
    })
}

fn borrowing(brain: &Brain, workload: &Workload, level: u32) -> Borrowing {
    let node = brain.queue(workload.queue).node.filter(|_| level > 0);
    let cohort =
        node.and_then(|node| brain.forest.ancestors(node).find(|at| brain.forest.node(*at).height >= level));
    Borrowing { level, cohort: cohort.map(|at| brain.forest.node(at).name.to_string()) }
}

fn pod_set(brain: &Brain, shape: &model::Shape, at: usize, given: &model::Given) -> PodSet {
    let declared = shape.pod_sets.get(at);
    let resources = given.flavors.iter().map(|(resource, flavor)| {
        let amount = brain.amount_text(*resource, Amount(amount_of(&given.usage, *resource)));
        (
            brain.resource_name(*resource).to_string(),
            Given { flavor: brain.flavor_name(*flavor).to_string(), amount },
        )
    });
    PodSet {
        name: declared.map(|set| set.name.to_string()).unwrap_or_default(),
        count: given.count,
        of: declared.map_or(given.count, |set| set.count),
        resources: resources.collect(),
        topology: given.placement.as_ref().map(|placement| Topology {
            levels: placement.levels.clone(),
            domains: placement
                .domains
                .iter()
                .map(|d| Domain { values: d.values.clone(), count: d.count })
                .collect(),
        }),
        topology_pending: given.placement.is_none() && given.delayed == Some(Delayed::Pending),
    }
}
