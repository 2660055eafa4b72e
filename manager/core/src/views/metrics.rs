//! What a scrape shows of queues and cohorts: one pass over queues and classes, never over workloads.
//!
//! Everything is derived from the [counts_by_queue](crate::counts_by_queue), the declarations and the brain; the words are Kueue's.

use crate::dispatch::usage;
use crate::facts::reason::{NoQuota, NoRoute, Why};
use crate::facts::submission::ClassId;
use crate::queue::classes::Usage;
use crate::queue::counts::WorkloadCounts;
use crate::state::workload::phase::Phase;
use crate::views::statuses;
use crate::world::World;
use meridian_queueing::model::{QueueId, WorkloadId};
use meridian_queueing::tree::NodeId;
use meridian_shared::ids::ClusterName;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Quota and use of one flavor and resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Flavor.
    pub flavor: Arc<str>,
    /// Resource.
    pub resource: Arc<str>,
    /// Nominal quota.
    pub nominal: i64,
    /// The most that may be borrowed; none is no limit.
    pub borrowing_limit: Option<i64>,
    /// The most that is lent; none is no limit.
    pub lending_limit: Option<i64>,
    /// Charged.
    pub reserved: i64,
    /// Charged by those that a cluster has the right to run.
    pub used: i64,
}

/// One cluster queue.
#[derive(Clone, Debug)]
pub struct QueueRow {
    /// Its name.
    pub name: Arc<str>,
    /// The cohort above it.
    pub cohort: Option<Arc<str>>,
    /// The cohort above all.
    pub root: Option<Arc<str>>,
    /// Whether it can admit.
    pub active: bool,
    /// Who stands where.
    pub standing: WorkloadCounts,
    /// How many of those who wait may be looked at without anything having to change first.
    pub awake: u64,
    /// Of how many shapes somebody may be looked at, and of how many somebody waits for a change; a shape may be among both.
    pub shapes: [u64; 2],
    /// Quota and use.
    pub cells: Vec<Cell>,
    /// Its weighted share, where fair sharing is on; not a number where it borrows without weight.
    pub share: Option<f64>,
}

/// One local queue.
#[derive(Clone, Debug)]
pub struct LocalRow {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Whether it can be submitted to.
    pub active: bool,
    /// Who stands where.
    pub standing: WorkloadCounts,
    /// How many of those who wait may be looked at without anything having to change first.
    pub awake: u64,
    /// The cluster queue that it leads to.
    pub cluster_queue: Arc<str>,
    /// What it used by its weight, where admissions are shared by that; infinite without weight.
    pub weighted_use: Option<f64>,
}

/// One cohort.
#[derive(Clone, Debug)]
pub struct CohortRow {
    /// Its name.
    pub name: Arc<str>,
    /// The cohort above it.
    pub parent: Option<Arc<str>>,
    /// The cohort above all.
    pub root: Arc<str>,
    /// Its weighted share, where fair sharing is on; not a number where it borrows without weight.
    pub share: Option<f64>,
    /// Flavor, resource, quota of the subtree and what is charged in it.
    pub cells: Vec<(Arc<str>, Arc<str>, i64, i64)>,
    /// How many workloads of its subtree a cluster has the right to run.
    pub admitted: u64,
}

/// Why workloads of a queue aren't admitted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unadmitted {
    /// The cluster queue.
    pub cluster_queue: Arc<str>,
    /// The local queue's namespace.
    pub namespace: Arc<str>,
    /// The local queue.
    pub local_queue: Arc<str>,
    /// Kueue's word.
    pub reason: &'static str,
    /// Ours.
    pub cause: &'static str,
}

fn gauge(share: Option<meridian_queueing::share::Share>) -> Option<f64> {
    share.map(|share| if share.is_infinite() { f64::NAN } else { share.weighted() })
}

impl World {
    /// Every cluster queue.
    pub fn cluster_queue_rows(&self) -> Vec<QueueRow> {
        let brain = self.mirror.brain();
        let rows = self.state.catalog().cluster_queues().map(|(name, spec)| {
            let id = brain.queue_id(name);
            let node = id.and_then(|id| brain.queue(id).node);
            let standing = self.counts_by_queue.cluster_queue(name);
            let quotas = spec
                .resource_groups
                .iter()
                .flat_map(|group| &group.flavors)
                .flat_map(|f| f.resources.iter().map(move |(r, q)| (&f.name, r, q)));
            let cells = quotas.map(|(flavor, resource, quota)| {
                let key = (Arc::from(flavor.as_str()), resource.clone());
                let amount = |usage: &Usage| usage.get(&key).copied().unwrap_or(0);
                Cell {
                    flavor: key.0.clone(),
                    resource: Arc::from(resource.as_str()),
                    nominal: quota.nominal,
                    borrowing_limit: quota.borrowing_limit,
                    lending_limit: quota.lending_limit,
                    reserved: amount(&standing.reserved),
                    used: amount(&standing.used),
                }
            });
            let active = statuses::cluster_queue_activity(self, spec).active;
            let awake =
                || id.map_or(0, |id| brain.pending(id).awake_counts().into_values().map(|n| n as u64).sum());
            QueueRow {
                name: name.clone(),
                cohort: spec.cohort.as_deref().map(Arc::from),
                root: node
                    .filter(|_| spec.cohort.is_some())
                    .map(|node| brain.forest.node(brain.forest.root(node)).name.clone()),
                active,
                standing: standing.clone(),
                awake: if active { awake() } else { 0 },
                shapes: id.map_or([0; 2], |id| {
                    let [awake, asleep, all] = brain.pending(id).shape_counts().map(|n| n as u64);
                    if active { [awake, asleep] } else { [0, all] }
                }),
                cells: cells.collect(),
                share: gauge(statuses::share(self, node)),
            }
        });
        rows.collect()
    }

