//! Rivals: other pending workloads that may be served first when quota or capacity is freed, and the
//! priority above which a workload would come before them.

use crate::asker::AskedWorld;
use crate::explain::case::{self, Case};
use crate::explain::head_order;
use crate::explain::step::{Alongside, Steps};
use crate::explain::words::Wording;
use meridian_manager_core::capacity::reserved;
use meridian_manager_core::capacity::topology::{self, Gone};
use meridian_manager_core::dispatch::align::entries;
use meridian_manager_core::facts::reason::Why;
use meridian_manager_core::facts::submission::ClassId;
use meridian_manager_core::queue::candidate_clusters::CandidateClusters;
use meridian_manager_core::queue::classes::QueuePosition;
use meridian_manager_core::world::gangs;
use meridian_queueing::cycle::Precedence;
use meridian_queueing::explain::{self, CompetingWorkloads, FirstEntry};
use meridian_queueing::model::{QueueId, ShapeId, WorkloadId};
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::pending::WorkloadsAhead;
use meridian_shared::gang::{Amounts, Gang, add_scaled};
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::packing::Misfit;
use meridian_shared::protocol::RunnerKind;
use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// Most classes of equivalent workloads that are checked. Workloads of further classes count as rivals
/// without a check.
const CHECKED_CLASSES_MAX: usize = 24;

/// Most shapes of pending workloads for which to check whether any cluster could run them. Workloads of
/// further shapes count as rivals without a check.
const CHECKED_SHAPES_MAX: usize = 256;

/// Workloads that may be served before another one when quota is freed.
pub(crate) struct Rivals {
    pub(crate) in_same_queue: usize,
    pub(crate) in_other_queues: usize,
    /// The first of them, by namespace and name.
    pub(crate) first: Option<String>,
    /// With a priority above this value, the workload comes before its rivals.
    pub(crate) yields_above: Option<i64>,
}

/// Rivals of one class of equivalent workloads.
struct RivalClass {
    first: QueuePosition,
    id: ClassId,
    count: usize,
    queue: QueueId,
}

/// Workloads that may be served first when quota of this flavor and resource is freed.
pub(crate) fn rivals_for_quota(
    world: &AskedWorld<'_>,
    case: &Case<'_>,
    id: WorkloadId,
    key: (FlavorId, ResourceId),
    winner: Option<&FirstEntry>,
) -> Rivals {
    let queues = world.mirror().queue_state();
    let CompetingWorkloads { before: in_same_queue, in_other_queues, first, other, .. } =
        competing_workloads(world, case, id, key);
    let front = case.front().filter(|front| *front != id);
    let first = first.or_else(|| winner.map(|winner| winner.workload)).or(other);
    // A queue orders by priority, except for workloads that preempt or have waited too long.
    let goes_by_priority = in_same_queue > 0
        && in_other_queues == 0
        && !head_order::by_usage(world, id)
        && front.is_some_and(|front| !queues.is_favored(front));
    let priority = front
        .and_then(|front| world.mirror().uid(front))
        .and_then(|uid| world.state().workloads().get(&uid))
        .map(|w| w.priority());
    Rivals {
        in_same_queue,
        in_other_queues,
        first: first.map(|first| head_order::named(world, first)),
        yields_above: priority.filter(|_| goes_by_priority),
    }
}

/// The head of another queue that gets freed quota before the head `id` of its own queue.
pub(crate) fn served_before(
    world: &AskedWorld<'_>,
    case: &Case<'_>,
    id: WorkloadId,
    key: (FlavorId, ResourceId),
) -> Option<FirstEntry> {
    let can_run = |queue, shape| can_run(world, case, queue, shape);
    explain::served_before(world.mirror().queue_state(), id, key, can_run)
}

/// The workload of another queue that gets quota before this workload, and that quota, which this workload
/// needs or lacks. Workloads that are preempting others come first.
fn served_first(
    world: &AskedWorld<'_>,
    case: &Case<'_>,
) -> Option<(WorkloadId, (FlavorId, ResourceId), FirstEntry)> {
    let (queues, id) = (world.mirror().queue_state(), case.id?);
    let reported = match world.live().pending_reasons().before(case.workload.class()) {
        Some(Why::Quota(quota)) => {
            case::key_of(queues, quota).map(|(flavor, resource, _)| (flavor, resource))
        }
        _ => None,
    };
    let keys = case.usage.iter().map(|(key, _)| *key).chain(reported);
    keys.filter_map(|key| Some((id, key, served_before(world, case, id, key)?)))
        .min_by_key(|(.., winner)| !preempts(winner))
}

