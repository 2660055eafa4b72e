//! Who is taken out of the queue, and put back: Kueue's `spec.active`.
//!
//! Who is deactivated is in no queue. Questions to clusters are taken back, a run is told to stop and keeps its quota until that
//! is confirmed; from then on it holds nothing and rests until somebody puts it back, at the age that it always had. What ended,
//! or is being deleted, stays as it is.

use crate::state::workload::Workload;
use crate::state::workload::phase::Phase;
use crate::views::format;
use meridian_objects::job::MAX_EXEC_LABEL;
use meridian_shared::ids::Fence;
use meridian_shared::time::Millis;

impl Workload {
    /// Whether it is in a queue: without quota, and not taken out.
    pub fn waits(&self) -> bool {
        self.phase == Phase::Pending && self.inactive.is_none()
    }

    /// Whether it was taken out of the queue, and nothing of it is left anywhere.
    pub(crate) fn rests_inactive(&self) -> bool {
        self.phase == Phase::Pending && self.inactive.is_some()
    }

    /// Grants since it was submitted or last put back.
    pub(crate) fn attempts_in_a_row(&self) -> u32 {
        self.attempts.saturating_sub(self.reactivated.as_ref().map_or(0, |reactivated| reactivated.attempts))
    }

    /// How long it rests after the attempt of this fence lost its node: each loss in a row makes it longer.
    pub(crate) fn backoff_after_node_loss(&self, fence: Fence) -> Millis {
        meridian_shared::backoff::wait(Millis(500), Millis::mins(5), self.attempts_in_a_row(), fence.counter)
    }

    /// Where it stands, as people read it.
    pub(crate) fn state_word(&self) -> String {
        if self.rests_inactive() { "Deactivated".to_owned() } else { format!("{:?}", self.phase) }
    }

    /// Why it is in no queue, and what puts it back.
    pub(crate) fn inactivity_message(&self) -> (String, String) {
        let who = self
            .inactive
            .as_ref()
            .map(|inactive| format!(" by `{}` at {}", inactive.by, format::timestamp(inactive.at)))
            .unwrap_or_default();
        let is_up = self.inactive.as_ref().is_some_and(|inactive| inactive.max_execution_time_reached);
        let why = if is_up {
            format!(", as it had run for its maximum execution time (`{MAX_EXEC_LABEL}`)")
        } else {
            String::new()
        };
        (
            format!("is in no queue: it was deactivated{who}{why}"),
            format!("`meridian resume job {} -n {}`", self.name, self.namespace),
        )
    }
}
