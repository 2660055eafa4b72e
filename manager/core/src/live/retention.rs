//! Finished workloads, and when they are next checked for their retention time.

use meridian_shared::ids::Uid;
use meridian_shared::time::{Mono, Wall};
use std::collections::BTreeSet;

/// Finished workloads by the time of their end.
///
/// A cache over durable state: every finished workload that isn't forgotten is in it, once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Retention {
    finished: BTreeSet<(Wall, Uid)>,
    next_check: Mono,
}

impl Retention {
    /// The same workloads for the next leadership, due for a check at once.
    pub(crate) fn of_next_leadership(&mut self) -> Self {
        Self { finished: std::mem::take(&mut self.finished), next_check: Mono(0) }
    }

    /// Finished workloads, the earliest end first.
    pub(crate) fn finished(&self) -> impl ExactSizeIterator<Item = (Wall, Uid)> {
        self.finished.iter().copied()
    }

    pub(crate) fn add_finished(&mut self, at: Wall, uid: Uid) {
        self.finished.insert((at, uid));
    }

    /// Drops a workload that was forgotten.
    pub(crate) fn forget(&mut self, at: Wall, uid: Uid) {
        self.finished.remove(&(at, uid));
    }

    /// Whether finished workloads are to be checked now.
    pub(crate) fn is_due(&self, now: Mono) -> bool {
        now >= self.next_check
    }

    pub(crate) fn check_next_at(&mut self, at: Mono) {
        self.next_check = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_leadership_checks_the_same_workloads_at_once() {
        let mut retention = Retention::default();
        retention.add_finished(Wall(2), Uid(2));
        retention.add_finished(Wall(1), Uid(1));
        retention.add_finished(Wall(3), Uid(3));
        retention.forget(Wall(2), Uid(2));
        retention.check_next_at(Mono(10));
        assert!(!retention.is_due(Mono(9)) && retention.is_due(Mono(10)));
        let next = retention.of_next_leadership();
        assert!(next.is_due(Mono(0)));
        assert!(next.finished().eq([(Wall(1), Uid(1)), (Wall(3), Uid(3))]));
    }
}