/// Whether the quota that this workload would use is reserved for a workload of another queue that is
/// preempting others.
pub(crate) fn is_kept_from(world: &AskedWorld<'_>, case: &Case<'_>) -> bool {
    served_first(world, case).is_some_and(|(.., winner)| preempts(&winner))
}

/// Explains that a workload of another queue comes first in every scheduling cycle.
pub(crate) fn overtaken_steps(world: &AskedWorld<'_>, case: &Case<'_>) -> Steps {
    let Some((id, key, winner)) = served_first(world, case) else {
        return Steps::of(world.asker, &Why::Overtaken);
    };
    let (first, turn) = (
        head_order::named(world, winner.workload),
        head_order::head_order_message(world, id, &winner).unwrap_or_default(),
    );
    let priority = if matches!(winner.by, Precedence::Priority | Precedence::Age) {
        ", or submit this job again with a higher priority"
    } else {
        ""
    };
    let mut steps = Steps::one(
        format!("{}{turn}", Why::Overtaken.message(world.asker)),
        format!("wait until {first} starts, or delete it{priority}"),
    );
    let others = competing_workloads(world, case, id, key);
    if others.before + others.in_other_queues == 1 && case.shortage.is_none() && case.fits_somewhere() {
        steps.alone.push(format!("delete {first} (enough by itself)"));
    }
    steps
}

/// Counts of the workloads that may be served first, computed once.
pub(crate) fn competing_workloads(
    world: &AskedWorld<'_>,
    case: &Case<'_>,
    id: WorkloadId,
    key: (FlavorId, ResourceId),
) -> CompetingWorkloads {
    let can_run = |queue, shape| can_run(world, case, queue, shape);
    let find =
        || explain::competing_workloads(world.mirror().queue_state(), id, key, case.ahead.as_ref(), can_run);
    *case.cache.may_come_first.borrow_mut().entry(key).or_insert_with(find)
}

/// Names the pending workloads that could take the capacity of a cluster first when the workloads of
/// `gone` have ended there.
pub(crate) fn others_first(
    world: &AskedWorld<'_>,
    case: &Case<'_>,
    cluster: &ClusterName,
    why: &Why,
    gone: &[Uid],
) -> String {
    // The added capacity of new nodes or of a higher limit is unknown.
    let pools_can_grow =
        gone.is_empty() && matches!(why, Why::NoCapacity(_) | Why::Capped { .. } | Why::Refused { .. });
    if matches!(why, Why::Forbidden(_)) {
        return String::new();
    }
    // The workloads end one by one, so the capacity freed by the first may already be enough for a small
    // workload further behind.
    let in_parts = gone.len() > 1;
    let all = rivals_for_capacity(world, case, in_parts);
    let able = could_take(world, &all, cluster, gone, pools_can_grow);
    let count: usize = able.iter().map(|class| class.count).sum();
    let Some(first) = able.first().and_then(|class| world.state().workloads().get(&class.first.uid)) else {
        return String::new();
    };
    let unless = match !in_parts && goes_by_priority(world, case, &able) {
        true => format!(", unless this job is submitted again with a priority above {}", first.priority()),
        false => String::new(),
    };
    let first = world.asker.workload(first);
    match count {
        1 => {
            format!("; {first} may take it first{unless}")
        }
        many => format!("; {first} and {} more may take it first{unless}", many - 1),
    }
}

