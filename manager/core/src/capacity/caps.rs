//! Caps: upper bounds on what workloads may use in a cluster, whatever its agent reports. The cluster object
//! bounds all queues together; a cluster may also declare quota for each queue.
//!
//! Capacity below a cap is treated like capacity of nodes: it is released when runs end, workloads preempt
//! each other for it by the same policies, and it is reserved for preemptors.

use crate::capacity::reserved;
use crate::facts::reason::Why;
use crate::world::{World, gangs};
use meridian_objects::spec::ClusterQueueSpec;
use meridian_placement::reservations::ReservedCapacity;
use meridian_shared::gang::{Amounts, Gang, add_scaled};
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::planted::Bug;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Total usage of the workloads that are offered to a cluster or granted there.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    all: Amounts,
    by_queue: BTreeMap<Arc<str>, Amounts>,
}

#[derive(Clone, Copy, Debug)]
struct Cap {
    max: i64,
    left: i64,
}

/// Caps of one queue in one cluster, by resource.
#[derive(Clone, Debug)]
pub(crate) struct Caps {
    queue: Arc<str>,
    /// Caps on all queues together.
    all: BTreeMap<String, Cap>,
    /// Caps on this queue alone.
    own: BTreeMap<String, Cap>,
}

impl Caps {
    /// Adds (`sign` 1) or removes (`sign` -1) the usage of a gang of any queue.
    fn count(&mut self, total: &Amounts, queue: Option<&Arc<str>>, sign: i64) {
        let own = queue.is_some_and(|queue| *queue == self.queue);
        for (caps, counts) in [(&mut self.all, true), (&mut self.own, own)] {
            for (resource, cap) in caps.iter_mut().filter(|_| counts) {
                let amount = total.get(resource).copied().unwrap_or(0);
                cap.left = cap.left.saturating_sub(amount.saturating_mul(sign));
            }
        }
    }

    /// The caps as they would be without the workloads in `gone`.
    pub(crate) fn without(&self, world: &World, gone: impl Iterator<Item = Uid>) -> Self {
        let mut caps = self.clone();
        for uid in gone {
            caps.count(
                &gangs::gang_of(world, uid).map(|gang| gang.total()).unwrap_or_default(),
                world.queues().charged_to(uid),
                -1,
            );
        }
        caps
    }

    /// Fails with the first cap that a gang of this queue would exceed.
    pub(crate) fn check(&self, gang: &Gang) -> Result<(), Why> {
        for (resource, asks) in gang.total() {
            for cap in [&self.all, &self.own].into_iter().filter_map(|caps| caps.get(&resource)) {
                if asks > cap.left {
                    return Err(Why::Capped { resource, asks, left: cap.left, cap: cap.max });
                }
            }
        }
        Ok(())
    }
}

/// Caps during a simulated eviction.
#[derive(Clone, Debug)]
pub(crate) struct CapsWithout {
    /// Caps once the reservations of preemptors are used and their victims are gone.
    after_preemptions: Caps,
    /// Caps once the reservations of starved heads are also used, and the runs that are expected to end for
    /// them are gone.
    after_all: Caps,
}

impl CapsWithout {
    /// Subtracts a workload that `leaves`, or adds it back. `is_expected`: the workload is already assumed to
    /// end for a starved head.
    pub(crate) fn change(&mut self, world: &World, uid: Uid, leaves: bool, is_expected: bool) {
        let Some(gang) = gangs::gang_of(world, uid) else { return };
        let (total, queue, sign) =
            (gang.total(), world.queues().charged_to(uid), if leaves { -1 } else { 1 });
        self.after_preemptions.count(&total, queue, sign);
        if !is_expected {
            self.after_all.count(&total, queue, sign);
        }
    }

    pub(crate) fn fits(&self, gang: &Gang) -> bool {
        self.after_preemptions.check(gang).is_ok() && self.after_all.check(gang).is_ok()
    }
}

/// Whether any cap limits a queue in a cluster.
pub(crate) fn is_capped(world: &World, cluster: &ClusterName, queue: &str) -> bool {
    world.state().catalog().cluster(cluster).is_some_and(|spec| !spec.limits.is_empty())
        || world.state().catalog().cap(cluster, queue).is_some()
}

/// Usage that counts against the caps of a cluster.
pub(crate) fn totals_in(world: &World, cluster: &ClusterName) -> Arc<Totals> {
    let mut totals = Totals::default();
    for uid in world.loads().get(cluster).into_iter().flat_map(BTreeMap::keys) {
        let total = gangs::gang_of(world, *uid).map(|gang| gang.total()).unwrap_or_default();
        add_scaled(&mut totals.all, &total, 1);
        if let Some(queue) = world.queues().charged_to(*uid) {
            add_scaled(totals.by_queue.entry(queue.clone()).or_default(), &total, 1);
        }
    }
    Arc::new(totals)
}

