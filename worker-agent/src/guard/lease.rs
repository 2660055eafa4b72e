//! The deadline of a guard: when its gang must have ended (pure).
//!
//! A deadline is boot time, given together with a reading of both clocks. Wall time that has advanced more
//! than boot time since then (a virtual machine that was paused) counts as elapsed; the reverse never counts.
//! [`Deadline::look`] must be called now and then, because a wall clock that is set back hides an unobserved
//! pause. Once the stop has begun, renewals are refused.

use meridian_shared::jumps::ClockJumps;
use meridian_shared::time::{Millis, Mono, Now};

/// Most of a stop budget that is kept for the time between the kill and the confirmed end.
const KILL_MARGIN_MAX: Millis = Millis::secs(2);

/// How long before the deadline everything is killed: a quarter of the budget, at most two seconds.
pub fn kill_margin(stop_budget: Millis) -> Millis {
    Millis((stop_budget.0 / 4).min(KILL_MARGIN_MAX.0))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    lapses: Mono,
    stop_budget: Millis,
    jumps: ClockJumps,
    /// Sum of all pauses since it was given.
    missed: Millis,
}

impl Deadline {
    /// No process may run at or after `lapses`; `given` are the clocks when the lapse was computed.
    pub fn new(lapses: Mono, stop_budget: Millis, given: Now) -> Self {
        Self { lapses, stop_budget, jumps: ClockJumps::since(given), missed: Millis(0) }
    }

    /// The deadline as it was given.
    pub fn lapses(&self) -> Mono {
        self.lapses
    }

    /// Compares the clocks, so that each pause is noticed by itself.
    pub fn look(&mut self, now: Now) {
        self.missed = self.missed + self.jumps.observe(now);
    }

    /// The deadline as it would be given at `now`, for a reader that did not see the pauses before.
    pub fn lapses_from(&self, now: Now) -> Mono {
        self.lapses - self.surplus(now)
    }

    /// When the stop begins, in boot time, if the clocks read `now`.
    pub fn stop_at(&self, now: Now) -> Mono {
        self.lapses - self.stop_budget - self.surplus(now)
    }

    /// When everything is killed, in boot time, if the clocks read `now`.
    pub fn kill_at(&self, now: Now) -> Mono {
        self.lapses - kill_margin(self.stop_budget) - self.surplus(now)
    }

    /// Takes a renewal that was computed at `given`. Returns false if the stop has begun, or if it is no
    /// later than the known deadline.
    pub fn renew(&mut self, lapses: Mono, given: Now, now: Now) -> bool {
        let renewed = Self::new(lapses, self.stop_budget, given);
        if now.mono >= self.stop_at(now) || renewed.stop_at(now) <= self.stop_at(now) {
            return false;
        }
        *self = renewed;
        true
    }

    /// How much more time than boot time has passed since the deadline was given.
    fn surplus(&self, now: Now) -> Millis {
        self.missed + self.jumps.ahead(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_shared::time::Wall;

    fn at(mono: u64, wall: i64) -> Now {
        Now { mono: Mono(mono), wall: Wall(wall) }
    }

    fn deadline() -> Deadline {
        Deadline::new(Mono(10_000), Millis(2_000), at(1_000, 50_000))
    }

    #[test]
    fn stop_and_kill_begin_before_the_deadline() {
        let now = at(2_000, 51_000);
        assert_eq!((deadline().stop_at(now), deadline().kill_at(now)), (Mono(8_000), Mono(9_500)));
        assert_eq!(kill_margin(Millis::secs(30)), Millis::secs(2));
    }

    #[test]
    fn a_pause_counts_as_elapsed() {
        assert_eq!(deadline().stop_at(at(2_000, 54_000)), Mono(5_000), "three seconds of pause");
        assert_eq!(deadline().stop_at(at(2_000, 0)), Mono(8_000));
        assert_eq!(deadline().stop_at(at(2_000, 50_500)), Mono(8_000), "a slow wall clock");
    }

    #[test]
    fn a_wall_clock_set_back_hides_no_noticed_pause() {
        let mut lease = deadline();
        lease.look(at(2_000, 20_000));
        assert_eq!(lease.stop_at(at(2_500, 23_500)), Mono(5_000), "three seconds of pause");
        lease.look(at(2_500, 23_500));
        lease.look(at(3_000, 10_000));
        assert_eq!(lease.stop_at(at(3_500, 10_500)), Mono(5_000));
        assert_eq!(lease.lapses_from(at(3_500, 10_500)), Mono(7_000));
        assert!(
            !lease.renew(lease.lapses_from(at(3_500, 10_500)), at(3_500, 10_500), at(3_500, 10_500)),
            "the same deadline"
        );
    }

    #[test]
    fn renewals_only_move_forward_and_never_revive() {
        let mut lease = deadline();
        assert!(!lease.renew(Mono(9_000), at(2_000, 51_000), at(2_000, 51_000)), "not back");
        assert!(lease.renew(Mono(12_000), at(7_000, 56_000), at(7_999, 56_999)));
        assert_eq!(lease.lapses(), Mono(12_000));
        assert!(!lease.renew(Mono(99_000), at(10_000, 59_000), at(10_000, 59_000)), "the stop has begun");
        let mut paused = deadline();
        assert!(
            !paused.renew(Mono(99_000), at(7_000, 59_000), at(7_000, 59_000)),
            "a pause let the stop begin earlier"
        );
    }
}
