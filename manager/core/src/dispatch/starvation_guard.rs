//! The starvation guard. Without it, smaller workloads could overtake a large gang forever.
//!
//! The head of a queue is starved once it has waited for the guard's time. From then on, the queue state
//! reserves the requested quota for the head, and capacity that is released in one chosen cluster is reserved
//! for it too. The guard also predicts which runs must end first, so that other workloads can use capacity
//! that the gang won't need. A workload that couldn't start even if all others ended is never a starved head.
//!
//! Nothing of this is durable: a new leader finds the starved heads again.

use crate::capacity::topology::{self, Gone};
use crate::capacity::{caps, reserved};
use crate::dispatch::candidates::{self, Refusals};
use crate::facts::flavors::{ByResource, Flavors};
use crate::facts::reason::{NoQuota, Why};
use crate::live::counts::Count;
use crate::world::Parts;
use crate::world::turn::Turn;
use crate::world::{World, gangs};
use meridian_queueing::model::{QueueId, WorkloadId};
use meridian_queueing::names::FlavorId;
use meridian_shared::gang::{Amounts, Gang, PodSet, add_scaled};
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::{Millis, Wall};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Number of searches for starved heads within the guard's time.
const CHECKS_PER_GUARD: u64 = 60;

/// Shortest time between searches, because the cost of a search grows with the number of pending classes.
const CHECK_EVERY_MIN: Millis = Millis::secs(1);

/// Combinations of flavors that are tried for one workload. Few queues have more.
const CHOICES_MAX: usize = 64;

/// Most starved heads with a reservation at the same time. Bounded, because every scheduling pass searches
/// the cluster of each again.
const STARVED_MAX: usize = 16;

fn check_every(guard: Millis) -> Millis {
    Millis(guard.0 / CHECKS_PER_GUARD).max(CHECK_EVERY_MIN)
}

/// Schedules the next search for starved heads. A head becomes starved by time alone, so no input may trigger
/// a pass.
pub(crate) fn schedule_starvation_check(turn: &mut Turn<'_>) {
    let Parts { live, config, .. } = turn.world.parts();
    if let Some(guard) = config.starvation_guard
        && live.starvation_checks_mut().request_by_time(turn.now.mono, check_every(guard))
    {
        live.pass_mut().request();
    }
}

/// Searches for starved heads if a search is due. Otherwise updates the reservations of the known ones.
pub(crate) fn apply_starvation_guard(turn: &mut Turn<'_>) {
    let Some(guard) = turn.world.config().starvation_guard else { return };
    if turn.world.live_mut().starvation_checks_mut().take_due() {
        find_starved_heads(turn, guard);
        return;
    }
    let heads: Vec<WorkloadId> = turn.world.mirror().queue_state().starved_heads().collect();
    let mut starved: Vec<(Wall, Uid)> =
        heads.into_iter().filter_map(|id| waits_since(turn.world, turn.world.mirror().uid(id)?)).collect();
    starved.sort_unstable();
    for (since, uid) in starved {
        reserve_for_starved_head(turn, uid, since);
    }
}

fn find_starved_heads(turn: &mut Turn<'_>, guard: Millis) {
    let state = turn.world.mirror().queue_state();
    let queues: Vec<QueueId> = state.queue_list().map(|(_, id)| id).collect();
    let starved_in = |queue: &QueueId| {
        // A scale-up is never starved: its gang runs.
        let id = state.first_pending(*queue, |id| !turn.world.mirror().is_scale_up(id))?;
        let (since, uid) = waits_since(turn.world, turn.world.mirror().uid(id)?)?;
        (turn.now.wall.since(since) >= guard && !is_hopeless(turn.world, uid))
            .then_some((since, uid, *queue, id))
    };
    let mut found: Vec<(Wall, Uid, QueueId, WorkloadId)> = queues.iter().filter_map(starved_in).collect();
    found.sort_unstable();
    let mut chosen: BTreeMap<QueueId, WorkloadId> = BTreeMap::new();
    for (since, uid, queue, id) in found {
        if chosen.len() < STARVED_MAX && reserve_for_starved_head(turn, uid, since) {
            chosen.insert(queue, id);
        }
    }
    for queue in queues {
        let starved = chosen.get(&queue).copied();
        if turn.world.mirror().queue_state().starved_head(queue) != starved {
            turn.world.live_mut().counts_mut().add(Count::Starved, u64::from(starved.is_some()));
            turn.world.mirror_mut().queue_state_mut().set_starved_head(queue, starved);
        }
    }
}

