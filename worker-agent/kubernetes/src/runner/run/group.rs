//! What a run does for a group of pods, in place of a controller.

use super::{Cause, Job, Run};
use crate::facts::PodFacts;

impl Run {
    /// Name of the group, for a group of pods.
    pub(in crate::runner) fn group_name(&self) -> Option<&str> {
        self.group.name()
    }

    /// Observes the pods of a group that was started, until it ends or is stopped.
    pub(super) fn observe_group(&mut self, pods: &[PodFacts]) {
        let size = self.notes.placement.len();
        let is_over = self.group.end().is_some() || self.stop.is_some() || self.end.is_some();
        if self.group.name().is_none() || !self.started || is_over || size == 0 {
            return;
        }
        if let Some(why) = self.group.observe(pods, size) {
            self.stop(Cause::Lost(why));
        }
    }

    /// The job ends with its group.
    pub(super) fn end_with_group(&mut self) {
        if let (Job::Ours(job), Some(end)) = (&mut self.job, self.group.end()) {
            job.end.get_or_insert_with(|| end.clone());
        }
    }
}
