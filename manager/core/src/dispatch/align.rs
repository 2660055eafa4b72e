pub mod entries;
pub mod growth;

use crate::facts::reason::{NoRoute, Why};
use crate::facts::submission::{Class, ClassId};
use crate::queue::candidate_clusters::CandidateClusters;
use crate::queue::mirror::CatalogReferences;
use crate::state::workload::phase::Phase;
use crate::world::World;
use crate::world::absorb::usage;
use meridian_queueing::declare;
use meridian_queueing::model::{Flavor, QueueId};
use meridian_queueing::settings::Settings;
use meridian_shared::ids::Uid;
use meridian_shared::planted::Bug;
use meridian_shared::time::Mono;
use std::sync::Arc;

/// What a workload should be to the brain.
enum Wanted {
    Gone,
    Outside(Option<Why>),
    Waiting(QueueId),
    Holding { queue: QueueId, evicted: bool },
}

/// Brings the brain in line with the state.
pub(crate) fn align(world: &mut World, now: Mono) {
    if std::mem::take(&mut world.mirror.stale) {
        declare_queues(world, now);
    }
    if world.state.recovery().is_some() {
        // Time and reports release whom recovery holds back.
        world.mirror.touched.extend(&world.mirror.outside);
    }
    for uid in std::mem::take(&mut world.mirror.touched) {
        align_one(world, uid, now);
        growth::align_scale_up(world, uid, now);
    }
}

fn declare_queues(world: &mut World, now: Mono) {
    let settings = Settings {
        fair_sharing: world.config.fair_sharing.clone(),
        admission_fair_sharing: world.config.admission_fair_sharing.clone(),
        brief: true,
        placed_by_others: true,
        look_again: true,
        ties_by_age: true,
        ..Settings::default()
    };
    world.mirror.given.clear();
    world.mirror.ways_in.clear();
    let catalog = &world.state.catalog();
    let brain = Arc::make_mut(&mut world.mirror.brain);
    brain.settings = settings;
    // What victims free is kept for the gang that they gave way for.
    brain.settings.gates.topology = false;
    brain.settings.gates.prioritize_preemptors = true;
    let known: Vec<_> = brain.flavor_list().map(|(id, _)| id).collect();
    for id in known {
        brain.set_flavor(id, None);
    }
    for (name, spec) in catalog.flavors() {
        let id = brain.flavor_id(name);
        let levels = spec
            .topology_name
            .as_ref()
            .and_then(|name| catalog.topology(name))
            .map(|topology| topology.levels.clone().into());
        brain.set_flavor(id, Some(Flavor { levels, ..declare::flavor(spec, true) }));
    }
    let ignores_lending = world.config.planted.has(Bug::LendingLimitIgnored);
    let cohorts =
        catalog.cohorts().map(|(name, spec)| (name.clone(), declare::cohort(brain, spec))).collect();
    let mut queues: Vec<_> = catalog
        .cluster_queues()
        .map(|(name, spec)| declare::cluster_queue(brain, name, spec, &CatalogReferences(catalog)))
        .collect();
    for quota in queues.iter_mut().flat_map(|queue| queue.quotas.values_mut()).filter(|_| ignores_lending) {
        quota.lending_limit = None;
    }
    brain.configure(&cohorts, queues);
    let leave_out = catalog.cluster_queues().filter(|(_, spec)| !spec.exclude_resource_prefixes.is_empty());
    let excluded = leave_out
        .filter_map(|(name, spec)| Some((brain.queue_id(name)?, spec.exclude_resource_prefixes.clone())))
        .collect();
    let excluded_before = std::mem::replace(&mut world.mirror.excluded, excluded);
    usage::recall_all(world);
    // Everybody who was outside may have a way now, and classes whose way changed have another.
    world.mirror.touched.extend(std::mem::take(&mut world.mirror.outside));
    if world.mirror.ids.is_empty() {
        world.mirror.touched.extend(world.state.workloads().keys());
        return;
    }
    for class in world.queues.waiting_classes().collect::<Vec<_>>() {
        let way = way(world, &world.queues.class(class).clone()).ok();
        // Who asks for something else now is another one to the brain.
        let other_requests =
            way.is_some_and(|queue| excluded_before.get(&queue) != world.mirror.excluded.get(&queue));
        if other_requests {
            world.queues.waiting(class).for_each(|place| world.mirror.forget(place.uid));
        }
        if other_requests || world.mirror.routes.get(&class) != Some(&way) {
            world.mirror.touched.extend(world.queues.waiting(class).map(|place| place.uid));
        }
    }
    let _ = now;
}

/// How a class gets from a cluster queue to clusters.
pub(crate) fn candidate_clusters(
    world: &mut World,
    class: ClassId,
    queue: &Arc<str>,
) -> Arc<CandidateClusters> {
    if let Some(known) = world.mirror.ways.get(&class).filter(|way| way.queue == *queue) {
        return known.clone();
    }
    let way = Arc::new(CandidateClusters::new(
        &world.state.catalog(),
        world.queues.class(class),
        queue,
        world.config.residency_required,
    ));
    world.mirror.ways.insert(class, way.clone());
    way
}

pub(crate) fn way(world: &World, class: &Class) -> Result<QueueId, NoRoute> {
    let name = world.state.catalog().route(&class.namespace, &class.queue)?;
    world
        .mirror
        .brain
        .queue_id(&name)
        .ok_or_else(|| NoRoute::NoClusterQueue { cluster_queue: name.to_string() })
}

