//! What a cluster is believed to have at most, whatever it reports: by the limits of its object, and per queue by its own files.
//!
//! What is left under them is room like any other: it comes free with those who end there, others give way for it by the rights by
//! which they would for nodes, and it is kept for whom they give way.

use crate::capacity::reserved;
use crate::facts::reason::Why;
use crate::placement::reservations::ReservedCapacity;
use crate::world::{World, gangs};
use meridian_objects::spec::ClusterQueueSpec;
use meridian_shared::gang::{Amounts, Gang, add_scaled};
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::planted::Bug;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What those have together who were asked of a cluster or were granted there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    all: Amounts,
    by_queue: BTreeMap<Arc<str>, Amounts>,
}

/// One bound, and what is left under it.
#[derive(Clone, Copy, Debug)]
struct Cap {
    most: i64,
    left: i64,
}

/// What is left in one cluster for one queue, by resource.
#[derive(Clone, Debug)]
pub(crate) struct Caps {
    queue: Arc<str>,
    /// For whichever queue.
    all: BTreeMap<String, Cap>,
    /// For this one.
    own: BTreeMap<String, Cap>,
}

impl Caps {
    /// A gang of some queue comes (`1`) or goes (`-1`).
    fn count(&mut self, total: &Amounts, queue: Option<&Arc<str>>, sign: i64) {
        let own = queue.is_some_and(|queue| *queue == self.queue);
        for (caps, counts) in [(&mut self.all, true), (&mut self.own, own)] {
            for (resource, cap) in caps.iter_mut().filter(|_| counts) {
                let amount = total.get(resource).copied().unwrap_or(0);
                cap.left = cap.left.saturating_sub(amount.saturating_mul(sign));
            }
        }
    }

    /// The same without some of those who are there.
    pub(crate) fn without(&self, world: &World, gone: impl Iterator<Item = Uid>) -> Self {
        let mut caps = self.clone();
        for uid in gone {
            caps.count(
                &gangs::gang_of(world, uid).map(|gang| gang.total()).unwrap_or_default(),
                world.queues.charged_to(uid),
                -1,
            );
        }
        caps
    }

    /// The first bound that a gang of this queue would break.
    pub(crate) fn judge(&self, gang: &Gang) -> Result<(), Why> {
        for (resource, asks) in gang.total() {
            for cap in [&self.all, &self.own].into_iter().filter_map(|caps| caps.get(&resource)) {
                if asks > cap.left {
                    return Err(Why::Capped { resource, asks, left: cap.left, cap: cap.most });
                }
            }
        }
        Ok(())
    }
}

/// What is left once some have gone and others have come: for those for whom others stop, and for those who wait too long as well.
#[derive(Clone, Debug)]
pub(crate) struct CapsWithout {
    now: Caps,
    then: Caps,
}

impl CapsWithout {
    /// Somebody goes, or is back.
    pub(crate) fn change(&mut self, world: &World, uid: Uid, leaves: bool, expected: bool) {
        let Some(gang) = gangs::gang_of(world, uid) else { return };
        let (total, queue, sign) = (gang.total(), world.queues.charged_to(uid), if leaves { -1 } else { 1 });
        self.now.count(&total, queue, sign);
        if !expected {
            self.then.count(&total, queue, sign);
        }
    }

    /// Whether a gang is within all bounds.
    pub(crate) fn fits(&self, gang: &Gang) -> bool {
        self.now.judge(gang).is_ok() && self.then.judge(gang).is_ok()
    }
}

/// Whether anything bounds what a queue may use in a cluster.
pub(crate) fn is_capped(world: &World, cluster: &ClusterName, queue: &str) -> bool {
    world.state.catalog().cluster(cluster).is_some_and(|spec| !spec.limits.is_empty())
        || world.state.catalog().cap(cluster, queue).is_some()
}

/// What those have who count against a cluster's bounds.
pub(crate) fn totals_in(world: &World, cluster: &ClusterName) -> Arc<Totals> {
    let mut totals = Totals::default();
    for uid in world.loads.get(cluster).into_iter().flat_map(BTreeMap::keys) {
        let total = gangs::gang_of(world, *uid).map(|gang| gang.total()).unwrap_or_default();
        add_scaled(&mut totals.all, &total, 1);
        if let Some(queue) = world.queues.charged_to(*uid) {
            add_scaled(totals.by_queue.entry(queue.clone()).or_default(), &total, 1);
        }
    }
    Arc::new(totals)
}

