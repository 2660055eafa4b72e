//! Caches over workloads, updated with every change of a workload: classes and queue positions, charged
//! quota, counts by queue, workloads by cluster, and the queue mirror.

use crate::facts::flavors::FlavorUsage;
use crate::facts::submission::{Class, ClassId};
use crate::queue::classes::QueuePosition;
use crate::queue::counts::{CountedWorkload, QueueCounts};
use crate::state::legs::leg::LegState;
use crate::state::workload::Workload;
use crate::state::workload::phase::Phase;
use crate::world::World;
use meridian_shared::gang::{Amounts, Gang};
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::planted::Bug;
use std::sync::Arc;

/// The fields of one workload that caches depend on.
struct CachedFields {
    phase: Phase,
    waits: bool,
    inactive: bool,
    position: QueuePosition,
    legs: Vec<(ClusterName, LegState)>,
}

impl CachedFields {
    fn of(uid: Uid, workload: &Workload) -> Self {
        Self {
            phase: workload.phase(),
            waits: workload.waits(),
            inactive: workload.inactive().is_some(),
            position: QueuePosition::new(workload.priority(), workload.submitted(), uid),
            legs: workload.legs().values().map(|leg| (leg.cluster().clone(), leg.state())).collect(),
        }
    }
}

/// One workload before or after a change, with the quota that it needs and the queue that is charged for it.
struct CachedWorkload {
    fields: CachedFields,
    total: Arc<Amounts>,
    /// Usage of its flavors; empty without quota.
    charge: FlavorUsage,
    charged_to: Option<Arc<str>>,
}

impl CachedWorkload {
    fn counted(&self) -> CountedWorkload<'_> {
        CountedWorkload {
            phase: self.fields.phase,
            inactive: self.fields.inactive,
            charge: &self.charge,
            total: &self.total,
            charged_to: self.charged_to.as_ref(),
        }
    }
}

impl World {
    /// Changes one workload and updates every cache that depends on it.
    pub(super) fn update(&mut self, uid: Uid, change: impl FnOnce(&mut Workload, &Class)) {
        let Some(workload) = self.state.workload_mut(uid) else { return };
        let class = workload.class();
        let (shape, class_total) = self.queues.class_and_total(class);
        let (shape, class_total) = (shape.clone(), class_total.clone());
        let total_of = |gang: &Arc<Gang>| {
            if Arc::ptr_eq(gang, &shape.gang) {
                class_total.clone()
            } else {
                Arc::new(self.config.resources.total(gang))
            }
        };
        let gang_before = workload.gang(&shape);
        let total_before = total_of(&gang_before);
        let usage = |workload: &Workload, gang: &Gang, total: &Amounts| {
            workload.flavors().usage(gang, total, &self.config.resources)
        };
        let charge_before = usage(workload, &gang_before, &total_before);
        let before = CachedFields::of(uid, workload);
        let charged_before = before.phase.charged().then(|| self.queues.charged_to(uid).cloned()).flatten();
        change(workload, &shape);
        let after = CachedFields::of(uid, workload);
        let flavors = workload.flavors().clone();
        if before.phase.charged() && !after.phase.charged() {
            workload.clear_charge();
        }
        let gang = workload.gang(&shape);
        let total = if Arc::ptr_eq(&gang, &gang_before) { total_before.clone() } else { total_of(&gang) };
        let charge = flavors.usage(&gang, &total, &self.config.resources);
        self.mirror.touch(uid);
        let before = CachedWorkload {
            fields: before,
            total: total_before,
            charge: charge_before,
            charged_to: charged_before,
        };
        let mut after = CachedWorkload { fields: after, total, charge, charged_to: None };
        self.update_charge(uid, &shape, &before, &after);
        after.charged_to = self.queues.charged_to(uid).cloned();
        self.update_counts(class, &shape, &before, &after);
        let (before, after) = (before.fields, after.fields);
        let position_changed = before.position != after.position;
        if before.waits && (!after.waits || position_changed) {
            self.queues.leave(class, before.position);
        }
        if after.waits && (!before.waits || position_changed) {
            self.queues.wait(class, after.position);
        }
        if before.legs != after.legs {
            self.update_legs(uid, class, before.legs, after.legs);
        }
    }

    /// Charges newly reserved quota, and refunds quota that was released or changed.
    fn update_charge(&mut self, uid: Uid, shape: &Class, before: &CachedWorkload, after: &CachedWorkload) {
        let (had, has) = (before.fields.phase.charged(), after.fields.phase.charged());
        let changed = before.charge != after.charge;
        if had && !has {
            self.queues.refund(uid, &before.charge);
        } else if had
            && has
            && changed
            && let Some(queue) = &before.charged_to
        {
            self.queues.refund(uid, &before.charge);
            self.queues.charge(uid, queue.clone(), &after.charge);
        } else if !had && has && !self.config.planted.has(Bug::QuotaNotCharged) {
            let queue = self.state.catalog().leads_to(shape);
            if let Some(workload) = self.state.workload_mut(uid) {
                workload.set_charged_to(queue.clone());
            }
            self.queues.charge(uid, queue, &after.charge);
        }
    }

