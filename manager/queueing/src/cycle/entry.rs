//! One head of a queue in a cycle.

use crate::flavors::Assignment;
use crate::model::{QueueId, WorkloadId};
use crate::preempt::Target;
use crate::reason::Obstacle;
use std::sync::Arc;

/// What came of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Not processed yet.
    Nominated,
    /// It can't be admitted as it is, whatever is free.
    Rejected,
    /// It got its quota.
    Admitted,
    /// Others were told to stop for it.
    Preempting,
    /// It fits once others, told to stop for another's sake, are gone.
    Deferred,
    /// Entries before it took what it needs.
    Skipped,
    /// It fits, and what it needs is kept for who waits too long.
    GivesWay,
    /// It would fit if others gave way, and nobody may be made to.
    NoCandidates,
    /// It doesn't fit.
    NoFit,
    /// Quota is there, and no cluster has the room.
    NoPlace,
    /// A gate holds its preemptions back.
    Gated,
    /// It takes over from a variant with a worse flavor, once that has stopped.
    Migrating,
    /// It was told to stop.
    Evicted,
}

/// Where an entry waits afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Requeued {
    /// It is looked at in the next cycle.
    Awake,
    /// It is looked at again when something changes.
    Parked,
}

/// One head of a queue in a cycle.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Who.
    pub workload: WorkloadId,
    /// Its queue.
    pub queue: QueueId,
    /// It holds quota already, and is looked at for its places.
    pub second_pass: bool,
    /// What it would be given.
    pub assignment: Assignment,
    /// Who would have to stop for it.
    pub targets: Vec<Target>,
    /// What came of it.
    pub outcome: Outcome,
    /// What stands in its way.
    pub obstacle: Option<Obstacle>,
    /// What else there is to say.
    pub note: Option<Arc<str>>,
    /// Where it waits afterwards.
    pub requeued: Option<Requeued>,
}

impl Entry {
    pub(super) fn new(workload: WorkloadId, queue: QueueId, second_pass: bool) -> Self {
        Self {
            workload,
            queue,
            second_pass,
            assignment: Assignment::default(),
            targets: Vec::new(),
            outcome: Outcome::Nominated,
            obstacle: None,
            note: None,
            requeued: None,
        }
    }

    pub(super) fn reject(&mut self, obstacle: Obstacle, why: Arc<str>) {
        (self.outcome, self.obstacle, self.note) = (Outcome::Rejected, Some(obstacle), Some(why));
    }

    pub(super) fn skip(&mut self, obstacle: Obstacle, why: &str) {
        (self.outcome, self.obstacle, self.note) = (Outcome::Skipped, Some(obstacle), Some(Arc::from(why)));
    }
}
