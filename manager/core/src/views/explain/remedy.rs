//! What would let start who waits for quota or room, in numbers: what the queue would need, with what may come first, and whose
//! end alone would do. What is promised here is checked by making the change.

use crate::capacity::simulated_eviction;
use crate::capacity::topology::{self, Gone};
use crate::dispatch::candidates;
use crate::facts::reason::{NoQuota, Shortage, Why};
use crate::facts::submission::Class;
use crate::queue::candidate_clusters::{Candidate, CandidateClusters};
use crate::state::workload::Workload;
use crate::state::workload::phase::Phase;
use crate::views::explain::case::{self, Case};
use crate::views::explain::rivals::{self, Rivals};
use crate::views::explain::step::Steps;
use crate::views::explain::{head_order, words};
use crate::world::{World, gangs};
use meridian_objects::quantity;
use meridian_queueing::model::{Displaces, Inactive, WorkloadId};
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::preempt::may_displace;
use meridian_queueing::remedy::{Limit, When};
use meridian_queueing::tree::Side;
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::packing::Misfit;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Runs in one cluster of which it is asked whose end would do.
const RUNS_MAX: usize = 256;

/// Of so many that differ it is asked whether the end of one alone would do: each costs as much as a look at a cluster's room.
const ALONE_MAX: usize = 32;

/// So many limits are named.
const LIMITS_NAMED_MAX: usize = 2;

/// So many are named whose end together would do.
const NAMED_MAX: usize = 4;

/// The one workload without which quota would be there.
#[derive(Default)]
struct BlockingRun {
    /// Who it is, and what stands against displacing it.
    words: String,
    /// Changes of which each does for everything.
    alone: Vec<String>,
}

/// What stands against displacing a workload.
struct Against {
    words: String,
    /// A higher priority would do.
    yields_to_priority: bool,
    /// Another change after which it may be displaced, and there is room.
    yields_to: Option<String>,
}

/// What quota would let a workload start; and what more there is to say about what it lacks.
pub(crate) fn quota_steps(world: &World, case: &Case<'_>, quota: &NoQuota) -> Steps {
    let why = Why::Quota(quota.clone());
    let brain = world.mirror.brain();
    let Some((id, (flavor, resource, _))) = case.id.zip(case::key_of(brain, quota)) else {
        let (words, help) = uncovered_message(world, case, quota)
            .unwrap_or_else(|| (shortage_message(world, case, quota), why.would_help()));
        let mut steps = Steps::one(words, help);
        steps.extend(capacity_steps(world, case));
        return steps;
    };
    let key = (flavor, resource);
    // Whom its own queue looks at first contends with those of other queues.
    let winner = case.front().filter(|front| *front == id).and_then(|id| brain.served_before(id, key));
    let rivals = rivals::rivals_for_quota(world, case, id, key, winner.as_ref());
    let one = match quota {
        NoQuota::Used(short) => blocking_run(world, case, id, short, &rivals).unwrap_or_default(),
        _ => BlockingRun::default(),
    };
    let turn = head_order::usage_message(world, case, id)
        .or_else(|| head_order::head_order_message(world, id, winner.as_ref()?))
        .unwrap_or_default();
    let raise = raise_message(world, case, id, key, &rivals);
    let sooner = raise_before_others(world, id, key, &rivals);
    let help = match quota {
        NoQuota::Used(_) => format!("{}{raise}{sooner}", ends_message(world, case, id, key)),
        _ => format!("{raise}, or ask for less{sooner}"),
    };
    let (fewest, enough) = fewest_pods_message(world, case, id, key, (quota, &rivals)).unzip();
    // Who is in the way says what the policies are.
    let lacks = if one.words.is_empty() { quota.clone() } else { quota.before_anybody_gives_way() };
    let lacks = shortage_message(world, case, &lacks);
    let mut steps = Steps::one(format!("{lacks}{}{}{turn}", fewest.unwrap_or_default(), one.words), help);
    steps.alone = one.alone.into_iter().chain(enough.unwrap_or_default()).collect();
    steps.extend(capacity_steps(world, case));
    steps
}

