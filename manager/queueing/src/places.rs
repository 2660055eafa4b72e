//! The rooms of real clusters, for whoever knows them: quota alone doesn't run a gang.

use crate::brain::Brain;
use crate::flavors::Assignment;
use crate::model::WorkloadId;
use crate::preempt::Target;

/// Knows where gangs could really run.
pub trait Places {
    /// Whether one cluster has room for the whole workload once the victims are gone.
    fn fits(&mut self, brain: &Brain, workload: WorkloadId, victims: &[Target]) -> bool;

    /// From now on the workload is meant with the pods and the flavors of an assignment, or as it is.
    fn mean(&mut self, brain: &Brain, workload: WorkloadId, assignment: Option<&Assignment>) {
        let _ = (brain, workload, assignment);
    }

    /// Whether one cluster has room for the workload now; then `fits` says so whoever ends, and no cluster matters to `clusters`.
    fn has_room(&mut self, brain: &Brain, workload: WorkloadId) -> bool {
        let _ = (brain, workload);
        true
    }

    /// Whether a cluster that can't be asked at this moment may have room in the next: nobody is displaced for room meanwhile.
    fn room_may_come(&mut self, brain: &Brain, workload: WorkloadId) -> bool {
        let _ = (brain, workload);
        false
    }

    /// Keeps the room that comes free once the victims are gone, until the workload is admitted or gives up.
    fn keep(&mut self, brain: &Brain, workload: WorkloadId, victims: &[Target]) {
        let _ = (brain, workload, victims);
    }

    /// Whether a holder may be displaced for the workload, whatever policies say.
    fn may_displace(&self, workload: WorkloadId, holder: WorkloadId) -> bool {
        let _ = (workload, holder);
        true
    }

    /// Whether what keeps the workload out may be its own, so that who is alike may fare better.
    fn is_apart(&self, workload: WorkloadId) -> bool {
        let _ = workload;
        false
    }

    /// Clusters that the workload might run in once others give way: victims are looked for in one of them at a time, so that
    /// the room that comes free is in one place. None where it doesn't matter.
    fn clusters(&mut self, brain: &Brain, workload: WorkloadId) -> Vec<ClusterIndex> {
        let _ = (brain, workload);
        Vec::new()
    }

    /// The cluster in which a holder is.
    fn cluster_of(&self, holder: WorkloadId) -> Option<ClusterIndex> {
        let _ = holder;
        None
    }

    /// Takes the room for an assignment that is about to be admitted; false where no cluster has it.
    fn take(&mut self, brain: &Brain, workload: WorkloadId, assignment: &Assignment) -> bool;
}

/// A cluster, as whoever knows them numbers them.
pub type ClusterIndex = u32;

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
