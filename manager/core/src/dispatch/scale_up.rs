//! Elastic jobs that run and want more pods: Kueue's workload slices, as one workload of which a second part waits.
//!
//! ```text
//! runs with 2, wants 4 ──in the queue: 2 more, there and of the same flavors──▶ Grows: 4 charged ──▶ the agent is told
//!          ▲                                                                                     │
//!          └── NotGrown: 2 charged again; it waits ◀── no room for both ─────────────────────────┤
//!   runs with 4 ◀── Grown ◀── both have a place, durably ────────────────────────────────────────┘
//! ```
//!
//! What it grows by is another entry of the queue, as old as the change of its job, that asks for exactly the pods that are
//! added. Until it is admitted, and while no room is found, the gang runs on as it is. The agent is told again by each inventory
//! that doesn't show the growth, and answers each growth once and for all: so what is given back can't be taken later.
//!
//! Invariants: quota is charged before the agent is told, and given back only after it said no; nobody grows who isn't running,
//! is told to shrink, or is growing already.

use crate::capacity::{caps, readiness};
use crate::facts::actor::Actor;
use crate::facts::audit::{Action, Entry};
use crate::facts::reason::Why;
use crate::facts::record::WorkloadFact;
use crate::queue::candidate_clusters::CandidateClusters;
use crate::sessions::outbox::CommandRef;
use crate::world::turn::Turn;
use crate::world::{World, gangs};
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, Fence, Uid};
use meridian_shared::protocol::RefuseReason;
use meridian_shared::time::{Millis, Mono};

/// Shortest wait after an agent said no for want of room: up to eight times as long, by the number of what was refused, so that
/// gangs that were refused together don't ask together again.
pub(crate) const REFUSED_FOR: Millis = Millis(500);

/// Shortest wait after it said no for another reason.
pub(crate) const UNABLE_FOR: Millis = Millis::mins(1);

/// The longest.
pub(crate) const REFUSED_FOR_MAX: Millis = Millis::mins(10);

/// The cluster of a gang that is to grow, or why it can't be asked now; room is another question.
pub(crate) fn scale_up_cluster(world: &World, uid: Uid, now: Mono) -> Result<ClusterName, Why> {
    let workload = world.state.workloads().get(&uid).ok_or(Why::NotConnected)?;
    let (_, leg) = workload.right().ok_or(Why::NotConnected)?;
    let (cluster, class) = (&leg.cluster, world.queues.class(workload.class()));
    let queue = world.state.catalog().route(&class.namespace, &class.queue).map_err(Why::Route)?;
    let way = CandidateClusters::new(&world.state.catalog(), class, &queue, world.config.residency_required);
    let site = way.candidates.iter().find(|site| site.cluster == *cluster).ok_or(Why::NotConnected)?;
    site.listed.ok_or_else(|| way.not_listed())?;
    site.verdict.clone().map_err(Why::Forbidden)?;
    readiness::judge_readiness(world, (uid, now), &way, site)?;
    if !world.live.clusters.get(cluster).is_some_and(|live| live.grows) {
        let text = "its agent is of an older version and can't let a gang go on with more pods".to_owned();
        return Err(Why::Refused { reason: RefuseReason::Unsupported, text });
    }
    Ok(cluster.clone())
}

/// Whether the cluster of a gang has room for what it is to grow by, beside what is kept there for others.
pub(crate) fn judge_scale_up(world: &World, uid: Uid, gang: &Gang, now: Mono) -> Result<ClusterName, Why> {
    let cluster = scale_up_cluster(world, uid, now)?;
    let live = world.live.clusters.get(&cluster).ok_or(Why::NotConnected)?;
    if let Some(queue) = world.queues.charged_to(uid) {
        caps::judge_caps(world, uid, queue, gang, &cluster)?;
    }
    live.capacity.fits(gang).map_err(Why::NoRoom)?;
    readiness::judge_reserved(world, uid, gang, &cluster, live)?;
    Ok(cluster)
}

/// Charges what a gang grows by and tells its agent; false where there is no room for it, with the reason.
pub(crate) fn grow(turn: &mut Turn<'_>, uid: Uid) -> bool {
    let Some(gang) = gangs::scale_up_gang(turn.world, uid) else { return false };
    let cluster = match judge_scale_up(turn.world, uid, &gang, turn.now.mono) {
        Ok(cluster) => cluster,
        Err(why) => {
            turn.world.live.scale_up_reasons.insert(uid, why);
            return false;
        }
    };
    let Some(workload) = turn.workload(uid) else { return false };
    let class = turn.world.queues.class(workload.class());
    let (Some((offer, fence)), Some(resized)) =
        (workload.right().and_then(|(offer, leg)| Some((offer, leg.fence?))), workload.resized())
    else {
        return false;
    };
    let places: Vec<u32> = workload
        .given_gang(class)
        .pod_sets
        .iter()
        .zip(&gang.pod_sets)
        .map(|(has, more)| has.count + more.count)
        .collect();
    let runs: Vec<u32> =
        resized.runs.iter().zip(&gang.pod_sets).map(|(has, more)| has + more.count).collect();
    let size = resized.wants.map_or(resized.size, |wants| wants.size);
    let detail = format!("from {} to {} pods", resized.runs.iter().sum::<u32>(), runs.iter().sum::<u32>());
    turn.record_workload(uid, WorkloadFact::ScaleUpStarted { fence, places, runs, size, at: turn.now.wall });
    let entry = Entry {
        cluster: Some(cluster.to_string()),
        detail: Some(detail),
        ..Entry::new(Action::ScaleUp, uid.to_string())
    };
    turn.audit(Actor::System, entry);
    turn.world.live.scale_up_reasons.remove(&uid);
    let number = say_grow(turn, &cluster, uid, fence).unwrap_or(0);
    if let Some(live) = turn.world.live.clusters.get_mut(&cluster) {
        live.capacity.asked(offer, number, &gang);
    }
    true
}

/// Tells an agent what a gang of it grows by, if it is to know.
pub(crate) fn say_grow(turn: &mut Turn<'_>, cluster: &ClusterName, uid: Uid, fence: Fence) -> Option<u64> {
    let number = turn.workload(uid)?.growing()?.number;
    turn.world.live.clusters.get(cluster).filter(|live| live.grows)?;
    turn.send(cluster, CommandRef::Grow(uid, fence, number))
}
