//! How much is remembered of what could go on without end: join tokens that nobody used, attempts of one workload, ledgers of
//! one cluster, verdicts on classes that nobody is of any more.

use crate::state::workload::{Stay, Workload};

/// Attempts of one workload that its history tells of; the oldest goes first.
const HISTORY_MAX: usize = 100;

impl Workload {
    /// Another attempt begins, or is learned of.
    pub(crate) fn stay(&mut self, stay: Stay) {
        self.history.push(stay);
        if self.history.len() > HISTORY_MAX {
            self.history.remove(0);
        }
    }
}
