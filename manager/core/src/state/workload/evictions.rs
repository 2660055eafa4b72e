//! Workloads that lost their right to run or their quota without having ended: why, and how often so far.

use crate::state::workload::Workload;
use crate::state::workload::phase::Phase;
use meridian_shared::time::Wall;
use serde::{Deserialize, Serialize};

/// Why a workload lost its right to run or its quota without having ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Evicted {
    /// Kueue's word.
    pub reason: String,
    /// Ours, where Kueue's says less.
    pub cause: String,
    /// When.
    pub at: Wall,
    /// How far it had come.
    pub was: Phase,
}

/// How often that happened for one reason. There are a dozen of them, so that this is bounded.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Evictions {
    /// Kueue's word.
    pub reason: String,
    /// Ours, where Kueue's says less.
    pub cause: String,
    /// How often.
    pub count: u32,
}

impl Workload {
    /// It lost what it had.
    pub(crate) fn evict(&mut self, (reason, cause): (&str, &str), at: Option<Wall>) {
        let evicted = Evicted {
            reason: reason.to_owned(),
            cause: cause.to_owned(),
            at: at.unwrap_or(self.since),
            was: self.phase,
        };
        self.evicted = Some(Box::new(evicted));
        match self.evictions.iter_mut().find(|known| known.reason == reason && known.cause == cause) {
            Some(known) => known.count = known.count.saturating_add(1),
            None => self.evictions.push(Evictions {
                reason: reason.to_owned(),
                cause: cause.to_owned(),
                count: 1,
            }),
        }
    }

    /// Whether its last eviction was the first for that reason.
    pub(crate) fn first_of_its_kind(&self, evicted: &Evicted) -> bool {
        self.evictions
            .iter()
            .any(|known| known.reason == evicted.reason && known.cause == evicted.cause && known.count == 1)
    }
}

/// Nodes of it were lost: it rests before it tries again.
pub(crate) const NODE_FAILURES: &str = "NodeFailures";
