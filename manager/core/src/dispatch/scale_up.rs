//! Scale-up of elastic jobs while they run. Kueue uses workload slices for this; here the added pods are a
//! second queue entry of the same workload.
//!
//! ```text
//! runs 2, requests 4 ─► entry for 2 more pods: same cluster, same flavors
//!                            │ admitted
//!                            ▼
//!                       ScaleUpStarted: quota for 4 is charged, the agent gets the command
//!                            │
//!              ┌─────────────┴──────────────┐
//!       both pods are placed        no capacity for both
//!              ▼                            ▼
//!       scaled up: runs 4           ScaleUpRefused: quota for 2 is charged, the entry is pending again
//! ```
//!
//! The entry is as old as the change of the job, and requests exactly the added pods. The gang runs unchanged
//! until the scale-up is admitted and placed. The command is repeated for each inventory that doesn't show
//! the scale-up. An agent's answer to a scale-up is final, so quota that was released after a refusal can't
//! be used later.
//!
//! Invariants: quota is charged before the agent gets the command, and released only after the agent refused.
//! A gang scales up only if it runs, isn't being scaled down, and has no other scale-up under way.

use crate::capacity::{caps, readiness};
use crate::facts::actor::Actor;
use crate::facts::audit::{Action, Entry};
use crate::facts::reason::Why;
use crate::facts::record::WorkloadFact;
use crate::queue::candidate_clusters::CandidateClusters;
use crate::sessions::outbox::CommandRef;
use crate::world::turn::Turn;
use crate::world::{World, gangs};
use meridian_shared::counted::counted;
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, Fence, Uid};
use meridian_shared::protocol::RefuseReason;
use meridian_shared::time::{Millis, Mono};

/// Shortest backoff after an agent refused for lack of capacity. The number of the refused scale-up lengthens
/// it up to eight times, so that gangs that were refused together don't retry together.
pub(crate) const REFUSED_FOR: Millis = Millis(500);

/// Shortest backoff after a refusal for another reason.
pub(crate) const UNABLE_FOR: Millis = Millis::mins(1);

/// Longest backoff after repeated refusals.
pub(crate) const REFUSED_FOR_MAX: Millis = Millis::mins(10);

/// The cluster of a gang that is to scale up. Fails if the command can't be sent there now; capacity isn't
/// checked.
pub(crate) fn scale_up_cluster(world: &World, uid: Uid, now: Mono) -> Result<ClusterName, Why> {
    let workload = world.state().workloads().get(&uid).ok_or(Why::NotConnected)?;
    let (_, leg) = workload.right().ok_or(Why::NotConnected)?;
    let (cluster, class) = (leg.cluster(), world.queues().class(workload.class()));
    let queue = world.state().catalog().route(&class.namespace, &class.queue).map_err(Why::Route)?;
    let candidates =
        CandidateClusters::new(world.state().catalog(), class, &queue, world.config().residency_required);
    let candidate = candidates
        .candidates
        .iter()
        .find(|candidate| candidate.cluster == *cluster)
        .ok_or(Why::NotConnected)?;
    candidate.listed.ok_or_else(|| candidates.not_listed())?;
    candidate.verdict.clone().map_err(Why::Forbidden)?;
    readiness::check_readiness(world, uid, now, &candidates, candidate)?;
    if !world.live().cluster(cluster).is_some_and(|live| live.features().scale_up()) {
        let text = "the agent is too old to scale up a running gang: upgrade it".to_owned();
        return Err(Why::Refused { reason: RefuseReason::Unsupported, text });
    }
    Ok(cluster.clone())
}

/// The cluster of a gang, if it has capacity for the added pods in addition to what is reserved for others.
/// Fails with the first obstacle otherwise.
pub fn check_scale_up(world: &World, uid: Uid, gang: &Gang, now: Mono) -> Result<ClusterName, Why> {
    let cluster = scale_up_cluster(world, uid, now)?;
    let live = world.live().cluster(&cluster).ok_or(Why::NotConnected)?;
    if let Some(queue) = world.queues().charged_to(uid) {
        caps::check_caps(world, uid, queue, gang, &cluster)?;
    }
    live.capacity().fits(gang).map_err(Why::NoCapacity)?;
    readiness::check_reserved(world, uid, gang, &cluster, live)?;
    Ok(cluster)
}

/// Makes the next pass evaluate a scale-up that was requested between the grant and the start of the gang.
/// Its entry is added only now that the gang runs, and perhaps nothing else starts a pass.
pub(crate) fn evaluate_on_start(turn: &mut Turn<'_>, uid: Uid) {
    let added = turn.workload(uid).and_then(|w| w.scale_up_counts(turn.world.queues().class(w.class())));
    if added.is_some() {
        turn.world.live_mut().pass_mut().request();
    }
}

/// Charges the added pods and sends the scale-up to the agent. If the cluster can't take them, returns false
/// and stores the reason.
pub(crate) fn start_scale_up(turn: &mut Turn<'_>, uid: Uid) -> bool {
    let Some(gang) = gangs::scale_up_gang(turn.world, uid) else { return false };
    let cluster = match check_scale_up(turn.world, uid, &gang, turn.now.mono) {
        Ok(cluster) => cluster,
        Err(why) => {
            turn.world.live_mut().scale_up_reasons_mut().set(uid, why);
            return false;
        }
    };
    let Some(workload) = turn.workload(uid) else { return false };
    let class = turn.world.queues().class(workload.class());
    let (Some((offer, fence)), Some(resized)) =
        (workload.right().and_then(|(offer, leg)| Some((offer, leg.fence()?))), workload.resized())
    else {
        return false;
    };
    let places: Vec<u32> = workload
        .given_gang(class)
        .pod_sets
        .iter()
        .zip(&gang.pod_sets)
        .map(|(admitted, added)| admitted.count + added.count)
        .collect();
    let runs: Vec<u32> =
        resized.runs.iter().zip(&gang.pod_sets).map(|(running, added)| running + added.count).collect();
    let size = resized.wants.map_or(resized.size, |requested| requested.size);
    let detail =
        format!("from {} to {}", resized.runs.iter().sum::<u32>(), counted(runs.iter().sum::<u32>(), "pod"));
    turn.record_workload(uid, WorkloadFact::ScaleUpStarted { fence, places, runs, size, at: turn.now.wall });
    let entry = Entry {
        cluster: Some(cluster.to_string()),
        detail: Some(detail),
        ..Entry::new(Action::ScaleUp, uid.to_string())
    };
    turn.audit(Actor::System, entry);
    turn.world.live_mut().scale_up_reasons_mut().take(uid);
    let number = send_scale_up(turn, &cluster, uid, fence).unwrap_or(0);
    if let Some(live) = turn.world.live_mut().cluster_mut(&cluster) {
        live.capacity_mut().asked(offer, number, &gang);
    }
    true
}

/// Sends the scale-up that is under way to the agent, and returns the command's number. `None` if nothing is
/// under way or the agent is too old.
pub(crate) fn send_scale_up(
    turn: &mut Turn<'_>,
    cluster: &ClusterName,
    uid: Uid,
    fence: Fence,
) -> Option<u64> {
    let number = turn.workload(uid)?.started_scale_up()?.number;
    turn.world.live().cluster(cluster).filter(|live| live.features().scale_up())?;
    turn.send(cluster, CommandRef::ScaleUp(uid, fence, number))
}
