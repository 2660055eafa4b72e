use crate::capacity::caps::{self, Totals};
use crate::capacity::simulated_eviction::{self, NodeUsage, SimulatedEviction};
use crate::capacity::topology::{self, Gone};
use crate::capacity::{readiness, reserved};
use crate::dispatch::candidates::{self, Candidates};
use crate::dispatch::{align, scale_up};
use crate::facts::reason::Why;
use crate::world::gangs;
use crate::world::turn::Turn;
use meridian_queueing::Brain;
use meridian_queueing::flavors::Assignment;
use meridian_queueing::model::WorkloadId;
use meridian_queueing::places::{ClusterIndex, Places};
use meridian_queueing::preempt::Target;
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::protocol::RefuseReason;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The rooms of the clusters, for the brain.
pub(crate) struct Clusters<'a, 'w> {
    pub(crate) turn: &'a mut Turn<'w>,
    /// Clusters that may run a workload, room or not.
    candidates: BTreeMap<WorkloadId, Arc<[ClusterName]>>,
    /// Workloads that are meant with the flavors of an assignment, and with its pods.
    meant: BTreeMap<WorkloadId, Arc<Gang>>,
    /// Whether such a gang fits a cluster, since room was last taken.
    fitting: BTreeMap<(ClusterName, Arc<Gang>), bool>,
    /// Whether it spares what is kept there, since room was last taken or kept.
    sparing: BTreeMap<(ClusterName, Arc<Gang>), bool>,
    /// How much of each node is used.
    standing: BTreeMap<ClusterName, Arc<NodeUsage>>,
    /// What those have together who count against a cluster's bounds, since room was last taken.
    totals: BTreeMap<ClusterName, Arc<Totals>>,
    /// Clusters without those who were last asked for, since room was last taken or kept.
    search: Option<EvictionSearch>,
}

impl<'a, 'w> Clusters<'a, 'w> {
    pub(crate) fn new(turn: &'a mut Turn<'w>) -> Self {
        let (candidates, meant, fitting, sparing, standing, totals) = Default::default();
        Self { turn, candidates, meant, fitting, sparing, standing, totals, search: None }
    }

    /// Clusters that may run the workload once there is room.
    fn of(&mut self, brain: &Brain, id: WorkloadId) -> Arc<[ClusterName]> {
        if let Some(known) = self.candidates.get(&id) {
            return known.clone();
        }
        let queue = brain.workload(id).map(|w| brain.queue(w.queue).setup.name.clone());
        let uid = self.turn.world.mirror.uid(id);
        if let Some(uid) = uid.filter(|_| self.turn.world.mirror.is_scale_up(id)) {
            let found: Arc<[ClusterName]> =
                scale_up::scale_up_cluster(self.turn.world, uid, self.turn.now.mono).into_iter().collect();
            self.candidates.insert(id, found.clone());
            return found;
        }
        let found: Arc<[ClusterName]> = uid
            .zip(queue)
            .map_or_else(Vec::new, |(uid, queue)| {
                candidates::candidates_of(self.turn, uid, &queue, Candidates::Ready)
            })
            .into();
        self.candidates.insert(id, found.clone());
        found
    }

    /// The first cluster with room for the workload once its victims are gone and what is kept for others is taken.
    fn room(&mut self, brain: &Brain, workload: WorkloadId, victims: &[Target]) -> Option<ClusterName> {
        let candidates = self.of(brain, workload);
        let uid = self.turn.world.mirror.uid(workload)?;
        let wanted = self.gang(workload)?;
        let is_scale_up = self.turn.world.mirror.is_scale_up(workload);
        if let Some(cluster) =
            candidates.iter().find(|cluster| self.has_room_in(cluster, uid, &wanted, is_scale_up))
        {
            return Some(cluster.clone());
        }
        self.vacate((workload, uid), &wanted, victims);
        let world = &*self.turn.world;
        let evicted_here = self.search.as_ref().map(|search| &search.clusters)?;
        let frees = |cluster: &&ClusterName| {
            evicted_here.get(*cluster).is_some_and(|evicted_here| {
                evicted_here.any_gone() && evicted_here.fits(world, cluster, &wanted)
            })
        };
        candidates.iter().find(frees).cloned()
    }

