//! Changes that would let a workload start in the nearest cluster.

use crate::asker::AskedWorld;
use crate::explain::case::Case;
use crate::explain::flavor_labels;
use crate::explain::words::{self, Wording};
use meridian_manager_core::capacity::simulated_eviction;
use meridian_manager_core::capacity::topology::{self, Gone};
use meridian_manager_core::dispatch::candidates;
use meridian_manager_core::facts::reason::Why;
use meridian_manager_core::queue::candidate_clusters::{Candidate, CandidateClusters};
use meridian_manager_core::state::workload::Workload;
use meridian_manager_core::world::gangs;
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::packing::Misfit;
use meridian_shared::protocol::RefuseReason;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most workloads that one remedy names.
pub(crate) const NAMED_MAX: usize = 4;

/// Most runs per cluster that are considered when searching for sufficient ends.
const RUNS_MAX: usize = 256;

/// Most different runs that are tried alone. Each try costs as much as one evaluation of a cluster.
const ALONE_MAX: usize = 32;

/// A cordoned cluster that would have room for the workload.
pub(crate) fn uncordoned<'a>(world: &AskedWorld<'_>, case: &'a Case<'_>) -> Option<&'a ClusterName> {
    let cordoned = case.verdicts.iter().filter(|(_, verdict)| matches!(verdict, Err(Why::Cordoned)));
    cordoned
        .map(|(cluster, _)| cluster)
        .find(|cluster| check_behind(world, case, cluster, &Why::Cordoned) == Some(Ok(())))
}

/// Verdict of a cluster without this obstacle. `None` if the verdict can't be known before the obstacle is
/// gone.
pub(crate) fn check_behind(
    world: &AskedWorld<'_>,
    case: &Case<'_>,
    cluster: &ClusterName,
    why: &Why,
) -> Option<Result<(), Why>> {
    let mut trial = TrialCluster::new(world, case, cluster)?;
    trial.remove(why).then(|| trial.check(world, case))
}

/// All obstacles at a cluster. Each is found as if the earlier ones were gone.
pub(crate) fn obstacles_at(
    world: &AskedWorld<'_>,
    case: &Case<'_>,
    cluster: &ClusterName,
    first: &Why,
) -> Vec<Why> {
    let mut all = vec![first.clone()];
    let Some(mut trial) = TrialCluster::new(world, case, cluster) else { return all };
    while let Some(Err(next)) = all.last().filter(|last| trial.remove(last)).map(|_| trial.check(world, case))
    {
        if all.contains(&next) {
            break;
        }
        all.push(next);
    }
    all
}

/// A copy of the known state of one cluster, without some obstacles.
struct TrialCluster {
    all: CandidateClusters,
    candidate: Candidate,
    /// Whether only capacity is checked.
    ready: bool,
}

impl TrialCluster {
    fn new(world: &AskedWorld<'_>, case: &Case<'_>, cluster: &ClusterName) -> Option<Self> {
        let queue = &world.mirror().queue_state().queue(case.queue?).setup.name;
        let all = CandidateClusters::new(
            world.state().catalog(),
            world.queues().class(case.workload.class()),
            queue,
            world.config().residency_required,
        );
        let candidate = all.candidates.iter().find(|candidate| candidate.cluster == *cluster)?.clone();
        Some(Self { all, candidate, ready: false })
    }

    /// Removes an obstacle. False if the next obstacle can't be known before this one is really gone.
    fn remove(&mut self, why: &Why) -> bool {
        match why {
            Why::NotInQueue | Why::NoWorkersConfig { .. } => self.candidate.listed = Some(0),
            Why::Forbidden(_) => self.candidate.verdict = Ok(()),
            Why::Cordoned => self.candidate.cordoned = Some(false),
            // If the request is within the limit, runs that end free both the limit and the capacity.
            Why::Capped { asks, cap, .. } if asks > cap => self.candidate.capped = false,
            // The last report is the best guess at the state after this obstacle.
            Why::NotConnected
            | Why::Recovering
            | Why::NotAdmitted
            | Why::Quarantined { .. }
            | Why::NotGuarded => self.ready = true,
            why if is_temporary(why) => self.ready = true,
            _ => return false,
        }
        true
    }

