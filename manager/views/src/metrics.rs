//! Metrics of queues and cohorts. A scrape takes one pass over queues and classes, never over workloads.
//!
//! Derived from the queue counts, the declared objects and the queue state. Reasons are Kueue's.

use crate::statuses;
use meridian_manager_core::dispatch::usage;
use meridian_manager_core::facts::flavors::FlavorUsage;
use meridian_manager_core::facts::reason::{NoQuota, NoRoute, Why};
use meridian_manager_core::facts::submission::ClassId;
use meridian_manager_core::queue::counts::WorkloadCounts;
use meridian_manager_core::state::workload::phase::Phase;
use meridian_manager_core::world::World;
use meridian_queueing::model::{QueueId, WorkloadId};
use meridian_queueing::quota::NodeId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Quota and use of one flavor and resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    pub flavor: Arc<str>,
    pub resource: Arc<str>,
    pub nominal: i64,
    /// `None` is no limit.
    pub borrowing_limit: Option<i64>,
    /// `None` is no limit.
    pub lending_limit: Option<i64>,
    /// Quota charged to workloads.
    pub reserved: i64,
    /// Quota charged to workloads that a cluster has the right to run.
    pub used: i64,
}

#[derive(Clone, Debug)]
pub struct QueueRow {
    pub name: Arc<str>,
    pub cohort: Option<Arc<str>>,
    /// The root of its cohort tree.
    pub root: Option<Arc<str>>,
    pub active: bool,
    pub standing: WorkloadCounts,
    /// Pending workloads that will be evaluated without a further change. The other pending workloads are
    /// inadmissible.
    pub active_shapes: u64,
    /// Numbers of shapes with active and with inadmissible workloads. A shape may count as both.
    pub shapes: [u64; 2],
    pub cells: Vec<Cell>,
    /// Weighted share if fair sharing is on. Not a number if it borrows with weight 0.
    pub share: Option<f64>,
}

#[derive(Clone, Debug)]
pub struct LocalRow {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub active: bool,
    pub standing: WorkloadCounts,
    /// Pending workloads that will be evaluated without a further change. The other pending workloads are
    /// inadmissible.
    pub active_shapes: u64,
    pub cluster_queue: Arc<str>,
    /// Usage history divided by the queue's weight if admission fair sharing is on. Infinite with weight 0.
    pub weighted_use: Option<f64>,
}

#[derive(Clone, Debug)]
pub struct CohortRow {
    pub name: Arc<str>,
    pub parent: Option<Arc<str>>,
    /// The root of its cohort tree.
    pub root: Arc<str>,
    /// Weighted share if fair sharing is on. Not a number if it borrows with weight 0.
    pub share: Option<f64>,
    /// Flavor, resource, quota of the subtree, and quota charged in it.
    pub cells: Vec<(Arc<str>, Arc<str>, i64, i64)>,
    /// Workloads of its subtree that a cluster has the right to run.
    pub admitted: u64,
}

/// Labels of the metric that counts workloads by why they aren't admitted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unadmitted {
    pub cluster_queue: Arc<str>,
    /// Namespace of the local queue.
    pub namespace: Arc<str>,
    pub local_queue: Arc<str>,
    pub reason: &'static str,
    /// Meridian's cause, if it says more than the reason.
    pub cause: &'static str,
}

fn gauge(share: Option<meridian_queueing::quota::Share>) -> Option<f64> {
    share.map(|share| if share.is_infinite() { f64::NAN } else { share.weighted() })
}

pub fn cluster_queue_rows(world: &World) -> Vec<QueueRow> {
    let queues = world.mirror().queue_state();
    let rows = world.state().catalog().cluster_queues().map(|(name, spec)| {
        let id = queues.queue_id(name);
        let node = id.and_then(|id| queues.queue(id).node);
        let counts = world.counts_by_queue().cluster_queue(name);
        let quotas = spec
            .resource_groups
            .iter()
            .flat_map(|group| &group.flavors)
            .flat_map(|f| f.resources.iter().map(move |(r, q)| (&f.name, r, q)));
        let cells = quotas.map(|(flavor, resource, quota)| {
            let key = (Arc::from(flavor.as_str()), resource.clone());
            let amount = |usage: &FlavorUsage| usage.get(&key).copied().unwrap_or(0);
            Cell {
                flavor: key.0.clone(),
                resource: Arc::from(resource.as_str()),
                nominal: quota.nominal,
                borrowing_limit: quota.borrowing_limit,
                lending_limit: quota.lending_limit,
                reserved: amount(&counts.reserved),
                used: amount(&counts.used),
            }
        });
        let active = statuses::cluster_queue_activity(world, spec).active;
        let active_shapes =
            || id.map_or(0, |id| queues.pending(id).active_counts().into_values().map(|n| n as u64).sum());
        QueueRow {
            name: name.clone(),
            cohort: spec.cohort.as_deref().map(Arc::from),
            root: node
                .filter(|_| spec.cohort.is_some())
                .map(|node| queues.forest().node(queues.forest().root(node)).name.clone()),
            active,
            standing: counts.clone(),
            active_shapes: if active { active_shapes() } else { 0 },
            shapes: id.map_or([0; 2], |id| {
                let [awaiting, inadmissible, all] = queues.pending(id).shape_counts().map(|n| n as u64);
                if active { [awaiting, inadmissible] } else { [0, all] }
            }),
            cells: cells.collect(),
            share: gauge(statuses::share(world, node)),
        }
    });
    rows.collect()
}

