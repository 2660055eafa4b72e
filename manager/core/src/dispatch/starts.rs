//! Failed starts: holds and grants after which the gang didn't reach running. A workload skips the clusters
//! where it failed for a while.

use crate::world::World;
use crate::world::turn::Turn;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::Mono;

/// Counts a start that the manager couldn't deliver, which isn't the cluster's fault.
pub(crate) fn note_undelivered_start(turn: &mut Turn<'_>, uid: Uid, cluster: &ClusterName) {
    turn.world.live_mut().failed_starts_mut().add(uid, cluster, turn.now.mono);
}

/// Counts a failed start for the workload and for the cluster.
pub(crate) fn note_failed_start(turn: &mut Turn<'_>, uid: Uid, cluster: &ClusterName) {
    note_undelivered_start(turn, uid, cluster);
    if let Some(live) = turn.world.live_mut().cluster_mut(cluster) {
        live.starts_mut().failed(uid, turn.now.mono);
    }
}

/// Resets the failed starts: the workload runs in the cluster.
pub(crate) fn note_started(turn: &mut Turn<'_>, uid: Uid, cluster: &ClusterName) {
    turn.world.live_mut().failed_starts_mut().reset(uid, cluster);
    if let Some(live) = turn.world.live_mut().cluster_mut(cluster) {
        live.starts_mut().succeeded();
    }
}

/// Ends the backoffs that are over. True if there were any.
pub(crate) fn end_waits_after_failed_starts(world: &mut World, now: Mono) -> bool {
    let of_workloads = world.live_mut().failed_starts_mut().end_over(now);
    let of_clusters = world
        .live_mut()
        .clusters_mut()
        .filter_map(|live| live.starts_mut().end_backoff_if_over(now).then_some(()));
    of_clusters.count() > 0 || of_workloads
}

/// The end of the next backoff.
pub(crate) fn next_wait_after_failed_starts(world: &World) -> Option<Mono> {
    let of_clusters = world.live().clusters().values().filter_map(|live| live.starts().backoff_end());
    of_clusters.chain(world.live().failed_starts().next_end()).min()
}
