//! When starved heads of queues are next searched for.

use crate::fingerprint::hash_deadline;
use meridian_shared::time::{Millis, Mono};
use std::hash::{Hash, Hasher};

/// Searches for starved heads: at intervals, and earlier on request.
///
/// A search that is due is made once, by the next scheduling pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StarvationChecks {
    /// Time alone triggers no search before this time.
    next: Mono,
    /// Whether the next pass searches.
    due: bool,
}

impl StarvationChecks {
    pub(crate) fn next(&self) -> Mono {
        self.next
    }

    /// Makes the next pass search for starved heads.
    pub(crate) fn request(&mut self) {
        self.due = true;
    }

    /// Requests a search if the interval since the last one has passed. Returns whether it has.
    pub(crate) fn request_by_time(&mut self, now: Mono, interval: Millis) -> bool {
        if now < self.next {
            return false;
        }
        (self.next, self.due) = (now + interval, true);
        true
    }

    /// Whether this pass searches. The search counts as made.
    pub(crate) fn take_due(&mut self) -> bool {
        std::mem::take(&mut self.due)
    }

    pub(crate) fn hash_fingerprint(&self, now: Mono, into: &mut impl Hasher) {
        let Self { next, due } = self;
        hash_deadline(now, *next, into);
        due.hash(into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_due_once_in_an_interval_or_on_request() {
        let mut checks = StarvationChecks::default();
        assert!(checks.request_by_time(Mono(5), Millis(10)));
        assert_eq!(checks.next(), Mono(15));
        assert!(checks.take_due() && !checks.take_due());
        assert!(!checks.request_by_time(Mono(14), Millis(10)) && !checks.take_due());
        checks.request();
        assert!(checks.take_due());
        assert!(checks.request_by_time(Mono(15), Millis(10)) && checks.take_due());
    }
}
