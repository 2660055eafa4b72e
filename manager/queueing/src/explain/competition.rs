//! Finds the workloads that would use freed quota first.

use crate::amount::Amount;
use crate::capacity_model::UnlimitedCapacity;
use crate::cycle::{Cycle, EntryOrder, EntryOutcome, Nominee, Precedence};
use crate::flavors::flavor_mismatch;
use crate::model::{Assignment, Mode, QueueId, ShapeId, WorkloadId};
use crate::names::{FlavorId, ResourceId};
use crate::pending::WorkloadsAhead;
use crate::queue_state::QueueState;
use std::collections::BTreeSet;

/// Maximum number of queues of a tree to evaluate; each costs as much as a head in a cycle.
const CONTENDERS_MAX: usize = 1_000;

/// The first entry, and why it precedes a given workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FirstEntry {
    pub workload: WorkloadId,
    /// Why it precedes the given workload.
    pub by: Precedence,
}

/// Workloads that may use freed quota before a given workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompetingWorkloads {
    /// Number of workloads of its own queue.
    pub before: usize,
    /// Number of workloads of other queues.
    pub in_other_queues: usize,
    /// Upper bound of their requests.
    pub requested: i64,
    /// Requests of the workloads that fit into the declared quota.
    pub requested_within_quota: i64,
    /// The first of them in its own queue.
    pub first: Option<WorkloadId>,
    /// The first of them in one of the other queues.
    pub other: Option<WorkloadId>,
}

/// Pending workloads of one shape in a queue.
struct Waiting {
    queue: QueueId,
    shape: ShapeId,
    /// Request of each.
    asks: i64,
    about: usize,
    most: usize,
    /// Whether the queue could ever provide the request.
    feasible: bool,
}

impl Waiting {
    fn total(&self) -> i64 {
        self.asks.saturating_mul(i64::try_from(self.most).unwrap_or(i64::MAX))
    }
}

/// For the first workload of a queue: the head of another queue, if any, that would get freed quota of a
/// flavor and resource before it. Heads that no cluster `can_run`, by their shape, don't count.
pub fn served_before(
    state: &QueueState,
    id: WorkloadId,
    key: (FlavorId, ResourceId),
    can_run: impl Fn(QueueId, ShapeId) -> bool,
) -> Option<FirstEntry> {
    let of = state.workload(id)?;
    let tree = state.queue(of.queue).tree?;
    let others = state
        .forest()
        .tree(tree)
        .queues
        .iter()
        .filter_map(|node| state.queue_at(*node))
        .filter(|queue| *queue != of.queue);
    let others = others
        .filter(|queue| state.queue(*queue).setup.inactive.is_none() && !state.pending(*queue).is_empty());
    let heads = others.take(CONTENDERS_MAX).filter_map(|queue| state.first_in_queue(queue));
    let heads: Vec<WorkloadId> = heads
        .filter(|head| state.workload(*head).is_some_and(|head| can_run(head.queue, head.shape)))
        .collect();
    if heads.is_empty() {
        return None;
    }
    let mut copy = state.copy_of_quota([tree]);
    // Remove the usage at the root only, so that all shared quota is free while queues keep the usage that
    // determines their shares.
    let root = state.forest().root(state.queue(of.queue).node?);
    for cell in state.forest().cells(root).filter_map(|(key, _)| state.forest().find_cell(tree, key)) {
        let used = state.forest().cell(root, cell).usage;
        copy.remove_usage(root, cell, used);
    }
    let all: Vec<(WorkloadId, WorkloadId)> =
        std::iter::once(id).chain(heads).map(|id| (id, copy.copy_workload(state, id))).collect();
    let takes = |assignment: &Assignment| {
        assignment.mode() != Mode::NoFit
            && assignment.usage.iter().any(|(of, amount)| *of == key && *amount > Amount::ZERO)
    };
    let copies: Vec<WorkloadId> = all.iter().map(|(_, copy)| *copy).collect();
    let (first, by) = first_of(&mut copy, &copies, takes)?;
    let workload = all.iter().find(|(_, of)| *of == first).map(|(id, _)| *id)?;
    (workload != id).then_some(FirstEntry { workload, by })
}

/// Other queues of a workload's tree that may use this flavor for this resource.
fn other_queues_of(
    state: &QueueState,
    id: WorkloadId,
    flavor: FlavorId,
    resource: ResourceId,
) -> impl Iterator<Item = QueueId> {
    let of = state.workload(id).and_then(|of| Some((of.queue, state.queue(of.queue).tree?)));
    let all = of.into_iter().flat_map(|(mine, tree)| {
        let others = state.forest().tree(tree).queues.iter().filter_map(|node| state.queue_at(*node));
        others.filter(move |queue| *queue != mine)
    });
    all.filter(move |queue| {
        let setup = &state.queue(*queue).setup;
        setup.inactive.is_none()
            && setup.group_of(resource).is_some_and(|group| group.flavors.contains(&flavor))
    })
}

