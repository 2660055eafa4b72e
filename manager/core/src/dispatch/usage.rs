//! Usage history of local queues, for admission fair sharing.

use crate::facts::record::Record;
use crate::facts::submission::Consumed;
use crate::state::usage_history;
use crate::state::workload::phase::Phase;
use crate::world::World;
use crate::world::absorb::usage;
use crate::world::turn::Turn;
use meridian_queueing::settings::AdmissionFairSharing;
use meridian_queueing::{alpha, decayed, to_nanos};
use meridian_shared::time::{Millis, Mono, Wall};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Local queues per record. With a few resources each, a record stays well below a megabyte.
const SAMPLED_MAX: usize = 1_000;

/// Records usage: of every local queue once per sampling interval, and at once of those that were granted
/// something.
pub(crate) fn sample(turn: &mut Turn<'_>) {
    let Some(sharing) = turn.world.config().admission_fair_sharing.clone() else { return };
    let interval = u64::try_from(sharing.sampling_ms).map_or(Millis(1), |ms| Millis(ms.max(1)));
    let sampling = turn.world.live_mut().usage_sampling_mut();
    let (due, entered) = (sampling.take_due(turn.now.mono, interval), sampling.take_penalties());
    let has_samples = due || !entered.is_empty();
    let mut local_queues: BTreeSet<Arc<str>> = entered.keys().cloned().collect();
    if due {
        local_queues.extend(queues_with_usage(turn.world));
    }
    let (mut queues, mut forgotten) = (Vec::new(), Vec::new());
    for name in local_queues {
        match consumed_now(turn.world, &sharing, &name, entered.get(&name), turn.now.wall) {
            Some(consumed) => queues.push((name, consumed)),
            None if turn.world.state().usage_history().contains_key(&name) => forgotten.push(name),
            None => {}
        }
    }
    let at = turn.now.wall;
    while !queues.is_empty() || !forgotten.is_empty() {
        let rest = (
            queues.split_off(SAMPLED_MAX.min(queues.len())),
            forgotten.split_off(SAMPLED_MAX.min(forgotten.len())),
        );
        turn.record(Record::UsageSampled { at, queues: queues.into_iter().collect(), forgotten });
        (queues, forgotten) = rest;
    }
    // New usage may change which local queue comes first, also when only grants were sampled.
    if has_samples
        && usage::orders_by_usage(turn.world)
        && turn.world.mirror_mut().queue_state_mut().reorder()
    {
        turn.world.live_mut().pass_mut().request();
    }
}

/// The time of the next sample. `None` while there is no usage to sample.
pub(crate) fn next_sample(world: &World) -> Option<Mono> {
    world.config().admission_fair_sharing.as_ref()?;
    let used =
        Phase::ALL.into_iter().any(|phase| phase.granted() && world.counts_by_queue().phase(phase) > 0);
    (used || !world.state().usage_history().is_empty()).then_some(world.live().usage_sampling().next())
}

/// Local queues with usage now or in their history.
fn queues_with_usage(world: &World) -> impl Iterator<Item = Arc<str>> {
    let local_queues =
        world.state().catalog().local_queues().filter(|(namespace, name, _)| {
            !world.counts_by_queue().local_queue(namespace, name).used.is_empty()
        });
    local_queues
        .map(|(namespace, name, _)| Arc::from(format!("{namespace}/{name}")))
        .chain(world.state().usage_history().keys().cloned())
}

/// The decayed usage of a local queue at `now`, plus the penalties of new admissions. `None` if nothing is
/// left to remember.
fn consumed_now(
    world: &World,
    sharing: &AdmissionFairSharing,
    local_queue: &Arc<str>,
    entered: Option<&Consumed>,
    now: Wall,
) -> Option<Consumed> {
    let (namespace, name) = usage_history::names(local_queue)?;
    world.state().catalog().local_queue(&namespace, &name)?;
    // Without a half-life, only the current usage counts.
    if sharing.half_life_ms == 0 {
        return None;
    }
    let mut used = Consumed::new();
    for ((_, resource), amount) in &world.counts_by_queue().local_queue(&namespace, &name).used {
        *used.entry(Arc::from(resource.as_str())).or_insert(0) += to_nanos(resource, (*amount).max(0));
    }
    let past = world.state().usage_history().get(local_queue);
    // The first sample starts the history: earlier usage is unknown.
    let elapsed = past.map_or(Millis(0), |past| now.since(past.at));
    let alpha = alpha(i64::try_from(elapsed.0).unwrap_or(i64::MAX), sharing.half_life_ms);
    let mut consumed = past.map_or_else(Consumed::new, |past| past.consumed.clone());
    used.keys().for_each(|resource| {
        consumed.entry(resource.clone()).or_insert(0);
    });
    for (resource, amount) in &mut consumed {
        *amount = decayed(*amount, used.get(resource).copied().unwrap_or(0), alpha);
    }
    for (resource, cost) in entered.into_iter().flatten() {
        *consumed.entry(resource.clone()).or_insert(0) += cost;
    }
    consumed.retain(|_, amount| *amount > 0);
    (!consumed.is_empty() || !used.is_empty()).then_some(consumed)
}

/// Usage of a local queue divided by its weight, as used to order workloads. `None` without admission fair
/// sharing.
pub fn weighted_use(world: &World, local_queue: &str) -> Option<f64> {
    world.config().admission_fair_sharing.as_ref()?;
    Some(world.mirror().queue_state().weighted_usage(local_queue))
}

/// Checks the usage history in the queue state against the durable one, and that penalties are pending only
/// for workloads with quota that aren't granted yet. Fails with a description of the first difference; passes
/// if the queue state isn't aligned.
pub(crate) fn check_usage_history(world: &World) -> Result<(), String> {
    if world.config().admission_fair_sharing.is_none() || !world.mirror().is_aligned() {
        return Ok(());
    }
    let state = world.mirror().queue_state();
    for (local_queue, past) in world.state().usage_history() {
        let known = state.local_usage(local_queue).map(|usage| &usage.consumed);
        let known: Option<Consumed> = known.map(|consumed| {
            consumed.iter().map(|(r, amount)| (state.resource_name(*r).clone(), *amount)).collect()
        });
        if known.as_ref() != Some(&past.consumed) {
            return Err(format!(
                "usage of local queue `{local_queue}`: the queue state has {known:?}, recorded are {:?}",
                past.consumed
            ));
        }
    }
    for id in state.workloads_with_penalty() {
        let phase =
            world.mirror().uid(id).and_then(|uid| world.state().workloads().get(&uid)).map(|w| w.phase());
        if !phase.is_some_and(|phase| phase.charged() && !phase.granted()) {
            return Err(format!("an admission penalty is pending for a workload in phase {phase:?}"));
        }
    }
    Ok(())
}
