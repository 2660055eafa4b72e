//! The clocks of one machine, in relation to the true time of the simulation.

use meridian_shared::time::{Mono, Now, Wall};

/// Calendar time at which a simulation begins, in milliseconds.
const EPOCH: i64 = 1_800_000_000_000;

/// A machine's clocks: boot time, which drifts and stops while the machine is frozen, and wall time, which
/// may jump.
#[derive(Clone, Debug)]
pub(super) struct HostClock {
    true_at: u64,
    mono_at: u64,
    /// Parts per million that boot time is fast.
    ppm: i64,
    wall_ahead: i64,
    frozen: Option<u64>,
}

impl HostClock {
    /// A clock that showed `mono` at the true time `at`.
    pub(super) fn new(at: u64, mono: u64, ppm: i64, wall_ahead: i64) -> Self {
        Self { true_at: at, mono_at: mono, ppm, wall_ahead, frozen: None }
    }

    /// Boot time at the true time `at`.
    pub(super) fn mono(&self, at: u64) -> Mono {
        let at = self.frozen.unwrap_or(at);
        let passed =
            i128::from(at.saturating_sub(self.true_at)) * i128::from(1_000_000 + self.ppm) / 1_000_000;
        Mono(self.mono_at + u64::try_from(passed).expect("time goes forward"))
    }

    /// Both clocks at the true time `at`.
    pub(super) fn now(&self, at: u64) -> Now {
        Now {
            mono: self.mono(at),
            wall: Wall(EPOCH + i64::try_from(at).expect("a short simulation") + self.wall_ahead),
        }
    }

    /// The first true time at which boot time is at least `mono`, provided that the machine isn't frozen
    /// before.
    pub(super) fn when(&self, mono: Mono) -> u64 {
        if mono.0 <= self.mono_at {
            return self.true_at;
        }
        let span = i128::from(mono.0 - self.mono_at) * 1_000_000;
        let rate = i128::from(1_000_000 + self.ppm);
        self.true_at + u64::try_from((span + rate - 1) / rate).expect("a short simulation")
    }

    /// Boot time stands still from now on.
    pub(super) fn freeze(&mut self, at: u64) {
        self.frozen.get_or_insert(at);
    }

    /// Boot time continues.
    pub(super) fn thaw(&mut self, at: u64) {
        let mono = self.mono(at).0;
        self.frozen = None;
        (self.true_at, self.mono_at) = (at, mono);
    }

    /// Whether the machine is frozen.
    pub(super) fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// The machine restarts; boot time begins at `mono`.
    pub(super) fn reboot(&mut self, at: u64, mono: u64) {
        self.frozen = None;
        (self.true_at, self.mono_at) = (at, mono);
    }

    /// Wall time jumps.
    pub(super) fn jump(&mut self, by: i64) {
        self.wall_ahead += by;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_is_the_inverse_of_mono() {
        for ppm in [-500, -3, 0, 7, 500] {
            let clock = HostClock::new(1_000, 77_000, ppm, 0);
            for mono in [77_001, 80_000, 1_000_000] {
                let at = clock.when(Mono(mono));
                assert!(clock.mono(at).0 >= mono && clock.mono(at - 1).0 < mono, "{ppm} {mono}");
            }
        }
    }

    #[test]
    fn boot_time_stops_in_a_freeze_and_wall_time_does_not() {
        let mut clock = HostClock::new(0, 1_000, 0, 0);
        clock.freeze(500);
        assert_eq!(clock.mono(9_000), Mono(1_500));
        clock.thaw(9_000);
        assert_eq!(clock.mono(9_100), Mono(1_600));
        assert_eq!(clock.now(9_100).wall.0, EPOCH + 9_100);
    }
}
