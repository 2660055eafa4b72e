//! Whether a cluster can be offered a workload, apart from capacity, and whether the capacity is reserved for
//! others.

use crate::capacity::{reserved, topology};
use crate::facts::reason::Why;
use crate::queue::candidate_clusters::{Candidate, CandidateClusters};
use crate::sessions::LiveCluster;
use crate::world::{World, gangs};
use meridian_objects::spec::Supervision;
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::protocol::RefuseReason;
use meridian_shared::time::Mono;
use std::sync::Arc;

/// Fails with the first reason why a cluster can't be offered the workload now. Capacity isn't checked.
pub(crate) fn check_readiness(
    world: &World,
    uid: Uid,
    now: Mono,
    candidates: &CandidateClusters,
    Candidate { cluster, cordoned, .. }: &Candidate,
) -> Result<(), Why> {
    if cordoned.ok_or(Why::NotConnected)? {
        return Err(Why::Cordoned);
    }
    let live = world.live().cluster(cluster).ok_or(Why::NotConnected)?;
    if now.since(live.heard()) >= meridian_shared::lease::disconnect_after(world.config().term_min) {
        return Err(Why::NotConnected);
    }
    if !live.inventory().is_taken() {
        return Err(Why::Recovering);
    }
    if !world.state().members().get(cluster).is_some_and(|m| m.admitted()) {
        return Err(Why::NotAdmitted);
    }
    if let Some(located) = located_elsewhere(world, cluster) {
        return Err(Why::Quarantined { located: located.to_string() });
    }
    if live.starts().backs_off(now) || world.live().failed_starts().backs_off(uid, cluster, now) {
        return Err(Why::BackedOff);
    }
    if !live.capacity().known() {
        return Err(Why::NoReport);
    }
    if candidates.policy.on_cluster_loss.requires == Supervision::Guarded && !live.capacity().guarded() {
        return Err(Why::NotGuarded);
    }
    if let Some(refusal) = world.live().refusals().find(uid, cluster, now) {
        return Err(Why::Refused { reason: refusal.reason(), text: refusal.text().to_owned() });
    }
    Ok(())
}

/// Fails if the cluster's provider had no nodes for the gang on these flavors a short time ago.
pub(crate) fn check_provider(
    world: &World,
    uid: Uid,
    now: Mono,
    gang: &Gang,
    cluster: &ClusterName,
) -> Result<(), Why> {
    let failure = world.live().provider_failures().find(uid, cluster, gang, now);
    failure.map_or(Ok(()), |failure| {
        Err(Why::Refused { reason: RefuseReason::ProviderFailed, text: failure.text.clone() })
    })
}

/// Fails if the gang would use capacity that is reserved for others, or enter a topology domain that is
/// closed for them.
pub(crate) fn check_reserved(
    world: &World,
    uid: Uid,
    gang: &Gang,
    cluster: &ClusterName,
    live: &LiveCluster,
) -> Result<(), Why> {
    if live.capacity().spares(gang) {
        return Ok(());
    }
    let reserved = reserved::reserved_capacity(world, cluster, uid);
    let Some(first) = reserved.uids.first() else { return Ok(()) };
    let gone: Vec<Arc<Gang>> =
        reserved.all_victims().iter().filter_map(|victim| gangs::gang_of(world, *victim)).collect();
    let (owner, starves) = if live.capacity().leaves(gang, &gone, &reserved.all_gangs()) {
        match topology::owner_of_closed_domain(world, uid, gang, cluster) {
            None => return Ok(()),
            Some(owner) => (owner, false),
        }
    } else {
        (*first, reserved.gangs.is_empty())
    };
    Err(Why::CapacityReserved { reserved_for: gangs::job_of(world, owner), starves })
}

/// Whether a cluster can grow for the gang. `None` if its pools can't. Fails if the pods that need no new
/// nodes have no capacity now, or it is reserved.
pub(crate) fn check_provisioning(
    world: &World,
    uid: Uid,
    gang: &Gang,
    cluster: &ClusterName,
    live: &LiveCluster,
) -> Option<Result<(), Why>> {
    let provisioning = live.capacity().provisioning(gang)?.map_err(Why::NoCapacity);
    Some(provisioning.and_then(|division| match division.uses_existing() {
        true => check_reserved(world, uid, &division.existing, cluster, live),
        false => Ok(()),
    }))
}

/// Whether a cluster backs off for this workload alone, because it refused the workload or failed to start
/// it.
pub(crate) fn has_own_backoff(world: &World, uid: Uid, now: Mono) -> bool {
    let live = world.live();
    live.refusals().has_any(uid, now)
        || live.failed_starts().has_any(uid, now)
        || live.provider_failures().has_any(uid, now)
}

/// The region in which an agent finds itself, if that isn't the declared region of its cluster.
pub fn located_elsewhere<'a>(world: &'a World, cluster: &ClusterName) -> Option<&'a str> {
    let located = world.live().cluster(cluster)?.located()?;
    let declared = &world.state().catalog().cluster(cluster)?.region;
    (declared.as_str() != located).then_some(located)
}

/// Whether a cluster is closed for new attempts of a workload, even if residency rules allow it: the cluster
/// is cordoned, its agent is in another region, or the workload's queue no longer uses it. Open offers there
/// are withdrawn.
pub(crate) fn is_closed(world: &World, uid: Uid, cluster: &ClusterName) -> bool {
    let catalog = &world.state().catalog();
    let listed = world.queues().charged_to(uid).and_then(|queue| catalog.clusters_of(queue));
    let cordoned = catalog.cluster(cluster).is_some_and(|spec| spec.cordoned);
    cordoned
        || listed.is_some_and(|names| !names.contains(cluster))
        || located_elsewhere(world, cluster).is_some()
}
