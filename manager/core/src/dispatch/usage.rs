use crate::facts::record::Record;
use crate::facts::submission::Consumed;
use crate::state::usage_history;
use crate::world::World;
use crate::world::absorb::usage;
use crate::world::turn::Turn;
use meridian_queueing::settings::AdmissionFairSharing;
use meridian_queueing::{alpha, decayed, parts};
use meridian_shared::time::{Millis, Mono, Wall};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Local queues in one record at most: with a few resources each, it stays well below a megabyte.
const SAMPLED_MAX: usize = 1_000;

/// Takes down past use: of everybody when it is time, and at once of who was granted something.
pub(crate) fn sample(turn: &mut Turn<'_>) {
    let Some(sharing) = turn.world.config.admission_fair_sharing.clone() else { return };
    let due = turn.now.mono >= turn.world.live.sample_at;
    let entered = std::mem::take(&mut turn.world.live.entered);
    let counts = due || !entered.is_empty();
    let mut local_queues: BTreeSet<Arc<str>> = entered.keys().cloned().collect();
    if due {
        let interval = u64::try_from(sharing.sampling_ms).map_or(Millis(1), |ms| Millis(ms.max(1)));
        turn.world.live.sample_at = turn.now.mono + interval;
        local_queues.extend(users(turn.world));
    }
    let (mut queues, mut forgotten) = (Vec::new(), Vec::new());
    for name in local_queues {
        match counts_now(turn.world, &sharing, &name, entered.get(&name), turn.now.wall) {
            Some(consumed) => queues.push((name, consumed)),
            None if turn.world.state.usage_history().contains_key(&name) => forgotten.push(name),
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
    // What a start counts may put another local queue first (simulation seed 5003879).
    if counts && usage::orders_by_usage(turn.world) && turn.world.mirror.brain_mut().reorder() {
        turn.world.live.dirty = true;
    }
}

/// When past use is taken down next; `None` while there is none.
pub(crate) fn next_sample(world: &World) -> Option<Mono> {
    world.config.admission_fair_sharing.as_ref()?;
    let used = crate::state::workload::phase::Phase::ALL
        .into_iter()
        .any(|phase| phase.granted() && world.counts_by_queue.phase(phase) > 0);
    (used || !world.state.usage_history().is_empty()).then_some(world.live.sample_at)
}

/// Local queues that use something, or of which something is remembered.
fn users(world: &World) -> impl Iterator<Item = Arc<str>> {
    let local_queues =
        world.state.catalog().local_queues().filter(|(namespace, name, _)| {
            !world.counts_by_queue.local_queue(namespace, name).used.is_empty()
        });
    local_queues
        .map(|(namespace, name, _)| Arc::from(format!("{namespace}/{name}")))
        .chain(world.state.usage_history().keys().cloned())
}

/// What counts of a local queue's use at a moment, with what admissions cost it; `None` where nothing is left to remember.
fn counts_now(
    world: &World,
    sharing: &AdmissionFairSharing,
    local_queue: &Arc<str>,
    entered: Option<&Consumed>,
    now: Wall,
) -> Option<Consumed> {
    let (namespace, name) = usage_history::names(local_queue)?;
    world.state.catalog().local_queue(&namespace, &name)?;
    // Without a half-life nothing is remembered.
    if sharing.half_life_ms == 0 {
        return None;
    }
    let mut used = Consumed::new();
    for ((_, resource), amount) in &world.counts_by_queue.local_queue(&namespace, &name).used {
        *used.entry(Arc::from(resource.as_str())).or_insert(0) += parts(resource, (*amount).max(0));
    }
    let past = world.state.usage_history().get(local_queue);
    // What nobody has watched yet begins now: what it used until then isn't known.
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

/// What a local queue used by its weight, as its workloads are ordered by it; `None` where nothing is.
pub(crate) fn weighted_use(world: &World, local_queue: &str) -> Option<f64> {
    world.config.admission_fair_sharing.as_ref()?;
    Some(world.mirror.brain().local_usage_value(local_queue))
}

/// Where the brain is in line, it knows what is remembered, and nothing is pending but for who was promised quota and isn't
/// granted.
pub(crate) fn check_usage_history(world: &World) -> Result<(), String> {
    if world.config.admission_fair_sharing.is_none() || !world.mirror.is_aligned() {
        return Ok(());
    }
    let brain = world.mirror.brain();
    for (local_queue, past) in world.state.usage_history() {
        let known = brain.local_usage(local_queue).map(|usage| &usage.consumed);
        let known: Option<Consumed> = known.map(|parts| {
            parts.iter().map(|(r, amount)| (brain.resource_name(*r).clone(), *amount)).collect()
        });
        if known.as_ref() != Some(&past.consumed) {
            return Err(format!(
                "the brain remembers {known:?} of `{local_queue}`, which used {:?}",
                past.consumed
            ));
        }
    }
    for id in brain.penalized() {
        let phase = world.mirror.uid(id).and_then(|uid| world.state.workloads().get(&uid)).map(|w| w.phase());
        if !phase.is_some_and(|phase| phase.charged() && !phase.granted()) {
            return Err(format!("an admission is pending of a workload that is {phase:?}"));
        }
    }
    Ok(())
}
