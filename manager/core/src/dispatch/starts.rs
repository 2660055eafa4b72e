use crate::sessions::failed_starts::{self, IN_A_ROW};
use crate::world::World;
use crate::world::turn::Turn;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::Mono;

/// A hold or grant there did not reach running.
pub(crate) fn failed_start(turn: &mut Turn<'_>, uid: Uid, cluster: &ClusterName) {
    let now = turn.now.mono;
    let (times, until) = turn.world.live.failed_starts.entry((uid, cluster.clone())).or_default();
    *times = times.saturating_add(1);
    if *times >= IN_A_ROW {
        *until = failed_starts::wait(*times, now);
    }
    if let Some(live) = turn.world.live.clusters.get_mut(cluster)
        && live.failed_last.replace(uid) != Some(uid)
    {
        live.failed_starts = live.failed_starts.saturating_add(1);
        if live.failed_starts >= IN_A_ROW {
            live.backed_off = failed_starts::wait(live.failed_starts, now);
        }
    }
}

/// One runs there.
pub(crate) fn started(turn: &mut Turn<'_>, uid: Uid, cluster: &ClusterName) {
    turn.world.live.failed_starts.remove(&(uid, cluster.clone()));
    if let Some(live) = turn.world.live.clusters.get_mut(cluster) {
        (live.failed_starts, live.failed_last) = (0, None);
    }
}

/// Whether the wait of anybody is over.
pub(crate) fn end_waits_after_failed_starts(world: &mut World, now: Mono) -> bool {
    let of_workloads = world.live.failed_starts.values_mut().map(|(_, until)| until);
    let all = of_workloads.chain(world.live.clusters.values_mut().map(|live| &mut live.backed_off));
    all.filter(|until| **until > Mono(0) && **until <= now).map(|until| *until = Mono(0)).count() > 0
}

/// When the next of these waits is over.
pub(crate) fn next_wait_after_failed_starts(world: &World) -> Option<Mono> {
    let of_workloads = world.live.failed_starts.values().map(|(_, until)| *until);
    of_workloads
        .chain(world.live.clusters.values().map(|live| live.backed_off))
        .filter(|until| *until > Mono(0))
        .min()
}
