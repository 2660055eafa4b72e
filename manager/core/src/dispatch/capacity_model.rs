//! The capacity model of the queue state: the clusters as their agents report them, with reservations and
//! caps.

use crate::capacity::caps::{self, Totals};
use crate::capacity::simulated_eviction::{self, NodeUsage, SimulatedEviction};
use crate::capacity::topology::{self, Gone};
use crate::capacity::{readiness, reserved};
use crate::dispatch::candidates::{self, Refusals};
use crate::dispatch::{align, scale_up};
use crate::facts::reason::Why;
use crate::world::gangs;
use crate::world::turn::Turn;
use meridian_queueing::QueueState;
use meridian_queueing::capacity_model::{CapacityModel, ClusterIndex};
use meridian_queueing::flavors::Assignment;
use meridian_queueing::model::WorkloadId;
use meridian_queueing::preemption::Target;
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::protocol::RefuseReason;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The clusters, with caches that hold during one run of cycles.
pub(crate) struct Clusters<'a, 'w> {
    pub(crate) turn: &'a mut Turn<'w>,
    /// Clusters that may run a workload as soon as they have capacity.
    eligible: BTreeMap<WorkloadId, Arc<[ClusterName]>>,
    /// Gangs with the flavors and pods of the assignment that is assumed for their workload.
    assumed: BTreeMap<WorkloadId, Arc<Gang>>,
    /// Whether a gang fits in a cluster. Cleared when capacity is taken.
    fits: BTreeMap<(ClusterName, Arc<Gang>), bool>,
    /// Whether a gang leaves enough for every reservation. Cleared when capacity is taken or reserved.
    spares_reserved: BTreeMap<(ClusterName, Arc<Gang>), bool>,
    node_usage: BTreeMap<ClusterName, Arc<NodeUsage>>,
    /// Usage that counts against the caps of a cluster. Cleared when capacity is taken.
    totals: BTreeMap<ClusterName, Arc<Totals>>,
    /// The last simulated evictions. Cleared when capacity is taken or reserved.
    search: Option<EvictionSearch>,
}

/// Simulated evictions of possible victims of one workload.
struct EvictionSearch {
    workload: WorkloadId,
    targets: Vec<Target>,
    /// Clusters in which targets run.
    clusters: BTreeMap<ClusterName, SimulatedEviction>,
}

impl EvictionSearch {
    fn new(workload: WorkloadId) -> Self {
        Self { workload, targets: Vec::new(), clusters: BTreeMap::new() }
    }

    /// Replaces the targets. Returns workloads that are no longer evicted, and those that now are.
    fn replace_targets(&mut self, targets: &[Target]) -> (BTreeSet<WorkloadId>, BTreeSet<WorkloadId>) {
        let (mut back, mut gone) = (BTreeSet::new(), BTreeSet::new());
        // Only a few of possibly thousands of targets change from one call to the next.
        for (old, new) in
            self.targets.iter_mut().zip(targets).filter(|(old, new)| old.workload != new.workload)
        {
            back.insert(old.workload);
            gone.insert(new.workload);
            *old = *new;
        }
        let common = self.targets.len().min(targets.len());
        back.extend(self.targets.drain(common..).map(|target| target.workload));
        gone.extend(targets[common..].iter().map(|target| target.workload));
        self.targets.extend_from_slice(&targets[common..]);
        let both: Vec<WorkloadId> = back.intersection(&gone).copied().collect();
        both.iter().for_each(|id| {
            back.remove(id);
            gone.remove(id);
        });
        // Starting over costs less than returning that many.
        if back.len() > targets.len() {
            self.clusters.clear();
            (back, gone) = (BTreeSet::new(), targets.iter().map(|target| target.workload).collect());
        }
        (back, gone)
    }
}

impl<'a, 'w> Clusters<'a, 'w> {
    pub(crate) fn new(turn: &'a mut Turn<'w>) -> Self {
        let (eligible, assumed, fits, spares_reserved, node_usage, totals) = Default::default();
        Self { turn, eligible, assumed, fits, spares_reserved, node_usage, totals, search: None }
    }

