//! Orphans of replaced ledgers, until the leases that they may hold have lapsed.

use crate::fingerprint::hash_deadline;
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::lease::ManagerLease;
use meridian_shared::time::{Millis, Mono};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// Orphans of replaced ledgers, with the longest lease that each may hold.
///
/// A lease counts from the first call of [`Self::keep`] with its orphan; later calls don't extend it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LapsingOrphans(BTreeMap<(Uid, Fence), ManagerLease>);

impl LapsingOrphans {
    /// Forgets all terms, because another manager may renew the leases again.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Replaces the orphans by these, each with its term. The lease of a new orphan counts from now.
    pub(crate) fn keep(&mut self, orphans: impl IntoIterator<Item = ((Uid, Fence), Millis)>, now: Mono) {
        let before = std::mem::take(&mut self.0);
        let lease = |key, term| *before.get(&key).unwrap_or(&ManagerLease::from_composed(now, term));
        self.0 = orphans.into_iter().map(|(key, term)| (key, lease(key, term))).collect();
    }

    /// Removes the orphans whose lease has lapsed, and returns them in order.
    pub(crate) fn take_lapsed(&mut self, now: Mono) -> Vec<(Uid, Fence)> {
        self.0.extract_if(.., |_, lease| lease.lapsed(now)).map(|(key, _)| key).collect()
    }

    pub(crate) fn hash_fingerprint(&self, now: Mono, into: &mut impl Hasher) {
        for (key, ManagerLease { term: _, deadline }) in &self.0 {
            key.hash(into);
            hash_deadline(now, *deadline, into);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: Millis = Millis::secs(60);

    #[test]
    fn a_lease_counts_from_the_first_look_since_the_last_doubt() {
        let orphan = (Uid(1), Fence { epoch: 1, leadership: 7, counter: 1 });
        let lapses = ManagerLease::from_composed(Mono(0), TERM).deadline;
        let mut orphans = LapsingOrphans::default();
        orphans.keep([(orphan, TERM)], Mono(0));
        orphans.keep([(orphan, TERM)], Mono(5));
        assert_eq!(orphans.take_lapsed(lapses + Millis(1)), [orphan]);
        orphans.keep([(orphan, TERM)], Mono(0));
        orphans.clear();
        orphans.keep([(orphan, TERM)], Mono(5));
        assert_eq!(orphans.take_lapsed(lapses + Millis(1)), []);
    }
}