/// What quota it lacks, of which queue, and what that may borrow.
pub(crate) fn shortage_message(world: &World, case: &Case<'_>, quota: &NoQuota) -> String {
    let brain = world.mirror.brain();
    let (ever, when) = match quota {
        NoQuota::ExceedsQuota { .. } => (true, When::Ever),
        _ => (false, When::Now),
    };
    let Some((queue, (flavor, resource, _))) = case.queue.zip(case::key_of(brain, quota)) else {
        return quota.words(&queue_message(world, case), if ever { ", even borrowed" } else { "" });
    };
    let name = brain.resource_name(resource);
    let limit = |limit: &Limit| {
        let [most, more] = [limit.most, limit.more].map(|amount| quantity::format(name, amount));
        let whose = match limit.cohort {
            _ if limit.of == brain.queue(queue).setup.name && !limit.cohort => "its".to_owned(),
            true => format!("cohort `{}`'s", limit.of),
            false => format!("cluster queue `{}`'s", limit.of),
        };
        match limit.side {
            Side::Borrows => format!("{whose} borrowingLimit is {most}, without it {more} more"),
            Side::Lends => format!("{whose} lendingLimit is {most}, without it {more} more"),
        }
    };
    let limits: Vec<String> =
        brain.limits(queue, (flavor, resource), when).iter().take(LIMITS_NAMED_MAX).map(limit).collect();
    let limits = if limits.is_empty() { String::new() } else { format!(" ({})", limits.join("; ")) };
    let borrowed = if ever && brain.queue(queue).setup.cohort.is_some() { ", even borrowed" } else { "" };
    quota.words(&queue_message(world, case), &format!("{borrowed}{limits}"))
}

pub(crate) fn queue_message(world: &World, case: &Case<'_>) -> String {
    let queue = case.queue.map(|queue| &world.mirror.brain().queue(queue).setup.name);
    queue.map_or_else(|| "the queue".to_owned(), |queue| format!("cluster queue `{queue}`"))
}

/// What it asks for with the fewest pods that do, where that is less; and what lets those start: the end of others where they
/// could have what it could never have as a whole, and a nominal quota.
fn fewest_pods_message(
    world: &World,
    case: &Case<'_>,
    id: WorkloadId,
    key: (FlavorId, ResourceId),
    (quota, rivals): (&NoQuota, &Rivals),
) -> Option<(String, Vec<String>)> {
    let brain = world.mirror.brain();
    let (resource, queue) = (brain.resource_name(key.1), brain.workload(id)?.queue);
    let shown = |amount: i64| quantity::format(resource, amount);
    let total = |gang: &Gang| gang.total().get(&**resource).copied().unwrap_or(0);
    let (all, fewest) = (total(&case.gang), total(case.smaller.as_deref()?));
    if fewest >= all {
        return None;
    }
    let promised =
        rivals.before + rivals.beside == 0 && case.has_room() && brain.needed(id, key, |_| 0).len() < 2;
    let missing = fewest.saturating_sub(brain.balance(queue, key));
    let ends = matches!(quota, NoQuota::ExceedsQuota { .. })
        && missing > 0
        && brain.could_ever_use(queue, key, fewest);
    let words = if ends {
        format!(
            " (it makes do with {}, of which {} are free now)",
            shown(fewest),
            shown(brain.free(queue, key))
        )
    } else {
        format!(" (it makes do with {})", shown(fewest))
    };
    let enough = ends.then(|| format!("the end of workloads with {} `{resource}` alone would do for the fewest pods that it makes do with", shown(missing)));
    let raised = format!(
        "a nominal quota of {} alone would do for the fewest pods that it makes do with",
        shown(brain.nominal_for(queue, key, fewest))
    );
    Some((words, enough.into_iter().chain([raised]).filter(|_| promised).collect()))
}

