//! Brings the queue state in line with the world: declared queues first, then every workload that changed.

pub mod entries;
pub mod scale_up;

use crate::facts::reason::{NoRoute, Why};
use crate::facts::submission::{Class, ClassId};
use crate::queue::candidate_clusters::CandidateClusters;
use crate::queue::mirror::{CatalogReferences, Sizes};
use crate::state::capacity_classes::capacity_class;
use crate::state::catalog::Catalog;
use crate::state::workload::phase::Phase;
use crate::world::absorb::usage;
use crate::world::{Parts, World};
use meridian_queueing::model::{Flavor, QueueId, WorkloadId};
use meridian_queueing::settings::Settings;
use meridian_queueing::{QueueState, declare};
use meridian_shared::ids::Uid;
use meridian_shared::planted::Bug;
use meridian_shared::time::Mono;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The entry that a workload should have in the queue state.
enum ExpectedEntry {
    /// The workload is finished or unknown.
    Absent,
    /// The workload is pending, but can't be admitted now: it has no route to a queue, backs off, is held
    /// back, or its manifest can't be read.
    Outside(Option<Why>),
    Pending(QueueId),
    Holding {
        queue: QueueId,
        evicted: bool,
    },
}

/// The entry that a workload has in the queue state.
#[derive(Clone, Copy)]
struct CurrentEntry {
    id: WorkloadId,
    queue: QueueId,
    is_holding: bool,
    is_evicted: bool,
}

/// Brings the queue state in line with declared objects and recorded facts.
pub(crate) fn align(world: &mut World, now: Mono) {
    if world.mirror_mut().take_stale() {
        declare_queues(world);
    }
    if world.state().recovery().is_some() {
        // Recovery releases workloads as time passes and agents report, and no record marks each of them.
        world.mirror_mut().touch_outside();
    }
    for uid in world.mirror_mut().take_touched() {
        align_workload(world, uid, now);
        scale_up::align_scale_up(world, uid, now);
    }
}

fn declare_queues(world: &mut World) {
    let settings = Settings {
        fair_sharing: world.config().fair_sharing.clone(),
        admission_fair_sharing: world.config().admission_fair_sharing.clone(),
        brief: true,
        placed_by_others: true,
        rescan_overtaken: true,
        ties_by_age: true,
        ..Settings::default()
    };
    let Parts { state, config, mirror, .. } = world.parts();
    mirror.forget_declared();
    let catalog = state.catalog();
    let state = mirror.queue_state_mut();
    *state.settings_mut() = settings;
    state.settings_mut().gates.topology = false;
    // Victims' capacity is reserved for their preemptor, so the preemptor must be evaluated before others.
    state.settings_mut().gates.prioritize_preemptors = true;
    declare_flavors(state, catalog);
    let ignores_lending = config.planted.has(Bug::LendingLimitIgnored);
    let cohorts =
        catalog.cohorts().map(|(name, spec)| (name.clone(), declare::cohort(state, spec))).collect();
    let mut queues: Vec<_> = catalog
        .cluster_queues()
        .map(|(name, spec)| declare::cluster_queue(state, name, spec, &CatalogReferences(catalog)))
        .collect();
    for quota in queues.iter_mut().flat_map(|queue| queue.quotas.values_mut()).filter(|_| ignores_lending) {
        quota.lending_limit = None;
    }
    for queue in &mut queues {
        let policy = catalog.dispatch_policy(&queue.name);
        if let Some(classes) =
            policy.map(|policy| &policy.capacity_classes).filter(|classes| !classes.is_empty())
        {
            let class_of = |flavor| capacity_class(catalog, state.flavor_name(flavor));
            declare::order_by_class(queue, classes, class_of);
        }
    }
    state.configure(&cohorts, queues);
    let excluding = catalog.cluster_queues().filter(|(_, spec)| !spec.exclude_resource_prefixes.is_empty());
    let excluded = excluding
        .filter_map(|(name, spec)| Some((state.queue_id(name)?, spec.exclude_resource_prefixes.clone())))
        .collect();
    let excluded_before = mirror.exclude(excluded);
    usage::recall_all(world);
    touch_affected(world, &excluded_before);
}

fn declare_flavors(state: &mut QueueState, catalog: &Catalog) {
    let known: Vec<_> = state.flavor_list().map(|(id, _)| id).collect();
    for id in known {
        state.set_flavor(id, None);
    }
    for (name, spec) in catalog.flavors() {
        let id = state.flavor_id(name);
        let levels = spec
            .topology_name
            .as_ref()
            .and_then(|name| catalog.topology(name))
            .map(|topology| topology.levels.clone().into());
        state.set_flavor(id, Some(Flavor { levels, ..declare::flavor(spec, true) }));
    }
}