/// Reserves capacity for a starved head in the best cluster. False if the gang fits in no cluster, even after
/// others have ended.
fn reserve_for_starved_head(turn: &mut Turn<'_>, uid: Uid, since: Wall) -> bool {
    let before = reserved::reservation_of(turn.world, uid);
    if before.is_some_and(|(_, is_starved)| !is_starved) {
        // The head is a preemptor, and the capacity of its victims is already reserved for it.
        return true;
    }
    let Some(gang) = gangs::asked_by(turn.world, uid) else { return false };
    let reserved_in = before.map(|(cluster, _)| cluster.clone());
    let candidates = candidates::eligible_clusters_of_pending(turn, uid, Refusals::Include);
    // If all pods never fit, try partial admission with the fewest pods that the job accepts.
    let sizes = [Some(gang.clone()), gang.least().map(Arc::new)];
    // The flavors are chosen at admission. Until then, assume the first ones with which the gang fits in some
    // cluster.
    let choices = possible_flavors(turn.world, uid, &gang);
    let found = sizes.into_iter().flatten().find_map(|gang| {
        choices.iter().find_map(|flavors| {
            let gang = gangs::with_flavor_constraints(turn.world, &gang, flavors);
            Some((best_cluster(turn, (since, uid), reserved_in.as_ref(), &gang, &candidates)?, gang))
        })
    });
    let Some(((cluster, ending), gang)) = found else { return false };
    reserved::reserve_for_starved(turn.world, uid, since, cluster, gang, ending);
    true
}

/// The best cluster for a starved head, and the runs that must end there first. A cluster that already
/// reserves capacity for the head is best; otherwise, the cluster that has to release the least of the gang's
/// scarcest resource.
fn best_cluster(
    turn: &Turn<'_>,
    starved: (Wall, Uid),
    reserved_in: Option<&ClusterName>,
    gang: &Arc<Gang>,
    candidates: &[ClusterName],
) -> Option<(ClusterName, BTreeSet<Uid>)> {
    let world = &*turn.world;
    let scarce = gang.scarcest().map_or_else(String::new, str::to_owned);
    let released = |ending: &BTreeSet<Uid>| {
        ending
            .iter()
            .filter_map(|u| gangs::gang_of(world, *u)?.total().get(&scarce).copied())
            .fold(0, i64::saturating_add)
    };
    let possible = candidates
        .iter()
        .filter_map(|cluster| Some((cluster, runs_to_end_first(turn, starved, gang, cluster)?)));
    let (cluster, ending) =
        possible.min_by_key(|(cluster, ending)| (reserved_in != Some(*cluster), released(ending)))?;
    Some((cluster.clone(), ending))
}

/// The runs that must end in a cluster before the gang fits there. Victims of preemptors and runs that end
/// for heads with a longer wait end too, but their capacity is reserved for those workloads. Assumes that
/// runs end in the order of their expected end. `None` if the gang never fits.
fn runs_to_end_first(
    turn: &Turn<'_>,
    (since, uid): (Wall, Uid),
    gang: &Arc<Gang>,
    cluster: &ClusterName,
) -> Option<BTreeSet<Uid>> {
    let world = &*turn.world;
    let capacity = world.live().cluster(cluster)?.capacity();
    let reserved = reserved::reserved_before(world, cluster, uid, Some((since, uid)));
    let ends_sooner = reserved.all_victims();
    let (runs, gangs): (Vec<Uid>, Vec<Arc<Gang>>) = runs_by_expected_end(world, cluster, &ends_sooner)
        .into_iter()
        .filter_map(|uid| Some((uid, gangs::gang_of(world, uid)?)))
        .unzip();
    let reserved_gangs = reserved.all_gangs();
    let caps = caps::caps_for_starved(world, uid, cluster, &reserved);
    let fits_after = |ended: usize| {
        let within_caps = caps
            .as_ref()
            .is_none_or(|caps| caps.without(world, runs[..ended].iter().copied()).check(gang).is_ok());
        if !within_caps {
            return false;
        }
        let gone: Vec<Arc<Gang>> = ends_sooner
            .iter()
            .filter_map(|victim| gangs::gang_of(world, *victim))
            .chain(gangs[..ended].iter().cloned())
            .collect();
        let mut freed = Amounts::new();
        gone.iter().for_each(|gang| add_scaled(&mut freed, &gang.total(), 1));
        capacity.fits_without(gang, &gone, &reserved_gangs)
            && topology::has_domains(world, gang, cluster, Gone::Having(&freed))
    };
    // The nodes of gangs are partly guessed, so after the end of more runs the gang may no longer fit.
    // Therefore check first that it fits once all have ended.
    if !fits_after(gangs.len()) {
        return None;
    }
    let (mut low, mut high) = (0, gangs.len());
    while low < high {
        let middle = usize::midpoint(low, high);
        if fits_after(middle) { high = middle } else { low = middle + 1 }
    }
    Some(runs[..high].iter().copied().collect())
}

/// Runs in a cluster, except some. Those with a time limit come first, by its end, then the others, oldest
/// first.
fn runs_by_expected_end(world: &World, cluster: &ClusterName, except: &BTreeSet<Uid>) -> Vec<Uid> {
    let expected_end = |uid: &Uid| {
        let workload = world.state().workloads().get(uid)?;
        let granted = workload.history().last().map_or(workload.since(), |attempt| attempt.granted);
        let limit = world.queues().class(workload.class()).gang.run_left(workload.ran());
        Some((limit.is_none(), limit.map_or(granted, |limit| granted + limit), *uid))
    };
    let here = world.loads().get(cluster).into_iter().flatten().map(|(uid, _)| uid);
    let mut runs: Vec<_> = here
        .filter(|uid| gangs::runs_in(world, **uid, cluster) && !except.contains(uid))
        .filter_map(expected_end)
        .collect();
    runs.sort_unstable();
    runs.into_iter().map(|(_, _, uid)| uid).collect()
}

