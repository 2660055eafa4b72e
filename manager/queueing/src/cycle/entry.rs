//! Entries of a cycle.

use crate::model::{Assignment, Obstacle, QueueId, Target, WorkloadId};
use std::sync::Arc;

/// Result of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryOutcome {
    /// Not processed yet.
    Nominated,
    /// It can't be admitted as it is.
    Rejected,
    /// It reserved quota.
    Admitted,
    /// Victims were preempted for it.
    Preempting,
    /// It fits once the victims of other entries are gone.
    Deferred,
    /// Previous entries took what it needs.
    Skipped,
    /// It fits, but yields to a starved head.
    Yields,
    /// It would fit after preemption, but may not preempt.
    NoCandidates,
    NoFit,
    /// Quota is available, but no cluster has capacity.
    NoCapacity,
    /// A closed gate blocks its preemptions.
    Gated,
    /// It replaces a variant with a worse flavor once that has stopped.
    Migrating,
    /// It was evicted.
    Evicted,
}

/// Where an entry waits after the cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Requeued {
    /// It is evaluated in the next cycle.
    Active,
    /// It is evaluated again after a change.
    Parked,
}

/// One head of a queue in a cycle.
#[derive(Clone, Debug)]
pub struct CycleEntry {
    pub workload: WorkloadId,
    pub queue: QueueId,
    /// It holds quota already and is evaluated for its topology assignment.
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
