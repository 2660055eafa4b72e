//! Usage history in the queue state, and penalties for admissions (Kueue: admission fair sharing).

use crate::facts::record::{Record, WorkloadFact};
use crate::state::usage_history;
use crate::world::World;
use meridian_queueing::declare;
use meridian_queueing::quota::WEIGHT_ONE;
use meridian_shared::ids::Uid;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Copies the usage history of the sampled local queues into the queue state.
pub(crate) fn recall_sampled<'a>(world: &mut World, local_queues: impl Iterator<Item = &'a Arc<str>>) {
    if world.config.admission_fair_sharing.is_some() {
        local_queues.for_each(|local_queue| recall(world, local_queue.clone()));
    }
}

/// Copies usage history and weight of every local queue into the queue state.
pub(crate) fn recall_all(world: &mut World) {
    if world.config.admission_fair_sharing.is_none() {
        return;
    }
    let existing: BTreeSet<Arc<str>> = world
        .state
        .catalog()
        .local_queues()
        .map(|(namespace, name, _)| Arc::from(format!("{namespace}/{name}")))
        .collect();
    world.mirror.queue_state_mut().retain_local_queues(|name| existing.contains(name));
    existing.into_iter().for_each(|local_queue| recall(world, local_queue));
}

#[expect(clippy::cast_precision_loss, reason = "weights are only compared")]
fn recall(world: &mut World, local_queue: Arc<str>) {
    let spec = usage_history::names(&local_queue)
        .and_then(|(namespace, name)| world.state.catalog().local_queue(&namespace, &name));
    let weight = declare::weight(spec.and_then(|spec| spec.fair_sharing.as_ref())) as f64 / WEIGHT_ONE as f64;
    let consumed = world
        .state
        .usage_history()
        .get(&local_queue)
        .map(|history| history.consumed.clone())
        .unwrap_or_default();
    let queues = world.mirror.queue_state_mut();
    let consumed =
        consumed.into_iter().map(|(resource, amount)| (queues.resource(&resource), amount)).collect();
    queues.set_usage_history(local_queue, consumed, weight);
}

/// Settles the penalty of an admission in progress: a grant adds it to the usage of the local queue; release
/// of the quota without a grant drops it.
pub(crate) fn settle_penalty(world: &mut World, record: &Record) {
    if world.config.admission_fair_sharing.is_none() {
        return;
    }
    match record {
        Record::Workload { uid, fact: WorkloadFact::Granted { .. } } => charge_penalty(world, *uid),
        // The workload was found running in one cluster while it was offered to another.
        Record::Workload { uid, fact: WorkloadFact::Adopted { .. } } if has_penalty(world, *uid) => {
            charge_penalty(world, *uid)
        }
        Record::Workload { uid, fact: WorkloadFact::QuotaReleased { .. } } => drop_penalty(world, *uid),
        _ => {}
    }
}

fn has_penalty(world: &World, uid: Uid) -> bool {
    world.mirror.id(uid).is_some_and(|id| world.mirror.queue_state().has_penalty(id))
}

fn drop_penalty(world: &mut World, uid: Uid) {
    if let Some(id) = world.mirror.id(uid).filter(|id| world.mirror.queue_state().has_penalty(*id)) {
        world.mirror.queue_state_mut().drop_penalty(id);
    }
}

/// Adds the penalty of an admission to the usage of its local queue.
fn charge_penalty(world: &mut World, uid: Uid) {
    drop_penalty(world, uid);
    let queues = world.mirror.queue_state();
    let Some((id, workload)) = world.mirror.id(uid).and_then(|id| Some((id, queues.workload(id)?))) else {
        return;
    };
    let (local_queue, penalty) = (workload.local_queue.clone(), queues.entry_penalty(id));
    if penalty.is_empty() {
        return;
    }
    let penalty =
        penalty.into_iter().map(|(resource, amount)| (queues.resource_name(resource).clone(), amount));
    world.live.usage_sampling_mut().add_penalty(local_queue, penalty);
}

/// Whether some cluster queue orders its workloads by the usage of their local queues.
pub(crate) fn orders_by_usage(world: &World) -> bool {
    world.state.catalog().cluster_queues().any(|(_, spec)| spec.usage_based_admission)
}