    fn eligible_clusters(&mut self, state: &QueueState, id: WorkloadId) -> Arc<[ClusterName]> {
        if let Some(known) = self.eligible.get(&id) {
            return known.clone();
        }
        let queue = state.workload(id).map(|w| state.queue(w.queue).setup.name.clone());
        let uid = self.turn.world.mirror().uid(id);
        if let Some(uid) = uid.filter(|_| self.turn.world.mirror().is_scale_up(id)) {
            let found: Arc<[ClusterName]> =
                scale_up::scale_up_cluster(self.turn.world, uid, self.turn.now.mono).into_iter().collect();
            self.eligible.insert(id, found.clone());
            return found;
        }
        let found: Arc<[ClusterName]> = uid
            .zip(queue)
            .map_or_else(Vec::new, |(uid, queue)| {
                candidates::eligible_clusters(self.turn, uid, &queue, Refusals::Exclude)
            })
            .into();
        self.eligible.insert(id, found.clone());
        found
    }

    /// The eligible clusters whose provider hasn't failed for the gang on its flavors a short time ago.
    fn eligible_for(
        &mut self,
        state: &QueueState,
        id: WorkloadId,
        uid: Uid,
        gang: &Gang,
    ) -> Arc<[ClusterName]> {
        let eligible = self.eligible_clusters(state, id);
        let (world, now) = (&*self.turn.world, self.turn.now.mono);
        let is_open =
            |cluster: &ClusterName| readiness::check_provider(world, uid, now, gang, cluster).is_ok();
        if eligible.iter().all(is_open) {
            return eligible;
        }
        eligible.iter().filter(|cluster| is_open(cluster)).cloned().collect()
    }

    /// The first cluster with capacity for the workload and for all reservations, now or after the victims
    /// are gone.
    fn fitting_cluster(
        &mut self,
        state: &QueueState,
        workload: WorkloadId,
        victims: &[Target],
    ) -> Option<ClusterName> {
        let uid = self.turn.world.mirror().uid(workload)?;
        let gang = self.assumed_gang(workload)?;
        let eligible = self.eligible_for(state, workload, uid, &gang);
        let is_scale_up = self.turn.world.mirror().is_scale_up(workload);
        if let Some(cluster) = eligible.iter().find(|cluster| self.fits_in(cluster, uid, &gang, is_scale_up))
        {
            return Some(cluster.clone());
        }
        self.simulate_evictions(workload, uid, &gang, victims);
        let world = &*self.turn.world;
        let simulations = self.search.as_ref().map(|search| &search.clusters)?;
        let fits_after = |cluster: &&ClusterName| {
            simulations
                .get(*cluster)
                .is_some_and(|simulation| simulation.any_gone() && simulation.fits(world, cluster, &gang))
        };
        eligible.iter().find(fits_after).cloned()
    }

    /// Evicts the victims in simulation. Continues from the last search if that was for the same workload and
    /// gang.
    fn simulate_evictions(&mut self, workload: WorkloadId, uid: Uid, gang: &Arc<Gang>, victims: &[Target]) {
        let is_same = |before: &EvictionSearch| {
            before.workload == workload && before.clusters.values().all(|simulation| simulation.is_for(gang))
        };
        let before = self.search.take().filter(is_same);
        let mut search = before.unwrap_or_else(|| EvictionSearch::new(workload));
        let (back, gone) = search.replace_targets(victims);
        let mut restarted: BTreeSet<ClusterName> = BTreeSet::new();
        for (id, leaves) in
            back.into_iter().map(|id| (id, false)).chain(gone.into_iter().map(|id| (id, true)))
        {
            let Some((victim, cluster)) =
                self.turn.world.mirror().uid(id).zip(self.cluster_name_of(id).cloned())
            else {
                continue;
            };
            if restarted.contains(&cluster) || !self.ensure_simulated(&mut search, &cluster, uid, gang) {
                continue;
            }
            let is_exact = search
                .clusters
                .get_mut(&cluster)
                .is_some_and(|simulation| simulation.change(self.turn.world, victim, leaves));
            if !is_exact && !leaves {
                search.clusters.remove(&cluster);
                restarted.insert(cluster);
            }
        }
        for cluster in restarted {
            self.ensure_simulated(&mut search, &cluster, uid, gang);
            for target in
                victims.iter().filter(|target| self.cluster_name_of(target.workload) == Some(&cluster))
            {
                let Some(victim) = self.turn.world.mirror().uid(target.workload) else { continue };
                if let Some(simulation) = search.clusters.get_mut(&cluster) {
                    simulation.change(self.turn.world, victim, true);
                }
            }
        }
        self.search = Some(search);
    }

