//! Workloads whose stored manifest is known to be unreadable.

use meridian_shared::ids::Uid;
use std::collections::BTreeSet;

/// Workloads whose stored manifest is known to be unreadable.
///
/// Damage is a fact about the disk, so a new leadership of the same process keeps this set. It contains only
/// workloads that exist.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DamagedManifests(BTreeSet<Uid>);

impl DamagedManifests {
    pub fn contains(&self, uid: Uid) -> bool {
        self.0.contains(&uid)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes an unreadable manifest. Returns whether that is news.
    pub(crate) fn note_damaged(&mut self, uid: Uid) -> bool {
        self.0.insert(uid)
    }

    /// Notes that the manifest can be read again, or that its workload is gone. Returns whether it was
    /// damaged.
    pub(crate) fn forget(&mut self, uid: Uid) -> bool {
        self.0.remove(&uid)
    }

    /// The part of the set whose workloads still exist.
    pub(crate) fn of_existing(&self, exists: impl Fn(&Uid) -> bool) -> Self {
        Self(self.0.iter().filter(|uid| exists(uid)).copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_contains_what_is_damaged_and_still_exists() {
        let mut damaged = DamagedManifests::default();
        assert!(damaged.is_empty());
        assert!(damaged.note_damaged(Uid(1)) && damaged.note_damaged(Uid(2)));
        assert!(!damaged.note_damaged(Uid(1)), "no news");
        assert_eq!((damaged.len(), damaged.is_empty()), (2, false));
        let left = damaged.of_existing(|uid| *uid == Uid(2));
        assert_eq!((left.contains(Uid(1)), left.contains(Uid(2)), left.len()), (false, true, 1));
        assert!(damaged.forget(Uid(1)) && !damaged.forget(Uid(1)));
    }
}
