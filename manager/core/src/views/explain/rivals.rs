//! Who else waits and may be served before a workload when what it lacks comes free, and what puts it before them.

use crate::capacity::reserved;
use crate::capacity::topology::{self, Gone};
use crate::facts::reason::Why;
use crate::facts::submission::ClassId;
use crate::queue::candidate_clusters::CandidateClusters;
use crate::queue::classes::QueuePosition;
use crate::views::explain::case::{self, Case};
use crate::views::explain::head_order;
use crate::views::explain::step::{Alongside, Steps};
use crate::world::{World, gangs};
use meridian_queueing::cycle::{First, MayComeFirst, Winner};
use meridian_queueing::model::{QueueId, WorkloadId};
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::pending::Before;
use meridian_shared::gang::{Amounts, Gang, add_scaled};
use meridian_shared::ids::{ClusterName, Uid};
use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Classes that are looked at to see whether who waits in them could take what comes free; who is in others may.
const LOOKED_AT_MAX: usize = 24;

/// Who may be served before a workload when quota comes.
pub(crate) struct Rivals {
    /// Of its own queue.
    pub(crate) before: usize,
    /// Of other queues that may be given the same.
    pub(crate) beside: usize,
    /// The first of them, as people know it.
    pub(crate) first: Option<String>,
    /// With a priority above this one nobody comes before it.
    pub(crate) yields_above: Option<i64>,
}

/// Others of one class that may come first.
struct Class {
    first: QueuePosition,
    id: ClassId,
    count: usize,
    /// Where they wait.
    queue: QueueId,
}

/// Who may be served first when quota of a flavor and resource comes.
pub(crate) fn rivals_for_quota(
    world: &World,
    case: &Case<'_>,
    id: WorkloadId,
    key: (FlavorId, ResourceId),
    winner: Option<&Winner>,
) -> Rivals {
    let brain = world.mirror.brain();
    let MayComeFirst { before, beside, other, .. } = may_come_first(world, case, id, key);
    let front = case.front().filter(|front| *front != id);
    let named = front.filter(|front| before > 0 && brain.may_ever_fit(*front, key));
    let first = named.or_else(|| winner.map(|winner| winner.workload)).or(other);
    // A queue goes by priority first, but for who is urgent there.
    let goes_by_priority = before > 0
        && beside == 0
        && !head_order::by_usage(world, id)
        && front.is_some_and(|front| !brain.comes_before_all(front));
    let priority = front
        .and_then(|front| world.mirror.uid(front))
        .and_then(|uid| world.state.workloads().get(&uid))
        .map(|w| w.priority());
    Rivals {
        before,
        beside,
        first: first.map(|first| head_order::named(world, first)),
        yields_above: priority.filter(|_| goes_by_priority),
    }
}

/// Who of another queue is served first of something that a workload would take, or that it was told it lacks, as it was chosen for
/// it (simulation seed 7204557): those first for whom others stop.
fn served_first(world: &World, case: &Case<'_>) -> Option<(WorkloadId, (FlavorId, ResourceId), Winner)> {
    let (brain, id) = (world.mirror.brain(), case.id?);
    let told = match world.live.pending_reasons.before(case.workload.class()) {
        Some(Why::Quota(quota)) => case::key_of(brain, quota).map(|(flavor, resource, _)| (flavor, resource)),
        _ => None,
    };
    let keys = case.takes.iter().map(|(key, _)| *key).chain(told);
    keys.filter_map(|key| Some((id, key, brain.served_before(id, key)?)))
        .min_by_key(|(.., winner)| !displaces(winner))
}

/// Whether others stop for somebody of another queue who then takes what this one would.
pub(crate) fn is_kept_from(world: &World, case: &Case<'_>) -> bool {
    served_first(world, case).is_some_and(|(.., winner)| displaces(&winner))
}

/// Who of another queue comes first in every round, and keeps what this one would take.
pub(crate) fn overtaken_steps(world: &World, case: &Case<'_>) -> Steps {
    let Some((id, key, winner)) = served_first(world, case) else { return Steps::of(&Why::Overtaken) };
    let (whom, turn) = (
        head_order::named(world, winner.workload),
        head_order::head_order_message(world, id, &winner).unwrap_or_default(),
    );
    let priority =
        if matches!(winner.by, First::Priority | First::Age) { ", or a higher priority" } else { "" };
    let mut steps = Steps::one(
        format!("{}{turn}", Why::Overtaken.words()),
        format!("the start or deletion of {whom}{priority}"),
    );
    let others = may_come_first(world, case, id, key);
    if others.before + others.beside == 1 && case.lacks.is_none() && case.has_room() {
        steps.alone.push(format!("the deletion of {whom} alone would do"));
    }
    steps
}

