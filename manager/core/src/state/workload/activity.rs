//! Deactivating a workload and activating it again: Kueue's `spec.active`.
//!
//! A deactivated workload is in no queue. Its offers are withdrawn. If it runs, it is ordered to stop and
//! keeps its quota until the stop is confirmed. When it is activated again, it has its old age in the queue.
//! Workloads that ended or are being deleted can't be deactivated.

use crate::state::legs::Leg;
use crate::state::workload::Workload;
use crate::state::workload::phase::Phase;
use meridian_objects::job::MAX_EXEC_LABEL;
use meridian_shared::ids::Fence;
use meridian_shared::time::Millis;
use meridian_shared::timestamp::timestamp;

impl Workload {
    /// Whether the workload is in a queue: pending and active.
    pub fn waits(&self) -> bool {
        self.phase == Phase::Pending && self.inactive.is_none()
    }

    /// Whether the workload is deactivated, and no cluster holds or runs anything of it.
    pub fn rests_inactive(&self) -> bool {
        self.phase == Phase::Pending && self.inactive.is_some()
    }

    /// Grants since the submission or the last reactivation.
    pub(crate) fn attempts_in_a_row(&self) -> u32 {
        self.attempts.saturating_sub(self.reactivated.as_ref().map_or(0, |reactivated| reactivated.attempts))
    }

    /// Requeue backoff after the attempt with this fence lost a node. Grows with the number of attempts.
    pub(crate) fn backoff_after_node_loss(&self, fence: Fence) -> Millis {
        meridian_shared::backoff::wait(Millis(500), Millis::mins(5), self.attempts_in_a_row(), fence.counter)
    }

    /// The leg of a run whose cluster has another ledger now, so that no agent knows its pods.
    pub fn lost_run(&self) -> Option<&Leg> {
        let runs = matches!(self.phase, Phase::Granted | Phase::Running);
        self.right().map(|(_, leg)| leg).filter(|leg| runs && leg.replaced_ledger.is_some())
    }

    /// The phase, for display. A job that failed is `Failed`, as kubectl shows it. `damaged` says that the
    /// stored manifest can't be read, so that it can't start.
    pub fn state_word(&self, damaged: bool) -> &'static str {
        if damaged && self.waits() {
            "Damaged"
        } else if self.finished.as_ref().is_some_and(|finish| !finish.succeeded) {
            "Failed"
        } else if self.rests_inactive() {
            "Deactivated"
        } else if self.lost_run().is_some() {
            "ClusterLost"
        } else {
            self.phase.name()
        }
    }

    /// Why the workload is in no queue, and the command that activates it again.
    pub fn inactivity_message(&self) -> (String, String) {
        let by = self
            .inactive
            .as_ref()
            .map(|inactive| format!(" by `{}` at {}", inactive.by, timestamp(inactive.at)))
            .unwrap_or_default();
        let time_is_up = self.inactive.as_ref().is_some_and(|inactive| inactive.max_execution_time_reached);
        let why = if time_is_up {
            format!(", because it reached its maximum execution time (`{MAX_EXEC_LABEL}`)")
        } else {
            String::new()
        };
        (
            format!("deactivated{by}{why}"),
            format!("run `meridian resume job {} -n {}`", self.name, self.namespace),
        )
    }
}
