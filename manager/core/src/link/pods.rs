use crate::dispatch::sizes;
use crate::facts::record::WorkloadFact;
use crate::link::{budget, legs};
use crate::world::turn::Turn;
use meridian_shared::ids::{ClusterName, Fence, Uid};
use meridian_shared::protocol::{SPARE_MAX, Spare};

pub(crate) fn take_reclaimable(turn: &mut Turn<'_>, cluster: &ClusterName, spare: Vec<Spare>) {
    for Spare { uid, fence, pods, failures } in spare.into_iter().take(SPARE_MAX) {
        if legs::own_leg(turn, cluster, uid, fence).is_some_and(|leg| leg.fence == Some(fence)) {
            sizes::reclaim(turn, uid, fence, &pods);
            count_failures(turn, cluster, uid, fence, failures);
        }
    }
}

/// Pods' failures are the job's: the next attempt goes on with their count, wherever this one is lost.
fn count_failures(turn: &mut Turn<'_>, cluster: &ClusterName, uid: Uid, fence: Fence, failures: u32) {
    if turn.workload(uid).is_some_and(|w| w.phase().granted() && w.pod_failures() < failures)
        && !budget::is_spent(turn, cluster)
    {
        turn.record_workload(uid, WorkloadFact::PodsFailed { fence, failures });
        budget::spend(turn, cluster, 0);
    }
}
