use crate::facts::record::{Record, WorkloadFact};
use crate::state::usage_history;
use crate::world::World;
use meridian_queueing::declare;
use meridian_queueing::tree::WEIGHT_ONE;
use meridian_shared::ids::Uid;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Gives the queue state the usage history of local queues that were sampled.
pub(crate) fn recall_sampled<'a>(world: &mut World, local_queues: impl Iterator<Item = &'a Arc<str>>) {
    if world.config.admission_fair_sharing.is_some() {
        local_queues.for_each(|local_queue| recall(world, local_queue.clone()));
    }
}

/// Tells the brain what every local queue used and weighs.
pub(crate) fn recall_all(world: &mut World) {
    if world.config.admission_fair_sharing.is_none() {
        return;
    }
    let there: BTreeSet<Arc<str>> = world
        .state
        .catalog()
        .local_queues()
        .map(|(namespace, name, _)| Arc::from(format!("{namespace}/{name}")))
        .collect();
    world.mirror.brain_mut().retain_local_queues(|name| there.contains(name));
    there.into_iter().for_each(|local_queue| recall(world, local_queue));
}

#[expect(clippy::cast_precision_loss, reason = "weights are only compared")]
fn recall(world: &mut World, local_queue: Arc<str>) {
    let spec = usage_history::names(&local_queue)
        .and_then(|(namespace, name)| world.state.catalog().local_queue(&namespace, &name));
    let weight = declare::weight(spec.and_then(|spec| spec.fair_sharing.as_ref())) as f64 / WEIGHT_ONE as f64;
    let consumed =
        world.state.usage_history().get(&local_queue).map(|past| past.consumed.clone()).unwrap_or_default();
    let brain = world.mirror.brain_mut();
    let consumed =
        consumed.into_iter().map(|(resource, amount)| (brain.resource(&resource), amount)).collect();
    brain.recall(local_queue, consumed, weight);
}

/// Follows what a record says of an admission that costs its local queue something: it came about, or it didn't.
pub(crate) fn settle_penalty(world: &mut World, record: &Record) {
    if world.config.admission_fair_sharing.is_none() {
        return;
    }
    match record {
        Record::Workload { uid, fact: WorkloadFact::Granted { .. } } => enter(world, *uid),
        // Found running while it was asked for elsewhere.
        Record::Workload { uid, fact: WorkloadFact::Adopted { .. } } if is_penalized(world, *uid) => {
            enter(world, *uid)
        }
        Record::Workload { uid, fact: WorkloadFact::QuotaReleased { .. } } => take_back(world, *uid),
        _ => {}
    }
}

fn is_penalized(world: &World, uid: Uid) -> bool {
    world.mirror.id(uid).is_some_and(|id| world.mirror.brain().is_penalized(id))
}

fn take_back(world: &mut World, uid: Uid) {
    if let Some(id) = world.mirror.id(uid).filter(|id| world.mirror.brain().is_penalized(*id)) {
        world.mirror.brain_mut().take_back_penalty(id);
    }
}

/// An admission came about: what it costs is past use from now on.
fn enter(world: &mut World, uid: Uid) {
    take_back(world, uid);
    let brain = world.mirror.brain();
    let Some((id, workload)) = world.mirror.id(uid).and_then(|id| Some((id, brain.workload(id)?))) else {
        return;
    };
    let (local_queue, penalty) = (workload.local_queue.clone(), brain.entry_penalty(id));
    if penalty.is_empty() {
        return;
    }
    let penalty: Vec<_> = penalty
        .into_iter()
        .map(|(resource, amount)| (brain.resource_name(resource).clone(), amount))
        .collect();
    let entered = world.live.entered.entry(local_queue).or_default();
    for (resource, amount) in penalty {
        *entered.entry(resource).or_insert(0) += amount;
    }
}

/// Whether some queue is ordered by what its local queues used.
pub(crate) fn orders_by_usage(world: &World) -> bool {
    world.state.catalog().cluster_queues().any(|(_, spec)| spec.usage_based_admission)
}
