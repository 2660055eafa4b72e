//! Reports about pods of running gangs: reclaimable pods, failures and completed indexes.

use crate::dispatch::sizes;
use crate::facts::record::WorkloadFact;
use crate::link::{budget, legs};
use crate::world::turn::Turn;
use meridian_shared::ids::{ClusterName, Fence, Uid};
use meridian_shared::indexes::Indexes;
use meridian_shared::protocol::{POD_REPORTS_MAX, PodReport};

pub(crate) fn take_reclaimable(turn: &mut Turn<'_>, cluster: &ClusterName, spare: Vec<PodReport>) {
    for PodReport { uid, fence, pods, failures, completed } in spare.into_iter().take(POD_REPORTS_MAX) {
        if legs::own_leg(turn, cluster, uid, fence).is_some_and(|leg| leg.fence() == Some(fence)) {
            sizes::apply_reclaimable_pods(turn, uid, fence, &pods);
            count_failures(turn, cluster, uid, fence, failures);
            if !budget::is_spent(turn, cluster) {
                note_completed(turn, cluster, uid, fence, &completed);
            }
        }
    }
}

/// Records which indexes of a job have completed. Completion is kept for the job, so no later attempt runs
/// them again.
pub(crate) fn note_completed(
    turn: &mut Turn<'_>,
    cluster: &ClusterName,
    uid: Uid,
    fence: Fence,
    reported: &Indexes,
) {
    let Some(workload) = turn.workload(uid).filter(|w| w.phase().granted()) else { return };
    let Some(most) = turn.world.queues().class(workload.class()).completions else { return };
    let completed = workload.completed().union(&reported.below(most));
    if completed != *workload.completed() {
        let bytes = completed.weight();
        turn.record_workload(uid, WorkloadFact::IndexesCompleted { fence, completed });
        budget::spend(turn, cluster, bytes);
    }
}

/// Records how many pods of a job have failed. The count is kept for the job, so its next attempt continues
/// it.
fn count_failures(turn: &mut Turn<'_>, cluster: &ClusterName, uid: Uid, fence: Fence, failures: u32) {
    if turn.workload(uid).is_some_and(|w| w.phase().granted() && w.pod_failures() < failures)
        && !budget::is_spent(turn, cluster)
    {
        turn.record_workload(uid, WorkloadFact::PodsFailed { fence, failures });
        budget::spend(turn, cluster, 0);
    }
}
