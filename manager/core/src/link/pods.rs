//! Reports about pods of running gangs: reclaimable pods and failures.

use crate::dispatch::sizes;
use crate::facts::record::WorkloadFact;
use crate::link::{budget, legs};
use crate::world::turn::Turn;
use meridian_shared::ids::{ClusterName, Fence, Uid};
use meridian_shared::protocol::{POD_REPORTS_MAX, PodReport};

pub(crate) fn take_reclaimable(turn: &mut Turn<'_>, cluster: &ClusterName, spare: Vec<PodReport>) {
    for PodReport { uid, fence, pods, failures } in spare.into_iter().take(POD_REPORTS_MAX) {
        if legs::own_leg(turn, cluster, uid, fence).is_some_and(|leg| leg.fence == Some(fence)) {
            sizes::apply_reclaimable_pods(turn, uid, fence, &pods);
            count_failures(turn, cluster, uid, fence, failures);
        }
    }
}

/// Records how many pods of a job have failed. The count belongs to the job: its next attempt continues it.
fn count_failures(turn: &mut Turn<'_>, cluster: &ClusterName, uid: Uid, fence: Fence, failures: u32) {
    if turn.workload(uid).is_some_and(|w| w.phase().granted() && w.pod_failures() < failures)
        && !budget::is_spent(turn, cluster)
    {
        turn.record_workload(uid, WorkloadFact::PodsFailed { fence, failures });
        budget::spend(turn, cluster, 0);
    }
}
