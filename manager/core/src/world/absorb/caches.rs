//! Caches over workloads, brought in line with every change of a workload: classes and queue positions, charged quota, counts
//! by queue, workloads by cluster, and the queue mirror.

use crate::facts::submission::{Class, ClassId};
use crate::queue::classes::QueuePosition;
use crate::queue::counts::{CountedWorkload, QueueCounts};
use crate::state::legs::leg::State as LegState;
use crate::state::workload::Workload;
use crate::world::World;
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::planted::Bug;
use std::sync::Arc;

impl World {
    /// Changes one workload and brings every cache over it in line: queue, quota, loads.
    pub(super) fn update(&mut self, uid: Uid, change: impl FnOnce(&mut Workload, &Class)) {
        let Some(workload) = self.state.workload_mut(uid) else { return };
        let class = workload.class();
        let (shape, whole) = self.queues.class_and_total(class);
        let (shape, whole) = (shape.clone(), whole.clone());
        let total_of = |gang: &Arc<Gang>| {
            if Arc::ptr_eq(gang, &shape.gang) {
                whole.clone()
            } else {
                Arc::new(self.config.resources.total(gang))
            }
        };
        let gang_before = workload.gang(&shape);
        let place_before = QueuePosition::new(workload.priority(), workload.submitted(), uid);
        let (was, flavors_before) = (workload.phase(), workload.flavors().clone());
        let (waited, was_inactive) = (workload.waits(), workload.inactive().is_some());
        let charged_before = was.charged().then(|| self.queues.charged_to(uid).cloned()).flatten();
        let legs_before: Vec<_> = workload.legs().values().map(|l| (l.cluster.clone(), l.state)).collect();
        change(workload, &shape);
        let place = QueuePosition::new(workload.priority(), workload.submitted(), uid);
        let moves = place != place_before;
        let is = workload.phase();
        let (waits, is_inactive) = (workload.waits(), workload.inactive().is_some());
        self.mirror.touch(uid);
        let flavors = workload.flavors().clone();
        let legs_after: Vec<_> = workload.legs().values().map(|l| (l.cluster.clone(), l.state)).collect();
        let ceases = was.charged() && !is.charged();
        if ceases {
            workload.clear_charge();
        }
        let gang = workload.gang(&shape);
        let total_before = total_of(&gang_before);
        let total = if Arc::ptr_eq(&gang, &gang_before) { total_before.clone() } else { total_of(&gang) };
        if ceases {
            self.queues.refund(uid, &flavors, &total_before);
        }
        if was.charged()
            && is.charged()
            && (total != total_before || flavors != flavors_before)
            && let Some(queue) = &charged_before
        {
            self.queues.refund(uid, &flavors_before, &total_before);
            self.queues.charge(uid, queue.clone(), &flavors, &total);
        }
        if !was.charged() && is.charged() && !self.config.planted.has(Bug::QuotaNotCharged) {
            let queue = self.state.catalog().leads_to(&shape);
            if let Some(workload) = self.state.workload_mut(uid) {
                workload.set_charged_to(queue.clone());
            }
            self.queues.charge(uid, queue, &flavors, &total);
        }
        if was != is || flavors_before != flavors || total_before != total || was_inactive != is_inactive {
            let charged_after = self.queues.charged_to(uid).cloned();
            let before = CountedWorkload {
                phase: was,
                inactive: was_inactive,
                flavors: &flavors_before,
                total: &total_before,
                charged_to: charged_before.as_ref(),
            };
            let after = CountedWorkload {
                phase: is,
                inactive: is_inactive,
                flavors: &flavors,
                total: &total,
                charged_to: charged_after.as_ref(),
            };
            self.counts_by_queue.change(self.state.catalog(), &shape, &before, &after);
            self.touch_queues(class, charged_before.or(charged_after));
        }
        if waited && (!waits || moves) {
            self.queues.leave(class, place_before);
        }
        if waits && (!waited || moves) {
            self.queues.wait(class, place);
        }
        if legs_before == legs_after {
            return;
        }
        let is_in =
            |legs: &[(ClusterName, LegState)], cluster| legs.iter().any(|(other, _)| other == cluster);
        for (cluster, _) in legs_before.iter().filter(|(cluster, _)| !is_in(&legs_after, cluster)) {
            if let Some(load) = self.loads.get_mut(cluster) {
                load.remove(&uid);
            }
        }
        for (cluster, _) in legs_after.iter().filter(|(cluster, _)| !is_in(&legs_before, cluster)) {
            self.loads.entry(cluster.clone()).or_default().insert(uid, class);
        }
        legs_before.into_iter().for_each(|(cluster, state)| self.counts_by_queue.leg(cluster, state, false));
        legs_after.into_iter().for_each(|(cluster, state)| self.counts_by_queue.leg(cluster, state, true));
    }