/// Marks the workloads that new declarations may affect: those outside, and classes with another route or
/// other requests.
fn touch_affected(world: &mut World, excluded_before: &BTreeMap<QueueId, Vec<String>>) {
    let Parts { state, mirror, .. } = world.parts();
    mirror.reconsider_outside();
    if mirror.is_empty() {
        mirror.touch_all(state.workloads().keys().copied());
        return;
    }
    for class in world.queues().waiting_classes().collect::<Vec<_>>() {
        let route = queue_of_class(world, &world.queues().class(class).clone()).ok();
        // The requests of an entry never change, so a class with other requests needs new entries.
        let other_requests =
            route.is_some_and(|queue| excluded_before.get(&queue) != world.mirror().excluded_in(queue));
        let Parts { queues, mirror, .. } = world.parts();
        if other_requests {
            queues.waiting(class).for_each(|position| mirror.forget(position.uid));
        }
        if other_requests || !mirror.is_routed_to(class, route) {
            mirror.touch_all(queues.waiting(class).map(|position| position.uid));
        }
    }
}

/// The clusters that a cluster queue may use for a class, from the cache if possible.
pub(crate) fn candidate_clusters(
    world: &mut World,
    class: ClassId,
    queue: &Arc<str>,
) -> Arc<CandidateClusters> {
    if let Some(known) = world.mirror().known_candidates(class, queue) {
        return known.clone();
    }
    let candidates = Arc::new(CandidateClusters::new(
        world.state().catalog(),
        world.queues().class(class),
        queue,
        world.config().residency_required,
    ));
    world.mirror_mut().know_candidates(class, candidates.clone());
    candidates
}

/// The cluster queue that the local queue of a class points to. Fails if either of them is missing.
pub(crate) fn queue_of_class(world: &World, class: &Class) -> Result<QueueId, NoRoute> {
    let name = world.state().catalog().route(&class.namespace, &class.queue)?;
    world
        .mirror()
        .queue_state()
        .queue_id(&name)
        .ok_or_else(|| NoRoute::NoClusterQueue { cluster_queue: name.to_string() })
}

fn expected_entry(world: &mut World, uid: Uid, now: Mono) -> ExpectedEntry {
    let Some(workload) = world.state().workloads().get(&uid) else { return ExpectedEntry::Absent };
    if workload.phase() == Phase::Finished {
        return ExpectedEntry::Absent;
    }
    if workload.phase().charged() {
        let queue =
            world.queues().charged_to(uid).and_then(|name| world.mirror().queue_state().queue_id(name));
        let queue = queue.filter(|_| {
            workload.phase() != Phase::Stopping || !world.config().planted.has(Bug::VictimQuotaGivenAway)
        });
        return queue.map_or(ExpectedEntry::Outside(None), |queue| ExpectedEntry::Holding {
            queue,
            evicted: workload.phase() == Phase::Stopping,
        });
    }
    if workload.inactive().is_some() {
        return ExpectedEntry::Outside(None);
    }
    let backs_off = world.live().backoffs().is_backing_off(uid, now);
    if backs_off
        || world.live().damaged().contains(uid)
        || workload.deletion().is_some()
        || world.held_back(workload, now)
    {
        return ExpectedEntry::Outside(None);
    }
    let class = workload.class();
    let route = match world.mirror().known_route(class) {
        Some(known) => known.clone(),
        None => {
            let route = queue_of_class(world, world.queues().class(class));
            world.mirror_mut().know_route(class, route.clone());
            route
        }
    };
    route.map_or_else(|why| ExpectedEntry::Outside(Some(Why::Route(why))), ExpectedEntry::Pending)
}

/// The entry of a workload, if its priority and size are still those of the workload. Otherwise it must be
/// replaced.
fn current_entry(world: &World, uid: Uid) -> Option<CurrentEntry> {
    let state = world.mirror().queue_state();
    let known = world.mirror().id(uid).and_then(|id| state.workload(id).map(|w| (id, w)));
    let expected = world
        .state()
        .workloads()
        .get(&uid)
        .map(|w| (w.priority(), entries::tag(w, world.queues().class(w.class()))));
    let (id, workload) = known.filter(|(_, w)| {
        let shape = state.shape_of(w.shape);
        Some((shape.priority, shape.tag)) == expected
    })?;
    Some(CurrentEntry {
        id,
        queue: workload.queue,
        is_holding: workload.holding.is_some(),
        is_evicted: workload.evicted(),
    })
}

