//! Who waits too long, and the room that is kept for it: a large gang that smaller ones always pass by would never start.
//!
//! The head of a queue that has waited as long as the guard says is passed by nobody any more: the queue brain gives the quota
//! that it asks for to nobody else, and one cluster keeps the room that comes free for it. Which workloads have to end there
//! first is foreseen, so that others may still use what it won't need. Who can't be started whatever ends is no such head.
//!
//! All of it is memory: after a restart it is found anew.

use crate::capacity::topology::{self, Gone};
use crate::capacity::{caps, reserved};
use crate::dispatch::candidates::{self, Candidates};
use crate::facts::flavors::Flavors;
use crate::facts::reason::{NoQuota, Why};
use crate::world::turn::Turn;
use crate::world::{World, gangs};
use meridian_queueing::model::{QueueId, WorkloadId};
use meridian_queueing::names::FlavorId;
use meridian_shared::gang::{Amounts, Gang, add_scaled};
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::{Millis, Wall};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// It is looked for who waits too long so many times in that time.
const LOOKS: u64 = 60;

/// And no more often than this: it costs as much as there are classes that wait.
const LOOK_EVERY_MIN: Millis = Millis::secs(1);

/// Combinations of flavors that are tried for one of them: a queue with more groups than two seldom has as many.
const CHOICES_MAX: usize = 64;

/// Workloads that room is kept for at once: each costs a look at its cluster in every scheduling pass.
const STARVING_MAX: usize = 16;

/// How often it is looked for who waits too long.
fn look_every(guard: Millis) -> Millis {
    Millis(guard.0 / LOOKS).max(LOOK_EVERY_MIN)
}

/// Time alone makes a wait too long.
pub(crate) fn schedule_starvation_check(turn: &mut Turn<'_>) {
    let live = &mut turn.world.live;
    if let Some(guard) = turn.world.config.starvation_guard
        && turn.now.mono >= live.next_starvation_check
    {
        live.next_starvation_check = turn.now.mono + look_every(guard);
        (live.starvation_check_due, live.dirty) = (true, true);
    }
}

/// Finds who waits too long, when it is time to, and brings what is kept for them in line with what runs.
pub(crate) fn apply_starvation_guard(turn: &mut Turn<'_>) {
    let Some(guard) = turn.world.config.starvation_guard else { return };
    if std::mem::take(&mut turn.world.live.starvation_check_due) {
        find_starved_heads(turn, guard);
        return;
    }
    let starving: Vec<WorkloadId> = turn.world.mirror.brain().all_starving().collect();
    let mut starving: Vec<(Wall, Uid)> =
        starving.into_iter().filter_map(|id| waits_since(turn.world, turn.world.mirror.uid(id)?)).collect();
    starving.sort_unstable();
    for (since, uid) in starving {
        reserve_for_starved_head(turn, uid, since);
    }
}

fn find_starved_heads(turn: &mut Turn<'_>, guard: Millis) {
    let brain = turn.world.mirror.brain();
    let queues: Vec<QueueId> = brain.queue_list().map(|(_, id)| id).collect();
    let too_long = |queue: &QueueId| {
        // What a gang grows by waits as long as it takes: the gang runs.
        let id = brain.first_waiting(*queue, |id| !turn.world.mirror.is_scale_up(id))?;
        let (since, uid) = waits_since(turn.world, turn.world.mirror.uid(id)?)?;
        (turn.now.wall.since(since) >= guard && !is_hopeless(turn.world, uid))
            .then_some((since, uid, *queue, id))
    };
    let mut found: Vec<(Wall, Uid, QueueId, WorkloadId)> = queues.iter().filter_map(too_long).collect();
    found.sort_unstable();
    let mut chosen: BTreeMap<QueueId, WorkloadId> = BTreeMap::new();
    for (since, uid, queue, id) in found {
        if chosen.len() < STARVING_MAX && reserve_for_starved_head(turn, uid, since) {
            chosen.insert(queue, id);
        }
    }
    for queue in queues {
        let starving = chosen.get(&queue).copied();
        if turn.world.mirror.brain().starving(queue) != starving {
            turn.world.live.counts.starved += u64::from(starving.is_some());
            turn.world.mirror.brain_mut().set_starving(queue, starving);
        }
    }
}

