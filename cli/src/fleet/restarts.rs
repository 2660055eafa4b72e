//! When a process that ended by itself is restarted.

use std::time::Duration;
use tokio::time::Instant;

/// Pause before the first restart; doubled with each end soon after a start.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// A process that ran longer than this counts as started well.
const STARTED_WELL_AFTER: Duration = Duration::from_secs(60);
/// Ends in a row after which a process is not restarted.
pub(super) const TRIES_MAX: u32 = 5;

#[derive(Default)]
pub(super) struct RestartState {
    /// Number of ends in a row, each soon after the one before.
    ends: u32,
    last_end: Option<Instant>,
    restart_at: Option<Instant>,
}

impl RestartState {
    /// Counts an end, and schedules the restart unless there were too many.
    pub(super) fn record_end(&mut self, now: Instant) {
        let is_soon = self.last_end.is_some_and(|at| now - at < STARTED_WELL_AFTER);
        self.ends = if is_soon { self.ends + 1 } else { 1 };
        self.last_end = Some(now);
        self.restart_at = (self.ends < TRIES_MAX).then(|| now + PAUSE_FIRST * 2_u32.pow(self.ends - 1));
    }

    /// Whether the process is, or was, restarted after its last end.
    pub(super) fn is_restarted(&self) -> bool {
        self.ends < TRIES_MAX
    }

    pub(super) fn is_scheduled(&self) -> bool {
        self.restart_at.is_some()
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.restart_at.is_some_and(|at| now >= at)
    }

    /// The process is being restarted.
    pub(super) fn clear_schedule(&mut self) {
        self.restart_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_until_a_process_is_given_up() {
        let mut state = RestartState::default();
        let mut now = Instant::now();
        for pause_s in [1, 2, 4, 8] {
            state.record_end(now);
            assert!(state.is_scheduled() && !state.is_due(now));
            now += Duration::from_secs(pause_s);
            assert!(state.is_due(now));
            state.clear_schedule();
        }
        state.record_end(now);
        assert!(!state.is_scheduled() && !state.is_restarted());
        state.record_end(now + STARTED_WELL_AFTER);
        assert!(state.is_restarted(), "a process that ran well starts over");
    }
}