/// Request of a shape for a resource by the pods that may use this flavor.
fn request_in_flavor(state: &QueueState, queue: QueueId, shape: ShapeId, key: (FlavorId, ResourceId)) -> i64 {
    let (flavor, resource) = key;
    let (of, group) = (state.shape_of(shape), state.queue(queue).setup.group_of(resource));
    let Some(group) = group.filter(|_| state.request_of(shape, resource) > 0) else { return 0 };
    let may_use = |sets: &Vec<usize>| flavor_mismatch(state, queue, of, sets, group, flavor).is_none();
    let asks = |sets: Vec<usize>| {
        sets.iter()
            .map(|set| state.catalog().request_of_pod_set(of, *set, resource))
            .fold(0, i64::saturating_add)
    };
    of.groups().into_iter().filter(may_use).map(asks).fold(0, i64::saturating_add)
}

/// The pending workloads, of the same or of other queues, that may use freed quota of a flavor and resource
/// before a given workload. Workloads that request more than their maximum count only if the others together
/// would free that much. Workloads that no cluster `can_run`, by their shape, don't count.
pub fn competing_workloads(
    state: &QueueState,
    id: WorkloadId,
    key: (FlavorId, ResourceId),
    before: Option<&WorkloadsAhead<'_>>,
    can_run: impl Fn(QueueId, ShapeId) -> bool,
) -> CompetingWorkloads {
    let Some(of) = state.workload(id) else { return CompetingWorkloads::default() };
    let waiting = |queue: QueueId, shape: ShapeId, about: usize, most: usize| {
        let asks = request_in_flavor(state, queue, shape, key);
        let may_shrink = state.shape_of(shape).may_shrink();
        Waiting {
            queue,
            shape,
            asks,
            about,
            most,
            feasible: may_shrink || state.could_ever_use(queue, key, asks),
        }
    };
    let mine = before.into_iter().flat_map(WorkloadsAhead::each);
    let mine = mine.map(|(shape, (about, most))| waiting(of.queue, shape, about, most));
    let theirs = other_queues_of(state, id, key.0, key.1)
        .flat_map(|queue| state.pending_by_shape(queue).map(move |(shape, n)| waiting(queue, shape, n, n)));
    let all: Vec<Waiting> = mine
        .chain(theirs)
        .filter(|waiting| waiting.asks > 0 && waiting.most > 0 && can_run(waiting.queue, waiting.shape))
        .collect();
    let (mut feasible, mut rest): (Vec<Waiting>, Vec<Waiting>) =
        all.into_iter().partition(|waiting| waiting.feasible);
    let sum = |feasible: &[Waiting]| feasible.iter().map(Waiting::total).fold(0, i64::saturating_add);
    let requested_within_quota = sum(&feasible);
    loop {
        let freed = state.request_of(of.shape, key.1).saturating_add(sum(&feasible));
        let (more, left): (Vec<Waiting>, Vec<Waiting>) =
            rest.into_iter().partition(|waiting| waiting.asks <= freed);
        rest = left;
        if more.is_empty() {
            break;
        }
        feasible.extend(more);
    }
    let count = |own: bool| {
        feasible
            .iter()
            .filter(|waiting| (waiting.queue == of.queue) == own)
            .map(|waiting| waiting.about)
            .sum()
    };
    let shapes_in = |queue: QueueId| -> BTreeSet<ShapeId> {
        feasible.iter().filter(|waiting| waiting.queue == queue).map(|waiting| waiting.shape).collect()
    };
    let first_in = |queue: QueueId| {
        let shapes = shapes_in(queue);
        let head = state.first_in_queue(queue);
        let is_rival = |head: &WorkloadId| shapes.contains(&state.get(head).shape);
        head.filter(is_rival).or_else(|| state.pending(queue).first_of_shapes(&shapes))
    };
    let other = feasible.iter().map(|waiting| waiting.queue).find(|queue| *queue != of.queue);
    CompetingWorkloads {
        before: count(true),
        in_other_queues: count(false),
        requested: sum(&feasible),
        requested_within_quota,
        first: Some(of.queue).filter(|_| count(true) > 0).and_then(first_in),
        other: other.and_then(first_in),
    }
}

/// The first of these heads in the order of a cycle, and why it precedes the first head of the list. Heads
/// that `counts` rejects are ignored; `None` if it rejects the first of the list.
fn first_of(
    state: &mut QueueState,
    heads: &[WorkloadId],
    counts: impl Fn(&Assignment) -> bool,
) -> Option<(WorkloadId, Precedence)> {
    let nominee = |id: &WorkloadId| Nominee { workload: *id, second_pass: false };
    let nominees: Vec<Nominee> = heads.iter().map(nominee).collect();
    let mut unlimited = UnlimitedCapacity;
    let mut cycle = Cycle::new(state, &mut unlimited);
    let mut entries = cycle.nominate(&nominees);
    entries.retain(|entry| entry.outcome != EntryOutcome::Rejected && counts(&entry.assignment));
    let given = entries.iter().position(|entry| Some(&entry.workload) == heads.first())?;
    let (first, by) = EntryOrder::new(state, &entries).first(state, &entries, given)?;
    Some((entries[first].workload, by))
}