/// Where clusters have no room for it either.
fn capacity_steps(world: &World, case: &Case<'_>) -> Steps {
    nearest_capacity(world, case).map(|(words, help)| Steps::one(words, help)).unwrap_or_default()
}

/// Every resource that the queue knows nothing of, where that is what it lacks.
pub(crate) fn uncovered_message(world: &World, case: &Case<'_>, quota: &NoQuota) -> Option<(String, String)> {
    let (NoQuota::NotCovered { .. }, [_, _, ..]) = (quota, case.uncovered.as_slice()) else {
        return None;
    };
    let all = case.uncovered.join("`, `");
    Some((
        format!("no resource group of {} covers `{all}`", queue_message(world, case)),
        format!("add `{all}` to a resource group, or don't ask for them"),
    ))
}

/// What must come free, for it and for all who may come first; nothing where no end would be enough.
fn ends_message(world: &World, case: &Case<'_>, id: WorkloadId, key: (FlavorId, ResourceId)) -> String {
    let brain = world.mirror.brain();
    let Some(queue) = brain.workload(id).map(|of| of.queue) else { return String::new() };
    if !brain.needed(id, key, |_| 0).iter().all(|(key, asks)| brain.could_ever_use(queue, *key, *asks)) {
        return String::new();
    }
    let mut all = brain.needed(id, key, |key| rivals::may_come_first(world, case, id, key).asked_of_quota);
    all.sort_by_key(|(of, _)| *of != key);
    let missing = |(key, asks): &((FlavorId, ResourceId), i64)| {
        let missing = asks.saturating_sub(brain.balance(queue, *key)).max(1);
        let resource = brain.resource_name(key.1);
        format!("{} `{resource}`", quantity::format(resource, missing))
    };
    format!("the end of workloads with {}, or ", all.iter().map(missing).collect::<Vec<_>>().join(" and "))
}

/// The nominal quotas with which it fits even if all who may come first have been served.
fn raise_message(
    world: &World,
    case: &Case<'_>,
    id: WorkloadId,
    key: (FlavorId, ResourceId),
    rivals: &Rivals,
) -> String {
    let brain = world.mirror.brain();
    let Some(queue) = brain.workload(id).map(|w| w.queue) else { return String::new() };
    let mut all = brain.needed(id, key, |key| rivals::may_come_first(world, case, id, key).asked);
    all.sort_by_key(|(of, _)| *of != key);
    let one = |((flavor, resource), asks): &((FlavorId, ResourceId), i64)| {
        let (name, to) =
            (brain.resource_name(*resource), brain.nominal_for(queue, (*flavor, *resource), *asks));
        format!("of `{name}` in flavor `{}` to {}", brain.flavor_name(*flavor), quantity::format(name, to))
    };
    let quotas: Vec<String> = all.iter().map(one).collect();
    let mut words = format!("raise the queue's nominal quota {}", quotas.join(", and "));
    let first = rivals.first.as_deref();
    match rivals.before + rivals.beside {
        0 => {}
        1 => {
            words += &format!(
                ", which is enough for {} too, which may come first, as far as there is room for both",
                first.unwrap_or("the other one that waits")
            )
        }
        many => {
            let first = first.map(|first| format!(" ({first} and others)")).unwrap_or_default();
            words += &format!(
                ", which is enough for the {many} that may come first too{first}, as far as there is room for all"
            );
        }
    }
    words
}

/// The nominal quota that is enough if it comes before all others.
fn raise_before_others(
    world: &World,
    id: WorkloadId,
    key: (FlavorId, ResourceId),
    rivals: &Rivals,
) -> String {
    let brain = world.mirror.brain();
    let (needed, queue) = (brain.needed(id, key, |_| 0), brain.workload(id).map(|w| w.queue));
    match (needed.as_slice(), rivals.yields_above, queue) {
        ([(key, asks)], Some(above), Some(queue)) => {
            let enough = quantity::format(brain.resource_name(key.1), brain.nominal_for(queue, *key, *asks));
            format!("; submitted again with a priority above {above}, {enough} is enough")
        }
        _ => String::new(),
    }
}