/// Keeps room in one cluster, where the gang would fit once enough has ended. False where there is no such cluster.
fn reserve_for_starved_head(turn: &mut Turn<'_>, uid: Uid, since: Wall) -> bool {
    let before = reserved::reservation_of(turn.world, uid);
    if before.is_some_and(|(_, starving)| !starving) {
        // Others stop for it, and what they free is kept for it.
        return true;
    }
    let Some(gang) = gangs::gang_of(turn.world, uid) else { return false };
    let home = before.map(|(cluster, _)| cluster.clone());
    let candidates = candidates::candidates_for(turn, uid, Candidates::IncludingRefused);
    // Where there is never room for all of it, the fewest pods that do have to start, too.
    let sizes = [Some(gang.clone()), gang.least().map(Arc::new)];
    // Its nodes are those of one flavor, and which that will be is seen when it is admitted: the first that could have it anywhere.
    let choices = flavors_it_may_get(turn.world, uid);
    let found = sizes.into_iter().flatten().find_map(|gang| {
        choices.iter().find_map(|flavors| {
            let gang = gangs::with_flavor_constraints(turn.world, &gang, flavors);
            Some((best_cluster(turn, (since, uid), home.as_ref(), &gang, &candidates)?, gang))
        })
    });
    let Some(((cluster, gone), gang)) = found else { return false };
    reserved::reserve_for_starved(turn.world, uid, since, cluster, gang, gone);
    true
}

/// The cluster in which the least has to end before the gang fits, the one where room was kept before rather than another;
/// and who has to end there.
fn best_cluster(
    turn: &Turn<'_>,
    who: (Wall, Uid),
    home: Option<&ClusterName>,
    gang: &Arc<Gang>,
    candidates: &[ClusterName],
) -> Option<(ClusterName, BTreeSet<Uid>)> {
    let world = &*turn.world;
    let scarce = gang.scarcest().map_or_else(String::new, str::to_owned);
    let weight = |gone: &BTreeSet<Uid>| {
        gone.iter()
            .filter_map(|u| gangs::gang_of(world, *u)?.total().get(&scarce).copied())
            .fold(0, i64::saturating_add)
    };
    let in_the_way =
        candidates.iter().filter_map(|cluster| Some((cluster, runs_to_end_first(turn, who, gang, cluster)?)));
    let (cluster, gone) = in_the_way.min_by_key(|(cluster, gone)| (home != Some(*cluster), weight(gone)))?;
    Some((cluster.clone(), gone))
}

/// Who has to end in a cluster before the gang fits there, beside what is kept for those who come first: those that will
/// end first, by what is known. `None` where it never fits.
fn runs_to_end_first(
    turn: &Turn<'_>,
    (since, uid): (Wall, Uid),
    gang: &Arc<Gang>,
    cluster: &ClusterName,
) -> Option<BTreeSet<Uid>> {
    let world = &*turn.world;
    let rooms = &world.live.clusters.get(cluster)?.capacity;
    let kept = reserved::reserved_before(world, cluster, uid, Some((since, uid)));
    let ends = |uid: &Uid| {
        let workload = world.state.workloads().get(uid)?;
        let begun = workload.history().last().map_or(workload.since(), |stay| stay.granted);
        let most =
            world.queues.class(workload.class()).gang.max_run.map(|most| most.saturating_sub(workload.ran()));
        Some((most.is_none(), most.map_or(begun, |most| begun + most), *uid))
    };
    let sooner = kept.all_victims();
    let here = world.loads.get(cluster).into_iter().flatten().map(|(uid, _)| uid);
    let mut there: Vec<_> = here
        .filter(|uid| gangs::runs_in(world, **uid, cluster) && !sooner.contains(uid))
        .filter_map(ends)
        .collect();
    there.sort_unstable();
    let gangs: Vec<Arc<Gang>> = there.iter().filter_map(|(_, _, uid)| gangs::gang_of(world, *uid)).collect();
    let kept_gangs = kept.all_gangs();
    let caps = caps::caps_for_starved(world, uid, cluster, &kept);
    let fits = |n: usize| {
        let within = caps.as_ref().is_none_or(|caps| {
            caps.without(world, there[..n].iter().map(|(_, _, uid)| *uid)).judge(gang).is_ok()
        });
        if !within {
            return false;
        }
        let gone: Vec<Arc<Gang>> = sooner
            .iter()
            .filter_map(|v| gangs::gang_of(world, *v))
            .chain(gangs[..n].iter().cloned())
            .collect();
        let mut freed = Amounts::new();
        gone.iter().for_each(|gang| add_scaled(&mut freed, &gang.total(), 1));
        rooms.fits_without(gang, &gone, &kept_gangs)
            && topology::has_domains(world, gang, cluster, Gone::Having(&freed))
    };
    // Where gangs really lie is guessed, so more that end may fit worse: the whole is asked before the parts.
    if !fits(gangs.len()) {
        return None;
    }
    let (mut low, mut high) = (0, gangs.len());
    while low < high {
        let middle = usize::midpoint(low, high);
        if fits(middle) { high = middle } else { low = middle + 1 }
    }
    Some(there[..high].iter().map(|(_, _, uid)| *uid).collect())
}