/// The first `limit` local queues.
pub fn local_queue_rows(world: &World, limit: usize) -> Vec<LocalRow> {
    let queues = world.mirror().queue_state();
    let mut active_shapes: BTreeMap<&Arc<str>, u64> = BTreeMap::new();
    for (_, id) in queues.queue_list() {
        for (local_queue, n) in queues.pending(id).active_counts() {
            *active_shapes.entry(local_queue).or_default() += n as u64;
        }
    }
    let rows = world.state().catalog().local_queues().take(limit).map(|(namespace, name, spec)| {
        let key: Arc<str> = Arc::from(format!("{namespace}/{name}"));
        let active = statuses::local_queue_activity(world, spec).active;
        LocalRow {
            namespace: namespace.clone(),
            name: name.clone(),
            active,
            standing: world.counts_by_queue().local_queue(namespace, name).clone(),
            active_shapes: active_shapes.get(&key).copied().filter(|_| active).unwrap_or(0),
            cluster_queue: Arc::from(spec.cluster_queue.as_str()),
            weighted_use: usage::weighted_use(world, &key),
        }
    });
    rows.collect()
}

/// All cohorts, including those that are only referred to.
pub fn cohort_rows(world: &World) -> Vec<CohortRow> {
    let queues = world.mirror().queue_state();
    let forest = &queues.forest();
    let mut sums: BTreeMap<NodeId, (u64, FlavorUsage)> = BTreeMap::new();
    for (name, _) in world.state().catalog().cluster_queues() {
        let Some(node) = queues.queue_id(name).and_then(|id| queues.queue(id).node) else { continue };
        let counts = world.counts_by_queue().cluster_queue(name);
        for above in forest.ancestors(node) {
            let (admitted, reserved) = sums.entry(above).or_default();
            *admitted += counts.admitted();
            for (key, amount) in &counts.reserved {
                *reserved.entry(key.clone()).or_insert(0) += amount;
            }
        }
    }
    let rows = forest.cohorts().map(|(name, id)| {
        let (admitted, reserved) = sums.remove(&id).unwrap_or_default();
        let cells = forest.cells(id).filter(|(_, cell)| cell.declared).map(|((flavor, resource), cell)| {
            let (flavor, resource) =
                (queues.flavor_name(flavor).clone(), queues.resource_name(resource).clone());
            let charged = reserved.get(&(flavor.clone(), resource.to_string())).copied().unwrap_or(0);
            (flavor, resource, cell.subtree.0, charged)
        });
        CohortRow {
            name: name.clone(),
            parent: forest.node(id).parent.map(|parent| forest.node(parent).name.clone()),
            root: forest.node(forest.root(id)).name.clone(),
            share: gauge(statuses::share(world, Some(id))),
            cells: cells.collect(),
            admitted,
        }
    });
    rows.collect()
}

/// Numbers of workloads that aren't admitted, by queue and reason.
pub fn unadmitted(world: &World) -> BTreeMap<Unadmitted, u64> {
    let mut counts = BTreeMap::new();
    let mut add = |(namespace, local_queue): (&Arc<str>, &Arc<str>),
                   (reason, cause): (&'static str, &'static str),
                   n: u64| {
        let Some(queue) = world.state().catalog().local_queue(namespace, local_queue) else { return };
        let cluster_queue = Arc::from(queue.cluster_queue.as_str());
        let key = Unadmitted {
            cluster_queue,
            namespace: namespace.clone(),
            local_queue: local_queue.clone(),
            reason,
            cause,
        };
        *counts.entry(key).or_insert(0) += n;
    };
    let mut heads = BTreeMap::new();
    for class in world.queues().waiting_classes() {
        let of = world.queues().class(class);
        add(
            (&of.namespace, &of.queue),
            reason_of_class(world, class, &mut heads),
            world.queues().waiting_count(class) as u64,
        );
    }
    for (namespace, name, _) in world.state().catalog().local_queues() {
        let counts = world.counts_by_queue().local_queue(namespace, name);
        let dispatching = counts.phase(Phase::Reserved) + counts.phase(Phase::Dispatching);
        if dispatching > 0 {
            // In Kueue, the MultiKueue check takes part in every admission.
            add((namespace, name), ("UnsatisfiedAdmissionChecks", "ClustersAsked"), dispatching);
        }
    }
    counts
}

