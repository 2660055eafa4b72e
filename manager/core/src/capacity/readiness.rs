use crate::capacity::{reserved, topology};
use crate::facts::reason::Why;
use crate::queue::candidate_clusters::{Candidate, CandidateClusters};
use crate::sessions::LiveCluster;
use crate::world::{World, gangs};
use meridian_objects::spec::Supervision;
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::Mono;
use std::sync::Arc;

/// Everything but the room.
pub(crate) fn judge_readiness(
    world: &World,
    (uid, now): (Uid, Mono),
    way: &CandidateClusters,
    Candidate { cluster, cordoned, .. }: &Candidate,
) -> Result<(), Why> {
    if cordoned.ok_or(Why::NotConnected)? {
        return Err(Why::Cordoned);
    }
    let live = world.live.clusters.get(cluster).ok_or(Why::NotConnected)?;
    if now.since(live.heard) >= meridian_shared::lease::silence(world.config.term_min) {
        return Err(Why::NotConnected);
    }
    if !live.inventoried {
        return Err(Why::Recovering);
    }
    if !world.state.members().get(cluster).is_some_and(|m| m.admitted) {
        return Err(Why::NotAdmitted);
    }
    if let Some(located) = located_elsewhere(world, cluster) {
        return Err(Why::Quarantined { located: located.to_string() });
    }
    if live.backed_off > now || failed_to_start(world, uid, cluster, now).1 {
        return Err(Why::BackedOff);
    }
    if !live.capacity.known() {
        return Err(Why::NoReport);
    }
    if way.policy.on_cluster_loss.requires == Supervision::Guarded && !live.capacity.guarded() {
        return Err(Why::NotGuarded);
    }
    if let Some((until, reason, text)) = world.live.refused.get(&(uid, cluster.clone()))
        && *until > now
    {
        return Err(Why::Refused { reason: *reason, text: text.clone() });
    }
    Ok(())
}

/// Whether what is kept for others is left for them.
pub(crate) fn judge_reserved(
    world: &World,
    uid: Uid,
    gang: &Gang,
    cluster: &ClusterName,
    live: &LiveCluster,
) -> Result<(), Why> {
    if live.capacity.spares(gang) {
        return Ok(());
    }
    let kept = reserved::reserved_capacity(world, cluster, uid);
    let Some(first) = kept.uids.first() else { return Ok(()) };
    let gone: Vec<Arc<Gang>> =
        kept.all_victims().iter().filter_map(|victim| gangs::gang_of(world, *victim)).collect();
    let breaks = live
        .capacity
        .leaves(gang, &gone, &kept.all_gangs())
        .then(|| topology::breaks_into(world, uid, gang, cluster));
    let (first, starves) = match breaks {
        Some(None) => return Ok(()),
        Some(Some(other)) => (other, false),
        None => (*first, kept.gangs.is_empty()),
    };
    Err(Why::Kept { for_whom: gangs::name_of(world, first), starves })
}

/// How often a workload didn't reach running in a cluster, and whether it is left out for it now.
pub(crate) fn failed_to_start(world: &World, uid: Uid, cluster: &ClusterName, now: Mono) -> (u32, bool) {
    world
        .live
        .failed_starts
        .get(&(uid, cluster.clone()))
        .map_or((0, false), |(times, until)| (*times, *until > now))
}

/// Whether a cluster is left out for this workload alone: it was refused there, or didn't start.
pub(crate) fn is_set_back(world: &World, uid: Uid, now: Mono) -> bool {
    let first = (uid, ClusterName::from(""));
    let of = |key: &(Uid, ClusterName)| key.0 == uid;
    let mut refused = world.live.refused.range(&first..).take_while(|(key, _)| of(key));
    let mut failed = world.live.failed_starts.range(&first..).take_while(|(key, _)| of(key));
    refused.any(|(_, (until, ..))| *until > now) || failed.any(|(_, (_, until))| *until > now)
}

/// Where the agent of a cluster finds itself, if that isn't where the cluster was declared.
pub(crate) fn located_elsewhere<'a>(world: &'a World, cluster: &ClusterName) -> Option<&'a str> {
    let located = world.live.clusters.get(cluster)?.located.as_deref()?;
    let declared = &world.state.catalog().cluster(cluster)?.region;
    (declared.as_str() != located).then_some(located)
}

/// Whether nothing new of a workload may start in a cluster, wherever it may be known: it is cordoned, its agent finds itself
/// elsewhere, or the queue that the workload is charged to leaves it out. What was asked before is taken back.
pub(crate) fn is_closed(world: &World, uid: Uid, cluster: &ClusterName) -> bool {
    let catalog = &world.state.catalog();
    let listed = world.queues.charged_to(uid).and_then(|queue| catalog.clusters_of(queue));
    let cordoned = catalog.cluster(cluster).is_some_and(|spec| spec.cordoned);
    cordoned
        || listed.is_some_and(|names| !names.contains(cluster))
        || located_elsewhere(world, cluster).is_some()
}
