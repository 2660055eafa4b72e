//! The result of a cycle.

use crate::cycle::{CycleEntry, EntryOutcome, SkippedHead};
use crate::model::{PreemptionReason, QueueId, WorkloadId};
use std::collections::BTreeMap;

/// Result of a cycle.
#[derive(Clone, Debug, Default)]
pub struct CycleReport {
    /// Every evaluated head.
    pub entries: Vec<CycleEntry>,
    /// Heads that stay parked without evaluation.
    pub skipped: Vec<SkippedHead>,
    /// Preempted workloads: victim, preemptor, reason.
    pub preempted: Vec<(WorkloadId, WorkloadId, PreemptionReason)>,
    /// Workloads evicted for other reasons.
    pub evicted: Vec<(WorkloadId, Eviction)>,
    /// Replaced slices: old and new.
    pub replaced: Vec<(WorkloadId, WorkloadId)>,
    /// Number of entries per queue that were skipped because another entry has the same victims.
    pub skipped_preemptions: BTreeMap<QueueId, u32>,
    /// Results of searching new victims after an overlap, by queue.
    pub recomputed: BTreeMap<(QueueId, Recomputed), u32>,
}

impl CycleReport {
    /// Whether anything was admitted, preempted or evicted.
    pub fn progress(&self) -> bool {
        !self.preempted.is_empty()
            || !self.evicted.is_empty()
            || self.entries.iter().any(|e| e.outcome == EntryOutcome::Admitted)
    }
}

/// Why a holder was evicted, other than by preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Eviction {
    /// The workload lost a node without a replacement.
    NodeFailures,
    /// A variant with a better flavor takes over.
    FlavorMigration,
}

/// Result of searching new victims after an overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Recomputed {
    /// The entry fits once the victims of others are gone.
    DeferredFit,
    NewTargets,
    /// There are no other victims.
    Skipped,
}
