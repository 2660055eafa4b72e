use crate::facts::record::WorkloadFact;
use crate::sessions::outbox::CommandRef;
use crate::state::workload::phase::Phase;
use crate::state::workload::size::{self, Resized};
use crate::world::turn::Turn;
use meridian_shared::ids::{ClusterName, Fence, Uid};
use meridian_shared::protocol::Size;
use serde_json::Value;
use std::collections::BTreeMap;

/// Tells the agent of a gang how few pods it is to have, where that is fewer than it was given. Every inventory that shows it does
/// so again.
pub(crate) fn shrink(turn: &mut Turn<'_>, cluster: &ClusterName, uid: Uid, fence: Fence) {
    let Some(workload) = turn.workload(uid).filter(|w| matches!(w.phase(), Phase::Granted | Phase::Running))
    else {
        return;
    };
    // Of pods that are gone it isn't known whether they had succeeded: it is told as long as any place was given up.
    let runs = workload.runs_with(turn.world.queues.class(workload.class()));
    let smaller = |resized: &&Resized| {
        resized.growing.is_none() && runs.iter().zip(&resized.most).any(|(runs, places)| runs < places)
    };
    if let Some(size) = workload.resized().filter(smaller).map(|resized| resized.size)
        && turn.world.live.clusters.get(cluster).is_some_and(|live| live.shrinks)
    {
        turn.send(cluster, CommandRef::Shrink(uid, fence, size));
    }
}

/// How many pods a manifest has; with completions where every pod is one of them.
pub(crate) fn size(manifest: &Value) -> Option<Size> {
    let number = |field: &str| {
        manifest["spec"].get(field).map(|value| value.as_u64().and_then(|value| u32::try_from(value).ok()))
    };
    let parallelism = number("parallelism").unwrap_or(Some(1))?;
    let indexed = manifest["spec"]["completionMode"] == "Indexed";
    Some(Size {
        parallelism,
        completions: number("completions")
            .flatten()
            .filter(|completions| indexed && *completions == parallelism),
    })
}

/// Takes what an agent says of one run. Who is being stopped keeps what it has until it has stopped.
pub(crate) fn reclaim(turn: &mut Turn<'_>, uid: Uid, fence: Fence, pods: &BTreeMap<String, u32>) {
    let Some(workload) = turn.workload(uid).filter(|w| w.phase() == Phase::Running) else { return };
    let told = size::reclaimable_of(&workload.given_gang(turn.world.queues.class(workload.class())), pods);
    let before = workload.spare().cloned().unwrap_or_else(|| vec![0; told.len()]);
    let pods: Vec<u32> = told.iter().zip(&before).map(|(told, before)| *told.max(before)).collect();
    if pods != before {
        turn.record_workload(uid, WorkloadFact::PodsReclaimed { fence, pods });
        turn.world.live.counts.reclaimed += 1;
        turn.capacity_changed();
    }
}
