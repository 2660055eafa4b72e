//! Chance from a seed: one stream per purpose, so that a new draw in one place leaves all others as they were.

use meridian_shared::backoff::splitmix;

/// One stream of random numbers (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct Chance(u64);

impl Chance {
    /// The stream of `seed` for one purpose.
    pub(super) fn new(seed: u64, purpose: &str) -> Self {
        Self(purpose.bytes().fold(splitmix(seed), |state, byte| splitmix(state ^ u64::from(byte))))
    }

    /// The next 64 bits.
    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        splitmix(self.0)
    }

    /// The next 128 bits.
    pub(super) fn wide(&mut self) -> u128 {
        u128::from(self.bits()) << 64 | u128::from(self.bits())
    }

    /// Below `n`; 0 when `n` is 0.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.bits() % n }
    }

    /// From `low` to `high`, both included.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True `p` times of 1000.
    pub(super) fn of_1000(&mut self, p: u64) -> bool {
        self.below(1_000) < p
    }

    /// One of `items`.
    pub(super) fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let at = usize::try_from(self.below(items.len() as u64)).expect("an index of a slice");
        items.get(at)
    }

    /// An index below `n`.
    pub(super) fn index(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).expect("an index below a usize")
    }
}
