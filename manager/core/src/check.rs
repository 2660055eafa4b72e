//! Consistency check: recounts every cache and follows every cross-reference. The simulation runs it after
//! each step, a manager on a timer.

use crate::dispatch::{align, usage};
use crate::queue::classes::{QueuePosition, Queues};
use crate::state::workload::phase::Phase;
use crate::world::World;
use crate::world::absorb::caches;
use meridian_queueing::Amount;
use meridian_shared::ids::{ClusterName, Uid};
use std::collections::BTreeMap;
use std::sync::Arc;

impl World {
    /// Fails with a description of the first broken invariant.
    pub fn check(&self) -> Result<(), String> {
        let mut recount = Queues::default();
        let classes = self.queues().classes().map(|(id, class)| (id, (**class).clone())).collect();
        recount.restore(classes, self.queues().next_class(), &self.config().resources);
        let mut loads: BTreeMap<ClusterName, BTreeMap<Uid, crate::facts::submission::ClassId>> =
            BTreeMap::new();
        for (uid, w) in self.state().workloads().iter() {
            check_workload(self, *uid, w)?;
            for leg in w.legs().values() {
                loads.entry(leg.cluster().clone()).or_default().insert(*uid, w.class());
            }
            recount.add_member(w.class());
            if w.phase().charged() {
                let queue = self
                    .queues()
                    .charged_to(*uid)
                    .cloned()
                    .ok_or_else(|| format!("{uid} is {:?} without charged quota", w.phase()))?;
                if w.charged_to() != Some(&queue) {
                    return Err(format!(
                        "{uid} is charged to `{queue}`, but its state has {:?}",
                        w.charged_to()
                    ));
                }
                let gang = w.gang(self.queues().class(w.class()));
                let total = self.config().resources.total(&gang);
                recount.charge(*uid, queue, &w.flavors().usage(&gang, &total, &self.config().resources));
            }
            let waits =
                self.queues().is_waiting(w.class(), &QueuePosition::new(w.priority(), w.submitted(), *uid));
            if waits != w.waits() {
                return Err(format!(
                    "{uid} is {:?} and {} in its queue",
                    w.phase(),
                    if waits { "is" } else { "isn't" }
                ));
            }
        }
        for (cluster, load) in self.loads().iter() {
            if loads.get(cluster).unwrap_or(&BTreeMap::new()) != load {
                return Err(format!("the cached load of `{cluster}` is wrong"));
            }
        }
        check_queue_counts(self)?;
        check_quota(self, &recount)?;
        check_queue_state(self)?;
        usage::check_usage_history(self)?;
        for (uid, cluster, ..) in self.live().reservations().kept() {
            if self.live().cluster(cluster).is_some_and(|live| !live.capacity().keeps(*uid)) {
                return Err(format!("`{cluster}` has a reservation for {uid} that its capacity lacks"));
            }
        }
        for (fence, lease) in self.live().leases().iter() {
            let held = self.state().workloads().get(&lease.uid()).and_then(|w| w.leg_of(fence)).is_some();
            if !held {
                return Err(format!("lease {fence} of {} belongs to no leg", lease.uid()));
            }
        }
        Ok(())
    }

    /// Cluster queues that use more than quota, lending and borrowing allow. Only an adopted run or a lowered
    /// quota may cause that.
    pub fn over_quota(&self) -> Vec<String> {
        let mut world = self.clone();
        world.mirror_mut().start_over();
        align::align(&mut world, self.live().recovery().led_at());
        let queue_state = world.mirror().queue_state();
        let mut over = Vec::new();
        for (name, queue) in queue_state.queue_list() {
            let cluster_queue = queue_state.queue(queue);
            let Some((node, tree)) = cluster_queue.node.zip(cluster_queue.tree) else { continue };
            for (key, cell) in queue_state.forest().cells(node) {
                let short = queue_state
                    .forest()
                    .find_cell(tree, key)
                    .is_some_and(|id| queue_state.forest().balance(node, id) < Amount::ZERO);
                if cell.usage > Amount::ZERO && short {
                    let (flavor, resource) =
                        (queue_state.flavor_name(key.0), queue_state.resource_name(key.1));
                    over.push(format!(
                        "`{name}` uses {} `{resource}` of flavor `{flavor}`, nominal {}",
                        cell.usage, cell.quota.nominal
                    ));
                }
            }
        }
        over
    }
}