    fn check(&self, world: &AskedWorld<'_>, case: &Case<'_>) -> Result<(), Why> {
        self.candidate.listed.ok_or_else(|| self.all.not_listed())?;
        self.candidate.verdict.clone().map_err(Why::Forbidden)?;
        let known = || {
            let live = world.live().cluster(&self.candidate.cluster);
            live.is_some_and(|live| live.capacity().known())
        };
        let check_gang = |gang| match self.ready {
            false => candidates::check_cluster(world, (case.uid, case.now), gang, &self.all, &self.candidate)
                .map(drop),
            true if known() => {
                candidates::check_capacity(world, case.uid, gang, &self.all, &self.candidate).map(drop)
            }
            true => Ok(()),
        };
        check_gang(&case.gang).or_else(|why| match &case.smaller {
            Some(gang) => check_gang(gang),
            None => Err(why),
        })
    }
}

/// Whether the cluster is only skipped for a while, and then evaluated again.
fn is_temporary(why: &Why) -> bool {
    match why {
        Why::Refused { reason, .. } => *reason != RefuseReason::Unsupported,
        Why::BackedOff => true,
        _ => false,
    }
}

/// Whether a cluster could never run the workload, even if it were empty.
pub(crate) fn is_too_small(why: &Why) -> bool {
    match why {
        Why::NoCapacity(
            Misfit::NotEnoughCapacity { fits_empty, .. } | Misfit::NoDomain { fits_empty, .. },
        ) => !fits_empty,
        Why::NoCapacity(_) => true,
        Why::Capped { asks, cap, .. } => asks > cap,
        _ => false,
    }
}

/// Whether the workload would fit in the cluster of `holder` without that holder. False if the obstacle isn't
/// capacity.
pub(crate) fn leaves_capacity(
    world: &AskedWorld<'_>,
    case: &Case<'_>,
    other: Uid,
    holder: &Workload,
) -> bool {
    let Some(cluster) = holder.right().map(|(_, leg)| leg.cluster()) else { return false };
    let lacks_room = match case.verdicts.get(cluster) {
        Some(Err(Why::NoCapacity(why))) => !matches!(why, Misfit::NoDomain { fits_empty: false, .. }),
        Some(Err(Why::Capped { asks, cap, .. })) => asks <= cap,
        _ => false,
    };
    lacks_room && fits_without(world, case, cluster, &[other])
}

pub(crate) fn fits_without(
    world: &AskedWorld<'_>,
    case: &Case<'_>,
    cluster: &ClusterName,
    others: &[Uid],
) -> bool {
    let usage = case.usage_in(world, cluster);
    let fits = |gang: &Arc<Gang>| {
        simulated_eviction::would_fit_without(world, cluster, usage.clone(), case.uid, gang, others)
    };
    fits(&case.gang) || case.smaller.as_ref().is_some_and(fits)
}

/// The smallest run of a cluster whose end frees enough capacity, or else the fewest of the largest runs that
/// do so together.
pub(crate) fn sufficient_ends(world: &AskedWorld<'_>, case: &Case<'_>, cluster: &ClusterName) -> Vec<Uid> {
    case.cache
        .ends
        .borrow_mut()
        .entry(cluster.clone())
        .or_insert_with(|| find_sufficient_ends(world, case, cluster))
        .clone()
}

