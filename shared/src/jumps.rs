//! Pauses of a machine that its boot-time clock slept through: only wall time shows them.
//!
//! A virtual machine that is paused, or restored from a snapshot of its memory, goes on with the boot time at which it stood
//! still, while everybody else's time went on. Its wall clock is put right then, so what wall time ran ahead between two looks
//! counts as elapsed for whoever must be gone in time. Each look counts by itself: a wall clock that somebody set back
//! before hides no later pause, and never gives time back. What can't be seen is a pause before the first look after a set-back.

use crate::time::{Millis, Now};

/// Differences between the two clocks up to this are the reading of one after the other. More than that is kept and adds up.
pub const SLEW_MAX: Millis = Millis(20);

/// What one observer saw of its two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Jumps {
    lead: i64,
}

impl Jumps {
    /// The first look.
    pub fn since(now: Now) -> Self {
        Self { lead: lead(now) }
    }

    /// How far wall time is ahead of boot time, as far as it was counted.
    pub const fn lead(&self) -> i64 {
        self.lead
    }

    /// What a look would have to count.
    pub fn ahead(&self, now: Now) -> Millis {
        let ahead = Millis(u64::try_from(lead(now).saturating_sub(self.lead)).unwrap_or(0));
        if ahead > SLEW_MAX { ahead } else { Millis(0) }
    }

    /// Looks: by how much wall time has run ahead of boot time, to be counted as elapsed once.
    pub fn look(&mut self, now: Now) -> Millis {
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
        let mut jumps = Jumps::since(at(1_000, 50_000));
        assert_eq!(jumps.look(at(2_000, 51_000)), Millis(0));
        assert_eq!(
            (jumps.ahead(at(3_000, 52_020)), jumps.look(at(3_000, 52_020))),
            (Millis(0), Millis(0)),
            "clocks that were read one after the other"
        );
        assert_eq!(jumps.ahead(at(4_000, 62_020)), Millis(9_020));
        assert_eq!(jumps.look(at(4_000, 62_020)), Millis(9_020), "all of it, once it is more");
        assert_eq!(jumps.look(at(5_000, 63_020)), Millis(0));
    }

    #[test]
    fn a_wall_clock_that_was_set_back_proves_nothing_and_hides_nothing() {
        let mut jumps = Jumps::since(at(1_000, 3_700_000));
        assert_eq!(jumps.look(at(2_000, 101_000)), Millis(0));
        assert_eq!(jumps.look(at(3_000, 702_000)), Millis(600_000));
    }

    #[test]
    fn small_pauses_add_up_and_readings_that_tremble_do_not() {
        let mut jumps = Jumps::since(at(0, 0));
        let small: u64 =
            (1..=100).map(|i| jumps.look(at(i * 1_000, i64::try_from(i * 1_015).unwrap())).0).sum();
        assert!((1_480..=1_500).contains(&small), "{small}");
        let mut jumps = Jumps::since(at(0, 0));
        assert!(
            (1..=100_u64)
                .all(|i| jumps.look(at(i * 10, i64::try_from(i * 10 + i % 3).unwrap())) == Millis(0))
        );
    }
}
