//! Sampling of usage for admission fair sharing: when it is next due, and what it must add.

use crate::facts::submission::Consumed;
use crate::fingerprint::hash_deadline;
use meridian_shared::time::{Millis, Mono};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The next sample of the usage history.
///
/// Each penalty is in exactly one sample: [`Self::take_penalties`] hands it over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct UsageSampling {
    next: Mono,
    /// Penalties of admissions since the last sample, by local queue.
    penalties: BTreeMap<Arc<str>, Consumed>,
}

impl UsageSampling {
    pub(crate) fn next(&self) -> Mono {
        self.next
    }

    /// Schedules the next sample if one is due. Returns whether it is.
    pub(crate) fn take_due(&mut self, now: Mono, interval: Millis) -> bool {
        let due = now >= self.next;
        if due {
            self.next = now + interval;
        }
        due
    }

    /// Adds the penalty of an admission to a local queue (`namespace/name`).
    pub(crate) fn add_penalty(
        &mut self,
        local_queue: Arc<str>,
        penalty: impl IntoIterator<Item = (Arc<str>, i128)>,
    ) {
        let of_queue = self.penalties.entry(local_queue).or_default();
        for (resource, amount) in penalty {
            *of_queue.entry(resource).or_insert(0) += amount;
        }
    }

    pub(crate) fn take_penalties(&mut self) -> BTreeMap<Arc<str>, Consumed> {
        std::mem::take(&mut self.penalties)
    }

    pub(crate) fn hash_fingerprint(&self, now: Mono, into: &mut impl Hasher) {
        let Self { next, penalties } = self;
        hash_deadline(now, *next, into);
        penalties.hash(into);
    }
}