fn wanted(world: &mut World, uid: Uid, now: Mono) -> Wanted {
    let Some(workload) = world.state.workloads().get(&uid) else { return Wanted::Gone };
    if workload.phase() == Phase::Finished {
        return Wanted::Gone;
    }
    if workload.phase().charged() {
        let queue = world.queues.charged_to(uid).and_then(|name| world.mirror.brain.queue_id(name));
        let queue = queue.filter(|_| {
            workload.phase() != Phase::Stopping || !world.config.planted.has(Bug::VictimQuotaGivenAway)
        });
        return queue.map_or(Wanted::Outside(None), |queue| Wanted::Holding {
            queue,
            evicted: workload.phase() == Phase::Stopping,
        });
    }
    if workload.inactive().is_some() {
        return Wanted::Outside(None);
    }
    let rests = world.live.backoff_until.get(&uid).is_some_and(|until| *until > now);
    if rests || workload.deletion().is_some() || world.held_back(workload, now) {
        return Wanted::Outside(None);
    }
    let class = workload.class();
    let way = match world.mirror.ways_in.get(&class) {
        Some(known) => known.clone(),
        None => {
            let way = way(world, world.queues.class(class));
            world.mirror.ways_in.insert(class, way.clone());
            way
        }
    };
    way.map_or_else(|why| Wanted::Outside(Some(Why::Route(why))), Wanted::Waiting)
}

fn align_one(world: &mut World, uid: Uid, now: Mono) {
    world.mirror.outside.remove(&uid);
    let brain = &world.mirror.brain;
    let known = world.mirror.id(uid).and_then(|id| brain.workload(id).map(|w| (id, w)));
    let shape = world.state.workloads().get(&uid).map(|w| (w.priority(), entries::tag(w)));
    // With another priority, or of another size, it is another one to the brain.
    let same = known.filter(|(_, w)| {
        let known = brain.shape_of(w.shape);
        Some((known.priority, known.tag)) == shape
    });
    let there = same.map(|(id, w)| (id, w.queue, w.holding.is_some(), w.evicted()));
    let stopped_in = there.filter(|(_, _, holds, evicted)| *holds && *evicted).map(|(_, queue, ..)| queue);
    let wanted = wanted(world, uid, now);
    if let (Some(queue), false) = (stopped_in, matches!(wanted, Wanted::Holding { .. })) {
        wake_who_waits_for(world, uid, queue);
    }
    match wanted {
        Wanted::Gone => world.mirror.forget(uid),
        Wanted::Outside(why) => {
            world.mirror.forget(uid);
            world.mirror.outside.insert(uid);
            if let (Some(why), Some(class)) = (why, world.state.workloads().get(&uid).map(|w| w.class())) {
                world.live.pending_reasons.set(class, Some(why));
            }
        }
        Wanted::Waiting(queue) => {
            let class = world.state.workloads()[&uid].class();
            world.mirror.routes.insert(class, Some(queue));
            match there {
                Some((_, at, false, _)) if at == queue => {}
                Some((id, at, true, _)) if at == queue => {
                    let since = entries::since(&world.state.workloads()[&uid]);
                    world.mirror.sizes.remove(&uid);
                    world.mirror.brain_mut().requeue(id, since);
                }
                _ => {
                    world.mirror.forget(uid);
                    let new = entries::new_workload(world, uid, queue);
                    let id = world.mirror.brain_mut().wait(new);
                    world.mirror.know(uid, id);
                }
            }
        }
        Wanted::Holding { queue, evicted } => {
            let sizes = entries::sizes(&world.state.workloads()[&uid]);
            let id = match there {
                Some((id, at, true, _)) if at == queue && world.mirror.sizes.get(&uid) == sizes.as_ref() => {
                    id
                }
                other => {
                    let given = entries::given(world, uid);
                    // Of equals the one that was charged last gives way first.
                    let charged_at = world.state.workloads()[&uid].reserved().map_or(0, |at| at.0);
                    match other {
                        Some((id, at, false, _)) if at == queue => {
                            world.mirror.brain_mut().give(id, given, charged_at);
                            id
                        }
                        _ => {
                            world.mirror.forget(uid);
                            let new = entries::new_workload(world, uid, queue);
                            let id = world.mirror.brain_mut().hold(new, given, charged_at, evicted, true);
                            world.mirror.know(uid, id);
                            if let Some(sizes) = sizes {
                                world.mirror.sizes.insert(uid, sizes);
                            }
                            id
                        }
                    }
                }
            };
            if evicted
                != world.mirror.brain.workload(id).is_some_and(meridian_queueing::model::Workload::evicted)
            {
                let brain = world.mirror.brain_mut();
                if evicted { brain.evict(id) } else { brain.spare(id) }
            }
        }
    }
}

/// Who made a victim stop is looked at again once it has, also where its queue has left the victim's cohort since.
fn wake_who_waits_for(world: &mut World, victim: Uid, queue: QueueId) {
    let Some(by) =
        world.state.workloads().get(&victim).and_then(|w| w.preempted()).map(|preempted| preempted.by)
    else {
        return;
    };
    let brain = &world.mirror.brain;
    let Some(at) = world.mirror.id(by).and_then(|id| brain.workload(id)).map(|preemptor| preemptor.queue)
    else {
        return;
    };
    if brain.queue(at).tree != brain.queue(queue).tree {
        world.mirror.brain_mut().room_came_back(at);
    }
}