/// The one workload without which the quota would be there: what stands against displacing it, and what would do.
fn blocking_run(
    world: &World,
    case: &Case<'_>,
    id: WorkloadId,
    short: &Shortage,
    rivals: &Rivals,
) -> Option<BlockingRun> {
    let brain = world.mirror.brain();
    let mine = brain.workload(id).filter(|_| short.no_victims)?;
    let (flavor, resource, asks) = case::key_of(brain, &NoQuota::Used(Box::new(short.clone())))?;
    if brain.needed(id, (flavor, resource), |_| 0).len() > 1 {
        return None;
    }
    let other = brain.in_the_way(mine.queue, (flavor, resource), asks)?;
    let other = world.mirror.uid(other)?;
    let it = world.state.workloads().get(&other)?;
    let against = against(world, case, id, other, &[(flavor, resource)])?;
    let whom = format!("`{}/{}`", it.namespace(), it.name());
    // Who may come first would take what it leaves.
    let first = rivals.before == 0 && rivals.beside == 0;
    let serves = first && (case.has_room() || leaves_capacity(world, case, other, it));
    let mut alone: Vec<String> =
        serves.then(|| format!("the end of {whom} alone would do")).into_iter().collect();
    if serves && against.yields_to_priority && case.has_room() {
        alone.push(format!(
            "to submit it again with a priority above {} alone would do: it would displace {whom}",
            it.priority()
        ));
    }
    if let Some(change) = against.yields_to.filter(|_| first && !case.borrows) {
        alone.push(format!("{change} alone would do: it would displace {whom}"));
    }
    Some(BlockingRun {
        words: format!(
            "; it would fit if {whom} (priority {}) were preempted, {}",
            it.priority(),
            against.words
        ),
        alone,
    })
}

/// What stands against displacing one that is in the way, of these flavors and resources; nothing is said of queues that have
/// nothing in common.
fn against(
    world: &World,
    case: &Case<'_>,
    id: WorkloadId,
    other: Uid,
    contested: &[(FlavorId, ResourceId)],
) -> Option<Against> {
    let brain = world.mirror.brain();
    let (mine, theirs) = (brain.workload(id)?, brain.workload(world.mirror.id(other)?)?);
    let it = world.state.workloads().get(&other)?;
    let preemption = &brain.queue(mine.queue).setup.preemption;
    let same = theirs.queue == mine.queue;
    let (name, policy) = match same {
        true => ("withinClusterQueue", preemption.within_queue),
        false => ("reclaimWithinCohort", preemption.reclaim_within_cohort),
    };
    if brain.queue(mine.queue).tree != brain.queue(theirs.queue).tree {
        return None;
    }
    let setup = &brain.queue(theirs.queue).setup;
    let borrows = same || contested.iter().any(|key| brain.borrows(theirs.queue, *key));
    let allowed = may_displace(policy, (case.workload.priority(), mine.since), (it.priority(), theirs.since));
    let by_priority = matches!(policy, Displaces::LowerPriority | Displaces::LowerOrNewerEqualPriority);
    let would = format!("which `{name}: {}` would allow", policy.word());
    let mut yields_to = None;
    let words = if it.phase() == Phase::Stopping {
        "which was told to stop already".to_owned()
    } else if !borrows {
        format!("which no policy allows, as cluster queue `{}` uses no more than its own quota", setup.name)
    } else if !allowed {
        format!("which `{name}: {}` forbids", policy.word())
    } else if let Some(why) = &setup.inactive {
        // Who else waits there would be let go with it.
        let waits =
            || world.queues.waiting_classes().any(|id| leads_to(world, world.queues.class(id), &setup.name));
        let alone = *why == Inactive::Stopped && case.has_room() && !waits();
        yields_to =
            alone.then(|| format!("to set the stopPolicy of cluster queue `{}` to `None`", setup.name));
        format!(
            "{would} if cluster queue `{}` admitted anybody: {}",
            setup.name,
            words::inactive_message(why)
        )
    } else if !world.live.reservations.may_displace(case.uid, other) {
        format!("{would}, and one gave way for the other, or did so twice, in the last ten minutes")
    } else if !case.has_room() && !leaves_capacity(world, case, other, it) {
        yields_to = uncordoned(world, case).map(|cluster| format!("to uncordon `{cluster}`"));
        format!("{would}, and what it leaves is of no use without room for it")
    } else {
        format!("{would}, and the use or share of its queue doesn't")
    };
    Some(Against { words, yields_to_priority: same && !allowed && by_priority, yields_to })
}

