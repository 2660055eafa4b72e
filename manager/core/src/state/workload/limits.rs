//! Bounds on what is kept per workload.

use crate::state::workload::{AttemptRecord, Workload};

/// Limit of attempts in a workload's history. The oldest attempt is dropped first.
const HISTORY_MAX: usize = 100;

impl Workload {
    pub(super) fn record_attempt(&mut self, attempt: AttemptRecord) {
        self.history.push(attempt);
        if self.history.len() > HISTORY_MAX {
            self.history.remove(0);
        }
    }
}
