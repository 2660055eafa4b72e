//! Preemption history: which workloads preempted which, and how often. It prevents preemption cycles, see
//! [`PROTECTION`].
//!
//! The history is durable, so a new leadership continues to count. When a user changes a priority or a quota,
//! earlier preemptions that depended on it no longer count.

use meridian_shared::ids::Uid;
use meridian_shared::time::{Millis, Wall};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How long a preemption counts. In that time a victim may not preempt its preemptor, nor a workload that
/// preempted the preemptor, and so on. Otherwise workloads with contradictory policies, such as priority
/// against reclaim, would preempt each other forever, and each round loses work.
pub const PROTECTION: Millis = Millis::mins(10);

/// Limit of preemptors remembered per victim. The oldest are dropped first.
pub const PREEMPTORS_MAX: usize = 32;

/// One preemptor of a workload.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RecentPreemption {
    pub by: Uid,
    /// Number of preemptions, each within [`PROTECTION`] of the one before.
    pub times: u32,
    /// Time of the last preemption.
    pub at: Wall,
}

impl RecentPreemption {
    /// Whether the preemption still counts.
    pub fn counts_at(&self, now: Wall) -> bool {
        now.since(self.at) < PROTECTION
    }
}

/// Preemptors by victim.
pub type PreemptionHistory = BTreeMap<Uid, Vec<RecentPreemption>>;

/// Records that `by` preempted `victim`, and forgets preemptions of the victim that no longer count.
pub fn note(history: &mut PreemptionHistory, victim: Uid, by: Uid, at: Wall) {
    let preemptors = history.entry(victim).or_default();
    preemptors.retain(|preemptor| preemptor.counts_at(at));
    let times = preemptors
        .iter()
        .position(|preemptor| preemptor.by == by)
        .map_or(0, |known| preemptors.remove(known).times);
    preemptors.push(RecentPreemption { by, times: times.saturating_add(1), at });
    if preemptors.len() > PREEMPTORS_MAX {
        preemptors.remove(0);
    }
}

/// Forgets preemptions that no longer count.
pub fn forget_old(history: &mut PreemptionHistory, now: Wall) {
    history.retain(|_, preemptors| {
        preemptors.retain(|preemptor| preemptor.counts_at(now));
        !preemptors.is_empty()
    });
}

/// Forgets preemptions that involve one workload, or all preemptions, because a user changed a priority or a
/// quota.
pub fn forget_preemptions(history: &mut PreemptionHistory, of: Option<Uid>) {
    history.retain(|victim, preemptors| {
        preemptors.retain(|preemptor| of.is_some_and(|uid| preemptor.by != uid));
        of != Some(*victim) && !preemptors.is_empty()
    });
}