    fn update_counts(
        &mut self,
        class: ClassId,
        shape: &Class,
        before: &CachedWorkload,
        after: &CachedWorkload,
    ) {
        let (old, new) = (&before.fields, &after.fields);
        let unchanged = old.phase == new.phase
            && before.charge == after.charge
            && before.total == after.total
            && old.inactive == new.inactive;
        if unchanged {
            return;
        }
        self.counts_by_queue.change(self.state.catalog(), shape, &before.counted(), &after.counted());
        self.touch_queues(class, before.charged_to.clone().or_else(|| after.charged_to.clone()));
    }

    fn update_legs(
        &mut self,
        uid: Uid,
        class: ClassId,
        before: Vec<(ClusterName, LegState)>,
        after: Vec<(ClusterName, LegState)>,
    ) {
        let has_leg_in =
            |legs: &[(ClusterName, LegState)], cluster| legs.iter().any(|(other, _)| other == cluster);
        for (cluster, _) in before.iter().filter(|(cluster, _)| !has_leg_in(&after, cluster)) {
            self.loads.remove(cluster, uid);
        }
        for (cluster, _) in after.iter().filter(|(cluster, _)| !has_leg_in(&before, cluster)) {
            self.loads.add(cluster.clone(), uid, class);
        }
        before.into_iter().for_each(|(cluster, state)| self.counts_by_queue.leg(cluster, state, false));
        after.into_iter().for_each(|(cluster, state)| self.counts_by_queue.leg(cluster, state, true));
    }

    /// Rebuilds every cache from `state`, after a snapshot was read.
    pub fn recount(&mut self, classes: Vec<(ClassId, Class)>, next: ClassId) {
        self.queues.restore(classes, next, &self.config.resources);
        self.mirror.start_over();
        let uids: Vec<Uid> = self.state.workloads().keys().copied().collect();
        for uid in uids {
            let Some(w) = self.state.workloads().shared(&uid).cloned() else { continue };
            self.names.remember(uid, &w);
            let Some(w) = self.state.workload_mut(uid) else { continue };
            let (class, position, phase, waits) =
                (w.class(), QueuePosition::new(w.priority(), w.submitted(), uid), w.phase(), w.waits());
            self.queues.add_member(class);
            let shape = self.queues.class(class).clone();
            if waits {
                self.queues.wait(class, position);
            }
            if phase.charged() {
                let queue = w.charged_to().cloned().expect("a charged workload names its cluster queue");
                let gang = w.gang(&shape);
                let total = self.config.resources.total(&gang);
                self.queues.charge(uid, queue, &w.flavors().usage(&gang, &total, &self.config.resources));
            }
            for leg in w.legs().values() {
                self.loads.add(leg.cluster().clone(), uid, class);
            }
            if let Some(finish) = &w.finished() {
                self.live.retention_mut().add_finished(finish.at, uid);
            }
        }
        self.counts_by_queue = recount_queues(self);
    }
}

/// Removes one member of a class. With the last one, everything known about the class is dropped.
pub(crate) fn drop_member(world: &mut World, class: ClassId) {
    if world.queues.drop_member(class) {
        world.live.pending_reasons_mut().forget(class);
        world.live.audited_mut().forget(class);
        world.mirror.forget_class(class);
    }
}

/// Adds a workload and its legs to `counts_by_queue`, or removes them (`more`: false).
fn count_in(world: &World, counts_by_queue: &mut QueueCounts, uid: Uid, more: bool) {
    let Some(workload) = world.state.workloads().get(&uid) else { return };
    for leg in workload.legs().values() {
        counts_by_queue.leg(leg.cluster().clone(), leg.state(), more);
    }
    let class = world.queues.class(workload.class());
    let (gang, resources) = (workload.gang(class), &world.config.resources);
    let total = resources.total(&gang);
    let inactive = workload.inactive().is_some();
    let counted = CountedWorkload {
        phase: workload.phase(),
        inactive,
        charge: &workload.flavors().usage(&gang, &total, resources),
        total: &total,
        charged_to: world.queues.charged_to(uid),
    };
    counts_by_queue.count(world.state.catalog(), class, &counted, more);
}

/// Adds a workload and its legs to the world's counts, or removes them (`more`: false).
pub(crate) fn count_workload(world: &mut World, uid: Uid, more: bool) {
    let mut counts_by_queue = std::mem::take(&mut world.counts_by_queue);
    count_in(world, &mut counts_by_queue, uid, more);
    world.counts_by_queue = counts_by_queue;
}

/// Computes [`QueueCounts`] from the workloads.
pub(crate) fn recount_queues(world: &World) -> QueueCounts {
    let mut counts_by_queue = QueueCounts::default();
    world.state.workloads().keys().for_each(|uid| count_in(world, &mut counts_by_queue, *uid, true));
    counts_by_queue
}