fn find_sufficient_ends(world: &AskedWorld<'_>, case: &Case<'_>, cluster: &ClusterName) -> Vec<Uid> {
    let runs = world
        .loads()
        .get(cluster)
        .into_iter()
        .flat_map(BTreeMap::keys)
        .filter(|other| gangs::runs_in(world, **other, cluster));
    let size = |other: &Uid| {
        gangs::gang_of(world, *other)
            .map_or(0, |gang| gang.total().into_values().fold(0, i64::saturating_add))
    };
    let mut runs: Vec<(i64, Uid)> = runs.take(RUNS_MAX).map(|other| (size(other), *other)).collect();
    runs.sort_unstable();
    // Equivalent runs free the same capacity, so only one of them is tried. With a topology request it
    // matters in which domain they run.
    let mut classes = BTreeSet::new();
    let needs_topology = case.gang.requests_topology();
    let is_new = |other: &&(i64, Uid)| {
        let workload = world.state().workloads().get(&other.1);
        workload.is_some_and(|w| needs_topology || classes.insert((w.class(), other.0)))
    };
    if let Some((_, one)) = runs
        .iter()
        .filter(is_new)
        .take(ALONE_MAX)
        .find(|(_, other)| fits_without(world, case, cluster, &[*other]))
    {
        return vec![*one];
    }
    let largest: Vec<Uid> = runs.into_iter().rev().map(|(_, uid)| uid).collect();
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

/// Why a cluster can't start the workload.
pub(crate) fn message_at(
    world: &AskedWorld<'_>,
    case: &Case<'_>,
    cluster: &ClusterName,
    why: &Why,
) -> String {
    let unmet = flavor_labels::unmet_label(world, case, cluster, why);
    unmet.map_or_else(|| why.message(world.asker), |(message, _)| message)
}

/// The remedy for one cluster, and the workloads that have to end for it. Obstacles that come after the first
/// are included.
pub(crate) fn remedy_at(
    world: &AskedWorld<'_>,
    case: &Case<'_>,
    cluster: &ClusterName,
    why: &Why,
) -> (String, Vec<Uid>) {
    let (mut remedies, mut gone) = (Vec::new(), Vec::new());
    let mut obstacles = obstacles_at(world, case, cluster, why);
    if obstacles.len() > 1 {
        // A refusal for lack of capacity ends with that lack.
        obstacles.retain(|why| !is_temporary(why));
    }
    for why in obstacles {
        let (remedy, ends) = single_remedy_at(world, case, cluster, &why);
        remedies.push(remedy);
        gone.extend(ends);
    }
    (remedies.join(", and "), gone)
}

/// The remedy for one obstacle at a cluster, and the workloads that have to end for it.
fn single_remedy_at(
    world: &AskedWorld<'_>,
    case: &Case<'_>,
    cluster: &ClusterName,
    why: &Why,
) -> (String, Vec<Uid>) {
    if let Some((_, remedy)) = flavor_labels::unmet_label(world, case, cluster, why) {
        return (remedy, Vec::new());
    }
    if let (Some(level), Why::NoCapacity(_) | Why::Refused { .. }) =
        (level_too_small(world, case, cluster), why)
    {
        return (larger_domains_in(world, cluster, &level, &case.gang), Vec::new());
    }
    let can_be_freed = matches!(why, Why::NoCapacity(_) | Why::Capped { .. }) && !is_too_small(why);
    let ends = if can_be_freed { sufficient_ends(world, case, cluster) } else { Vec::new() };
    if !can_be_freed || (ends.is_empty() && matches!(why, Why::Capped { .. })) {
        return (why.remedy(world.asker), Vec::new());
    }
    let known: Vec<&Workload> =
        ends.iter().take(NAMED_MAX).filter_map(|uid| world.state().workloads().get(uid)).collect();
    let remedy = match (known.as_slice(), ends.len()) {
        ([], _) => "wait until several workloads there end".to_owned(),
        ([one], _) => format!("wait until {} ends", world.asker.workload(one)),
        (known, n) if n <= NAMED_MAX => match world.asker.workloads(known.iter().copied()).as_slice() {
            [first @ .., last] if !first.is_empty() => {
                format!("wait until workloads {} and {last} end", first.join(", "))
            }
            all => format!("wait until {} end", all.join("")),
        },
        (_, n) => format!("wait until the {n} largest workloads there end"),
    };
    (remedy, ends)
}

/// Remedy if no topology domain of `level` could hold the gang, even when empty.
pub(crate) fn larger_domains_in(
    world: &AskedWorld<'_>,
    cluster: &ClusterName,
    level: &str,
    gang: &Gang,
) -> String {
    let without_topology = world.live().cluster(cluster).map_or(Ok(()), |live| live.capacity().fits(gang));
    words::larger_domains(level, without_topology)
}

/// The topology level if no domain of that level, even when empty, could hold the pods that must be in one
/// domain.
pub(crate) fn level_too_small(
    world: &AskedWorld<'_>,
    case: &Case<'_>,
    cluster: &ClusterName,
) -> Option<String> {
    let too_small = |gang: &Gang| match topology::check_domains(world, gang, cluster, Gone::All) {
        Err(Misfit::NoDomain { level, .. }) => Some(level),
        _ => None,
    };
    let level = too_small(&case.gang)?;
    case.smaller.as_ref().is_none_or(|gang| too_small(gang).is_some()).then_some(level)
}
