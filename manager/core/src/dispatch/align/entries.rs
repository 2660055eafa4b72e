//! Entries of workloads, as the queue state takes them.

use crate::config::Config;
use crate::facts::submission::{Class, ClassId};
use crate::queue::classes::Queues;
use crate::queue::mirror::Sizes;
use crate::state::State;
use crate::state::workload::Workload;
use crate::world::{Parts, World};
use meridian_objects::without_prefixes;
use meridian_queueing::model::{PodSet, PodSetAdmission, QueueId, Shape};
use meridian_queueing::{NewWorkload, QueueState};
use meridian_shared::gang::Amounts;
use meridian_shared::ids::{RecordNumber, Uid};
use meridian_topology::PODS;
use std::sync::Arc;

/// The quota that was reserved for a workload, per pod set, as recorded.
pub(crate) fn given(world: &mut World, uid: Uid) -> Vec<PodSetAdmission> {
    let workload = &world.state().workloads()[&uid];
    let class = world.queues().class(workload.class()).clone();
    let (flavors, gang) = (workload.flavors().clone(), workload.gang(&class));
    let counted: Vec<_> =
        gang.pod_sets.iter().map(|set| world.config().resources.counted(&set.per_pod)).collect();
    let state = world.mirror_mut().queue_state_mut();
    let mut admissions = Vec::with_capacity(gang.pod_sets.len());
    for (at, (set, counted)) in gang.pod_sets.iter().zip(&counted).enumerate() {
        let flavors = flavors.of(at);
        let mut admission = PodSetAdmission { count: set.count, ..PodSetAdmission::default() };
        let requests = state.requests(counted);
        for (resource, amount) in requests {
            let Some(flavor) = flavors.get(&**state.resource_name(resource)).cloned() else { continue };
            admission.flavors.insert(resource, state.flavor_id(&flavor));
            admission.usage.push((resource, amount.saturating_mul(i64::from(set.count))));
        }
        if let (Some(flavor), Some(pods)) = (flavors.get(PODS).cloned(), state.resource_id(PODS)) {
            admission.flavors.insert(pods, state.flavor_id(&flavor));
            admission.usage.retain(|(resource, _)| *resource != pods);
            admission.usage.push((pods, i64::from(set.count)));
        }
        admissions.push(admission);
    }
    admissions
}

pub(crate) fn new_workload(world: &mut World, uid: Uid, queue: QueueId) -> NewWorkload {
    let workload = &world.state().workloads()[&uid];
    let parts = EntryParts::of(workload, world.queues().class(workload.class()), uid);
    new_entry(world, uid, queue, parts)
}

pub(crate) fn new_entry(world: &mut World, uid: Uid, queue: QueueId, parts: EntryParts) -> NewWorkload {
    let Parts { state, queues, config, mirror, .. } = world.parts();
    pending_entry((state, queues, config), mirror.queue_state_mut(), uid, queue, parts)
}

/// The entry that a workload would have in `queue`, in a copy of the queue state.
pub fn preview_pending(world: &World, state: &mut QueueState, uid: Uid, queue: QueueId) -> NewWorkload {
    let workload = &world.state().workloads()[&uid];
    let parts = EntryParts::of(workload, world.queues().class(workload.class()), uid);
    pending_entry((world.state(), world.queues(), world.config()), state, uid, queue, parts)
}