    /// Clusters without the victims: what was worked out for almost the same ones before is kept up.
    fn vacate(&mut self, (workload, uid): (WorkloadId, Uid), wanted: &Arc<Gang>, victims: &[Target]) {
        let same = |before: &EvictionSearch| {
            before.workload == workload
                && before.clusters.values().all(|evicted_here| evicted_here.is_for(wanted))
        };
        let before = self.search.take().filter(same);
        let mut search = before.unwrap_or_else(|| EvictionSearch {
            workload,
            targets: Vec::new(),
            clusters: BTreeMap::new(),
        });
        let (mut back, mut gone) = (BTreeSet::new(), BTreeSet::new());
        // From one question to the next few change, and there may be thousands.
        for (old, new) in
            search.targets.iter_mut().zip(victims).filter(|(old, new)| old.workload != new.workload)
        {
            back.insert(old.workload);
            gone.insert(new.workload);
            *old = *new;
        }
        let common = search.targets.len().min(victims.len());
        back.extend(search.targets.drain(common..).map(|target| target.workload));
        gone.extend(victims[common..].iter().map(|target| target.workload));
        search.targets.extend_from_slice(&victims[common..]);
        let both: Vec<WorkloadId> = back.intersection(&gone).copied().collect();
        both.iter().for_each(|id| {
            back.remove(id);
            gone.remove(id);
        });
        if back.len() > victims.len() {
            search.clusters.clear();
            (back, gone) = (BTreeSet::new(), victims.iter().map(|target| target.workload).collect());
        }
        let mut anew: BTreeSet<ClusterName> = BTreeSet::new();
        for (id, leaves) in
            back.into_iter().map(|id| (id, false)).chain(gone.into_iter().map(|id| (id, true)))
        {
            let Some((victim, cluster)) = self.turn.world.mirror.uid(id).zip(self.cluster(id).cloned())
            else {
                continue;
            };
            if anew.contains(&cluster) || !self.knows(&mut search, &cluster, uid, wanted) {
                continue;
            }
            let known = search
                .clusters
                .get_mut(&cluster)
                .is_some_and(|evicted_here| evicted_here.change(self.turn.world, victim, leaves));
            if !known && !leaves {
                search.clusters.remove(&cluster);
                anew.insert(cluster);
            }
        }
        for cluster in anew {
            self.knows(&mut search, &cluster, uid, wanted);
            for target in victims.iter().filter(|target| self.cluster(target.workload) == Some(&cluster)) {
                let Some(victim) = self.turn.world.mirror.uid(target.workload) else { continue };
                if let Some(evicted_here) = search.clusters.get_mut(&cluster) {
                    evicted_here.change(self.turn.world, victim, true);
                }
            }
        }
        self.search = Some(search);
    }

    /// Whether it is known what a cluster has.
    fn knows(
        &mut self,
        search: &mut EvictionSearch,
        cluster: &ClusterName,
        uid: Uid,
        wanted: &Arc<Gang>,
    ) -> bool {
        if !search.clusters.contains_key(cluster) {
            let world = &*self.turn.world;
            let standing = self
                .standing
                .entry(cluster.clone())
                .or_insert_with(|| simulated_eviction::node_usage_in(world, cluster))
                .clone();
            let capped =
                caps::queue_asked(world, uid).is_some_and(|queue| caps::is_capped(world, cluster, &queue));
            let totals = capped.then(|| {
                self.totals.entry(cluster.clone()).or_insert_with(|| caps::totals_in(world, cluster)).clone()
            });
            let Some(evicted_here) =
                SimulatedEviction::new(world, cluster, (standing, totals), uid, wanted.clone())
            else {
                return false;
            };
            search.clusters.insert(cluster.clone(), evicted_here);
        }
        true
    }

    /// Whether one cluster has room for the gang now and what is kept for others. What is alike is asked once.
    fn has_room_in(
        &mut self,
        cluster: &ClusterName,
        uid: Uid,
        wanted: &Arc<Gang>,
        is_scale_up: bool,
    ) -> bool {
        if !self.is_within_caps(cluster, uid, wanted) {
            return false;
        }
        let Some(live) = self.turn.world.live.clusters.get(cluster) else { return false };
        let once = |known: &mut BTreeMap<(ClusterName, Arc<Gang>), bool>, ask: &dyn Fn() -> bool| {
            *known.entry((cluster.clone(), wanted.clone())).or_insert_with(ask)
        };
        let world = &*self.turn.world;
        let fits = once(&mut self.fitting, &|| {
            live.capacity.fits(wanted).is_ok()
                && topology::judge_domains(world, wanted, cluster, Gone::Nobody).is_ok()
        });
        if !fits {
            // Nodes are made for gangs that aren't there yet.
            return !is_scale_up && live.capacity.could_grow(wanted);
        }
        once(&mut self.sparing, &|| live.capacity.spares(wanted))
            || readiness::judge_reserved(self.turn.world, uid, wanted, cluster, live).is_ok()
    }

