//! Everything that an explanation needs to know about one pending workload: its cluster queue (even if
//! objects on its route are stopped or missing), the quota that this queue would assign, and the verdict of
//! every cluster.
//!
//! Computed once per request, on a copy of the queue state, by the functions that decide.

use meridian_manager_core::capacity::simulated_eviction::{self, ClusterUsage};
use meridian_manager_core::dispatch::align::entries;
use meridian_manager_core::dispatch::{candidates, why_not};
use meridian_manager_core::facts::reason::{NoQuota, Why};
use meridian_manager_core::queue::candidate_clusters::{Candidate, CandidateClusters};
use meridian_manager_core::queue::mirror;
use meridian_manager_core::state::workload::Workload;
use meridian_manager_core::world::{World, gangs};
use meridian_queueing::QueueState;
use meridian_queueing::cycle::CycleEntry;
use meridian_queueing::explain::{self, CompetingWorkloads};
use meridian_queueing::flavors::Mode;
use meridian_queueing::model::{QueueId, ShapeId, WorkloadId};
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::pending::{HeadBlocks, PositionCounts, WorkloadsAhead};
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::Mono;
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Per cluster: `Ok` if it can start the workload now, or else why it can't.
pub(crate) type Verdicts = BTreeMap<ClusterName, Result<(), Why>>;

/// Results that are expensive and needed more than once.
#[derive(Default)]
pub(crate) struct Cache {
    pub(crate) obstacle: OnceCell<Obstacle>,
    /// Workloads that may be served first, by the quota that is freed.
    pub(crate) may_come_first: RefCell<BTreeMap<(FlavorId, ResourceId), CompetingWorkloads>>,
    /// Whether some cluster could ever run the pending workloads of a shape in a queue.
    pub(crate) can_run: RefCell<BTreeMap<(QueueId, ShapeId), bool>>,
    /// Per cluster, workloads that would leave enough room if they ended.
    pub(crate) ends: RefCell<BTreeMap<ClusterName, Vec<Uid>>>,
    usage: RefCell<BTreeMap<ClusterName, ClusterUsage>>,
}

/// One pending workload.
pub(crate) struct Case<'a> {
    pub(crate) uid: Uid,
    pub(crate) workload: &'a Workload,
    pub(crate) now: Mono,
    /// `None` while its cluster queue is inactive or can't be found.
    pub(crate) id: Option<WorkloadId>,
    pub(crate) ahead: Option<WorkloadsAhead<'a>>,
    position_counts: Option<PositionCounts>,
    pub(crate) cache: Cache,
    /// The workload's cluster queue, even if its route is stopped or incomplete.
    pub(crate) queue: Option<QueueId>,
    /// The quota shortage that the workload would have in this queue without preemption.
    pub(crate) shortage: Option<Why>,
    /// Resources that no resource group of the queue covers.
    pub(crate) uncovered: Vec<String>,
    /// The quota that the workload would use.
    pub(crate) usage: Vec<((FlavorId, ResourceId), i64)>,
    /// Whether it would borrow quota.
    pub(crate) borrows: bool,
    /// The gang as it would be offered to clusters.
    pub(crate) gang: Arc<Gang>,
    /// The gang with its minimum pod counts. `None` without partial admission.
    pub(crate) smaller: Option<Arc<Gang>>,
    pub(crate) verdicts: Verdicts,
}

impl Case<'_> {
    pub(crate) fn position_counts(&self) -> Option<PositionCounts> {
        self.position_counts
    }

    /// The first workload in its cluster queue.
    pub(crate) fn front(&self) -> Option<WorkloadId> {
        self.ahead.as_ref()?.front()
    }

    pub(crate) fn usage_in(&self, world: &World, cluster: &ClusterName) -> ClusterUsage {
        self.cache
            .usage
            .borrow_mut()
            .entry(cluster.clone())
            .or_insert_with(|| simulated_eviction::cluster_usage(world, cluster))
            .clone()
    }

    /// Whether a cluster could start it now.
    pub(crate) fn fits_somewhere(&self) -> bool {
        self.verdicts.values().any(Result::is_ok)
    }
}

pub(crate) fn case<'a>(world: &'a World, uid: Uid, workload: &'a Workload, now: Mono) -> Case<'a> {
    let queues = world.mirror().queue_state();
    let (class, known) = (world.queues().class(workload.class()), world.mirror().id(uid));
    let is_evaluated = |id: &WorkloadId| {
        queues.workload(*id).is_some_and(|of| of.holding.is_none() && is_active(queues, of.queue))
    };
    let id = known.filter(is_evaluated);
    // The local queue's cluster queue, even if the local queue or the cluster queue is stopped.
    let queue_of_job = || {
        let name = &world.state().catalog().local_queue(&class.namespace, &class.queue)?.cluster_queue;
        world.state().catalog().cluster_queue(name).and_then(|_| queues.queue_id(name))
    };
    let queue = id.and_then(|id| queues.workload(id)).map(|of| of.queue).or_else(queue_of_job);
    let preview = match (id, queue) {
        (Some(id), _) => Some(explain::preview(queues, id)),
        (None, Some(queue)) => {
            explain::preview_in(queues, queue, |queues| entries::preview_pending(world, queues, uid, queue))
        }
        (None, None) => None,
    };
    let (gang, smaller) = offered_gangs(world, workload, preview.as_ref());
    let ahead = id.and_then(|id| queues.workloads_ahead(id));
    let mut case = Case {
        uid,
        workload,
        now,
        id,
        position_counts: ahead.as_ref().map(WorkloadsAhead::position_counts),
        ahead,
        cache: Cache::default(),
        queue,
        shortage: None,
        uncovered: queue.map(|queue| uncovered(world, uid, queue)).unwrap_or_default(),
        usage: Vec::new(),
        borrows: false,
        gang,
        smaller,
        verdicts: Verdicts::new(),
    };
    if let Some((copy, entry)) = preview {
        case.shortage = (entry.assignment.mode() != Mode::Fit).then(|| why_not::why_not(&copy, &entry));
        case.usage = entry.assignment.usage.iter().map(|(key, amount)| (*key, amount.0)).collect();
        case.borrows = entry.assignment.borrowing > 0;
    }
    case.verdicts = verdicts(world, &case, now);
    case
}