/// Flavors that the queue may assign to a workload, in the order in which they are tried.
fn possible_flavors(world: &World, uid: Uid, gang: &Gang) -> Vec<Flavors> {
    let choices = flavors_of_queue(world, uid);
    if gang.pod_sets.len() <= 1 {
        return choices.into_iter().map(Flavors::from).collect();
    }
    let mut combined: Vec<Vec<ByResource>> = vec![Vec::new()];
    for set in &gang.pod_sets {
        let own = choices_of_pod_set(world, set, &choices);
        let with = |sets: &Vec<ByResource>, choice: &ByResource| {
            sets.iter().chain([choice]).cloned().collect::<Vec<_>>()
        };
        let extended = combined.iter().flat_map(|sets| own.iter().map(move |choice| with(sets, choice)));
        combined = extended.take(CHOICES_MAX).collect();
    }
    combined.into_iter().map(Flavors::of_pod_sets).collect()
}

/// The choices whose flavors suit the pods of a pod set, without duplicates and without resources that the
/// pods don't request. All choices if none suits the pods.
fn choices_of_pod_set(world: &World, set: &PodSet, choices: &[ByResource]) -> Vec<ByResource> {
    let requested = world.config().resources.counted(&set.per_pod);
    let mut own: Vec<ByResource> = Vec::new();
    for choice in choices {
        let mut choice = choice.clone();
        choice.retain(|resource, _| requested.contains_key(resource));
        if !own.contains(&choice) {
            own.push(choice);
        }
    }
    let serves = |choice: &&ByResource| {
        choice.values().all(|flavor| gangs::serves(world.state().catalog(), flavor, set))
    };
    let serving: Vec<ByResource> = own.iter().filter(serves).cloned().collect();
    if serving.is_empty() { own } else { serving }
}

/// One flavor per resource, out of those of the queue, in the order in which they are tried.
fn flavors_of_queue(world: &World, uid: Uid) -> Vec<ByResource> {
    let state = world.mirror().queue_state();
    let Some(queue) = world.mirror().id(uid).and_then(|id| state.workload(id)).map(|w| state.queue(w.queue))
    else {
        return vec![ByResource::new()];
    };
    let mut choices = vec![ByResource::new()];
    for group in &queue.setup.groups {
        let with = |choice: &ByResource, flavor: &FlavorId| {
            let mut choice = choice.clone();
            choice.extend(group.resources.iter().map(|resource| {
                (state.resource_name(*resource).to_string(), state.flavor_name(*flavor).clone())
            }));
            choice
        };
        let extended = choices
            .iter()
            .flat_map(|choice| group.flavors.iter().map(move |flavor| with(choice, flavor)))
            .take(CHOICES_MAX)
            .collect::<Vec<_>>();
        if !extended.is_empty() {
            choices = extended;
        }
    }
    choices
}

/// The start of a workload's wait, with its uid to break ties: the latest of its submission, the end of its
/// last attempt, and its reactivation.
fn waits_since(world: &World, uid: Uid) -> Option<(Wall, Uid)> {
    let workload = world.state().workloads().get(&uid)?;
    let ran_until = workload.history().last().and_then(|attempt| attempt.over);
    let reactivated = workload.reactivated().map(|reactivated| reactivated.at);
    Some((ran_until.into_iter().chain(reactivated).fold(workload.created(), Wall::max), uid))
}

/// Whether, by its last evaluation, the workload couldn't start even if all others ended.
fn is_hopeless(world: &World, uid: Uid) -> bool {
    let Some(class) = world.state().workloads().get(&uid).map(|w| w.class()) else { return false };
    match world.live().pending_reasons().before(class) {
        Some(Why::Quota(NoQuota::NotCovered { .. } | NoQuota::NoMatchingFlavor { .. })) => true,
        // The reason may be outdated: the queue may have become active since.
        Some(Why::Route(_) | Why::Inactive { .. }) => {
            let state = world.mirror().queue_state();
            let queue =
                world.mirror().id(uid).and_then(|id| state.workload(id)).map(|w| state.queue(w.queue));
            queue.is_none_or(|queue| queue.setup.inactive.is_some())
        }
        // Partial admission with fewer pods may stay within the quota.
        Some(Why::Quota(NoQuota::ExceedsQuota { resource, nominal, .. })) => {
            gangs::asked_by(world, uid).and_then(|asked| asked.least()).is_none_or(|least| {
                world.config().resources.total(&least).get(resource).copied().unwrap_or(0) > *nominal
            })
        }
        _ => false,
    }
}
