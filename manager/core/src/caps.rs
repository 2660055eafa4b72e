//! What a cluster is believed to have at most, whatever it reports: by the limits of its object, and per queue by its own files.
//!
//! What is left under them is room like any other: it comes free with those who end there, others give way for it by the rights by
//! which they would for nodes, and it is kept for whom they give way.

use crate::World;
use crate::explain::Why;
use crate::giving_way::KeptRoom;
use crate::vacating::There;
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
                &world.gang_of(uid).map(|gang| gang.total()).unwrap_or_default(),
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
        let Some(gang) = world.gang_of(uid) else { return };
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

impl World {
    /// Whether anything bounds what a queue may use in a cluster.
    pub(crate) fn is_capped(&self, cluster: &ClusterName, queue: &str) -> bool {
        self.state.catalog.cluster(cluster).is_some_and(|spec| !spec.limits.is_empty())
            || self.state.catalog.cap(cluster, queue).is_some()
    }

    /// What those have who count against a cluster's bounds.
    pub(crate) fn totals_in(&self, cluster: &ClusterName) -> Arc<Totals> {
        let mut totals = Totals::default();
        for uid in self.loads.get(cluster).into_iter().flat_map(BTreeMap::keys) {
            let total = self.gang_of(*uid).map(|gang| gang.total()).unwrap_or_default();
            add_scaled(&mut totals.all, &total, 1);
            if let Some(queue) = self.queues.charged_to(*uid) {
                add_scaled(totals.by_queue.entry(queue.clone()).or_default(), &total, 1);
            }
        }
        Arc::new(totals)
    }

    /// What is left for a queue under a cluster's bounds, if it has any.
    pub(crate) fn caps(&self, cluster: &ClusterName, queue: &Arc<str>, totals: &Totals) -> Option<Caps> {
        if !self.is_capped(cluster, queue) || self.config.planted.has(Bug::CapsIgnored) {
            return None;
        }
        let left = |most: i64, used: Option<&Amounts>, resource: &str| Cap {
            most,
            left: most - used.and_then(|used| used.get(resource)).copied().unwrap_or(0),
        };
        let limits = self.state.catalog.cluster(cluster).into_iter().flat_map(|spec| &spec.limits);
        let all = limits
            .map(|(resource, most)| (resource.clone(), left(*most, Some(&totals.all), resource)))
            .collect();
        let used = totals.by_queue.get(queue);
        let own = self.state.catalog.cap(cluster, queue).map(caps_of).unwrap_or_default();
        let own = own
            .into_iter()
            .map(|(resource, most)| (resource.to_owned(), left(most, used, resource)))
            .collect();
        Some(Caps { queue: queue.clone(), all, own })
    }

    /// The queue of a workload, whether it waits or is charged.
    pub(crate) fn queue_asked(&self, uid: Uid) -> Option<Arc<str>> {
        let waits = || {
            let class = self.queues.class(self.state.workloads.get(&uid)?.class);
            self.state.catalog.route(&class.namespace, &class.queue).ok()
        };
        self.queues.charged_to(uid).cloned().or_else(waits)
    }

    /// Whether a gang is within a cluster's bounds now, beside what is kept there for others.
    pub(crate) fn judge_caps(
        &self,
        uid: Uid,
        queue: &Arc<str>,
        gang: &Gang,
        cluster: &ClusterName,
    ) -> Result<(), Why> {
        if !self.is_capped(cluster, queue) {
            return Ok(());
        }
        self.judge_caps_of(uid, queue, gang, (cluster, &self.totals_in(cluster)))
    }

    /// The same where it is known who is there.
    pub(crate) fn judge_caps_of(
        &self,
        uid: Uid,
        queue: &Arc<str>,
        gang: &Gang,
        (cluster, totals): (&ClusterName, &Totals),
    ) -> Result<(), Why> {
        let Some(caps) = self.caps(cluster, queue, totals) else { return Ok(()) };
        caps.judge(gang)?;
        let kept = self.kept_room(cluster, uid);
        let Some(first) = kept.uids.first() else { return Ok(()) };
        self.beside(caps, &kept)
            .judge(gang)
            .map_err(|_| Why::Kept { for_whom: self.name_of(*first), starves: kept.gangs.is_empty() })
    }

    /// What would be left for a workload's queue, beside what is kept for others and without those who stop for them.
    pub(crate) fn caps_without(
        &self,
        uid: Uid,
        cluster: &ClusterName,
        totals: &Totals,
    ) -> Option<CapsWithout> {
        let caps = self.caps(cluster, &self.queue_asked(uid)?, totals)?;
        let kept = self.kept_room(cluster, uid);
        let mut now = caps.without(self, kept.victims.iter().copied());
        for (other, gang) in kept.all_of().filter(|(other, _)| !kept.is_starving(*other)) {
            now.count(&gang.total(), self.queue_asked(other).as_ref(), 1);
        }
        Some(CapsWithout { now, then: self.beside(caps, &kept) })
    }

    /// What will be left once those have gone who free what is kept, and those have it for whom it is.
    fn beside(&self, caps: Caps, kept: &KeptRoom) -> Caps {
        let mut caps = caps.without(self, kept.all_victims().into_iter());
        kept.all_of()
            .for_each(|(other, gang)| caps.count(&gang.total(), self.queue_asked(other).as_ref(), 1));
        caps
    }

    /// What will be left for one that waits too long, beside those who come before it.
    pub(crate) fn caps_for_the_starving(
        &self,
        uid: Uid,
        cluster: &ClusterName,
        kept: &KeptRoom,
    ) -> Option<Caps> {
        let queue = self.queue_asked(uid).filter(|queue| self.is_capped(cluster, queue))?;
        Some(self.beside(self.caps(cluster, &queue, &self.totals_in(cluster))?, kept))
    }

    /// Who stands where in a cluster, and what they have together where it has bounds for anybody.
    pub(crate) fn there(&self, cluster: &ClusterName) -> There {
        (self.standing_in(cluster), Some(self.totals_in(cluster)))
    }
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
