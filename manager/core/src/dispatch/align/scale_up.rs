//! Queue entries of scale-ups. The pods that a running elastic gang adds are pending in an entry of their
//! own, beside the gang's, which holds quota.

use crate::dispatch::align;
use crate::dispatch::align::entries::{self, EntryParts};
use crate::facts::reason::Why;
use crate::world::World;
use meridian_queueing::model::{Marks, QueueId};
use meridian_shared::ids::Uid;
use meridian_shared::time::Mono;
use std::sync::Arc;

/// Adds, replaces or removes the entry of a workload's scale-up.
pub(crate) fn align_scale_up(world: &mut World, uid: Uid, now: Mono) {
    let reason_before = world.live_mut().scale_up_reasons_mut().take(uid);
    // Stores a new reason if the workload has no route to a queue.
    let Some((queue, since)) = expected_scale_up(world, uid, now) else {
        return world.mirror_mut().forget_scale_up(uid);
    };
    let workload = &world.state().workloads()[&uid];
    let known = world.mirror().scale_up(uid).and_then(|id| world.mirror().queue_state().workload(id));
    let same = known.filter(|known| known.queue == queue && known.since == since && known.holding.is_none());
    if same.is_some_and(|known| {
        world.mirror().queue_state().shape_of(known.shape).priority == workload.priority()
    }) {
        if let Some(why) = reason_before {
            world.live_mut().scale_up_reasons_mut().set(uid, why);
        }
        return;
    }
    let flavors: Vec<Arc<str>> = workload.flavors().names().into_iter().cloned().collect();
    let parts = EntryParts {
        counts: workload.scale_up_counts(world.queues().class(workload.class())),
        tag: entries::scale_up_tag(uid),
        since,
        key: format!("{uid}+"),
    };
    world.mirror_mut().forget_scale_up(uid);
    let mut new = entries::new_entry(world, uid, queue, parts);
    let state = world.mirror_mut().queue_state_mut();
    // All kinds of jobs that can be scaled have one pod set.
    let pinned = flavors.iter().map(|flavor| state.flavor_id(flavor)).collect();
    new.marks = Some(Box::new(Marks { pinned, ..Marks::default() }));
    let id = state.add_pending(new);
    world.mirror_mut().know_scale_up(uid, id);
}

/// The queue in which a scale-up is pending, and its age. `None` if nothing is to be added or the workload is
/// held back.
fn expected_scale_up(world: &mut World, uid: Uid, now: Mono) -> Option<(QueueId, i64)> {
    let workload = world.state().workloads().get(&uid)?;
    let class = world.queues().class(workload.class());
    workload.scale_up_counts(class)?;
    if world.held_back(workload, now) {
        world.mirror_mut().put_outside(uid);
        return None;
    }
    if let Err(why) = align::queue_of_class(world, class) {
        world.live_mut().scale_up_reasons_mut().set(uid, Why::Route(why));
        world.mirror_mut().put_outside(uid);
        world.mirror_mut().forget_scale_up(uid);
        return None;
    }
    let queue =
        world.queues().charged_to(uid).and_then(|name| world.mirror().queue_state().queue_id(name))?;
    Some((queue, entries::number(workload.scale_up_requested())))
}
