//! Entries of a cycle.

use crate::model::{Assignment, Obstacle, QueueId, Target, WorkloadId};
use std::sync::Arc;

/// Result of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryOutcome {
    /// Not processed yet.
    Nominated,
    /// The workload can't be admitted as it is.
    Rejected,
    /// The workload reserved quota.
    Admitted,
    /// Victims were preempted for it.
    Preempting,
    /// The workload fits once the victims of other entries are gone.
    Deferred,
    /// Previous entries took the quota or capacity that it needs.
    Skipped,
    /// The workload fits, but yields to a starved head.
    Yields,
    /// The workload would fit after preemption, but may not preempt.
    NoCandidates,
    NoFit,
    /// Quota is available, but no cluster has capacity.
    NoCapacity,
    /// A closed gate blocks its preemptions.
    Gated,
    /// The workload replaces a variant with a worse flavor once that variant has stopped.
    Migrating,
    /// The workload was evicted.
    Evicted,
}

/// State of a workload in its queue after the cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Requeued {
    /// The workload is evaluated in the next cycle.
    Active,
    /// The workload is evaluated again after a change.
    Parked,
}

/// One head of a queue in a cycle.
#[derive(Clone, Debug)]
pub struct CycleEntry {
    pub workload: WorkloadId,
    pub queue: QueueId,
    /// Whether the workload holds quota already and is evaluated for its topology assignment.
    pub second_pass: bool,
    pub assignment: Assignment,
    /// Victims that would have to stop.
    pub targets: Vec<Target>,
    pub outcome: EntryOutcome,
    pub obstacle: Option<Obstacle>,
    /// More details for users.
    pub note: Option<Arc<str>>,
    pub requeued: Option<Requeued>,
}

impl CycleEntry {
    pub(crate) fn new(workload: WorkloadId, queue: QueueId, second_pass: bool) -> Self {
        Self {
            workload,
            queue,
            second_pass,
            assignment: Assignment::default(),
            targets: Vec::new(),
            outcome: EntryOutcome::Nominated,
            obstacle: None,
            note: None,
            requeued: None,
        }
    }

    /// Sets the outcome and the main obstacle.
    pub(super) fn end(&mut self, outcome: EntryOutcome, obstacle: Obstacle) {
        (self.outcome, self.obstacle) = (outcome, Some(obstacle));
    }

    pub(super) fn reject(&mut self, obstacle: Obstacle, why: Arc<str>) {
        (self.outcome, self.obstacle, self.note) = (EntryOutcome::Rejected, Some(obstacle), Some(why));
    }

    pub(super) fn skip(&mut self, obstacle: Obstacle, why: &str) {
        (self.outcome, self.obstacle, self.note) =
            (EntryOutcome::Skipped, Some(obstacle), Some(Arc::from(why)));
    }
}
