//! Runs with pods of a lost node that wait for a new node. The start of each wait is stored with the run.

use meridian_shared::ids::Uid;
use std::collections::BTreeSet;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ReplacementQueue {
    runs: BTreeSet<Uid>,
    /// Revision of the ledger at the last attempt to replace.
    tried: Option<u64>,
}

impl ReplacementQueue {
    pub(super) fn insert(&mut self, uid: Uid) {
        self.runs.insert(uid);
    }

    pub(super) fn remove(&mut self, uid: Uid) {
        self.runs.remove(&uid);
    }

    pub(super) fn contains(&self, uid: Uid) -> bool {
        self.runs.contains(&uid)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Uid> + '_ {
        self.runs.iter().copied()
    }

    /// Whether the ledger changed since the last attempt.
    pub(super) fn is_outdated(&self, revision: u64) -> bool {
        self.tried != Some(revision)
    }

    pub(super) fn note_tried(&mut self, revision: u64) {
        self.tried = Some(revision);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_tried_again_when_the_ledger_has_changed() {
        let mut queue = ReplacementQueue::default();
        assert!(queue.is_empty() && queue.is_outdated(0));
        queue.insert(Uid(1));
        queue.note_tried(4);
        assert!(!queue.is_empty() && queue.contains(Uid(1)) && !queue.contains(Uid(2)));
        assert!(!queue.is_outdated(4) && queue.is_outdated(5));
        queue.remove(Uid(1));
        assert!(queue.is_empty());
    }
}
