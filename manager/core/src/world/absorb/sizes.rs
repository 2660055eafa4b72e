//! Changed jobs: moving a workload to the class of its new pod counts, queue or labels.

use crate::facts::submission::Class;
use crate::queue::classes::QueuePosition;
use crate::state::workload::size;
use crate::world::World;
use crate::world::absorb::{caches, preemptions};
use meridian_shared::ids::{ClusterName, ContentHash, RecordNumber, Uid};
use meridian_shared::protocol::Size;

/// Moves a workload to the class of its new size or labels. Its admitted quota stays charged. Returns the
/// hash of the previous manifest if that was replaced.
pub(crate) fn absorb_resized(
    world: &mut World,
    number: RecordNumber,
    uid: Uid,
    class: &Class,
    body: ContentHash,
    size: Size,
) -> Option<ContentHash> {
    let (old_class, position, waits) = {
        let w = world.state.workloads().get(&uid)?;
        (w.class(), QueuePosition::new(w.priority(), w.submitted(), uid), w.waits())
    };
    caches::count_workload(world, uid, false);
    let before = &world.state.workloads()[&uid];
    let (given, runs) = (
        size::counts_of(&before.given_gang(world.queues.class(old_class))),
        before.runs_with(world.queues.class(old_class)),
    );
    let size_changed = world.queues.class(old_class).gang != class.gang;
    let queue_changed = world.queues.class(old_class).queue != class.queue;
    if queue_changed {
        world.touch_queues(old_class, None);
        preemptions::rights_changed(world, Some(uid));
    }
    let new_class = world.queues.intern(class, &world.config.resources);
    if waits {
        world.queues.leave(old_class, position);
        world.queues.wait(new_class, position);
    }
    let workload = world.state.workload_mut(uid)?;
    let before = workload.reclassify(number, new_class, body, size_changed);
    if size_changed {
        workload.forget_indexes_beyond(class);
    }
    if workload.phase().charged() && size_changed {
        // A gang may have fewer pods than the requested parallelism, because it has at most one pod per
        // completion that is left.
        let requested = workload.requested_counts(class);
        let size = Size { parallelism: requested.iter().sum(), ..size };
        workload.resize(number, size, &requested, given, runs);
    } else if size_changed && workload.attempts() > 0 {
        workload.remember_size(given);
    }
    let clusters: Vec<ClusterName> = workload.legs().values().map(|leg| leg.cluster().clone()).collect();
    for cluster in clusters {
        world.loads.add(cluster, uid, new_class);
    }
    caches::drop_member(world, old_class);
    caches::count_workload(world, uid, true);
    world.touch_queues(new_class, world.queues.charged_to(uid).cloned());
    world.mirror.touch(uid);
    Some(before).filter(|before| *before != body)
}