/// Requested resources that no resource group of the queue covers.
fn uncovered(world: &World, uid: Uid, queue: QueueId) -> Vec<String> {
    let queues = world.mirror().queue_state();
    let setup = &queues.queue(queue).setup;
    let Some(gang) = gangs::gang_of(world, uid) else { return Vec::new() };
    let excluded = world
        .state()
        .catalog()
        .cluster_queue(&setup.name)
        .map(|spec| spec.exclude_resource_prefixes.clone())
        .unwrap_or_default();
    let requested = gang.pod_sets.iter().flat_map(|set| {
        meridian_objects::without_prefixes(world.config().resources.counted(&set.per_pod), &excluded)
    });
    let covered = |name: &str| queues.resource_id(name).is_some_and(|id| setup.group_of(id).is_some());
    let all: std::collections::BTreeSet<String> =
        requested.filter(|(name, amount)| *amount > 0 && !covered(name)).map(|(name, _)| name).collect();
    all.into_iter().collect()
}

/// The gang as it would be offered to clusters, with the flavors that it would get, and for partial admission
/// also with its minimum pod counts.
fn offered_gangs(
    world: &World,
    workload: &Workload,
    preview: Option<&(QueueState, CycleEntry)>,
) -> (Arc<Gang>, Option<Arc<Gang>>) {
    let asked = workload.asked_gang(world.queues().class(workload.class()));
    let flavors =
        preview.map(|(copy, entry)| mirror::flavors_of(copy, &entry.assignment)).unwrap_or_default();
    let smaller =
        asked.least().map(|least| gangs::with_flavor_constraints(world, &Arc::new(least), &flavors));
    // If quota suffices for fewer pods only, clusters are offered these.
    let counts = preview
        .filter(|(_, entry)| entry.assignment.mode() == Mode::Fit)
        .map(|(_, entry)| entry.assignment.counts());
    let fewer = counts.filter(|counts| smaller.is_some() && counts.len() == asked.pod_sets.len());
    let gang = fewer.map_or_else(|| asked.clone(), |counts| Arc::new(asked.with_counts(&counts)));
    (gangs::with_flavor_constraints(world, &gang, &flavors), smaller)
}

fn verdicts(world: &World, case: &Case<'_>, now: Mono) -> Verdicts {
    let Some(queue) = case.queue.map(|queue| &world.mirror().queue_state().queue(queue).setup.name) else {
        return Verdicts::new();
    };
    let class = world.queues().class(case.workload.class());
    let candidates =
        CandidateClusters::new(world.state().catalog(), class, queue, world.config().residency_required);
    let check = |candidate: &Candidate| {
        candidate.listed.ok_or_else(|| candidates.not_listed())?;
        candidate.verdict.clone().map_err(Why::Forbidden)?;
        let check_gang = |gang| {
            candidates::check_cluster(world, (case.uid, now), gang, &candidates, candidate).map(|_| ())
        };
        check_gang(&case.gang).or_else(|why| {
            case.smaller.as_ref().filter(|gang| check_gang(gang).is_ok()).map(|_| ()).ok_or(why)
        })
    };
    candidates.candidates.iter().map(|candidate| (candidate.cluster.clone(), check(candidate))).collect()
}

fn is_active(queues: &QueueState, queue: QueueId) -> bool {
    queues.queue(queue).setup.inactive.is_none() && queues.queue(queue).node.is_some()
}

/// Flavor, resource and requested amount of a shortage. `None` if the shortage has no flavor.
pub(crate) fn key_of(queues: &QueueState, quota: &NoQuota) -> Option<(FlavorId, ResourceId, i64)> {
    let (flavor, resource, asks) = match quota {
        NoQuota::Used(short) => (&short.flavor, &short.resource, short.asks),
        NoQuota::ExceedsQuota { flavor, resource, asks, .. } => (flavor, resource, *asks),
        NoQuota::NotCovered { .. } | NoQuota::NoMatchingFlavor { .. } => return None,
    };
    let (flavor, _) = queues.flavor_list().find(|(id, _)| **queues.flavor_name(*id) == **flavor)?;
    Some((flavor, queues.resource_id(resource)?, asks))
}

/// The first obstacle of a workload in an active cluster queue.
pub(crate) enum Obstacle {
    /// An obstacle before any cluster is evaluated, such as missing quota.
    Before(Why),
    /// The head of its cluster queue is inadmissible and blocks the workloads behind it.
    Behind(WorkloadId, HeadBlocks),
    /// No cluster can start the workload, or none has been evaluated yet.
    AtClusters,
}