/// A cluster that would have room for a workload now, were it not cordoned.
fn uncordoned<'a>(world: &World, case: &'a Case<'_>) -> Option<&'a ClusterName> {
    let queue = &world.mirror.brain().queue(case.queue?).setup.name;
    let way = CandidateClusters::new(
        &world.state.catalog(),
        world.queues.class(case.workload.class()),
        queue,
        world.config.residency_required,
    );
    let has_room = |cluster: &ClusterName| {
        let site = way.candidates.iter().find(|site| site.cluster == *cluster);
        site.is_some_and(|site| {
            candidates::judge_cluster(
                world,
                (case.uid, case.now),
                &case.gang,
                &way,
                &Candidate { cordoned: Some(false), ..site.clone() },
            )
            .is_ok()
        })
    };
    let cordoned = case.verdicts.iter().filter(|(_, said)| matches!(said, Err(Why::Cordoned)));
    cordoned.map(|(cluster, _)| cluster).find(|cluster| has_room(cluster))
}

/// Whether a workload fits in the cluster of another one without it, where room is all that it lacks there.
fn leaves_capacity(world: &World, case: &Case<'_>, other: Uid, it: &Workload) -> bool {
    let Some(cluster) = it.right().map(|(_, leg)| &leg.cluster) else { return false };
    let lacks_room = match case.verdicts.get(cluster) {
        Some(Err(Why::NoRoom(why))) => !matches!(why, Misfit::NoDomain { fits_empty: false, .. }),
        Some(Err(Why::Capped { asks, cap, .. })) => asks <= cap,
        _ => false,
    };
    lacks_room && fits_without(world, case, cluster, &[other])
}

fn fits_without(world: &World, case: &Case<'_>, cluster: &ClusterName, others: &[Uid]) -> bool {
    let there = case.there(world, cluster);
    let fits = |gang: &Arc<Gang>| {
        simulated_eviction::would_fit_without(world, cluster, there.clone(), (case.uid, gang), others)
    };
    fits(&case.gang) || case.smaller.as_ref().is_some_and(fits)
}

/// Of those that run in a cluster the smallest whose end is enough; else the fewest of the largest whose ends together are.
fn ends_that_do(world: &World, case: &Case<'_>, cluster: &ClusterName) -> Vec<Uid> {
    case.found
        .ends
        .borrow_mut()
        .entry(cluster.clone())
        .or_insert_with(|| find_ends(world, case, cluster))
        .clone()
}