    /// Local queues, `most` of them.
    pub fn local_queue_rows(&self, most: usize) -> Vec<LocalRow> {
        let brain = self.mirror.brain();
        let mut awake: BTreeMap<&Arc<str>, u64> = BTreeMap::new();
        for (_, id) in brain.queue_list() {
            for (local_queue, n) in brain.pending(id).awake_counts() {
                *awake.entry(local_queue).or_default() += n as u64;
            }
        }
        let rows = self.state.catalog().local_queues().take(most).map(|(namespace, name, spec)| {
            let key: Arc<str> = Arc::from(format!("{namespace}/{name}"));
            let active = statuses::local_queue_activity(self, spec).active;
            LocalRow {
                namespace: namespace.clone(),
                name: name.clone(),
                active,
                standing: self.counts_by_queue.local_queue(namespace, name).clone(),
                awake: awake.get(&key).copied().filter(|_| active).unwrap_or(0),
                cluster_queue: Arc::from(spec.cluster_queue.as_str()),
                weighted_use: usage::weighted_use(self, &key),
            }
        });
        rows.collect()
    }

    /// Every cohort, declared or only named.
    pub fn cohort_rows(&self) -> Vec<CohortRow> {
        let brain = self.mirror.brain();
        let forest = &brain.forest;
        let mut sums: BTreeMap<NodeId, (u64, Usage)> = BTreeMap::new();
        for (name, _) in self.state.catalog().cluster_queues() {
            let Some(node) = brain.queue_id(name).and_then(|id| brain.queue(id).node) else { continue };
            let standing = self.counts_by_queue.cluster_queue(name);
            for above in forest.ancestors(node) {
                let (admitted, reserved) = sums.entry(above).or_default();
                *admitted += standing.admitted();
                for (key, amount) in &standing.reserved {
                    *reserved.entry(key.clone()).or_insert(0) += amount;
                }
            }
        }
        let rows = forest.cohorts().map(|(name, id)| {
            let (admitted, reserved) = sums.remove(&id).unwrap_or_default();
            let cells =
                forest.cells(id).filter(|(_, cell)| cell.declared).map(|((flavor, resource), cell)| {
                    let (flavor, resource) =
                        (brain.flavor_name(flavor).clone(), brain.resource_name(resource).clone());
                    let charged = reserved.get(&(flavor.clone(), resource.to_string())).copied().unwrap_or(0);
                    (flavor, resource, cell.subtree.0, charged)
                });
            CohortRow {
                name: name.clone(),
                parent: forest.node(id).parent.map(|parent| forest.node(parent).name.clone()),
                root: forest.node(forest.root(id)).name.clone(),
                share: gauge(statuses::share(self, Some(id))),
                cells: cells.collect(),
                admitted,
            }
        });
        rows.collect()
    }