/// The flavors that its queue may give a workload, one for each of its resources, in the order in which they are tried.
fn flavors_it_may_get(world: &World, uid: Uid) -> Vec<Flavors> {
    let brain = world.mirror.brain();
    let Some(queue) = world.mirror.id(uid).and_then(|id| brain.workload(id)).map(|w| brain.queue(w.queue))
    else {
        return vec![Flavors::default()];
    };
    let mut choices: Vec<BTreeMap<String, Arc<str>>> = vec![BTreeMap::new()];
    for group in &queue.setup.groups {
        let with = |choice: &BTreeMap<String, Arc<str>>, flavor: &FlavorId| {
            let mut choice = choice.clone();
            choice.extend(group.resources.iter().map(|resource| {
                (brain.resource_name(*resource).to_string(), brain.flavor_name(*flavor).clone())
            }));
            choice
        };
        let more = choices
            .iter()
            .flat_map(|choice| group.flavors.iter().map(move |flavor| with(choice, flavor)))
            .take(CHOICES_MAX)
            .collect::<Vec<_>>();
        if !more.is_empty() {
            choices = more;
        }
    }
    choices.into_iter().map(Flavors::from).collect()
}

/// Since when a workload waits, and who it is: since it was submitted, last ran, or was last put back into the queue.
fn waits_since(world: &World, uid: Uid) -> Option<(Wall, Uid)> {
    let workload = world.state.workloads().get(&uid)?;
    let ran = workload.history().last().and_then(|stay| stay.over);
    let back = workload.reactivated().map(|reactivated| reactivated.at);
    Some((ran.into_iter().chain(back).fold(workload.created(), Wall::max), uid))
}

/// Whether the end of others can't help a workload, as far as is known.
fn is_hopeless(world: &World, uid: Uid) -> bool {
    let Some(id) = world.state.workloads().get(&uid).map(|w| w.class()) else { return false };
    match world.live.pending_reasons.before(id) {
        Some(Why::Quota(NoQuota::NotCovered { .. } | NoQuota::NoMatchingFlavor { .. })) => true,
        // So it was when it was looked at last: its queue may have been opened since.
        Some(Why::Route(_) | Why::Inactive { .. }) => {
            let brain = world.mirror.brain();
            let queue = world.mirror.id(uid).and_then(|id| brain.workload(id)).map(|w| brain.queue(w.queue));
            queue.is_none_or(|queue| queue.setup.inactive.is_some())
        }
        // Fewer pods may do.
        Some(Why::Quota(NoQuota::ExceedsQuota { resource, nominal, .. })) => {
            world.queues.class(id).gang.least().is_none_or(|least| {
                let asks = world.config.resources.total(&least).get(resource).copied().unwrap_or(0);
                asks > *nominal
            })
        }
        _ => false,
    }
}