fn find_ends(world: &World, case: &Case<'_>, cluster: &ClusterName) -> Vec<Uid> {
    let there = world
        .loads
        .get(cluster)
        .into_iter()
        .flat_map(BTreeMap::keys)
        .filter(|other| gangs::runs_in(world, **other, cluster));
    let size = |other: &Uid| {
        gangs::gang_of(world, *other)
            .map_or(0, |gang| gang.total().into_values().fold(0, i64::saturating_add))
    };
    let mut there: Vec<(i64, Uid)> = there.take(RUNS_MAX).map(|other| (size(other), *other)).collect();
    there.sort_unstable();
    // What is alike leaves the same room, or that in another domain.
    let mut classes = BTreeSet::new();
    let near = case.gang.wants_topology();
    let alike = |other: &&(i64, Uid)| {
        world.state.workloads().get(&other.1).is_some_and(|w| near || classes.insert((w.class(), other.0)))
    };
    if let Some((_, one)) = there
        .iter()
        .filter(alike)
        .take(ALONE_MAX)
        .find(|(_, other)| fits_without(world, case, cluster, &[*other]))
    {
        return vec![*one];
    }
    let largest: Vec<Uid> = there.into_iter().rev().map(|(_, uid)| uid).collect();
    if largest.len() < 2 || !fits_without(world, case, cluster, &largest) {
        return Vec::new();
    }
    let (mut low, mut high) = (1, largest.len());
    while low + 1 < high {
        let middle = usize::midpoint(low, high);
        if fits_without(world, case, cluster, &largest[..middle]) { high = middle } else { low = middle }
    }
    largest[..high].to_vec()
}

/// What would help at one cluster, and whose ends that are.
pub(crate) fn help_at(
    world: &World,
    case: &Case<'_>,
    cluster: &ClusterName,
    why: &Why,
) -> (String, Vec<Uid>) {
    if let (Some(level), Why::NoRoom(_) | Why::Refused { .. }) = (level_too_small(world, case, cluster), why)
    {
        return (larger_domains_in(world, cluster, &level, &case.gang), Vec::new());
    }
    let comes_free = match why {
        Why::NoRoom(Misfit::NotEnoughRoom { fits_empty, .. } | Misfit::NoDomain { fits_empty, .. }) => {
            *fits_empty
        }
        Why::Capped { asks, cap, .. } => asks <= cap,
        _ => false,
    };
    let ends = if comes_free { ends_that_do(world, case, cluster) } else { Vec::new() };
    if !comes_free || (ends.is_empty() && matches!(why, Why::Capped { .. })) {
        return (why.would_help(), Vec::new());
    }
    let named: Vec<String> = ends
        .iter()
        .take(NAMED_MAX)
        .filter_map(|uid| world.state.workloads().get(uid))
        .map(|it| format!("`{}/{}`", it.namespace(), it.name()))
        .collect();
    let help = match (named.as_slice(), ends.len()) {
        ([], _) => "the end of several workloads there".to_owned(),
        ([one], _) => format!("the end of {one} there"),
        ([one, other], 2) => format!("the end of both {one} and {other} there"),
        (some, n) if n <= NAMED_MAX => format!("the end of all of {} there", some.join(", ")),
        (_, n) => format!("the end of the {n} largest workloads there"),
    };
    (help, ends)
}

/// What helps where no domain of a level could ever hold a gang.
pub(crate) fn larger_domains_in(world: &World, cluster: &ClusterName, level: &str, gang: &Gang) -> String {
    let without_topology = world.live.clusters.get(cluster).map_or(Ok(()), |live| live.capacity.fits(gang));
    words::larger_domains(level, without_topology)
}

/// The level of which no domain there could ever hold all pods that have to be in one.
fn level_too_small(world: &World, case: &Case<'_>, cluster: &ClusterName) -> Option<String> {
    let too_small = |gang: &Gang| match topology::judge_domains(world, gang, cluster, Gone::All) {
        Err(Misfit::NoDomain { level, .. }) => Some(level),
        _ => None,
    };
    let level = too_small(&case.gang)?;
    case.smaller.as_ref().is_none_or(|gang| too_small(gang).is_some()).then_some(level)
}

