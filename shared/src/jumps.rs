//! Pauses of a machine that only wall time shows.
//!
//! A virtual machine that is paused, or restored from a snapshot of its memory, resumes with the boot time at
//! which it stopped. Its wall clock is then corrected. So time by which the wall clock ran ahead between two
//! observations counts as elapsed for an agent's leases and a leader's claim, which must end in time.
//!
//! Each observation is compared only with the previous one, so setting the wall clock back hides no later
//! pause and never gives time back. A pause before the first observation after the set-back can't be
//! detected.

use crate::time::{Millis, Now};

/// Smaller differences may come from reading one clock after the other. They count only once their sum is
/// larger.
pub const SLEW_MAX: Millis = Millis(20);

/// State of one observer's two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClockJumps {
    lead: i64,
}

impl ClockJumps {
    /// The first observation.
    pub fn since(now: Now) -> Self {
        Self { lead: lead(now) }
    }

    /// How far wall time is ahead of boot time, as counted so far.
    pub const fn lead(&self) -> i64 {
        self.lead
    }

    /// Jump that an observation would count now.
    pub fn ahead(&self, now: Now) -> Millis {
        let ahead = Millis(u64::try_from(lead(now).saturating_sub(self.lead)).unwrap_or(0));
        if ahead > SLEW_MAX { ahead } else { Millis(0) }
    }

    /// How far wall time ran ahead of boot time since the last observation. The caller must count this time
    /// as elapsed, once.
    pub fn observe(&mut self, now: Now) -> Millis {
        let (ahead, lead) = (self.ahead(now), lead(now));
        if ahead > Millis(0) || lead < self.lead {
            self.lead = lead;
        }
        ahead
    }
}

fn lead(now: Now) -> i64 {
    now.wall.0.saturating_sub(i64::try_from(now.mono.0).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{Mono, Wall};

    fn at(mono: u64, wall: i64) -> Now {
        Now { mono: Mono(mono), wall: Wall(wall) }
    }

    #[test]
    fn only_wall_time_that_ran_ahead_counts() {
        let mut jumps = ClockJumps::since(at(1_000, 50_000));
        assert_eq!(jumps.observe(at(2_000, 51_000)), Millis(0));
        assert_eq!(
            (jumps.ahead(at(3_000, 52_020)), jumps.observe(at(3_000, 52_020))),
            (Millis(0), Millis(0)),
            "clocks that were read one after the other"
        );
        assert_eq!(jumps.ahead(at(4_000, 62_020)), Millis(9_020));
        assert_eq!(jumps.observe(at(4_000, 62_020)), Millis(9_020), "all of it, once it is more");
        assert_eq!(jumps.observe(at(5_000, 63_020)), Millis(0));
    }

    #[test]
    fn a_wall_clock_set_back_hides_no_later_pause() {
        let mut jumps = ClockJumps::since(at(1_000, 3_700_000));
        assert_eq!(jumps.observe(at(2_000, 101_000)), Millis(0));
        assert_eq!(jumps.observe(at(3_000, 702_000)), Millis(600_000));
    }

    #[test]
    fn small_pauses_add_up_and_jitter_does_not() {
        let mut jumps = ClockJumps::since(at(0, 0));
        let small: u64 =
            (1..=100).map(|i| jumps.observe(at(i * 1_000, i64::try_from(i * 1_015).unwrap())).0).sum();
        assert!((1_480..=1_500).contains(&small), "{small}");
        let mut jumps = ClockJumps::since(at(0, 0));
        assert!(
            (1..=100_u64)
                .all(|i| jumps.observe(at(i * 10, i64::try_from(i * 10 + i % 3).unwrap())) == Millis(0))
        );
    }
}
