//! Failed starts: holds and grants after which the gang didn't reach running. Clusters back off for workloads
//! that fail there.

use crate::sessions::failed_starts::{self, IN_A_ROW};
use crate::world::World;
use crate::world::turn::Turn;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::Mono;

/// Counts a start that the manager couldn't deliver. The cluster has no part in it.
pub(crate) fn note_undelivered_start(turn: &mut Turn<'_>, uid: Uid, cluster: &ClusterName) {
    let now = turn.now.mono;
    let (times, until) = turn.world.live.failed_starts.entry((uid, cluster.clone())).or_default();
    *times = times.saturating_add(1);
    if *times >= IN_A_ROW {
        *until = failed_starts::wait(*times, now);
    }
}

/// Counts a failed start for the workload and for the cluster.
pub(crate) fn note_failed_start(turn: &mut Turn<'_>, uid: Uid, cluster: &ClusterName) {
    let now = turn.now.mono;
    note_undelivered_start(turn, uid, cluster);
    // Only failures of different workloads in a row count against the cluster: one that fails everywhere is
    // its own problem.
    if let Some(live) = turn.world.live.clusters.get_mut(cluster)
        && live.failed_last.replace(uid) != Some(uid)
    {
        live.failed_starts = live.failed_starts.saturating_add(1);
        if live.failed_starts >= IN_A_ROW {
            live.backed_off = failed_starts::wait(live.failed_starts, now);
        }
    }
}

/// Resets the failed starts: the workload runs in the cluster.
pub(crate) fn note_started(turn: &mut Turn<'_>, uid: Uid, cluster: &ClusterName) {
    turn.world.live.failed_starts.remove(&(uid, cluster.clone()));
    if let Some(live) = turn.world.live.clusters.get_mut(cluster) {
        (live.failed_starts, live.failed_last) = (0, None);
    }
}

/// Ends the backoffs that are over. True if there were any.
pub(crate) fn end_waits_after_failed_starts(world: &mut World, now: Mono) -> bool {
    let of_workloads = world.live.failed_starts.values_mut().map(|(_, until)| until);
    let all = of_workloads.chain(world.live.clusters.values_mut().map(|live| &mut live.backed_off));
    all.filter(|until| **until > Mono(0) && **until <= now).map(|until| *until = Mono(0)).count() > 0
}

/// The end of the next backoff.
pub(crate) fn next_wait_after_failed_starts(world: &World) -> Option<Mono> {
    let of_workloads = world.live.failed_starts.values().map(|(_, until)| *until);
    of_workloads
        .chain(world.live.clusters.values().map(|live| live.backed_off))
        .filter(|until| *until > Mono(0))
        .min()
}