/// What is left for a queue under a cluster's bounds, if it has any.
pub(crate) fn caps(world: &World, cluster: &ClusterName, queue: &Arc<str>, totals: &Totals) -> Option<Caps> {
    if !is_capped(world, cluster, queue) || world.config.planted.has(Bug::CapsIgnored) {
        return None;
    }
    let left = |most: i64, used: Option<&Amounts>, resource: &str| Cap {
        most,
        left: most - used.and_then(|used| used.get(resource)).copied().unwrap_or(0),
    };
    let limits = world.state.catalog().cluster(cluster).into_iter().flat_map(|spec| &spec.limits);
    let all =
        limits.map(|(resource, most)| (resource.clone(), left(*most, Some(&totals.all), resource))).collect();
    let used = totals.by_queue.get(queue);
    let own = world.state.catalog().cap(cluster, queue).map(caps_of).unwrap_or_default();
    let own =
        own.into_iter().map(|(resource, most)| (resource.to_owned(), left(most, used, resource))).collect();
    Some(Caps { queue: queue.clone(), all, own })
}

/// The queue of a workload, whether it waits or is charged.
pub(crate) fn queue_asked(world: &World, uid: Uid) -> Option<Arc<str>> {
    let waits = || {
        let class = world.queues.class(world.state.workloads().get(&uid)?.class());
        world.state.catalog().route(&class.namespace, &class.queue).ok()
    };
    world.queues.charged_to(uid).cloned().or_else(waits)
}

/// Whether a gang is within a cluster's bounds now, beside what is kept there for others.
pub(crate) fn judge_caps(
    world: &World,
    uid: Uid,
    queue: &Arc<str>,
    gang: &Gang,
    cluster: &ClusterName,
) -> Result<(), Why> {
    if !is_capped(world, cluster, queue) {
        return Ok(());
    }
    judge_caps_of(world, uid, queue, gang, (cluster, &totals_in(world, cluster)))
}

/// The same where it is known who is there.
pub(crate) fn judge_caps_of(
    world: &World,
    uid: Uid,
    queue: &Arc<str>,
    gang: &Gang,
    (cluster, totals): (&ClusterName, &Totals),
) -> Result<(), Why> {
    let Some(caps) = caps(world, cluster, queue, totals) else { return Ok(()) };
    caps.judge(gang)?;
    let kept = reserved::reserved_capacity(world, cluster, uid);
    let Some(first) = kept.uids.first() else { return Ok(()) };
    beside(world, caps, &kept)
        .judge(gang)
        .map_err(|_| Why::Kept { for_whom: gangs::name_of(world, *first), starves: kept.gangs.is_empty() })
}

/// What would be left for a workload's queue, beside what is kept for others and without those who stop for them.
pub(crate) fn caps_without(
    world: &World,
    uid: Uid,
    cluster: &ClusterName,
    totals: &Totals,
) -> Option<CapsWithout> {
    let caps = caps(world, cluster, &queue_asked(world, uid)?, totals)?;
    let kept = reserved::reserved_capacity(world, cluster, uid);
    let mut now = caps.without(world, kept.victims.iter().copied());
    for (other, gang) in kept.all_of().filter(|(other, _)| !kept.is_starving(*other)) {
        now.count(&gang.total(), queue_asked(world, other).as_ref(), 1);
    }
    Some(CapsWithout { now, then: beside(world, caps, &kept) })
}

/// What will be left once those have gone who free what is kept, and those have it for whom it is.
fn beside(world: &World, caps: Caps, kept: &ReservedCapacity) -> Caps {
    let mut caps = caps.without(world, kept.all_victims().into_iter());
    kept.all_of().for_each(|(other, gang)| caps.count(&gang.total(), queue_asked(world, other).as_ref(), 1));
    caps
}

/// What will be left for one that waits too long, beside those who come before it.
pub(crate) fn caps_for_starved(
    world: &World,
    uid: Uid,
    cluster: &ClusterName,
    kept: &ReservedCapacity,
) -> Option<Caps> {
    let queue = queue_asked(world, uid).filter(|queue| is_capped(world, cluster, queue))?;
    Some(beside(world, caps(world, cluster, &queue, &totals_in(world, cluster))?, kept))
}

/// What a cluster's own file allows a queue there, over all flavors.
fn caps_of(spec: &ClusterQueueSpec) -> BTreeMap<&str, i64> {
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
