//! What a session knows about its agent's legs, and when it must ask for an inventory.

use crate::fingerprint::hash_deadline;
use meridian_shared::time::{Millis, Mono};
use std::hash::{Hash, Hasher};

/// Whether the agent has sent a complete inventory, and when the next one is asked for.
///
/// A session begins without an inventory and asks for one. A later difference of digests asks again, but the
/// earlier inventory still counts as taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InventoryState {
    /// Whether the agent has sent a complete inventory to this leadership.
    taken: bool,
    /// Whether the next answer asks for an inventory.
    wanted: bool,
    /// When digests are next compared.
    digest_at: Mono,
}

impl InventoryState {
    /// A session that was opened at `now`.
    pub(crate) fn unknown(now: Mono) -> Self {
        Self { taken: false, wanted: true, digest_at: now }
    }

    /// Whether the agent has sent a complete inventory to this leadership.
    pub fn is_taken(&self) -> bool {
        self.taken
    }

    /// Whether the next answer asks for an inventory.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Makes the next answer ask for an inventory.
    pub(crate) fn want(&mut self) {
        self.wanted = true;
    }

    /// A complete inventory was taken.
    pub(crate) fn complete(&mut self) {
        (self.taken, self.wanted) = (true, false);
    }

    /// Whether digests are to be compared now. If so, the next comparison is due after `interval`.
    pub(crate) fn take_due_comparison(&mut self, now: Mono, interval: Millis) -> bool {
        let due = now >= self.digest_at;
        if due {
            self.digest_at = now + interval;
        }
        due
    }

    pub(crate) fn hash_fingerprint(&self, now: Mono, into: &mut impl Hasher) {
        let Self { taken, wanted, digest_at } = self;
        (taken, wanted).hash(into);
        hash_deadline(now, *digest_at, into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_compared_once_per_interval() {
        let mut state = InventoryState::unknown(Mono(100));
        let due = [99, 100, 101, 149, 150].map(|at| state.take_due_comparison(Mono(at), Millis(50)));
        assert_eq!(due, [false, true, false, false, true]);
    }

    #[test]
    fn an_inventory_that_was_taken_still_counts_when_another_is_asked_for() {
        let mut state = InventoryState::unknown(Mono(0));
        assert_eq!((state.is_taken(), state.is_wanted()), (false, true));
        state.complete();
        assert_eq!((state.is_taken(), state.is_wanted()), (true, false));
        state.want();
        assert_eq!((state.is_taken(), state.is_wanted()), (true, true));
    }
}
