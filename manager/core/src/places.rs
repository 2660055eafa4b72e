//! The rooms of the clusters, as the brain asks for them.

use crate::turn::Turn;
use crate::{World, residency};
use meridian_queueing::Brain;
use meridian_queueing::flavors::Assignment;
use meridian_queueing::model::WorkloadId;
use meridian_queueing::places::{ClusterIndex, Places};
use meridian_queueing::preempt::Target;
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, Uid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The rooms of the clusters, for the brain.
pub(crate) struct Clusters<'a, 'w> {
    pub(crate) turn: &'a mut Turn<'w>,
    /// Clusters that may run a workload, room or not.
    pub(crate) candidates: BTreeMap<WorkloadId, Vec<ClusterName>>,
}

impl Clusters<'_, '_> {
    /// Clusters that may run the workload once there is room.
    fn of(&mut self, brain: &Brain, id: WorkloadId) -> Vec<ClusterName> {
        if let Some(known) = self.candidates.get(&id) {
            return known.clone();
        }
        let turn = &*self.turn;
        let found = turn.world.deciding.uid(id).and_then(|uid| Some((uid, turn.workload(uid)?.class))).map_or_else(Vec::new, |(uid, class)| {
            let shape = turn.world.queues.class(class);
            let catalog = &turn.world.state.catalog;
            let queue = brain.workload(id).map(|w| brain.queue(w.queue).setup.name.clone()).unwrap_or_else(|| Arc::from(""));
            let policy = catalog.dispatch_policy(&queue).cloned().unwrap_or_default();
            let listed = catalog.clusters_of(&queue);
            let may = |cluster: &ClusterName| {
                listed.as_ref().is_none_or(|names| names.contains(cluster))
                    && residency::judge(catalog, shape, cluster, turn.world.config.residency_required).is_ok()
                    && turn.judge_readiness(uid, &queue, &shape.gang, &policy, cluster).is_ok()
            };
            catalog.promised_clusters().into_iter().filter(may).collect()
        });
        self.candidates.insert(id, found.clone());
        found
    }

    /// The first cluster with room for the workload once its victims are gone and what is kept for others is taken.
    fn room(&mut self, brain: &Brain, workload: WorkloadId, victims: &[Target]) -> Option<ClusterName> {
        let candidates = self.of(brain, workload);
        let world = &*self.turn.world;
        let uid = world.deciding.uid(workload)?;
        let wanted = world.gang_of(uid)?;
        let has_room = |cluster: &&ClusterName| {
            let Some(live) = world.live.clusters.get(*cluster) else { return false };
            live.rooms.could_grow(&wanted) || (live.rooms.fits(&wanted).is_ok() && self.turn.judge_kept(uid, &wanted, cluster, live).is_ok())
        };
        if let Some(cluster) = candidates.iter().find(has_room) {
            return Some(cluster.clone());
        }
        let victims: BTreeSet<Uid> = victims.iter().filter_map(|v| world.deciding.uid(v.workload)).collect();
        candidates.into_iter().find(|cluster| {
            let Some(live) = world.live.clusters.get(cluster) else { return false };
            let mut gone: BTreeSet<Uid> = victims.iter().copied().filter(|v| world.runs_in(*v, cluster)).collect();
            if gone.is_empty() {
                return false;
            }
            let kept = world.kept_room(cluster, uid);
            gone.extend(kept.victims);
            let gone: Vec<Arc<Gang>> = gone.into_iter().filter_map(|v| world.gang_of(v)).collect();
            live.rooms.fits_without(&wanted, &gone, &kept.gangs)
        })
    }

    fn cluster(&self, holder: WorkloadId) -> Option<&ClusterName> {
        let uid = self.turn.world.deciding.uid(holder)?;
        World::right(self.turn.workload(uid)?).map(|(_, leg)| &leg.cluster)
    }
}

impl Places for Clusters<'_, '_> {
    fn fits(&mut self, brain: &Brain, workload: WorkloadId, victims: &[Target]) -> bool {
        self.room(brain, workload, victims).is_some()
    }

    fn keep(&mut self, brain: &Brain, workload: WorkloadId, victims: &[Target]) {
        let Some(cluster) = self.room(brain, workload, victims) else { return };
        let world = &mut *self.turn.world;
        let Some(uid) = world.deciding.uid(workload) else { return };
        let Some(gang) = world.gang_of(uid) else { return };
        let victims = victims.iter().filter_map(|v| world.deciding.uid(v.workload)).collect();
        world.keep_room(uid, cluster, gang, victims);
    }

    fn may_displace(&self, workload: WorkloadId, holder: WorkloadId) -> bool {
        let world = &*self.turn.world;
        if world.live.giving_way.all_may() {
            return true;
        }
        let uids = world.deciding.uid(workload).zip(world.deciding.uid(holder));
        uids.is_none_or(|(uid, other)| world.live.giving_way.may_displace(uid, other))
    }

    fn clusters(&mut self, brain: &Brain, workload: WorkloadId) -> Vec<ClusterIndex> {
        if self.room(brain, workload, &[]).is_some() {
            // Only quota is short.
            return Vec::new();
        }
        let all: Vec<ClusterName> = self.turn.world.members();
        let candidates = self.of(brain, workload);
        candidates.iter().filter_map(|c| all.iter().position(|a| a == c)).filter_map(|at| u32::try_from(at).ok()).collect()
    }

    fn cluster_of(&self, holder: WorkloadId) -> Option<ClusterIndex> {
        let cluster = self.cluster(holder)?;
        u32::try_from(self.turn.world.state.members.keys().position(|m| m == cluster)?).ok()
    }

    fn take(&mut self, brain: &Brain, workload: WorkloadId, assignment: &Assignment) -> bool {
        let Some(uid) = self.turn.world.deciding.uid(workload) else { return false };
        let queue = brain.workload(workload).map(|w| brain.queue(w.queue).setup.name.clone()).unwrap_or_else(|| Arc::from(""));
        let mut flavors: BTreeMap<String, Arc<str>> = BTreeMap::new();
        for (resource, choice) in assignment.pod_sets.iter().flat_map(|set| &set.flavors) {
            flavors.insert(brain.resource_name(*resource).to_string(), brain.flavor_name(choice.flavor).clone());
        }
        let asked = self.turn.dispatch(uid, &queue, flavors);
        if asked {
            self.turn.world.let_room_of_go(uid);
        }
        asked
    }
}
