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
pub(crate) fn align_growth(world: &mut World, uid: Uid, now: Mono) {
    let told = world.live.growths.remove(&uid);
    // Who has no way to a queue is told so.
    let Some((queue, since)) = growth_wanted(world, uid, now) else {
        return world.deciding.forget_growth(uid);
    };
    let workload = &world.state.workloads()[&uid];
    let known = world.deciding.growth(uid).and_then(|id| world.deciding.brain.workload(id));
    let same = known.filter(|known| known.queue == queue && known.since == since && known.holding.is_none());
    if same.is_some_and(|known| world.deciding.brain.shape_of(known.shape).priority == workload.priority()) {
        world.live.growths.extend(told.map(|why| (uid, why)));
        return;
    }
    world.deciding.forget_growth(uid);
    let of = NewEntry {
        counts: workload.grows_by(world.queues.class(workload.class())),
        tag: entries::growth_tag(uid),
        since,
        key: format!("{uid}+"),
    };
    let flavors: BTreeSet<Arc<str>> = workload.flavors().values().cloned().collect();
    let mut new = entries::new_entry(world, uid, queue, of);
    let brain = world.deciding.brain_mut();
    // Its pods are of one kind.
    let pinned = flavors.iter().map(|flavor| brain.flavor_id(flavor)).collect();
    new.marks = Some(Box::new(Marks { pinned, ..Marks::default() }));
    let id = brain.wait(new);
    world.deciding.growths.insert(uid, id);
    world.deciding.name(uid, id);
}

/// In which queue, and since when, a gang that runs waits to grow.
fn growth_wanted(world: &mut World, uid: Uid, now: Mono) -> Option<(QueueId, i64)> {
    let workload = world.state.workloads().get(&uid)?;
    let class = world.queues.class(workload.class());
    workload.grows_by(class)?;
    if world.held_back(workload, now) {
        world.deciding.outside.insert(uid);
        return None;
    }
    if let Err(why) = align::way(world, class) {
        world.live.growths.insert(uid, Why::Route(why));
        world.deciding.outside.insert(uid);
        world.deciding.forget_growth(uid);
        return None;
    }
    let queue = world.queues.charged_to(uid).and_then(|name| world.deciding.brain.queue_id(name))?;
    Some((queue, entries::number(workload.grows_since())))
}
