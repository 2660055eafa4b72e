//! Pods of a running gang that have succeeded and won't be needed again (Kueue's reclaimable pods): what they had goes to others
//! while the rest runs on. And those that have failed, which the next attempt goes on counting from.
//!
//! Agents say how many they are; they only become more, and never more than the gang was given. The next attempt, if there is
//! one, asks for the whole gang anew.

use crate::facts::submission::Class;
use crate::queue::classes::QueuePosition;
use crate::state::workload::size;
use crate::world::World;
use crate::world::absorb::caches;
use meridian_shared::ids::{ClusterName, ContentHash, RecordNumber, Uid};
use meridian_shared::protocol::Size;

/// Moves a workload to the class of its new size or labels; returns the manifest that nobody needs any more. What was given stays.
pub(crate) fn absorb_resized(
    world: &mut World,
    number: RecordNumber,
    uid: Uid,
    class: &Class,
    body: ContentHash,
    size: Size,
) -> Option<ContentHash> {
    let (old, place, waits) = {
        let w = world.state.workloads().get(&uid)?;
        (w.class(), QueuePosition::new(w.priority(), w.submitted(), uid), w.waits())
    };
    caches::count_workload(world, uid, false);
    let before = &world.state.workloads()[&uid];
    let (given, runs) = (
        size::counts_of(&before.given_gang(world.queues.class(old))),
        before.runs_with(world.queues.class(old)),
    );
    let another_size = world.queues.class(old).gang != class.gang;
    // A gang has no more pods than its job has completions.
    let size = Size { parallelism: size::counts_of(&class.gang).iter().sum(), ..size };
    let new = world.queues.intern(class, &world.config.resources);
    if waits {
        world.queues.leave(old, place);
        world.queues.wait(new, place);
    }
    let workload = world.state.workload_mut(uid)?;
    let before = workload.reclassify(number, new, body, another_size);
    if workload.phase().charged() && another_size {
        workload.resize(number, size, &size::counts_of(&class.gang), given, runs);
    }
    let clusters: Vec<ClusterName> = workload.legs().values().map(|leg| leg.cluster.clone()).collect();
    for cluster in clusters {
        world.loads.entry(cluster).or_default().insert(uid, new);
    }
    caches::drop_member(world, old);
    caches::count_workload(world, uid, true);
    world.touch_queues(new, world.queues.charged_to(uid).cloned());
    world.mirror.touch(uid);
    Some(before).filter(|before| *before != body)
}
