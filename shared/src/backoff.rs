//! Backoff with jitter as a pure function of attempt and seed.

use crate::time::Millis;

/// The wait before attempt `attempt` (from 0): `base`, doubled with each attempt up to `max`. `seed` selects
/// a value from the upper half of that.
pub fn wait(base: Millis, max: Millis, attempt: u32, seed: u64) -> Millis {
    let full = base.0.saturating_mul(1_u64 << attempt.min(32)).min(max.0).max(1);
    let half = full / 2;
    Millis(half + splitmix(seed ^ u64::from(attempt)) % (full - half + 1))
}

/// One step of SplitMix64 (Steele, Lea, Flood 2014): a seeded, stateless source of well-mixed bits.
pub const fn splitmix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_lengthen_are_bounded_and_repeat() {
        for seed in 0..100 {
            for attempt in 0..70 {
                let w = wait(Millis(100), Millis::secs(10), attempt, seed);
                assert!(w <= Millis::secs(10) && w >= Millis(50));
                assert_eq!(w, wait(Millis(100), Millis::secs(10), attempt, seed));
            }
        }
    }
}
