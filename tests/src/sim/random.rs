//! Random numbers from a seed: one stream per purpose, so that a new draw for one purpose doesn't change the
//! others.

use meridian_shared::backoff::splitmix;

/// One stream of random numbers (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The stream of `seed` for one purpose.
    pub(crate) fn new(seed: u64, purpose: &str) -> Self {
        Self(purpose.bytes().fold(splitmix(seed), |state, byte| splitmix(state ^ u64::from(byte))))
    }

    /// The next 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        splitmix(self.0)
    }

    /// The next 128 bits.
    pub(crate) fn wide(&mut self) -> u128 {
        u128::from(self.bits()) << 64 | u128::from(self.bits())
    }

    /// A number below `n`; 0 when `n` is 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.bits() % n }
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True with a probability of `p` in 1000.
    pub(crate) fn permille(&mut self, p: u64) -> bool {
        self.below(1_000) < p
    }

    /// One of `items`.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let at = usize::try_from(self.below(items.len() as u64)).expect("an index of a slice");
        items.get(at)
    }

    /// An index below `n`.
    pub(crate) fn index(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).expect("an index below a usize")
    }
}