/// The same in numbers.
pub(crate) fn may_come_first(
    world: &World,
    case: &Case<'_>,
    id: WorkloadId,
    key: (FlavorId, ResourceId),
) -> MayComeFirst {
    let find = || world.mirror.brain().may_come_first(id, key, case.before.as_ref());
    *case.found.may_come_first.borrow_mut().entry(key).or_insert_with(find)
}

/// Who else waits and could take the room in a cluster before this one, when those of `gone` have left it.
pub(crate) fn others_first(
    world: &World,
    case: &Case<'_>,
    (cluster, why): (&ClusterName, &Why),
    gone: &[Uid],
) -> String {
    // How much more there will be isn't known of nodes to come, nor of a higher cap.
    let grows = gone.is_empty() && matches!(why, Why::NoRoom(_) | Why::Capped { .. } | Why::Refused { .. });
    if matches!(why, Why::Forbidden(_)) {
        return String::new();
    }
    // They don't all end at once: what is left by the first may be enough for who is behind and small.
    let in_parts = gone.len() > 1;
    let all = rivals_for_capacity(world, case, in_parts);
    let able = could_take(world, &all, cluster, gone, grows);
    let count: usize = able.iter().map(|class| class.count).sum();
    let Some(first) = able.first().and_then(|class| world.state.workloads().get(&class.first.uid)) else {
        return String::new();
    };
    let unless = match !in_parts && goes_by_priority(world, case, &able) {
        true => format!(", unless it is submitted again with a priority above {}", first.priority()),
        false => String::new(),
    };
    match count {
        1 => {
            format!("; `{}/{}`, which waits too, may take it first{unless}", first.namespace(), first.name())
        }
        many => format!(
            "; `{}/{}` and {} more that wait may take it first{unless}",
            first.namespace(),
            first.name(),
            many - 1
        ),
    }
}

/// Those who would have quota and room when those of `gone` have ended, and haven't both already, for then something else
/// keeps them. Where the room `grows`, whoever has quota may fit, and so may whoever isn't looked at.
fn could_take<'a>(
    world: &World,
    all: &'a [Class],
    cluster: &ClusterName,
    gone: &[Uid],
    grows: bool,
) -> Vec<&'a Class> {
    let looked_at = all.len().min(LOOKED_AT_MAX);
    let ids: Vec<Option<WorkloadId>> =
        all[..looked_at].iter().map(|class| world.mirror.id(class.first.uid)).collect();
    let known: Vec<WorkloadId> = ids.iter().flatten().copied().collect();
    let has_quota = |gone: &[Uid]| {
        let holders: Vec<WorkloadId> = gone.iter().filter_map(|uid| world.mirror.id(*uid)).collect();
        let mut fits = world.mirror.brain().would_fit(&known, &holders).into_iter();
        // Who isn't looked at takes nothing.
        ids.iter().map(|id| id.is_some() && fits.next().unwrap_or(true)).collect::<Vec<bool>>()
    };
    let (before, after) = (LazyCell::new(|| has_quota(&[])), has_quota(gone));
    let gangs: Vec<Arc<Gang>> = gone.iter().filter_map(|uid| gangs::gang_of(world, *uid)).collect();
    let could = |at: usize, class: &Class| {
        let fits = |gangs: &[Arc<Gang>]| would_fit_there(world, class.id, class.first.uid, cluster, gangs);
        let already = || !gone.is_empty() && before[at] && fits(&[]);
        at >= looked_at
            || (after[at] && may_use(world, class, cluster) && (grows || (fits(&gangs) && !already())))
    };
    all.iter().enumerate().filter(|(at, class)| could(*at, class)).map(|(_, class)| class).collect()
}

