//! One workload that waits, as it is looked at for whoever asks: the queue that it is in, or would be in if nothing kept it from
//! there, what it would be given by it, and what every cluster says to that.
//!
//! Found once for each question, on a copy of the books, by the functions that decide.

use crate::capacity::simulated_eviction::{self, ClusterUsage};
use crate::dispatch::align::entries;
use crate::dispatch::{candidates, why_not};
use crate::facts::reason::{NoQuota, Why};
use crate::queue::candidate_clusters::{Candidate, CandidateClusters};
use crate::queue::mirror;
use crate::state::workload::Workload;
use crate::world::{World, gangs};
use meridian_queueing::Brain;
use meridian_queueing::cycle::{Entry, MayComeFirst};
use meridian_queueing::flavors::Mode;
use meridian_queueing::model::{QueueId, WorkloadId};
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::pending::{Before, HeadStays, Standing};
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::Mono;
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What each cluster says to a workload: nothing against it, or why not.
pub(crate) type Verdicts = BTreeMap<ClusterName, Result<(), Why>>;

/// What was found out on the way, and is asked for more than once.
#[derive(Default)]
pub(crate) struct Found {
    /// What keeps it where its queue looks at it.
    pub(crate) obstacle: OnceCell<Obstacle>,
    /// Those who may come first, by what comes free.
    pub(crate) may_come_first: RefCell<BTreeMap<(FlavorId, ResourceId), MayComeFirst>>,
    /// By cluster whose ends would do.
    pub(crate) ends: RefCell<BTreeMap<ClusterName, Vec<Uid>>>,
    /// By cluster who stands where.
    there: RefCell<BTreeMap<ClusterName, ClusterUsage>>,
}

/// One workload that waits.
pub(crate) struct Case<'a> {
    pub(crate) uid: Uid,
    pub(crate) workload: &'a Workload,
    /// When it is looked at.
    pub(crate) now: Mono,
    /// Its number, where its queue looks at it.
    pub(crate) id: Option<WorkloadId>,
    /// Who comes before it there.
    pub(crate) before: Option<Before<'a>>,
    standing: Option<Standing>,
    pub(crate) found: Found,
    /// The queue that it waits in, or would.
    pub(crate) queue: Option<QueueId>,
    /// What quota it would lack there, nobody being displaced.
    pub(crate) lacks: Option<Why>,
    /// Resources that no group of the queue covers.
    pub(crate) uncovered: Vec<String>,
    /// What it would take.
    pub(crate) takes: Vec<((FlavorId, ResourceId), i64)>,
    /// It would borrow.
    pub(crate) borrows: bool,
    /// The gang as clusters would be asked for it.
    pub(crate) gang: Arc<Gang>,
    /// The smallest that does, where fewer pods do.
    pub(crate) smaller: Option<Arc<Gang>>,
    pub(crate) verdicts: Verdicts,
}

impl Case<'_> {
    /// Where it stands in its queue.
    pub(crate) fn standing(&self) -> Option<Standing> {
        self.standing
    }

    /// Who comes first in its queue, where that looks at it.
    pub(crate) fn front(&self) -> Option<WorkloadId> {
        self.before.as_ref()?.front()
    }

    /// Who stands where in a cluster.
    pub(crate) fn there(&self, world: &World, cluster: &ClusterName) -> ClusterUsage {
        self.found
            .there
            .borrow_mut()
            .entry(cluster.clone())
            .or_insert_with(|| simulated_eviction::cluster_usage(world, cluster))
            .clone()
    }

    /// Whether a cluster could start it now.
    pub(crate) fn has_room(&self) -> bool {
        self.verdicts.values().any(Result::is_ok)
    }
}

pub(crate) fn case<'a>(world: &'a World, uid: Uid, workload: &'a Workload, now: Mono) -> Case<'a> {
    let brain = world.mirror.brain();
    let (class, found) = (world.queues.class(workload.class()), world.mirror.id(uid));
    let looked_at = |id: &WorkloadId| {
        brain.workload(*id).is_some_and(|of| of.holding.is_none() && admits(brain, of.queue))
    };
    let id = found.filter(looked_at);
    // Where it leads, whatever is stopped on the way there.
    let leads_to = || {
        let name = &world.state.catalog().local_queue(&class.namespace, &class.queue)?.cluster_queue;
        world.state.catalog().cluster_queue(name).and_then(|_| brain.queue_id(name))
    };
    let queue = id.and_then(|id| brain.workload(id)).map(|of| of.queue).or_else(leads_to);
    let met = match (id, queue) {
        (Some(id), _) => Some(brain.would_meet(id)),
        (None, Some(queue)) => {
            brain.would_meet_in(queue, |brain| entries::would_wait(world, brain, uid, queue))
        }
        (None, None) => None,
    };
    let (gang, smaller) = meant(world, workload, met.as_ref());
    let before = id.and_then(|id| brain.before(id));
    let mut case = Case {
        uid,
        workload,
        now,
        id,
        standing: before.as_ref().map(Before::standing),
        before,
        found: Found::default(),
        queue,
        lacks: None,
        uncovered: queue.map(|queue| uncovered(world, uid, queue)).unwrap_or_default(),
        takes: Vec::new(),
        borrows: false,
        gang,
        smaller,
        verdicts: Verdicts::new(),
    };
    if let Some((sketch, entry)) = met {
        case.lacks = (entry.assignment.mode() != Mode::Fit).then(|| why_not::why_not(&sketch, &entry));
        case.takes = entry.assignment.usage.iter().map(|(key, amount)| (*key, amount.0)).collect();
        case.borrows = entry.assignment.borrowing > 0;
    }
    case.verdicts = verdicts(world, &case, now);
    case
}

