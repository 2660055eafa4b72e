//! The result of a plan as data: the schema of `meridian plan -o json`.
//!
//! Names are stable within [`API_VERSION`]; fields may be added, and readers must accept that. Amounts are
//! Kubernetes quantities, workloads are `NAMESPACE/NAME`, cycles count from 1, and every list has a fixed
//! order. Empty fields are left out.

mod events;
mod holders;
mod paths;
mod quota;
mod reasons;
mod waiting;

pub use events::{EvictedWorkload, PreemptedWorkload, ReplacedSlice};
pub use holders::{
    AssignedPodSet, AssignedResource, BorrowedFrom, Holder, HolderState, PlacedDomain, PlacedTopology,
};
pub use quota::{CohortUsage, QueueUsage, QuotaUsage, ShareStatus};
pub use reasons::FlavorReason;
pub use waiting::WaitingWorkload;

use crate::decide::{Decisions, Ending};
use crate::load::Loaded;
use events::Events;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Version of the schema.
pub const API_VERSION: &str = "meridian.dev/plan/v1";
/// `kind` of a [`PlanReport`].
pub const KIND: &str = "Plan";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanReport {
    pub api_version: String,
    pub kind: String,
    pub run: PlanRun,
    pub summary: PlanSummary,
    /// Workloads that hold quota at the end, by queue and name.
    pub admitted: Vec<Holder>,
    /// In the order of the decisions, like the next two fields.
    pub preempted: Vec<PreemptedWorkload>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evicted: Vec<EvictedWorkload>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<ReplacedSlice>,
    /// Names of workloads that stand for the scale-up of a running gang.
    #[serde(skip)]
    pub scale_ups: BTreeSet<String>,
    /// Pending workloads at the end, by queue and position.
    pub waiting: Vec<WaitingWorkload>,
    /// Cluster queues by name.
    pub queues: Vec<QueueUsage>,
    /// Cohorts by path.
    pub cohorts: Vec<CohortUsage>,
    /// Problems of the objects that a user should know, such as a workload without a queue.
    pub notes: Vec<String>,
}

/// How the plan was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanRun {
    /// Number of cycles that were run.
    pub cycles: u32,
    pub heads_per_queue: usize,
    pub end: Ending,
}

/// Numbers of workloads at the end, and of changes by the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanSummary {
    pub workloads: usize,
    pub admitted: usize,
    /// Workloads that hold quota and wait for an admission check or a placement.
    pub quota_reserved: usize,
    /// Workloads that hold quota and are being evicted.
    pub stopping: usize,
    pub waiting: usize,
    /// Waiting workloads that only a changed spec or changed quota can help.
    pub blocked_for_good: usize,
    /// Workloads that got their quota in this plan.
    pub newly_admitted: usize,
    pub preemptions: usize,
}

impl PlanReport {
    /// Reports the decisions on the loaded objects.
    pub fn new(loaded: &Loaded, decisions: &Decisions) -> Self {
        let state = &loaded.state;
        let events = Events::new(state, decisions);
        let admitted = holders::list(state, decisions);
        let waiting = waiting::list(loaded, decisions);
        let (queues, cohorts) = quota::list(state);
        let mut evicted: Vec<EvictedWorkload> =
            loaded.drained.iter().map(|(workload, queue)| events.drained(*workload, queue)).collect();
        evicted.extend(decisions.evicted.iter().map(|eviction| events.evicted(eviction)));
        Self {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            run: PlanRun {
                cycles: decisions.cycles,
                heads_per_queue: decisions.heads_per_queue,
                end: decisions.ending,
            },
            summary: summary(&admitted, &waiting, decisions),
            admitted,
            preempted: decisions.preempted.iter().map(|preemption| events.preempted(preemption)).collect(),
            evicted,
            replaced: decisions.replaced.iter().map(|replacement| events.replaced(replacement)).collect(),
            scale_ups: decisions.scale_ups.iter().map(ToString::to_string).collect(),
            waiting,
            queues,
            cohorts,
            notes: loaded.notes.clone(),
        }
    }
}

fn summary(admitted: &[Holder], waiting: &[WaitingWorkload], decisions: &Decisions) -> PlanSummary {
    let in_state = |state: HolderState| admitted.iter().filter(|holder| holder.state == state).count();
    PlanSummary {
        workloads: admitted.len() + waiting.len(),
        admitted: in_state(HolderState::Admitted),
        quota_reserved: in_state(HolderState::QuotaReserved),
        stopping: in_state(HolderState::Stopping),
        waiting: waiting.len(),
        blocked_for_good: waiting.iter().filter(|w| w.blocked_for_good).count(),
        newly_admitted: decisions.admitted.keys().filter(|id| !decisions.held.contains(id)).count(),
        preemptions: decisions.preempted.len(),
    }
}

#[cfg(test)]
mod tests;