    /// Starts a simulation of the cluster unless the search has one. False if the cluster isn't connected.
    fn ensure_simulated(
        &mut self,
        search: &mut EvictionSearch,
        cluster: &ClusterName,
        uid: Uid,
        gang: &Arc<Gang>,
    ) -> bool {
        if !search.clusters.contains_key(cluster) {
            let world = &*self.turn.world;
            let node_usage = self
                .node_usage
                .entry(cluster.clone())
                .or_insert_with(|| simulated_eviction::node_usage_in(world, cluster))
                .clone();
            let is_capped = caps::cluster_queue_of(world, uid)
                .is_some_and(|queue| caps::is_capped(world, cluster, &queue));
            let totals = is_capped.then(|| {
                self.totals.entry(cluster.clone()).or_insert_with(|| caps::totals_in(world, cluster)).clone()
            });
            let Some(simulation) =
                SimulatedEviction::new(world, cluster, (node_usage, totals), uid, gang.clone())
            else {
                return false;
            };
            search.clusters.insert(cluster.clone(), simulation);
        }
        true
    }

    /// Whether a cluster has capacity now for the gang and for all reservations.
    fn fits_in(&mut self, cluster: &ClusterName, uid: Uid, gang: &Arc<Gang>, is_scale_up: bool) -> bool {
        if !self.is_within_caps(cluster, uid, gang) {
            return false;
        }
        let Some(live) = self.turn.world.live().cluster(cluster) else { return false };
        let cached = |cache: &mut BTreeMap<(ClusterName, Arc<Gang>), bool>, compute: &dyn Fn() -> bool| {
            *cache.entry((cluster.clone(), gang.clone())).or_insert_with(compute)
        };
        let world = &*self.turn.world;
        let fits = cached(&mut self.fits, &|| {
            live.capacity().fits(gang).is_ok()
                && topology::check_domains(world, gang, cluster, Gone::Nobody).is_ok()
        });
        if !fits {
            // Node pools grow for new gangs, but not for the pods that a running gang adds.
            let provisioning = || readiness::check_provisioning(self.turn.world, uid, gang, cluster, live);
            return !is_scale_up && matches!(provisioning(), Some(Ok(())));
        }
        cached(&mut self.spares_reserved, &|| live.capacity().spares(gang))
            || readiness::check_reserved(self.turn.world, uid, gang, cluster, live).is_ok()
    }

    fn is_within_caps(&mut self, cluster: &ClusterName, uid: Uid, gang: &Gang) -> bool {
        let world = &*self.turn.world;
        let Some(queue) =
            caps::cluster_queue_of(world, uid).filter(|queue| caps::is_capped(world, cluster, queue))
        else {
            return true;
        };
        let totals = self.totals.entry(cluster.clone()).or_insert_with(|| caps::totals_in(world, cluster));
        caps::check_caps_of(world, uid, &queue, gang, cluster, totals).is_ok()
    }

    /// The gang with the flavors and pods of the assumed assignment, or as submitted if there is none. For a
    /// scale-up, the added pods only.
    fn assumed_gang(&self, workload: WorkloadId) -> Option<Arc<Gang>> {
        let world = &*self.turn.world;
        if world.mirror().is_scale_up(workload) {
            return gangs::scale_up_gang(world, world.mirror().uid(workload)?);
        }
        self.assumed.get(&workload).cloned().or_else(|| gangs::gang_of(world, world.mirror().uid(workload)?))
    }

