//! Simulated time: it begins with the provider and runs at its speed.

use meridian_shared::time::Millis;
use std::time::Duration;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug)]
pub(super) struct SimulatedClock {
    started: Instant,
    speed: f64,
}

impl SimulatedClock {
    /// A clock that starts now. `speed` is above 0.
    pub(super) fn start(speed: f64) -> Self {
        Self { started: Instant::now(), speed }
    }

    /// Simulated time since the start.
    pub(super) fn now(self) -> Millis {
        let real = self.started.elapsed().as_millis();
        // Casts between f64 and integers saturate.
        Millis((real as f64 * self.speed).round() as u64)
    }

    /// The real length of a simulated one, rounded up, so that the simulated time has passed at the end of a
    /// wait.
    pub(super) fn real(self, length: Millis) -> Millis {
        Millis((length.0 as f64 / self.speed).ceil() as u64)
    }

    /// The real moment of a simulated one; `None` if it is too far away to wait for.
    pub(super) fn moment(self, at: Millis) -> Option<Instant> {
        self.started.checked_add(Duration::from_millis(self.real(at).0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_moment_is_reached_when_it_is_slept_for() {
        for speed in [0.3, 1.0, 3.0, 7.0, 20.0] {
            let clock = SimulatedClock::start(speed);
            for at in [1, 333, 1_000, 1_001, 99_999] {
                tokio::time::sleep_until(clock.moment(Millis(at)).unwrap()).await;
                assert!(clock.now() >= Millis(at), "{at} at {speed}: {}", clock.now());
            }
        }
        assert_eq!(SimulatedClock::start(20.0).real(Millis::secs(30)), Millis(1_500));
    }
}
