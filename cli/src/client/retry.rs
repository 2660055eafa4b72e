//! Pauses between tries to resume a stream.

use meridian_shared::backoff;
use meridian_shared::time::Millis;
use std::time::Duration;

/// The first pause after a failure.
const PAUSE_FIRST: Millis = Millis(250);
/// The longest pause.
const PAUSE_MAX: Millis = Millis::secs(10);
/// Failures in a row that are tolerated: with the pauses above about 90 seconds, longer than a restart takes.
const TRIES_MAX: u32 = 12;
/// A stream that lasted this long was healthy even if it brought nothing: managers end idle streams now and
/// then.
pub(super) const HEALTHY_AFTER: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Retry {
    /// Number of failures in a row.
    failures: u32,
    seed: u64,
}

impl Retry {
    pub(super) fn new() -> Self {
        Self { failures: 0, seed: uuid::Uuid::new_v4().as_u64_pair().0 }
    }

    /// The stream works again.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Waits before the next try. Fails with the number of tries if there were too many in a row.
    pub(super) async fn pause(&mut self) -> Result<(), u32> {
        if self.failures >= TRIES_MAX {
            return Err(self.failures);
        }
        let pause = backoff::wait(PAUSE_FIRST, PAUSE_MAX, self.failures, self.seed);
        self.failures += 1;
        tokio::time::sleep(Duration::from_millis(pause.0)).await;
        Ok(())
    }
}