    /// Clears caches that are outdated once a workload has taken capacity. Always returns true.
    fn capacity_taken(&mut self, uid: Uid) -> bool {
        // Others may use what was reserved for the workload and isn't needed.
        if reserved::release_reservation(self.turn.world, uid) {
            self.turn.world.live_mut().pass_mut().reevaluate_parked();
        }
        self.fits.clear();
        self.spares_reserved.clear();
        self.totals.clear();
        self.search = None;
        true
    }

    fn cluster_name_of(&self, holder: WorkloadId) -> Option<&ClusterName> {
        let uid = self.turn.world.mirror().uid(holder)?;
        self.turn.workload(uid)?.right().map(|(_, leg)| leg.cluster())
    }
}

impl CapacityModel for Clusters<'_, '_> {
    fn fits(&mut self, state: &QueueState, workload: WorkloadId, victims: &[Target]) -> bool {
        self.fitting_cluster(state, workload, victims).is_some()
    }

    fn assume_assignment(
        &mut self,
        state: &QueueState,
        workload: WorkloadId,
        assignment: Option<&Assignment>,
    ) {
        self.assumed.remove(&workload);
        let Some(assignment) = assignment.filter(|_| !self.turn.world.mirror().is_scale_up(workload)) else {
            return;
        };
        if let Some(gang) = self.assumed_gang(workload) {
            let counts = assignment.counts();
            let gang = if gang.pod_sets.iter().map(|set| set.count).eq(counts.iter().copied()) {
                gang
            } else {
                Arc::new(gang.with_counts(&counts))
            };
            let flavors = self.turn.world.mirror_mut().flavors_of(state, assignment);
            self.assumed.insert(workload, gangs::with_flavor_constraints(self.turn.world, &gang, &flavors));
        }
    }

    fn fits_now(&mut self, state: &QueueState, workload: WorkloadId) -> bool {
        self.fitting_cluster(state, workload, &[]).is_some()
    }

    /// A cluster that reconnected will report its capacity soon. An agent that refused because it was
    /// overloaded or because the previous attempt still runs may accept the workload soon.
    fn may_fit_soon(&mut self, state: &QueueState, workload: WorkloadId) -> bool {
        let mirror = self.turn.world.mirror();
        let Some(uid) = mirror.uid(workload).filter(|_| !mirror.is_scale_up(workload)) else {
            return false;
        };
        let Some((class, queue)) = self
            .turn
            .workload(uid)
            .map(|w| w.class())
            .zip(state.workload(workload).map(|w| state.queue(w.queue).setup.name.clone()))
        else {
            return false;
        };
        let candidates = align::candidate_clusters(self.turn.world, class, &queue);
        let Some(gang) = self.assumed_gang(workload) else { return false };
        let world = &*self.turn.world;
        let fits = |cluster: &ClusterName| {
            caps::check_caps(world, uid, &queue, &gang, cluster).is_ok()
                && world.live().cluster(cluster).is_some_and(|live| live.capacity().fits(&gang).is_ok())
                && topology::check_domains(world, &gang, cluster, Gone::Nobody).is_ok()
        };
        let mut allowed = candidates
            .candidates
            .iter()
            .filter(|candidate| candidate.listed.is_some() && candidate.verdict.is_ok());
        allowed.any(|candidate| {
            match readiness::check_readiness(world, uid, self.turn.now.mono, &candidates, candidate) {
                Err(Why::Recovering | Why::NoReport) => true,
                Err(Why::Refused { reason: RefuseReason::Overloaded | RefuseReason::StillRuns, .. }) => {
                    fits(&candidate.cluster)
                }
                _ => false,
            }
        })
    }

