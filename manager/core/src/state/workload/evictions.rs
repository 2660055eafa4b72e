//! Evictions of a workload: the last one, and how many there were by cause.

use crate::facts::end::EvictionCause;
use crate::state::workload::Workload;
use crate::state::workload::phase::Phase;
use meridian_shared::time::Wall;
use serde::{Deserialize, Serialize};

/// The last loss of a right to run, or of quota, without an end of the job.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Evicted {
    pub cause: EvictionCause,
    pub at: Wall,
    /// Phase before the eviction.
    pub was: Phase,
}

/// Number of evictions for one cause. Bounded by the number of causes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Evictions {
    pub cause: EvictionCause,
    pub count: u32,
}

impl Workload {
    pub(super) fn evict(&mut self, cause: EvictionCause, at: Wall) {
        self.evicted = Some(Box::new(Evicted { cause, at, was: self.phase }));
        match self.evictions.iter_mut().find(|known| known.cause == cause) {
            Some(known) => known.count = known.count.saturating_add(1),
            None => self.evictions.push(Evictions { cause, count: 1 }),
        }
    }

    /// Whether the last eviction was the first for its cause.
    pub(crate) fn is_first_eviction(&self, evicted: &Evicted) -> bool {
        self.evictions.iter().any(|known| known.cause == evicted.cause && known.count == 1)
    }
}
