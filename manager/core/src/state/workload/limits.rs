//! Bounds of what a workload remembers.

use crate::state::workload::{AttemptRecord, Workload};

/// Attempts of one workload that its history tells of; the oldest goes first.
const HISTORY_MAX: usize = 100;

impl Workload {
    pub(super) fn record_attempt(&mut self, attempt: AttemptRecord) {
        self.history.push(attempt);
        if self.history.len() > HISTORY_MAX {
            self.history.remove(0);
        }
    }
}