/// Classes that would get quota and capacity once the workloads of `gone` have ended. Classes that already
/// have both are left out, because something else blocks them. With `pools_can_grow`, every class with quota
/// counts as fitting, as do unchecked classes.
fn could_take<'a>(
    world: &AskedWorld<'_>,
    all: &'a [RivalClass],
    cluster: &ClusterName,
    gone: &[Uid],
    pools_can_grow: bool,
) -> Vec<&'a RivalClass> {
    let checked = all.len().min(CHECKED_CLASSES_MAX);
    let ids: Vec<Option<WorkloadId>> =
        all[..checked].iter().map(|class| world.mirror().id(class.first.uid)).collect();
    let known: Vec<WorkloadId> = ids.iter().flatten().copied().collect();
    let has_quota = |gone: &[Uid]| {
        let holders: Vec<WorkloadId> = gone.iter().filter_map(|uid| world.mirror().id(*uid)).collect();
        let mut fits = explain::would_fit(world.mirror().queue_state(), &known, &holders).into_iter();
        // A workload that its queue doesn't evaluate takes no capacity.
        ids.iter().map(|id| id.is_some() && fits.next().unwrap_or(true)).collect::<Vec<bool>>()
    };
    let (before, after) = (LazyCell::new(|| has_quota(&[])), has_quota(gone));
    let gangs: Vec<Arc<Gang>> = gone.iter().filter_map(|uid| gangs::gang_of(world, *uid)).collect();
    let could_take = |at: usize, class: &RivalClass| {
        let fits = |gangs: &[Arc<Gang>]| would_fit_there(world, class.id, class.first.uid, cluster, gangs);
        let already = || !gone.is_empty() && before[at] && fits(&[]);
        at >= checked
            || (after[at]
                && permitted_clusters(world, class.queue, class.id).contains(cluster)
                && ((pools_can_grow && has_suitable_nodes(world, class.id, cluster))
                    || (fits(&gangs) && !already())))
    };
    all.iter().enumerate().filter(|(at, class)| could_take(*at, class)).map(|(_, class)| class).collect()
}

/// Possible rivals by class: workloads of other queues, and of the own queue those ahead of it (all, if
/// capacity is freed `in_parts`). The classes to check come first, in queue order. Of the rest, one suffices.
fn rivals_for_capacity(world: &AskedWorld<'_>, case: &Case<'_>, in_parts: bool) -> Vec<RivalClass> {
    let before = if in_parts { Vec::new() } else { before_by_class(world, case) };
    let blocked = world.live().pending_reasons().all_before();
    let (mut before, mut routes, mut blocked) =
        (Alongside::new(before), Alongside::new(world.mirror().routes()), Alongside::new(blocked));
    let of_class = |(id, first, waiting): (ClassId, &QueuePosition, &BTreeSet<QueuePosition>)| {
        let (before, route, why) = (before.at(id), routes.at(id), blocked.at(id));
        // A workload without a queue route takes no capacity.
        let queue = route.filter(|_| !matches!(why, Some(Why::Route(_))))?;
        let count = before.unwrap_or_else(|| waiting.len() - usize::from(id == case.workload.class()));
        let other = if first.uid == case.uid { waiting.iter().nth(1) } else { Some(first) };
        Some(RivalClass { first: *other.filter(|_| count > 0)?, id, count, queue })
    };
    let mut all: Vec<RivalClass> = world.queues().waiting_by_class().filter_map(of_class).collect();
    if all.len() > CHECKED_CLASSES_MAX {
        all.select_nth_unstable_by_key(CHECKED_CLASSES_MAX, |class| class.first);
    }
    let checked = all.len().min(CHECKED_CLASSES_MAX);
    all[..checked].sort_unstable_by_key(|class| class.first);
    all
}

/// Whether some cluster could run the pending workloads of a shape once they have quota and capacity.
/// Workloads of other shapes never use freed quota.
fn can_run(world: &AskedWorld<'_>, case: &Case<'_>, queue: QueueId, shape: ShapeId) -> bool {
    let mut known = case.cache.can_run.borrow_mut();
    let is_full = known.len() >= CHECKED_SHAPES_MAX;
    match known.entry((queue, shape)) {
        Entry::Occupied(known) => *known.get(),
        Entry::Vacant(_) if is_full => true,
        Entry::Vacant(new) => {
            let class = entries::class_of_tag(world.mirror().queue_state().shape_of(shape).tag);
            // The entry of a scale-up is for a gang that runs.
            *new.insert(class.is_none_or(|(class, own_size)| {
                let clusters = permitted_clusters(world, queue, class);
                clusters.iter().any(|cluster| can_run_in(world, class, own_size, cluster))
            }))
        }
    }
}

/// The clusters in which policies and the queue allow a class.
fn permitted_clusters(world: &AskedWorld<'_>, queue: QueueId, id: ClassId) -> Vec<ClusterName> {
    let queue = &world.mirror().queue_state().queue(queue).setup.name;
    let (class, required) = (world.queues().class(id), world.config().residency_required);
    let all = CandidateClusters::new(world.state().catalog(), class, queue, required).candidates;
    let permitted = all.into_iter().filter(|one| one.listed.is_some() && one.verdict.is_ok());
    permitted.map(|one| one.cluster).collect()
}