/// Resources that it asks for and the queue knows nothing of.
fn uncovered(world: &World, uid: Uid, queue: QueueId) -> Vec<String> {
    let brain = world.mirror.brain();
    let setup = &brain.queue(queue).setup;
    let Some(gang) = gangs::gang_of(world, uid) else { return Vec::new() };
    let excluded = world
        .state
        .catalog()
        .cluster_queue(&setup.name)
        .map(|spec| spec.exclude_resource_prefixes.clone())
        .unwrap_or_default();
    let asked = gang.pod_sets.iter().flat_map(|set| {
        meridian_objects::without_prefixes(world.config.resources.seen(&set.per_pod), &excluded)
    });
    let covered = |name: &str| brain.resource_id(name).is_some_and(|id| setup.group_of(id).is_some());
    let all: std::collections::BTreeSet<String> =
        asked.filter(|(name, amount)| *amount > 0 && !covered(name)).map(|(name, _)| name).collect();
    all.into_iter().collect()
}

/// The gang as clusters would be asked for it, with the flavors that it would get; and the smallest that does, where fewer
/// pods do.
fn meant(world: &World, workload: &Workload, met: Option<&(Brain, Entry)>) -> (Arc<Gang>, Option<Arc<Gang>>) {
    let class = world.queues.class(workload.class());
    let flavors =
        met.map(|(sketch, entry)| mirror::flavors_of(sketch, &entry.assignment)).unwrap_or_default();
    let smaller =
        class.gang.least().map(|least| gangs::with_flavor_constraints(world, &Arc::new(least), &flavors));
    // Where there is quota for fewer, so many are asked for (simulation seed 6009743).
    let counts = met
        .filter(|(_, entry)| entry.assignment.mode() == Mode::Fit)
        .map(|(_, entry)| entry.assignment.counts());
    let fewer = counts.filter(|counts| smaller.is_some() && counts.len() == class.gang.pod_sets.len());
    let gang = fewer.map_or_else(|| class.gang.clone(), |counts| Arc::new(class.gang.of_counts(&counts)));
    (gangs::with_flavor_constraints(world, &gang, &flavors), smaller)
}

/// What every cluster would say to it.
fn verdicts(world: &World, case: &Case<'_>, now: Mono) -> Verdicts {
    let Some(queue) = case.queue.map(|queue| &world.mirror.brain().queue(queue).setup.name) else {
        return Verdicts::new();
    };
    let class = world.queues.class(case.workload.class());
    let way = CandidateClusters::new(&world.state.catalog(), class, queue, world.config.residency_required);
    let judge = |site: &Candidate| {
        site.listed.ok_or_else(|| way.not_listed())?;
        site.verdict.clone().map_err(Why::Forbidden)?;
        let judged = |gang| candidates::judge_cluster(world, (case.uid, now), gang, &way, site).map(|_| ());
        judged(&case.gang)
            .or_else(|why| case.smaller.as_ref().filter(|gang| judged(gang).is_ok()).map(|_| ()).ok_or(why))
    };
    way.candidates.iter().map(|site| (site.cluster.clone(), judge(site))).collect()
}

/// Whether a queue admits anybody.
fn admits(brain: &Brain, queue: QueueId) -> bool {
    brain.queue(queue).setup.inactive.is_none() && brain.queue(queue).node.is_some()
}

/// What a shortage is of.
pub(crate) fn key_of(brain: &Brain, quota: &NoQuota) -> Option<(FlavorId, ResourceId, i64)> {
    let (flavor, resource, asks) = match quota {
        NoQuota::Used(short) => (&short.flavor, &short.resource, short.asks),
        NoQuota::ExceedsQuota { flavor, resource, asks, .. } => (flavor, resource, *asks),
        NoQuota::NotCovered { .. } | NoQuota::NoMatchingFlavor { .. } => return None,
    };
    let (flavor, _) = brain.flavor_list().find(|(id, _)| **brain.flavor_name(*id) == **flavor)?;
    Some((flavor, brain.resource_id(resource)?, asks))
}

/// The first obstacle.
pub(crate) enum Obstacle {
    /// Before any cluster is looked at.
    Before(Why),
    /// Its queue's head, which doesn't go away.
    Behind(WorkloadId, HeadStays),
    /// No cluster can start it, or none has been asked yet.
    AtClusters,
}