fn align_workload(world: &mut World, uid: Uid, now: Mono) {
    world.mirror_mut().leave_outside(uid);
    let current = current_entry(world, uid);
    let stopped_in = current.filter(|entry| entry.is_holding && entry.is_evicted).map(|entry| entry.queue);
    let expected = expected_entry(world, uid, now);
    if let (Some(queue), false) = (stopped_in, matches!(expected, ExpectedEntry::Holding { .. })) {
        requeue_preemptor_of(world, uid, queue);
    }
    match expected {
        ExpectedEntry::Absent => world.mirror_mut().forget(uid),
        ExpectedEntry::Outside(why) => {
            world.mirror_mut().forget(uid);
            world.mirror_mut().put_outside(uid);
            if let (Some(why), Some(class)) = (why, world.state().workloads().get(&uid).map(|w| w.class())) {
                world.live_mut().pending_reasons_mut().set(class, Some(why));
            }
        }
        ExpectedEntry::Pending(queue) => align_pending(world, uid, queue, current),
        ExpectedEntry::Holding { queue, evicted } => align_holder(world, uid, queue, evicted, current),
    }
}

fn align_pending(world: &mut World, uid: Uid, queue: QueueId, current: Option<CurrentEntry>) {
    let class = world.state().workloads()[&uid].class();
    world.mirror_mut().route(class, queue);
    match current {
        Some(entry) if entry.queue == queue && !entry.is_holding => {}
        Some(entry) if entry.queue == queue => {
            let since = entries::since(&world.state().workloads()[&uid]);
            world.mirror_mut().set_sizes(uid, None);
            world.mirror_mut().queue_state_mut().requeue(entry.id, since);
        }
        _ => {
            world.mirror_mut().forget(uid);
            let new = entries::new_workload(world, uid, queue);
            let id = world.mirror_mut().queue_state_mut().add_pending(new);
            world.mirror_mut().know(uid, id);
        }
    }
}

fn align_holder(world: &mut World, uid: Uid, queue: QueueId, evicted: bool, current: Option<CurrentEntry>) {
    let sizes = entries::sizes(&world.state().workloads()[&uid]);
    let current = current.filter(|entry| entry.queue == queue);
    let id = match current {
        Some(entry) if entry.is_holding && world.mirror().sizes(uid) == sizes.as_ref() => entry.id,
        _ => {
            let pending = current.filter(|entry| !entry.is_holding).map(|entry| entry.id);
            charge_entry(world, uid, queue, evicted, pending, sizes)
        }
    };
    if evicted
        != world.mirror().queue_state().workload(id).is_some_and(meridian_queueing::model::Workload::evicted)
    {
        let state = world.mirror_mut().queue_state_mut();
        if evicted { state.evict(id) } else { state.cancel_eviction(id) }
    }
}

/// Charges a workload as recorded: in its pending entry if it has one, otherwise in a new entry.
fn charge_entry(
    world: &mut World,
    uid: Uid,
    queue: QueueId,
    evicted: bool,
    pending: Option<WorkloadId>,
    sizes: Option<Sizes>,
) -> WorkloadId {
    let given = entries::given(world, uid);
    // Victims of equal priority are preempted in reverse order of reservation.
    let charged_at = world.state().workloads()[&uid].reserved().map_or(0, |at| at.0);
    if let Some(id) = pending {
        world.mirror_mut().queue_state_mut().reserve_pending(id, given, charged_at);
        return id;
    }
    world.mirror_mut().forget(uid);
    let new = entries::new_workload(world, uid, queue);
    let id = world.mirror_mut().queue_state_mut().add_holder(new, given, charged_at, evicted, true);
    world.mirror_mut().know(uid, id);
    world.mirror_mut().set_sizes(uid, sizes);
    id
}

/// Requeues the preemptor of a victim that has stopped. Within a cohort, the release of quota does this
/// already, but a queue may have moved to another cohort since the preemption.
fn requeue_preemptor_of(world: &mut World, victim: Uid, queue: QueueId) {
    let Some(preemptor) =
        world.state().workloads().get(&victim).and_then(|w| w.preempted()).map(|preempted| preempted.by)
    else {
        return;
    };
    let state = world.mirror().queue_state();
    let Some(waits_in) = world.mirror().id(preemptor).and_then(|id| state.workload(id)).map(|w| w.queue)
    else {
        return;
    };
    if state.queue(waits_in).tree != state.queue(queue).tree {
        world.mirror_mut().queue_state_mut().quota_released(waits_in);
    }
}