/// Reason and cause of a pending class, see [`Unadmitted`].
fn reason_of_class(
    world: &World,
    class: ClassId,
    heads: &mut BTreeMap<QueueId, Option<WorkloadId>>,
) -> (&'static str, &'static str) {
    if let Some(doubt) = world.rules_doubt() {
        return reason_of(&doubt);
    }
    let queues = world.mirror().queue_state();
    let damaged = world.live().damaged();
    let mut waiting = world.queues().waiting(class).map(|position| position.uid);
    let first = waiting.find(|uid| !damaged.contains(*uid));
    if first.is_none() && world.queues().waiting(class).next().is_some() {
        return reason_of(&Why::Damaged);
    }
    match first.map(|uid| (uid, world.mirror().id(uid).and_then(|id| Some((id, queues.workload(id)?.queue)))))
    {
        Some((_, Some((id, queue)))) => {
            if queues.queue(queue).setup.inactive.is_some() {
                return ("Suspended", "");
            }
            let head = *heads.entry(queue).or_insert_with(|| queues.head(queue));
            if head.is_some_and(|head| queues.is_behind(id, head)) {
                return ("PendingEvaluation", "BehindHead");
            }
        }
        Some((uid, None)) if world.live().backoffs().until(uid).is_some() => {
            return reason_of(&Why::BackOff);
        }
        Some((_, None)) | None => {}
    }
    if let Some(why) = world.live().pending_reasons().before(class) {
        return reason_of(why);
    }
    let at_clusters = world
        .live()
        .pending_reasons()
        .at_clusters(class)
        .and_then(|by| by.values().map(Why::cluster_obstacle).min());
    match at_clusters {
        Some((_, cause)) => ("UnsatisfiedAdmissionChecks", cause),
        None if world.state().recovery().is_some() => ("PendingEvaluation", "RecoveryOpen"),
        None => ("PendingEvaluation", ""),
    }
}

fn reason_of(why: &Why) -> (&'static str, &'static str) {
    match why {
        Why::Route(NoRoute::Stopped { .. }) | Why::Inactive { .. } => ("Suspended", ""),
        Why::Route(NoRoute::NoLocalQueue { .. }) => ("Misconfigured", "NoLocalQueue"),
        Why::Route(NoRoute::NoClusterQueue { .. }) => ("Misconfigured", "NoClusterQueue"),
        Why::Route(NoRoute::NamespaceNotSelected { .. } | NoRoute::SelectsNoNamespace { .. }) => {
            ("Misconfigured", "NamespaceNotSelected")
        }
        Why::Quota(NoQuota::NotCovered { .. }) => ("NoMatchingFlavor", "ResourceNotCovered"),
        Why::Quota(NoQuota::NoMatchingFlavor { .. }) => ("NoMatchingFlavor", ""),
        Why::Quota(NoQuota::ExceedsQuota { .. }) => ("ExceedsMaxQuota", ""),
        Why::Quota(NoQuota::Used(_)) => ("WaitingForQuota", ""),
        Why::Overtaken => ("WaitingForQuota", "Overtaken"),
        Why::ReservedForStarved => ("WaitingForQuota", "ReservedForStarved"),
        Why::Preempts { .. } => ("WaitingForPreemptedWorkloads", ""),
        Why::BackOff => ("PendingEvaluation", "BackOff"),
        Why::Damaged => ("PendingEvaluation", "Damaged"),
        Why::RecoveryOpen => ("PendingEvaluation", "RecoveryOpen"),
        Why::RulesDoubted => ("PendingEvaluation", "RulesDoubted"),
        Why::RulesUnheard => ("PendingEvaluation", "RulesUnheard"),
        Why::Forbidden(_)
        | Why::NoCluster
        | Why::NotInQueue
        | Why::NoWorkersConfig { .. }
        | Why::Cordoned
        | Why::NotConnected
        | Why::Recovering
        | Why::NotAdmitted
        | Why::Quarantined { .. }
        | Why::NoReport
        | Why::NotGuarded
        | Why::Capped { .. }
        | Why::NoCapacity(_)
        | Why::CapacityReserved { .. }
        | Why::Refused { .. }
        | Why::BackedOff
        | Why::NotChosen { .. } => ("UnsatisfiedAdmissionChecks", why.cluster_obstacle().1),
    }
}