fn check_workload(world: &World, uid: Uid, w: &crate::state::workload::Workload) -> Result<(), String> {
    let granted = w.legs().values().filter(|l| l.state().granted()).count();
    let open = w.legs().values().filter(|l| l.state().open()).count();
    let wrong = match w.phase() {
        Phase::Pending | Phase::Reserved | Phase::Finished => granted + open > 0,
        Phase::Dispatching => granted > 0 || open == 0,
        Phase::Granted | Phase::Running | Phase::Stopping => granted != 1 || open > 0,
    };
    if w.inactive().is_some() && !matches!(w.phase(), Phase::Pending | Phase::Stopping | Phase::Finished) {
        return Err(format!("{uid} is deactivated and {:?}", w.phase()));
    }
    if wrong {
        return Err(format!("{uid} is {:?} with {granted} granted and {open} open legs", w.phase()));
    }
    if let Some((_, leg)) = w.right() {
        let fence = leg.fence().ok_or_else(|| format!("{uid} is granted without a fence"))?;
        // If an attempt with a larger fence is known to have ended, the attempt of this leg is being stopped.
        let superseded = w.learned().is_some() && w.phase() == Phase::Stopping && w.fence() > Some(fence);
        if w.fence() != Some(fence) && !superseded {
            return Err(format!("{uid} is granted with fence {fence}, but its largest is {:?}", w.fence()));
        }
        if world.live().leases().get(fence).is_none()
            && world.state().leadership().epoch > 0
            && world.live().recovery().led_at().0 > 0
        {
            return Err(format!("{uid} is granted with fence {fence} but has no lease"));
        }
    }
    Ok(())
}

fn check_queue_counts(world: &World) -> Result<(), String> {
    let real = caches::recount_queues(world);
    if real == *world.counts_by_queue() {
        Ok(())
    } else {
        Err(format!("workloads by queue and phase: cached {:?}, recounted {real:?}", world.counts_by_queue()))
    }
}

fn check_quota(world: &World, recount: &Queues) -> Result<(), String> {
    let queues: Vec<Arc<str>> = world
        .state()
        .catalog()
        .iter()
        .filter(|(k, _)| k.kind == meridian_objects::Kind::ClusterQueue && k.scope.is_none())
        .map(|(k, _)| k.name.clone())
        .collect();
    for queue in queues {
        let empty = crate::facts::flavors::FlavorUsage::new();
        let cached = world.queues().usage(&queue).unwrap_or(&empty);
        let real = recount.usage(&queue).unwrap_or(&empty);
        if cached != real {
            return Err(format!("usage of `{queue}`: cached {cached:?}, recounted {real:?}"));
        }
    }
    Ok(())
}

/// While the queue state is aligned with the world, its usage must be what is charged.
fn check_queue_state(world: &World) -> Result<(), String> {
    let queue_state = world.mirror().queue_state();
    for (name, queue) in queue_state.queue_list().filter(|_| world.mirror().is_aligned()) {
        let Some(node) = queue_state.queue(queue).node else { continue };
        let charged = world.queues().usage(name);
        for ((flavor, resource), cell) in queue_state.forest().cells(node) {
            let (flavor, resource) = (queue_state.flavor_name(flavor), queue_state.resource_name(resource));
            let real = charged
                .and_then(|usage| usage.get(&(flavor.clone(), resource.to_string())))
                .copied()
                .unwrap_or(0);
            if cell.usage.0 != real {
                return Err(format!(
                    "usage of `{name}`: {} `{resource}` of flavor `{flavor}` in the queue state, \
                     {real} charged",
                    cell.usage
                ));
            }
        }
    }
    Ok(())
}