    /// Whether a gang is within what a cluster is believed to have at most.
    fn is_within_caps(&mut self, cluster: &ClusterName, uid: Uid, wanted: &Gang) -> bool {
        let world = &*self.turn.world;
        let Some(queue) =
            caps::queue_asked(world, uid).filter(|queue| caps::is_capped(world, cluster, queue))
        else {
            return true;
        };
        let totals = self.totals.entry(cluster.clone()).or_insert_with(|| caps::totals_in(world, cluster));
        caps::judge_caps_of(world, uid, &queue, wanted, (cluster, totals)).is_ok()
    }

    /// The gang that is meant.
    fn gang(&self, workload: WorkloadId) -> Option<Arc<Gang>> {
        let world = &*self.turn.world;
        if world.mirror.is_scale_up(workload) {
            return gangs::scale_up_gang(world, world.mirror.uid(workload)?);
        }
        self.meant.get(&workload).cloned().or_else(|| gangs::gang_of(world, world.mirror.uid(workload)?))
    }

    /// Room was taken: what was asked before may have another answer.
    fn taken(&mut self, uid: Uid) -> bool {
        // What was kept for it, and it didn't need, is there for others.
        self.turn.world.live.capacity_changed |= reserved::release_reservation(self.turn.world, uid);
        self.fitting.clear();
        self.sparing.clear();
        self.totals.clear();
        self.search = None;
        true
    }

    fn cluster(&self, holder: WorkloadId) -> Option<&ClusterName> {
        let uid = self.turn.world.mirror.uid(holder)?;
        self.turn.workload(uid)?.right().map(|(_, leg)| &leg.cluster)
    }
}

impl Places for Clusters<'_, '_> {
    fn fits(&mut self, brain: &Brain, workload: WorkloadId, victims: &[Target]) -> bool {
        self.room(brain, workload, victims).is_some()
    }

    fn mean(&mut self, brain: &Brain, workload: WorkloadId, assignment: Option<&Assignment>) {
        self.meant.remove(&workload);
        let Some(assignment) = assignment.filter(|_| !self.turn.world.mirror.is_scale_up(workload)) else {
            return;
        };
        if let Some(gang) = self.gang(workload) {
            let counts = assignment.counts();
            let gang = if gang.pod_sets.iter().map(|set| set.count).eq(counts.iter().copied()) {
                gang
            } else {
                Arc::new(gang.of_counts(&counts))
            };
            let flavors = self.turn.world.mirror.flavors_of(brain, assignment);
            self.meant.insert(workload, gangs::with_flavor_constraints(self.turn.world, &gang, &flavors));
        }
    }

    fn has_room(&mut self, brain: &Brain, workload: WorkloadId) -> bool {
        self.room(brain, workload, &[]).is_some()
    }

    /// A cluster has just come back and shows what it has in a moment, or its agent was asked too much at once.
    fn room_may_come(&mut self, brain: &Brain, workload: WorkloadId) -> bool {
        let deciding = &self.turn.world.mirror;
        let Some(uid) = deciding.uid(workload).filter(|_| !deciding.is_scale_up(workload)) else {
            return false;
        };
        let Some((class, queue)) = self
            .turn
            .workload(uid)
            .map(|w| w.class())
            .zip(brain.workload(workload).map(|w| brain.queue(w.queue).setup.name.clone()))
        else {
            return false;
        };
        let way = align::candidate_clusters(self.turn.world, class, &queue);
        let Some(wanted) = self.gang(workload) else { return false };
        let world = &*self.turn.world;
        let fits = |cluster: &ClusterName| {
            world.live.clusters.get(cluster).is_some_and(|live| live.capacity.fits(&wanted).is_ok())
        };
        let within = |cluster: &ClusterName| caps::judge_caps(world, uid, &queue, &wanted, cluster).is_ok();
        let has_room = |cluster: &ClusterName| {
            within(cluster)
                && fits(cluster)
                && topology::judge_domains(world, &wanted, cluster, Gone::Nobody).is_ok()
        };
        way.candidates.iter().filter(|site| site.listed.is_some() && site.verdict.is_ok()).any(|site| {
            match readiness::judge_readiness(world, (uid, self.turn.now.mono), &way, site) {
                Err(Why::Recovering | Why::NoReport) => true,
                Err(Why::Refused { reason: RefuseReason::Overloaded | RefuseReason::StillRuns, .. }) => {
                    has_room(&site.cluster)
                }
                _ => false,
            }
        })
    }