    /// Rebuilds every cache from `state`, after a snapshot was read.
    pub fn recount(&mut self, classes: Vec<(ClassId, Class)>, next: ClassId) {
        self.queues.restore(classes, next, &self.config.resources);
        self.mirror.start_over();
        let uids: Vec<Uid> = self.state.workloads().keys().copied().collect();
        for uid in uids {
            let Some(w) = self.state.workload_mut(uid) else { continue };
            let (class, place, phase, waits) =
                (w.class(), QueuePosition::new(w.priority(), w.submitted(), uid), w.phase(), w.waits());
            self.names.entry(w.namespace().clone()).or_default().insert(w.name().clone(), uid);
            self.queues.add_member(class);
            let shape = self.queues.class(class).clone();
            if waits {
                self.queues.wait(class, place);
            }
            if phase.charged() {
                let queue = w.charged_to().cloned().expect("a charged workload names its cluster queue");
                self.queues.charge(uid, queue, w.flavors(), &self.config.resources.total(&w.gang(&shape)));
            }
            for leg in w.legs().values() {
                self.loads.entry(leg.cluster.clone()).or_default().insert(uid, class);
            }
            if let Some(finish) = &w.finished() {
                self.live.finished.insert((finish.at, uid));
            }
        }
        self.counts_by_queue = recount_queues(self);
    }
}

/// One workload fewer is of a class; what is remembered of the class goes with the last.
pub(crate) fn drop_member(world: &mut World, class: ClassId) {
    if world.queues.drop_member(class) {
        world.live.pending_reasons.forget(class);
        world.live.audited.remove(&class);
        world.mirror.forget_class(class);
    }
}

/// Counts a workload and its legs as they are, or no longer.
fn count_in(world: &World, counts_by_queue: &mut QueueCounts, uid: Uid, more: bool) {
    let Some(workload) = world.state.workloads().get(&uid) else { return };
    for leg in workload.legs().values() {
        counts_by_queue.leg(leg.cluster.clone(), leg.state, more);
    }
    let class = world.queues.class(workload.class());
    let total = world.config.resources.total(&workload.gang(class));
    let inactive = workload.inactive().is_some();
    let one = CountedWorkload {
        phase: workload.phase(),
        inactive,
        flavors: workload.flavors(),
        total: &total,
        charged_to: world.queues.charged_to(uid),
    };
    counts_by_queue.count(&world.state.catalog(), class, &one, more);
}

/// Counts a workload that came, or one that goes.
pub(crate) fn count_workload(world: &mut World, uid: Uid, more: bool) {
    let mut counts_by_queue = std::mem::take(&mut world.counts_by_queue);
    count_in(world, &mut counts_by_queue, uid, more);
    world.counts_by_queue = counts_by_queue;
}

/// All of it, counted anew.
pub(crate) fn recount_queues(world: &World) -> QueueCounts {
    let mut counts_by_queue = QueueCounts::default();
    world.state.workloads().keys().for_each(|uid| count_in(world, &mut counts_by_queue, *uid, true));
    counts_by_queue
}
