use crate::dispatch::align;
use crate::dispatch::align::entries::{self, NewEntry};
use crate::facts::reason::Why;
use crate::world::World;
use meridian_queueing::model::{Marks, QueueId};
use meridian_shared::ids::Uid;
use meridian_shared::time::Mono;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a gang that runs is to grow by waits beside what it has.
pub(crate) fn align_scale_up(world: &mut World, uid: Uid, now: Mono) {
    let told = world.live.scale_up_reasons.remove(&uid);
    // Who has no way to a queue is told so.
    let Some((queue, since)) = expected_scale_up(world, uid, now) else {
        return world.mirror.forget_scale_up(uid);
    };
    let workload = &world.state.workloads()[&uid];
    let known = world.mirror.growth(uid).and_then(|id| world.mirror.brain.workload(id));
    let same = known.filter(|known| known.queue == queue && known.since == since && known.holding.is_none());
    if same.is_some_and(|known| world.mirror.brain.shape_of(known.shape).priority == workload.priority()) {
        world.live.scale_up_reasons.extend(told.map(|why| (uid, why)));
        return;
    }
    world.mirror.forget_scale_up(uid);
    let of = NewEntry {
        counts: workload.scale_up_counts(world.queues.class(workload.class())),
        tag: entries::scale_up_tag(uid),
        since,
        key: format!("{uid}+"),
    };
    let flavors: BTreeSet<Arc<str>> = workload.flavors().values().cloned().collect();
    let mut new = entries::new_entry(world, uid, queue, of);
    let brain = world.mirror.brain_mut();
    // Its pods are of one kind.
    let pinned = flavors.iter().map(|flavor| brain.flavor_id(flavor)).collect();
    new.marks = Some(Box::new(Marks { pinned, ..Marks::default() }));
    let id = brain.wait(new);
    world.mirror.scale_up_reasons.insert(uid, id);
    world.mirror.name(uid, id);
}

/// In which queue, and since when, a gang that runs waits to grow.
fn expected_scale_up(world: &mut World, uid: Uid, now: Mono) -> Option<(QueueId, i64)> {
    let workload = world.state.workloads().get(&uid)?;
    let class = world.queues.class(workload.class());
    workload.scale_up_counts(class)?;
    if world.held_back(workload, now) {
        world.mirror.outside.insert(uid);
        return None;
    }
    if let Err(why) = align::way(world, class) {
        world.live.scale_up_reasons.insert(uid, Why::Route(why));
        world.mirror.outside.insert(uid);
        world.mirror.forget_scale_up(uid);
        return None;
    }
    let queue = world.queues.charged_to(uid).and_then(|name| world.mirror.brain.queue_id(name))?;
    Some((queue, entries::number(workload.scale_up_requested())))
}
