use crate::config::Config;
use crate::queue::classes::Queues;
use crate::queue::mirror::Sizes;
use crate::state::State;
use crate::world::World;
use meridian_objects::without_prefixes;
use meridian_queueing::model::{Given, PodSet, QueueId, Shape};
use meridian_queueing::{Brain, NewWorkload};
use meridian_shared::gang::Amounts;
use meridian_shared::ids::{RecordNumber, Uid};
use meridian_topology::PODS;
use std::sync::Arc;

/// What a workload was given, as its records say.
pub(crate) fn given(world: &mut World, uid: Uid) -> Vec<Given> {
    let workload = &world.state.workloads()[&uid];
    let class = world.queues.class(workload.class()).clone();
    let (flavors, gang) = (workload.flavors().clone(), workload.gang(&class));
    let seen: Vec<_> = gang.pod_sets.iter().map(|set| world.config.resources.seen(&set.per_pod)).collect();
    let brain = world.mirror.brain_mut();
    let mut all = Vec::with_capacity(gang.pod_sets.len());
    for (set, seen) in gang.pod_sets.iter().zip(&seen) {
        let mut given = Given { count: set.count, ..Given::default() };
        let requests = brain.requests(seen);
        for (resource, amount) in requests {
            let Some(flavor) = flavors.get(&**brain.resource_name(resource)).cloned() else { continue };
            given.flavors.insert(resource, brain.flavor_id(&flavor));
            given.usage.push((resource, amount.saturating_mul(i64::from(set.count))));
        }
        if let (Some(flavor), Some(pods)) = (flavors.get(PODS).cloned(), brain.resource_id(PODS)) {
            given.flavors.insert(pods, brain.flavor_id(&flavor));
            given.usage.retain(|(r, _)| *r != pods);
            given.usage.push((pods, i64::from(set.count)));
        }
        all.push(given);
    }
    all
}

pub(crate) fn new_workload(world: &mut World, uid: Uid, queue: QueueId) -> NewWorkload {
    let of = NewEntry::of(&world.state.workloads()[&uid], uid);
    new_entry(world, uid, queue, of)
}

pub(crate) fn new_entry(world: &mut World, uid: Uid, queue: QueueId, of: NewEntry) -> NewWorkload {
    as_waiting(
        (&world.state, &world.queues, &world.config),
        Arc::make_mut(&mut world.mirror.brain),
        uid,
        queue,
        of,
    )
}

/// A workload as it would wait in a queue of a brain with the same books.
pub(crate) fn would_wait(world: &World, brain: &mut Brain, uid: Uid, queue: QueueId) -> NewWorkload {
    as_waiting(
        (&world.state, &world.queues, &world.config),
        brain,
        uid,
        queue,
        NewEntry::of(&world.state.workloads()[&uid], uid),
    )
}

fn as_waiting(
    (state, queues, config): (&State, &Queues, &Config),
    brain: &mut Brain,
    uid: Uid,
    queue: QueueId,
    of: NewEntry,
) -> NewWorkload {
    let NewEntry { counts: has, tag, since, key } = of;
    let workload = &state.workloads()[&uid];
    let (class, priority, exact) = (workload.class(), workload.priority(), tag & GROWTH != 0);
    let of = queues.class(class).clone();
    let name = brain.queue(queue).setup.name.clone();
    let excluded = state
        .catalog()
        .cluster_queue(&name)
        .map(|spec| spec.exclude_resource_prefixes.clone())
        .unwrap_or_default();
    let pod_sets = of
        .gang
        .pod_sets
        .iter()
        .enumerate()
        .map(|(at, set)| PodSet {
            name: Arc::from(set.name.as_str()),
            count: has.as_ref().and_then(|has| has.get(at)).copied().unwrap_or(set.count),
            min_count: set.min_count.filter(|_| !exact),
            per_pod: brain.requests(&without_prefixes(config.resources.seen(&set.per_pod), &excluded)),
            node_selector: set.node_selector.clone(),
            affinity: set.affinity.clone(),
            tolerations: set.tolerations.clone(),
            topology: set.topology.clone(),
            on_node: set.topology.as_ref().map_or_else(Amounts::new, |_| set.per_pod.clone()),
            ..PodSet::default()
        })
        .collect();
    // Alike are only workloads of one class: they may go to the same clusters.
    let shape = brain.intern(Shape { pod_sets, priority, tag, ..Shape::default() });
    let key: Arc<str> = Arc::from(key);
    NewWorkload {
        uid: key.clone(),
        key,
        queue,
        local_queue: Arc::from(format!("{}/{}", of.namespace, of.queue)),
        shape,
        since,
        marks: None,
    }
}

/// What makes an entry of the queue of a workload.
pub(crate) struct NewEntry {
    /// Pods of each pod set, where they aren't those that its class has.
    pub(super) counts: Option<Vec<u32>>,
    pub(super) tag: u64,
    pub(super) since: i64,
    pub(super) key: String,
}

impl NewEntry {
    /// The workload itself.
    fn of(workload: &crate::state::workload::Workload, uid: Uid) -> Self {
        // What was given to it before it was made smaller.
        let counts = workload.counts().cloned().filter(|_| workload.resized().is_some());
        Self { counts, tag: tag(workload), since: since(workload), key: uid.to_string() }
    }
}

/// Tells scale_up_reasons from whole workloads.
const GROWTH: u64 = 1 << 63;

/// No growth is like another: each is bound to where its gang runs.
pub(crate) fn scale_up_tag(uid: Uid) -> u64 {
    let half = |of: u128| u64::try_from(of & u128::from(u64::MAX)).unwrap_or(0);
    meridian_shared::backoff::splitmix(half(uid.0) ^ half(uid.0 >> u64::BITS).rotate_left(1)) | GROWTH
}

/// How large a gang is, where it isn't as it was given.
pub(crate) fn sizes(workload: &crate::state::workload::Workload) -> Option<Sizes> {
    let changed = workload.resized().is_some() || workload.spare().is_some();
    changed.then(|| {
        (workload.counts().cloned().filter(|_| workload.resized().is_some()), workload.spare().cloned())
    })
}

/// Alike are only workloads of one class, and of those none that has another size than it wants.
pub(crate) fn tag(workload: &crate::state::workload::Workload) -> u64 {
    let class = u64::from(workload.class().0);
    if workload.phase().charged() && workload.resized().is_some() { class | 1 << u32::BITS } else { class }
}

/// A workload's place in time: the number of its record.
pub(crate) fn since(workload: &crate::state::workload::Workload) -> i64 {
    number(workload.submitted())
}

pub(crate) fn number(record: RecordNumber) -> i64 {
    i64::try_from(record.0).unwrap_or(i64::MAX)
}
