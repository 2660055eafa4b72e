//! Workloads that were stopped: by preemption, by eviction, or because a newer slice replaced them.

use super::paths::queue_path;
use crate::decide::{Decisions, PlannedEviction, PlannedPreemption, PlannedReplacement};
use crate::load::DrainedQueue;
use meridian_queueing::QueueState;
use meridian_queueing::cycle::Eviction;
use meridian_queueing::model::{QueueId, WorkloadId};
use meridian_queueing::preemption::PreemptionReason;
use serde::{Deserialize, Serialize};

/// A victim of a preemption.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreemptedWorkload {
    pub workload: String,
    pub cluster_queue: String,
    /// Path of the cluster queue through its cohorts, from the root.
    pub path: String,
    /// Name of the preemptor.
    pub by: String,
    pub by_cluster_queue: String,
    pub by_path: String,
    /// Kueue's name of the preemption reason.
    pub reason: String,
    /// The reason as a sentence.
    pub message: String,
    pub cycle: u32,
}

/// A workload that was evicted for a reason other than preemption.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EvictedWorkload {
    pub workload: String,
    pub cluster_queue: String,
    /// Kueue's name of the eviction reason.
    pub reason: String,
    /// The reason as a sentence.
    pub message: String,
    pub cycle: u32,
}

/// A slice of an elastic workload, replaced by a newer slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplacedSlice {
    /// The old slice.
    pub workload: String,
    /// The new slice.
    pub by: String,
    pub cycle: u32,
}

/// Turns ids into names, including those of workloads that are gone at the end.
pub(super) struct Events<'a> {
    state: &'a QueueState,
    decisions: &'a Decisions,
}

impl<'a> Events<'a> {
    pub(super) fn new(state: &'a QueueState, decisions: &'a Decisions) -> Self {
        Self { state, decisions }
    }

    fn name(&self, id: WorkloadId) -> String {
        self.decisions.workloads.get(&id).map(|known| known.key.to_string()).unwrap_or_default()
    }

    fn queue(&self, id: WorkloadId) -> Option<QueueId> {
        self.decisions.workloads.get(&id).map(|known| known.queue)
    }

    fn queue_name(&self, queue: Option<QueueId>) -> String {
        queue.map(|queue| self.state.queue(queue).setup.name.to_string()).unwrap_or_default()
    }

    fn path(&self, queue: Option<QueueId>) -> String {
        queue.map(|queue| queue_path(self.state, queue)).unwrap_or_default()
    }

    pub(super) fn preempted(&self, preemption: &PlannedPreemption) -> PreemptedWorkload {
        let workload = self.name(preemption.victim);
        let by = self.name(preemption.preemptor);
        let by_queue = self.queue(preemption.preemptor);
        let by_cluster_queue = self.queue_name(by_queue);
        let why = match preemption.right {
            PreemptionReason::InClusterQueue => {
                format!("which is ahead of it in cluster queue `{by_cluster_queue}`")
            }
            PreemptionReason::InCohortReclamation => {
                format!("for which cluster queue `{by_cluster_queue}` reclaims quota that others borrow")
            }
            PreemptionReason::InCohortReclaimWhileBorrowing => {
                format!("which has a higher priority, although cluster queue `{by_cluster_queue}` borrows")
            }
            PreemptionReason::InCohortFairSharing => {
                format!("whose cluster queue `{by_cluster_queue}` has the smaller share")
            }
        };
        PreemptedWorkload {
            message: format!("`{workload}` is preempted by `{by}`, {why}"),
            workload,
            cluster_queue: self.queue_name(Some(preemption.victim_queue)),
            path: queue_path(self.state, preemption.victim_queue),
            by,
            by_path: self.path(by_queue),
            by_cluster_queue,
            reason: preemption.right.as_str().to_owned(),
            cycle: preemption.cycle,
        }
    }

    /// A drained workload is evicted before the first cycle evaluates anything.
    pub(super) fn drained(&self, id: WorkloadId, queue: &DrainedQueue) -> EvictedWorkload {
        let workload = self.name(id);
        let cluster_queue = self.queue_name(self.queue(id));
        let (reason, stopped) = match queue {
            DrainedQueue::ClusterQueue => ("ClusterQueueStopped", format!("cluster queue `{cluster_queue}`")),
            DrainedQueue::LocalQueue(local_queue) => {
                ("LocalQueueStopped", format!("local queue `{local_queue}`"))
            }
        };
        EvictedWorkload {
            message: format!("`{workload}` is evicted: {stopped} is drained (`stopPolicy: HoldAndDrain`)"),
            workload,
            cluster_queue,
            reason: reason.to_owned(),
            cycle: 1,
        }
    }

    pub(super) fn evicted(&self, eviction: &PlannedEviction) -> EvictedWorkload {
        let workload = self.name(eviction.workload);
        let (reason, why) = match eviction.reason {
            Eviction::NodeFailures => ("NodeFailures", "one of its nodes failed, and no other node fits"),
            Eviction::FlavorMigration => {
                ("FlavorMigration", "its variant with a preferred flavor replaces it")
            }
        };
        EvictedWorkload {
            message: format!("`{workload}` is evicted: {why}"),
            workload,
            cluster_queue: self.queue_name(self.queue(eviction.workload)),
            reason: reason.to_owned(),
            cycle: eviction.cycle,
        }
    }

    pub(super) fn replaced(&self, replacement: &PlannedReplacement) -> ReplacedSlice {
        ReplacedSlice {
            workload: self.name(replacement.old),
            by: self.name(replacement.new),
            cycle: replacement.cycle,
        }
    }
}