/// Whether a cluster could ever run a gang of a class, by what is known of its runner and nodes.
fn can_run_in(world: &AskedWorld<'_>, id: ClassId, own_size: bool, cluster: &ClusterName) -> bool {
    let class = world.queues().class(id);
    let Some(live) = world.live().cluster(cluster).filter(|live| live.capacity().known()) else {
        return true;
    };
    if live.capacity().runner() == RunnerKind::Process && class.needs_containers() {
        return false;
    }
    let least = class.gang.least();
    let gang = least.as_ref().unwrap_or(&*class.gang);
    match live.capacity().fits(gang) {
        Err(Misfit::NoSuchNode { .. } | Misfit::NotEnoughCapacity { fits_empty: false, .. }) => {
            own_size || live.capacity().could_grow(gang)
        }
        _ => true,
    }
}

/// Number of workloads ahead in the same queue, by class and sorted by it.
fn before_by_class(world: &AskedWorld<'_>, case: &Case<'_>) -> Vec<(ClassId, usize)> {
    let queues = world.mirror().queue_state();
    let class_of = |shape| entries::class_of_tag(queues.shape_of(shape).tag).map(|(class, _)| class);
    let by_shape = case.ahead.iter().flat_map(WorkloadsAhead::by_shape);
    let mut all: Vec<(ClassId, usize)> =
        by_shape.filter_map(|(shape, n)| Some((class_of(shape)?, n))).collect();
    all.sort_unstable_by_key(|(class, _)| *class);
    all.dedup_by(|(class, n), (kept, sum)| {
        let same = class == kept;
        *sum += if same { *n } else { 0 };
        same
    });
    all
}

/// Whether a cluster has nodes with the labels and without the taints that a pending class needs. If not,
/// more nodes of the same kinds don't help the class.
fn has_suitable_nodes(world: &AskedWorld<'_>, id: ClassId, cluster: &ClusterName) -> bool {
    let Some(live) = world.live().cluster(cluster) else { return false };
    let misfit = live.capacity().fits(&world.queues().class(id).gang).err();
    !matches!(misfit, Some(Misfit::NoSuchNode { .. })) || !live.capacity().provisionable().is_empty()
}

/// Whether the gang of a pending class would fit in a cluster without the gangs of `gone`.
fn would_fit_there(
    world: &AskedWorld<'_>,
    id: ClassId,
    uid: Uid,
    cluster: &ClusterName,
    gone: &[Arc<Gang>],
) -> bool {
    let class = world.queues().class(id);
    let reserved = reserved::reserved_capacity(world, cluster, uid).all_gangs();
    let Some(live) = world.live().cluster(cluster) else { return false };
    let mut freed = Amounts::new();
    gone.iter().for_each(|gang| add_scaled(&mut freed, &gang.total(), 1));
    // A rival that only might fit must be named too, so assume that the capacity is freed in any domain.
    let fits = |gang: &Gang| {
        live.capacity().fits_without(gang, gone, &reserved)
            && topology::check_domains(world, gang, cluster, Gone::Having(&freed)).is_ok()
    };
    fits(&class.gang) || class.gang.least().is_some_and(|least| fits(&least))
}

/// Whether a higher priority would put the workload before these rivals, including those of other queues.
fn goes_by_priority(world: &AskedWorld<'_>, case: &Case<'_>, others: &[&RivalClass]) -> bool {
    let queues = world.mirror().queue_state();
    let in_queue =
        |class: &&RivalClass| Some(class.queue) == case.queue && world.mirror().looks_at(class.first.uid);
    let favored: BTreeSet<Uid> = queues.favored_workloads().filter_map(|id| world.mirror().uid(id)).collect();
    let (same, fair) = (others.iter().all(in_queue), queues.settings().fair_sharing.is_some());
    let by_priority = same || (!fair && !case.borrows);
    by_priority
        && case.id.is_some_and(|id| !head_order::by_usage(world, id))
        && (favored.is_empty() || !others.iter().any(|class| favored.contains(&class.first.uid)))
}

fn preempts(winner: &FirstEntry) -> bool {
    matches!(winner.by, Precedence::Preempting | Precedence::Holds)
}