    /// Who isn't admitted and why, by queue.
    pub fn unadmitted(&self) -> BTreeMap<Unadmitted, u64> {
        let mut counts = BTreeMap::new();
        let mut add = |(namespace, local_queue): (&Arc<str>, &Arc<str>),
                       (reason, cause): (&'static str, &'static str),
                       n: u64| {
            let Some(queue) = self.state.catalog().local_queue(namespace, local_queue) else { return };
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
        for class in self.queues.waiting_classes() {
            let of = self.queues.class(class);
            add(
                (&of.namespace, &of.queue),
                obstacle_of(self, class, &mut heads),
                self.queues.waiting_count(class) as u64,
            );
        }
        for (namespace, name, _) in self.state.catalog().local_queues() {
            let standing = self.counts_by_queue.local_queue(namespace, name);
            let asking = standing.phase(Phase::Reserved) + standing.phase(Phase::Dispatching);
            if asking > 0 {
                // The check of worker clusters takes part in every admission.
                add((namespace, name), ("UnsatisfiedAdmissionChecks", "ClustersAsked"), asking);
            }
        }
        counts
    }
}

/// What keeps a class: Kueue's word, and ours where it says more.
fn obstacle_of(
    world: &World,
    class: ClassId,
    heads: &mut BTreeMap<QueueId, Option<WorkloadId>>,
) -> (&'static str, &'static str) {
    if world.state.rules_doubted().is_some() {
        return ("PendingEvaluation", "RulesDoubted");
    }
    let brain = world.mirror.brain();
    let first = world.queues.waiting(class).next().map(|place| place.uid);
    match first.map(|uid| (uid, world.mirror.id(uid).and_then(|id| Some((id, brain.workload(id)?.queue))))) {
        Some((_, Some((id, queue)))) => {
            if brain.queue(queue).setup.inactive.is_some() {
                return ("Suspended", "");
            }
            let head = *heads.entry(queue).or_insert_with(|| brain.head(queue));
            if head.is_some_and(|head| brain.is_behind(id, head)) {
                return ("PendingEvaluation", "BehindHead");
            }
        }
        Some((uid, None)) if world.live.backoff_until.contains_key(&uid) => return obstacle(&Why::BackOff),
        Some((_, None)) | None => {}
    }
    if let Some(why) = world.live.pending_reasons.before(class) {
        return obstacle(why);
    }
    let at_clusters =
        world.live.pending_reasons.at_clusters(class).and_then(|by| by.values().map(at_cluster).min());
    match at_clusters {
        Some((_, cause)) => ("UnsatisfiedAdmissionChecks", cause),
        None if world.state.recovery().is_some() => ("PendingEvaluation", "RecoveryOpen"),
        None => ("PendingEvaluation", ""),
    }
}

fn obstacle(why: &Why) -> (&'static str, &'static str) {
    match why {
        Why::Route(NoRoute::Stopped { .. }) | Why::Inactive { .. } => ("Suspended", ""),
        Why::Route(NoRoute::NoLocalQueue { .. }) => ("Misconfigured", "NoLocalQueue"),
        Why::Route(NoRoute::NoClusterQueue { .. }) => ("Misconfigured", "NoClusterQueue"),
        Why::Route(NoRoute::NamespaceNotSelected { .. }) => ("Misconfigured", "NamespaceNotSelected"),
        Why::Quota(NoQuota::NotCovered { .. }) => ("NoMatchingFlavor", "ResourceNotCovered"),
        Why::Quota(NoQuota::NoMatchingFlavor { .. }) => ("NoMatchingFlavor", ""),
        Why::Quota(NoQuota::ExceedsQuota { .. }) => ("ExceedsMaxQuota", ""),
        Why::Quota(NoQuota::Used(_)) => ("WaitingForQuota", ""),
        Why::Overtaken => ("WaitingForQuota", "Overtaken"),
        Why::GivesWay => ("WaitingForQuota", "Kept"),
        Why::Preempts { .. } => ("WaitingForPreemptedWorkloads", ""),
        Why::BackOff => ("PendingEvaluation", "BackOff"),
        Why::RecoveryOpen => ("PendingEvaluation", "RecoveryOpen"),
        Why::RulesDoubted => ("PendingEvaluation", "RulesDoubted"),
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
        | Why::NoRoom(_)
        | Why::Kept { .. }
        | Why::Refused { .. }
        | Why::BackedOff
        | Why::NotChosen { .. } => ("UnsatisfiedAdmissionChecks", at_cluster(why).1),
    }
}

/// Of the clusters that can't start a workload the one whose obstacle the least would remove.
pub(crate) fn nearest(at_clusters: &BTreeMap<ClusterName, Why>) -> Option<(&ClusterName, &Why)> {
    at_clusters
        .iter()
        .min_by_key(|(_, why)| at_cluster(why).0)
        .filter(|(_, why)| !at_cluster(why).1.is_empty())
}

/// The obstacle at one cluster, those first that the least would remove.
fn at_cluster(why: &Why) -> (u8, &'static str) {
    match why {
        Why::NoRoom(_) => (0, "NoRoom"),
        Why::Kept { .. } => (0, "Kept"),
        Why::Capped { .. } => (1, "Capped"),
        Why::Refused { .. } => (2, "Refused"),
        Why::BackedOff => (3, "BackedOff"),
        Why::NotConnected | Why::NoReport | Why::Recovering | Why::NotAdmitted | Why::RecoveryOpen => {
            (4, "NotConnected")
        }
        Why::Cordoned => (5, "Cordoned"),
        Why::Quarantined { .. } => (6, "Quarantined"),
        Why::NotGuarded => (7, "NotGuarded"),
        Why::Forbidden(_) => (8, "Residency"),
        Why::NotInQueue | Why::NoWorkersConfig { .. } | Why::NoCluster => (9, "NoCluster"),
        // Quota and order are obstacles before any cluster, and who is preferred elsewhere waits for nothing here.
        Why::Route(_)
        | Why::Quota(_)
        | Why::NotChosen { .. }
        | Why::Preempts { .. }
        | Why::Overtaken
        | Why::GivesWay
        | Why::Inactive { .. }
        | Why::RulesDoubted
        | Why::BackOff => (10, ""),
    }
}