    fn reserve(&mut self, state: &QueueState, workload: WorkloadId, victims: &[Target]) {
        let Some((cluster, gang)) =
            self.fitting_cluster(state, workload, victims).zip(self.assumed_gang(workload))
        else {
            return;
        };
        let simulation = self
            .search
            .as_ref()
            .and_then(|search| search.clusters.get(&cluster))
            .filter(|simulation| simulation.is_for(&gang));
        let free = simulation
            .map(SimulatedEviction::free)
            .or_else(|| Some(self.turn.world.live().cluster(&cluster)?.capacity().estimate()));
        let domains =
            free.map(|free| topology::domains_for(self.turn.world, &gang, free)).unwrap_or_default();
        let now = self.turn.now.mono;
        let world = &mut *self.turn.world;
        let Some(uid) = world.mirror().uid(workload) else { return };
        let victims = victims.iter().filter_map(|victim| world.mirror().uid(victim.workload)).collect();
        reserved::reserve(world, uid, (cluster, domains), gang, victims, now);
        self.spares_reserved.clear();
        self.search = None;
    }

    fn may_preempt(&self, workload: WorkloadId, holder: WorkloadId) -> bool {
        let world = &*self.turn.world;
        // A scale-up that was admitted in this pass is still a separate entry, dated by its job's last
        // change. Preempting it would stop the whole gang, although the gang may be much older. The next pass
        // merges the two entries.
        if world.mirror().is_scale_up(holder) {
            return false;
        }
        // A scale-up doesn't preempt its own gang.
        if world.mirror().is_scale_up(workload) && world.mirror().uid(workload) == world.mirror().uid(holder)
        {
            return false;
        }
        let Some(uid) =
            world.mirror().uid(workload).filter(|uid| !world.live().reservations().may_preempt_all(*uid))
        else {
            return true;
        };
        world.mirror().uid(holder).is_none_or(|other| world.live().reservations().may_preempt(uid, other))
    }

    /// A cluster refused the workload or failed to start it, or its preemption history protects some victims.
    fn has_own_obstacle(&self, workload: WorkloadId) -> bool {
        let world = &*self.turn.world;
        let Some(uid) = world.mirror().uid(workload) else { return false };
        readiness::has_own_backoff(world, uid, self.turn.now.mono)
            || !world.live().reservations().may_preempt_all(uid)
    }

    fn clusters(&mut self, state: &QueueState, workload: WorkloadId) -> Vec<ClusterIndex> {
        if self.fitting_cluster(state, workload, &[]).is_some() {
            // Only quota is short, so victims may be in any cluster.
            return Vec::new();
        }
        let members: Vec<ClusterName> = self.turn.world.members();
        let known = self.turn.world.mirror().uid(workload).zip(self.assumed_gang(workload));
        let Some((uid, gang)) = known else { return Vec::new() };
        let eligible = self.eligible_for(state, workload, uid, &gang);
        eligible
            .iter()
            .filter_map(|cluster| members.iter().position(|member| member == cluster))
            .filter_map(|at| u32::try_from(at).ok())
            .collect()
    }

    fn cluster_of(&self, holder: WorkloadId) -> Option<ClusterIndex> {
        let cluster = self.cluster_name_of(holder)?;
        let position = self.turn.world.state().members().keys().position(|member| member == cluster)?;
        u32::try_from(position).ok()
    }

    fn take(&mut self, state: &QueueState, workload: WorkloadId, assignment: &Assignment) -> bool {
        let Some(uid) = self.turn.world.mirror().uid(workload) else { return false };
        let queue = state
            .workload(workload)
            .map(|w| state.queue(w.queue).setup.name.clone())
            .unwrap_or_else(|| Arc::from(""));
        if self.turn.world.mirror().is_scale_up(workload) {
            return scale_up::start_scale_up(self.turn, uid) && self.capacity_taken(uid);
        }
        let counts = assignment.counts();
        let has_all_pods = self.turn.workload(uid).is_some_and(|workload| {
            let gang = &self.turn.world.queues().class(workload.class()).gang;
            gang.pod_sets.iter().map(|set| set.count).eq(counts.iter().copied())
        });
        let flavors = self.turn.world.mirror_mut().flavors_of(state, assignment);
        let is_offered =
            candidates::dispatch(self.turn, uid, &queue, flavors, (!has_all_pods).then_some(counts));
        is_offered && self.capacity_taken(uid)
    }
}
