//! Fewer pods: scale-downs of running gangs, and reclaimable pods that agents report.

use crate::facts::record::WorkloadFact;
use crate::live::counts::Count;
use crate::sessions::outbox::CommandRef;
use crate::state::workload::phase::Phase;
use crate::state::workload::size::{self, Resized};
use crate::world::turn::Turn;
use meridian_shared::ids::{ClusterName, Fence, Uid};
use std::collections::BTreeMap;

/// Sends the requested size of a running gang to its agent, if that is smaller than what was admitted.
/// Repeated for every inventory that shows the gang.
pub(crate) fn send_scale_down(turn: &mut Turn<'_>, cluster: &ClusterName, uid: Uid, fence: Fence) {
    let Some(workload) = turn.workload(uid).filter(|w| matches!(w.phase(), Phase::Granted | Phase::Running))
    else {
        return;
    };
    // The manager doesn't know whether missing pods succeeded or were scaled down, so it sends the size as
    // long as fewer pods are requested than were admitted.
    let runs = workload.runs_with(turn.world.queues().class(workload.class()));
    let smaller = |resized: &&Resized| {
        resized.scale_up.is_none() && runs.iter().zip(&resized.most).any(|(runs, places)| runs < places)
    };
    if let Some(size) = workload.resized().filter(smaller).map(|resized| resized.size)
        && turn.world.live().cluster(cluster).is_some_and(|live| live.features().scale_down())
    {
        turn.send(cluster, CommandRef::ScaleDown(uid, fence, size));
    }
}

/// Records reclaimable pods that an agent reports. The count per pod set never decreases. The charge of a
/// stopping gang doesn't change.
pub(crate) fn apply_reclaimable_pods(
    turn: &mut Turn<'_>,
    uid: Uid,
    fence: Fence,
    pods: &BTreeMap<String, u32>,
) {
    let Some(workload) = turn.workload(uid).filter(|w| w.phase() == Phase::Running) else { return };
    let reported =
        size::reclaimable_of(&workload.given_gang(turn.world.queues().class(workload.class())), pods);
    let before = workload.spare().cloned().unwrap_or_else(|| vec![0; reported.len()]);
    let pods: Vec<u32> =
        reported.iter().zip(&before).map(|(reported, before)| *reported.max(before)).collect();
    if pods != before {
        turn.record_workload(uid, WorkloadFact::PodsReclaimed { fence, pods });
        turn.world.live_mut().counts_mut().add_one(Count::Reclaimed);
        turn.capacity_changed();
    }
}
