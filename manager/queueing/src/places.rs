//! The rooms of real clusters, for whoever knows them: quota alone doesn't run a gang.

use crate::brain::Brain;
use crate::flavors::Assignment;
use crate::model::WorkloadId;
use crate::preempt::Target;

/// Knows where gangs could really run.
pub trait Places {
    /// Whether one cluster has room for the whole workload once the victims are gone.
    fn fits(&mut self, brain: &Brain, workload: WorkloadId, victims: &[Target]) -> bool;

    /// Takes the room for an assignment that is about to be admitted; false where no cluster has it.
    fn take(&mut self, brain: &Brain, workload: WorkloadId, assignment: &Assignment) -> bool;
}

/// Quota is all that counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anywhere;

impl Places for Anywhere {
    fn fits(&mut self, _: &Brain, _: WorkloadId, _: &[Target]) -> bool {
        true
    }

    fn take(&mut self, _: &Brain, _: WorkloadId, _: &Assignment) -> bool {
        true
    }
}