/// Those of each class who may come before a workload: where they are counted as such, of its own queue and unless what comes
/// free comes `in_parts`, those; and all others. In order as far as they are looked at, and one more.
fn rivals_for_capacity(world: &World, case: &Case<'_>, in_parts: bool) -> Vec<Class> {
    let before = if in_parts { Vec::new() } else { before_by_class(world, case) };
    let blocked = world.live.pending_reasons.all_before();
    let (mut before, mut routes, mut blocked) =
        (Alongside::new(before), Alongside::new(world.mirror.routes()), Alongside::new(blocked));
    let of_class = |(id, first, waiting): (ClassId, &QueuePosition, &BTreeSet<QueuePosition>)| {
        let (before, route, why) = (before.at(id), routes.at(id), blocked.at(id));
        // Who has no way to a queue takes nothing.
        let queue = route.filter(|_| !matches!(why, Some(Why::Route(_))))?;
        let count = before.unwrap_or_else(|| waiting.len() - usize::from(id == case.workload.class()));
        let other = if first.uid == case.uid { waiting.iter().nth(1) } else { Some(first) };
        Some(Class { first: *other.filter(|_| count > 0)?, id, count, queue })
    };
    let mut all: Vec<Class> = world.queues.waiting_by_class().filter_map(of_class).collect();
    if all.len() > LOOKED_AT_MAX {
        all.select_nth_unstable_by_key(LOOKED_AT_MAX, |class| class.first);
    }
    let looked_at = all.len().min(LOOKED_AT_MAX);
    all[..looked_at].sort_unstable_by_key(|class| class.first);
    all
}

/// Of each class how many come before a workload in its queue, in the order of classes.
fn before_by_class(world: &World, case: &Case<'_>) -> Vec<(ClassId, usize)> {
    let brain = world.mirror.brain();
    // A class of the brain is one of the world's.
    let class_of = |shape| u32::try_from(brain.shape_of(shape).tag & u64::from(u32::MAX)).map(ClassId);
    let by_shape = case.before.iter().flat_map(Before::by_shape);
    let mut all: Vec<(ClassId, usize)> =
        by_shape.filter_map(|(shape, n)| Some((class_of(shape).ok()?, n))).collect();
    all.sort_unstable_by_key(|(class, _)| *class);
    all.dedup_by(|(class, n), (kept, sum)| {
        let same = class == kept;
        *sum += if same { *n } else { 0 };
        same
    });
    all
}

/// Whether a class may go to a cluster, as objects say.
fn may_use(world: &World, class: &Class, cluster: &ClusterName) -> bool {
    let queue = &world.mirror.brain().queue(class.queue).setup.name;
    let way = CandidateClusters::new(
        &world.state.catalog(),
        world.queues.class(class.id),
        queue,
        world.config.residency_required,
    );
    way.candidates
        .iter()
        .any(|site| site.cluster == *cluster && site.listed.is_some() && site.verdict.is_ok())
}

/// Whether the gang of a class that waits fits in a cluster without some that are there.
fn would_fit_there(world: &World, id: ClassId, uid: Uid, cluster: &ClusterName, gone: &[Arc<Gang>]) -> bool {
    let class = world.queues.class(id);
    let kept = reserved::reserved_capacity(world, cluster, uid).all_gangs();
    let Some(live) = world.live.clusters.get(cluster) else { return false };
    let mut freed = Amounts::new();
    gone.iter().for_each(|gang| add_scaled(&mut freed, &gang.total(), 1));
    // Who might fit is named: so what comes free may be in any domain.
    let fits = |gang: &Gang| {
        live.capacity.fits_without(gang, gone, &kept)
            && topology::judge_domains(world, gang, cluster, Gone::Having(&freed)).is_ok()
    };
    fits(&class.gang) || class.gang.least().is_some_and(|least| fits(&least))
}

/// Whether a higher priority would put it before these others, whatever queues they are in.
fn goes_by_priority(world: &World, case: &Case<'_>, others: &[&Class]) -> bool {
    let brain = world.mirror.brain();
    let in_queue = |class: &&Class| Some(class.queue) == case.queue && world.mirror.looks_at(class.first.uid);
    let special: BTreeSet<Uid> = brain.all_special().filter_map(|id| world.mirror.uid(id)).collect();
    let (same, fair) = (others.iter().all(in_queue), brain.settings.fair_sharing.is_some());
    let alike = same || (!fair && !case.borrows);
    alike
        && case.id.is_some_and(|id| !head_order::by_usage(world, id))
        && (special.is_empty() || !others.iter().any(|class| special.contains(&class.first.uid)))
}

fn displaces(winner: &Winner) -> bool {
    matches!(winner.by, First::Displaces | First::Holds)
}