/// The caps of a queue in a cluster, if there are any.
pub(crate) fn caps(world: &World, cluster: &ClusterName, queue: &Arc<str>, totals: &Totals) -> Option<Caps> {
    if !is_capped(world, cluster, queue) || world.config().planted.has(Bug::CapsIgnored) {
        return None;
    }
    let cap = |max: i64, used: Option<&Amounts>, resource: &str| Cap {
        max,
        left: max - used.and_then(|used| used.get(resource)).copied().unwrap_or(0),
    };
    let limits = world.state().catalog().cluster(cluster).into_iter().flat_map(|spec| &spec.limits);
    let all =
        limits.map(|(resource, max)| (resource.clone(), cap(*max, Some(&totals.all), resource))).collect();
    let used = totals.by_queue.get(queue);
    let own = world.state().catalog().cap(cluster, queue).map(nominal_quotas).unwrap_or_default();
    let own =
        own.into_iter().map(|(resource, max)| (resource.to_owned(), cap(max, used, resource))).collect();
    Some(Caps { queue: queue.clone(), all, own })
}

/// The cluster queue that a workload is charged to, or would be.
pub(crate) fn cluster_queue_of(world: &World, uid: Uid) -> Option<Arc<str>> {
    let route = || {
        let class = world.queues().class(world.state().workloads().get(&uid)?.class());
        world.state().catalog().route(&class.namespace, &class.queue).ok()
    };
    world.queues().charged_to(uid).cloned().or_else(route)
}

/// Fails if a gang would exceed a cap of the cluster, or use capacity below the cap that is reserved for
/// others.
pub(crate) fn check_caps(
    world: &World,
    uid: Uid,
    queue: &Arc<str>,
    gang: &Gang,
    cluster: &ClusterName,
) -> Result<(), Why> {
    if !is_capped(world, cluster, queue) {
        return Ok(());
    }
    check_caps_of(world, uid, queue, gang, cluster, &totals_in(world, cluster))
}

/// Like [`check_caps`], with totals that are known already.
pub(crate) fn check_caps_of(
    world: &World,
    uid: Uid,
    queue: &Arc<str>,
    gang: &Gang,
    cluster: &ClusterName,
    totals: &Totals,
) -> Result<(), Why> {
    let Some(caps) = caps(world, cluster, queue, totals) else { return Ok(()) };
    caps.check(gang)?;
    let reserved = reserved::reserved_capacity(world, cluster, uid);
    let Some(first) = reserved.uids.first() else { return Ok(()) };
    with_reservations(world, caps, &reserved).check(gang).map_err(|_| Why::CapacityReserved {
        reserved_for: gangs::job_of(world, *first),
        starves: reserved.gangs.is_empty(),
    })
}

/// The caps of a workload's queue at the start of a simulated eviction.
pub(crate) fn caps_without(
    world: &World,
    uid: Uid,
    cluster: &ClusterName,
    totals: &Totals,
) -> Option<CapsWithout> {
    let caps = caps(world, cluster, &cluster_queue_of(world, uid)?, totals)?;
    let reserved = reserved::reserved_capacity(world, cluster, uid);
    let mut after_preemptions = caps.without(world, reserved.victims.iter().copied());
    for (other, gang) in reserved.all_of().filter(|(other, _)| !reserved.is_starving(*other)) {
        after_preemptions.count(&gang.total(), cluster_queue_of(world, other).as_ref(), 1);
    }
    Some(CapsWithout { after_preemptions, after_all: with_reservations(world, caps, &reserved) })
}

/// The caps once all victims are gone and all reservations are used.
fn with_reservations(world: &World, caps: Caps, reserved: &ReservedCapacity) -> Caps {
    let mut caps = caps.without(world, reserved.all_victims().into_iter());
    for (other, gang) in reserved.all_of() {
        caps.count(&gang.total(), cluster_queue_of(world, other).as_ref(), 1);
    }
    caps
}

/// The caps of a starved head's queue, once the reservations that come before it are used.
pub(crate) fn caps_for_starved(
    world: &World,
    uid: Uid,
    cluster: &ClusterName,
    reserved: &ReservedCapacity,
) -> Option<Caps> {
    let queue = cluster_queue_of(world, uid).filter(|queue| is_capped(world, cluster, queue))?;
    let caps = caps(world, cluster, &queue, &totals_in(world, cluster))?;
    Some(with_reservations(world, caps, reserved))
}

/// Nominal quota that a cluster declares for a queue, summed over all flavors.
fn nominal_quotas(spec: &ClusterQueueSpec) -> BTreeMap<&str, i64> {
    let mut caps: BTreeMap<&str, i64> = BTreeMap::new();
    for group in &spec.resource_groups {
        let quotas = group.flavors.iter().flat_map(|flavor| &flavor.resources);
        for (resource, quota) in quotas.filter(|(resource, _)| group.covered_resources.contains(resource)) {
            let cap = caps.entry(resource).or_default();
            *cap = cap.saturating_add(quota.nominal);
        }
    }
    caps
}