/// What no cluster has, where none can start it now.
pub(crate) fn nearest_steps(world: &World, case: &Case<'_>) -> Steps {
    if case.has_room() {
        return Steps::one("waits for the next scheduling pass".into(), String::new());
    }
    let Some((words, help)) = nearest_capacity(world, case) else { return Steps::of(&Why::NoCluster) };
    Steps::one(format!("{words}{}", displaced_there(world, case).unwrap_or_default()), help)
}

/// What stands against displacing the one whose end would make room in the nearest cluster.
fn displaced_there(world: &World, case: &Case<'_>) -> Option<String> {
    let (cluster, why) = nearest(world, case)?;
    let (_, ends) = help_at(world, case, cluster, why);
    let (&[other], Some(id)) = (ends.as_slice(), case.id) else { return None };
    let it = world.state.workloads().get(&other)?;
    let asks: Vec<(FlavorId, ResourceId)> = case.takes.iter().map(|(key, _)| *key).collect();
    let Against { words, .. } = against(world, case, id, other, &asks)?;
    Some(format!(
        "; it would fit if `{}/{}` (priority {}) were preempted, {words}",
        it.namespace(),
        it.name(),
        it.priority()
    ))
}

/// What the cluster lacks whose obstacle the least would remove, where none can start it now, and what would help.
pub(crate) fn nearest_capacity(world: &World, case: &Case<'_>) -> Option<(String, String)> {
    // Without a list of clusters the queue admits nothing, and that is said already.
    let (cluster, why) = nearest(world, case)
        .filter(|(_, why)| !case.has_room() && !matches!(why, Why::NoWorkersConfig { .. }))?;
    let all = match case.verdicts.len() {
        1 => "the only cluster can't start it now:".to_owned(),
        2 => format!("neither cluster can start it now; nearest is `{cluster}`:"),
        many => format!("none of {many} clusters can start it now; nearest is `{cluster}`:"),
    };
    let (help, gone) = help_at(world, case, cluster, why);
    Some((
        format!("{all} {}", why.words()),
        format!("at `{cluster}`: {help}{}", rivals::others_first(world, case, (cluster, why), &gone)),
    ))
}

/// The cluster whose obstacle the least would remove: of those that are full the one where the fewest have to end, then the one
/// that has room for most pods now.
fn nearest<'a>(world: &World, case: &'a Case<'_>) -> Option<(&'a ClusterName, &'a Why)> {
    let rank = |cluster: &ClusterName, why: &Why| match why {
        Why::NoRoom(_) | Why::Refused { .. } if level_too_small(world, case, cluster).is_some() => {
            (2, 0, Reverse(0))
        }
        Why::NoRoom(
            Misfit::NotEnoughRoom { fits_empty: true, fit, .. }
            | Misfit::NoDomain { fits_empty: true, fit, .. },
        ) => {
            let ends = ends_that_do(world, case, cluster).len();
            (0, if ends == 0 { usize::MAX } else { ends }, Reverse(*fit))
        }
        Why::Capped { asks, cap, .. } if asks > cap => (2, 0, Reverse(0)),
        Why::Capped { .. } => (0, ends_that_do(world, case, cluster).len().max(1), Reverse(0)),
        Why::Refused { .. } => (0, 1, Reverse(0)),
        Why::Cordoned
        | Why::NotConnected
        | Why::NoReport
        | Why::Recovering
        | Why::NotAdmitted
        | Why::BackedOff => (1, 0, Reverse(0)),
        Why::NoRoom(_) => (2, 0, Reverse(0)),
        _ => (3, 0, Reverse(0)),
    };
    case.verdicts
        .iter()
        .filter_map(|(cluster, said)| Some((cluster, said.as_ref().err()?)))
        .min_by_key(|(cluster, why)| rank(cluster, why))
}

pub(crate) fn leads_to(world: &World, class: &Class, cluster_queue: &str) -> bool {
    world
        .state
        .catalog()
        .local_queue(&class.namespace, &class.queue)
        .is_some_and(|local| local.cluster_queue == cluster_queue)
}
