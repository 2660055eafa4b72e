//! Work that the engine repeats.

use meridian_shared::time::{Millis, Mono};
use std::time::Duration;

/// A periodic task pauses for this multiple of its own duration, so that all periodic tasks together take a
/// small part of the time.
const TASK_PAUSE_FACTOR: u32 = 20;

/// When to do a recurring piece of work next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PeriodicTask {
    pub(super) due: Mono,
}

impl PeriodicTask {
    pub(super) fn schedule_next(&mut self, now: Mono, every: Millis, took: Duration) {
        let took = u64::try_from((took * TASK_PAUSE_FACTOR).as_millis()).unwrap_or(u64::MAX);
        self.due = now + every.max(Millis(took));
    }
}