    fn keep(&mut self, brain: &Brain, workload: WorkloadId, victims: &[Target]) {
        let Some((cluster, gang)) = self.room(brain, workload, victims).zip(self.gang(workload)) else {
            return;
        };
        let evicted_here = self
            .search
            .as_ref()
            .and_then(|search| search.clusters.get(&cluster))
            .filter(|evicted_here| evicted_here.is_for(&gang));
        let free = evicted_here
            .map(SimulatedEviction::free)
            .or_else(|| Some(self.turn.world.live.clusters.get(&cluster)?.capacity.estimate()));
        let domains =
            free.map(|free| topology::domains_for(self.turn.world, &gang, free)).unwrap_or_default();
        let now = self.turn.now.mono;
        let world = &mut *self.turn.world;
        let Some(uid) = world.mirror.uid(workload) else { return };
        let victims = victims.iter().filter_map(|v| world.mirror.uid(v.workload)).collect();
        reserved::reserve(world, uid, (cluster, domains), gang, victims, now);
        self.sparing.clear();
        self.search = None;
    }

    fn may_displace(&self, workload: WorkloadId, holder: WorkloadId) -> bool {
        let world = &*self.turn.world;
        // What was added in this very pass is as young as its change, and with it the whole gang would go, whatever its own age
        // (simulation seed 1503): from the next pass on they are one.
        if world.mirror.is_scale_up(holder) {
            return false;
        }
        // Nobody grows by displacing itself.
        if world.mirror.is_scale_up(workload) && world.mirror.uid(workload) == world.mirror.uid(holder) {
            return false;
        }
        let Some(uid) =
            world.mirror.uid(workload).filter(|uid| !world.live.reservations.may_displace_all(*uid))
        else {
            return true;
        };
        world.mirror.uid(holder).is_none_or(|other| world.live.reservations.may_displace(uid, other))
    }

    /// An agent refused it or failed to start it, or it may not displace everybody.
    fn is_apart(&self, workload: WorkloadId) -> bool {
        let world = &*self.turn.world;
        let Some(uid) = world.mirror.uid(workload) else { return false };
        readiness::is_set_back(world, uid, self.turn.now.mono)
            || !world.live.reservations.may_displace_all(uid)
    }

    fn clusters(&mut self, brain: &Brain, workload: WorkloadId) -> Vec<ClusterIndex> {
        if self.room(brain, workload, &[]).is_some() {
            // Only quota is short.
            return Vec::new();
        }
        let all: Vec<ClusterName> = self.turn.world.members();
        let candidates = self.of(brain, workload);
        candidates
            .iter()
            .filter_map(|c| all.iter().position(|a| a == c))
            .filter_map(|at| u32::try_from(at).ok())
            .collect()
    }

    fn cluster_of(&self, holder: WorkloadId) -> Option<ClusterIndex> {
        let cluster = self.cluster(holder)?;
        u32::try_from(self.turn.world.state.members().keys().position(|m| m == cluster)?).ok()
    }

    fn take(&mut self, brain: &Brain, workload: WorkloadId, assignment: &Assignment) -> bool {
        let Some(uid) = self.turn.world.mirror.uid(workload) else { return false };
        let queue = brain
            .workload(workload)
            .map(|w| brain.queue(w.queue).setup.name.clone())
            .unwrap_or_else(|| Arc::from(""));
        if self.turn.world.mirror.is_scale_up(workload) {
            return scale_up::grow(self.turn, uid) && self.taken(uid);
        }
        let counts = assignment.counts();
        let all = gangs::gang_of(self.turn.world, uid)
            .is_some_and(|gang| gang.pod_sets.iter().map(|set| set.count).eq(counts.iter().copied()));
        let flavors = self.turn.world.mirror.flavors_of(brain, assignment);
        let asked = candidates::dispatch(self.turn, uid, &queue, flavors, (!all).then_some(counts));
        asked && self.taken(uid)
    }
}

/// Clusters without the victims of a workload.
struct EvictionSearch {
    workload: WorkloadId,
    targets: Vec<Target>,
    clusters: BTreeMap<ClusterName, SimulatedEviction>,
}
