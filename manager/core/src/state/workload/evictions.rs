//! Evictions of a workload: the last one, and how many there were by cause.

use crate::facts::end::EvictionCause;
use crate::state::workload::Workload;
use crate::state::workload::phase::Phase;
use meridian_shared::time::Wall;
use serde::{Deserialize, Serialize};

/// A loss of quota or of the right to run before the job ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Evicted {
    pub cause: EvictionCause,
    pub at: Wall,
    /// The phase before the eviction.
    pub was: Phase,
}

/// Number of evictions for one cause.
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

    /// Whether this eviction is the only one for its cause so far.
    pub(crate) fn is_first_eviction(&self, evicted: &Evicted) -> bool {
        self.evictions.iter().any(|known| known.cause == evicted.cause && known.count == 1)
    }
}