fn pending_entry(
    (state, queues, config): (&State, &Queues, &Config),
    queue_state: &mut QueueState,
    uid: Uid,
    queue: QueueId,
    parts: EntryParts,
) -> NewWorkload {
    let EntryParts { counts, tag, since, key } = parts;
    let workload = &state.workloads()[&uid];
    let (priority, is_scale_up) = (workload.priority(), tag & SCALE_UP != 0);
    let class = queues.class(workload.class()).clone();
    let name = queue_state.queue(queue).setup.name.clone();
    let excluded = state
        .catalog()
        .cluster_queue(&name)
        .map(|spec| spec.exclude_resource_prefixes.clone())
        .unwrap_or_default();
    let count =
        |at: usize, all: u32| counts.as_ref().and_then(|counts| counts.get(at)).copied().unwrap_or(all);
    let gang = if is_scale_up { class.gang.clone() } else { workload.asked_gang(&class) };
    let pod_sets = gang
        .pod_sets
        .iter()
        .enumerate()
        .map(|(at, set)| PodSet {
            name: Arc::from(set.name.as_str()),
            count: count(at, set.count),
            min_count: set.min_count.filter(|least| !is_scale_up && *least < count(at, set.count)),
            per_pod: queue_state
                .requests(&without_prefixes(config.resources.counted(&set.per_pod), &excluded)),
            node_selector: set.node_selector.clone(),
            affinity: set.affinity.clone(),
            tolerations: set.tolerations.clone(),
            topology: set.topology.clone(),
            on_node: set.topology.as_ref().map_or_else(Amounts::new, |_| set.per_pod.clone()),
            ..PodSet::default()
        })
        .collect();
    // The tag keeps classes apart: workloads of one shape must have the same candidate clusters.
    let shape = queue_state.intern(Shape { pod_sets, priority, tag, ..Shape::default() });
    let key: Arc<str> = Arc::from(key);
    NewWorkload {
        uid: key.clone(),
        key,
        queue,
        local_queue: Arc::from(format!("{}/{}", class.namespace, class.queue)),
        shape,
        since,
        marks: None,
    }
}

/// The parts of a new entry that don't follow from the class of its workload.
pub(crate) struct EntryParts {
    /// Pods per pod set, if they differ from those of the class.
    pub(super) counts: Option<Vec<u32>>,
    pub(super) tag: u64,
    pub(super) since: i64,
    pub(super) key: String,
}

impl EntryParts {
    /// The entry of the workload itself, rather than of its scale-up.
    fn of(workload: &Workload, class: &Class, uid: Uid) -> Self {
        // A resized workload still holds the quota of the pods that it was admitted with, and an adopted run
        // that of its pods.
        let counts = workload.counts().cloned().filter(|_| workload.is_charged_for_own_size(class));
        Self { counts, tag: tag(workload, class), since: since(workload), key: uid.to_string() }
    }
}

/// Bit of a tag that marks the entry of a scale-up.
const SCALE_UP: u64 = 1 << 63;

/// A tag that no other entry has: a scale-up is bound to the cluster of its gang, so no two of them are
/// equivalent.
pub(crate) fn scale_up_tag(uid: Uid) -> u64 {
    let half = |part: u128| u64::try_from(part & u128::from(u64::MAX)).unwrap_or(0);
    meridian_shared::backoff::splitmix(half(uid.0) ^ half(uid.0 >> u64::BITS).rotate_left(1)) | SCALE_UP
}

/// Admitted and reclaimable pods of a gang, if they differ from what was admitted at first.
pub(crate) fn sizes(workload: &Workload) -> Option<Sizes> {
    let changed = workload.resized().is_some() || workload.spare().is_some();
    changed.then(|| {
        (workload.counts().cloned().filter(|_| workload.resized().is_some()), workload.spare().cloned())
    })
}

/// The class of a workload, with one more bit if the workload holds quota for another size than its job
/// requests, and with another one if it asks for another size than its class.
pub(crate) fn tag(workload: &Workload, class: &Class) -> u64 {
    let id = u64::from(workload.class().0);
    if workload.is_charged_for_own_size(class) {
        id | 1 << u32::BITS
    } else if workload.has_own_size(class) {
        id | 1 << (u32::BITS + 1)
    } else {
        id
    }
}

/// The class of a pending entry by its tag, and whether the entry asks for another size than the class.
/// `None` for the entry of a scale-up.
pub fn class_of_tag(tag: u64) -> Option<(ClassId, bool)> {
    let id = u32::try_from(tag & u64::from(u32::MAX)).ok()?;
    (tag & SCALE_UP == 0).then_some((ClassId(id), tag >> u32::BITS != 0))
}

/// When a workload was submitted, as a record number. Determines its age in the queue.
pub(crate) fn since(workload: &Workload) -> i64 {
    number(workload.submitted())
}

pub(crate) fn number(record: RecordNumber) -> i64 {
    i64::try_from(record.0).unwrap_or(i64::MAX)
}
