//! What follows when workloads are told to stop for another: the room that they free is kept for it, and for a while it is safe
//! from them.
//!
//! Who displaced whom is in the journal, and a new leadership goes on counting what its predecessor counted. Where people decide anew, by
//! another priority or another quota, what was before counts no more. The room that is
//! kept is memory, not state: after a restart it is given to whoever comes first.
//!
//! What is kept for who waits too long is kept in the same way: only that nobody was told to stop for it.

use meridian_shared::ids::Uid;
use meridian_shared::time::{Millis, Wall};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How long a workload is safe from those whom it displaced, and from those who gave way for them: one round is paid for by
/// work that is thrown away, so rights that contradict each other must not go round and round (simulation seeds 1983, 102205).
pub(crate) const PROTECTION: Millis = Millis::mins(10);

/// Of how many others that displaced it a workload is remembered; the oldest go first.
pub(crate) const PREEMPTORS_MAX: usize = 32;

/// That one workload was displaced by another, as the journal knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Displaced {
    /// For whom.
    pub by: Uid,
    /// How often, each time within [`PROTECTION`] of the one before.
    pub times: u32,
    /// The last time.
    pub at: Wall,
}

impl Displaced {
    pub(crate) fn counts_at(&self, now: Wall) -> bool {
        now.since(self.at) < PROTECTION
    }
}

/// By whom each was displaced.
pub(crate) type PreemptionHistory = BTreeMap<Uid, Vec<Displaced>>;

/// Notes that a workload is displaced.
pub(crate) fn note(displaced: &mut PreemptionHistory, victim: Uid, by: Uid, at: Wall) {
    let others = displaced.entry(victim).or_default();
    others.retain(|other| other.counts_at(at));
    let times = others.iter().position(|other| other.by == by).map_or(0, |known| others.remove(known).times);
    others.push(Displaced { by, times: times.saturating_add(1), at });
    if others.len() > PREEMPTORS_MAX {
        others.remove(0);
    }
}

/// Forgets what no longer counts.
pub(crate) fn forget_old(displaced: &mut PreemptionHistory, now: Wall) {
    displaced.retain(|_, others| {
        others.retain(|other| other.counts_at(now));
        !others.is_empty()
    });
}

/// Forgets what was with one workload, or with all: who may displace whom was decided by people anew.
pub(crate) fn forget_preemptions(displaced: &mut PreemptionHistory, of: Option<Uid>) {
    displaced.retain(|victim, others| {
        others.retain(|other| of.is_some_and(|uid| other.by != uid));
        of != Some(*victim) && !others.is_empty()
    });
}
