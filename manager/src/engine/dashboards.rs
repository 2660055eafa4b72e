//! Kueue's metrics of queues, from committed lifecycle events and from the core's queue counts.

use crate::metrics::kueue::Kueue;
use meridian_manager_core::World;
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::lifecycle::Event;
use meridian_manager_core::facts::lifecycle::LifecycleEvent;
use meridian_manager_core::state::workload::phase::Phase;
use meridian_objects::Kind;
use meridian_telemetry::trace::Trace;
use meridian_views::metrics::{Cell, CohortRow, LocalRow, QueueRow, Unadmitted};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most local queues with series of their own; each has a few hundred, histograms included. Beyond it, gauges
/// show the first queues by namespace and name, and counters the queues that had the first events.
const LOCAL_QUEUES_MAX: usize = 1_000;

/// Namespace and name of a local queue.
type Local = (Arc<str>, Arc<str>);

/// A lifecycle event, with the facts that are needed to count it.
#[derive(Debug)]
pub(super) struct CountedEvent {
    lifecycle: LifecycleEvent,
    local_queue_exists: bool,
    /// For an admission: the cohorts above the cluster queue, which also count the admission.
    cohorts: Vec<Arc<str>>,
}

impl CountedEvent {
    pub(super) fn new(world: &World, lifecycle: LifecycleEvent) -> Self {
        let LifecycleEvent { uid: _, owner, event } = &lifecycle;
        let catalog = &world.state().catalog();
        let local_queue_exists = catalog.local_queue(&owner.namespace, &owner.local_queue).is_some();
        let cohorts = match event {
            Event::Admitted { .. } => {
                catalog.cohorts_above(&owner.cluster_queue).into_iter().map(Arc::from).collect()
            }
            _ => Vec::new(),
        };
        Self { lifecycle, local_queue_exists, cohorts }
    }
}

/// Counters of lifecycle events.
#[derive(Debug)]
pub(super) struct QueueCounters {
    kueue: Kueue,
    /// Local queues with their own counters.
    counted: BTreeSet<Local>,
}

impl QueueCounters {
    pub(super) fn new(kueue: Kueue) -> Self {
        Self { kueue, counted: BTreeSet::new() }
    }

    /// Drops the counters of a deleted object.
    pub(super) fn removed(&mut self, key: &Key) {
        match (&key.scope, key.kind, &key.namespace) {
            (None, Kind::ClusterQueue, _) => self.kueue.forget_cluster_queue(&key.name),
            (None, Kind::LocalQueue, Some(namespace)) => {
                self.counted.remove(&(namespace.clone(), key.name.clone()));
                self.kueue.forget_local_queue(namespace, &key.name);
            }
            (None, Kind::Cohort, _) => self.kueue.events.cohort_admitted.forget(&[("cohort", &key.name)]),
            _ => {}
        }
    }

    /// Counts an offer of a workload of this queue to a cluster.
    pub(super) fn dispatched(&self, cluster_queue: &str, cluster: &str) {
        self.kueue.events.dispatched.inc([cluster_queue, cluster]);
    }

    pub(super) fn count(&mut self, event: &CountedEvent) {
        let CountedEvent { lifecycle, local_queue_exists, cohorts } = event;
        let LifecycleEvent { uid, owner, event } = lifecycle;
        let trace = Trace::of_workload(*uid);
        let local = (owner.namespace.clone(), owner.local_queue.clone());
        let local = *local_queue_exists
            && (self.counted.contains(&local)
                || (self.counted.len() < LOCAL_QUEUES_MAX && self.counted.insert(local)));
        let (k, queue, class) = (&self.kueue, &*owner.cluster_queue, &*owner.priority_class);
        match event {
            Event::QuotaReserved { waited } => {
                k.events.quota_reserved.inc(owner, local);
                k.events.quota_reserved_wait.observe(owner, local, *waited, trace);
            }
            Event::Admitted { cluster, waited, checked } => {
                k.events.admitted.inc(owner, local);
                k.events.admission_wait.observe(owner, local, *waited, trace);
                if let Some(checked) = checked {
                    k.events.checks_wait.observe(owner, local, *checked, trace);
                }
                k.events.admitted_by_cluster.inc([queue, cluster.as_str()]);
                cohorts.iter().for_each(|cohort| k.events.cohort_admitted.inc([&**cohort, class]));
            }
            Event::Ready { waited, started } => {
                k.events.ready_wait.observe(owner, local, *waited, trace);
                k.events.admitted_until_ready.observe(owner, local, *started, trace);
            }
            Event::Evicted { cause, first, ran, cluster, preempted } => {
                let (reason, cause) = (cause.reason(), cause.underlying());
                k.events.evicted.inc([queue, reason, cause, class]);
                if *first {
                    k.events.evicted_once.inc([queue, reason, cause, class]);
                }
                if local {
                    k.events.local_evicted.inc([&owner.local_queue, &owner.namespace, reason, cause, class]);
                }
                if let Some(ran) = ran {
                    k.events
                        .ready_to_evicted
                        .observe_duration([queue, reason, cause], std::time::Duration::from_millis(ran.0));
                }
                if let Some(cluster) = cluster {
                    k.events.evicted_by_cluster.inc([queue, cluster.as_str(), reason]);
                }
                if let Some((by, reason)) = preempted {
                    k.events.preempted.inc([by, reason.as_str()]);
                }
            }
            Event::Stopped { cause, took } => k
                .events
                .eviction_latency
                .observe_duration([queue, cause.reason()], std::time::Duration::from_millis(took.0)),
            Event::Replaced => k.events.replaced_slices.inc([queue]),
            Event::Finished { ran } => {
                k.events.finished.inc(owner, local);
                k.events.execution_time.observe(owner, local, *ran, trace);
            }
        }
    }
}

/// State of the queues after a batch.
#[derive(Debug)]
pub(super) struct Rows {
    queues: Vec<QueueRow>,
    locals: Vec<LocalRow>,
    cohorts: Vec<CohortRow>,
    unadmitted: BTreeMap<Unadmitted, u64>,
}

impl Rows {
    pub(super) fn of(world: &World) -> Self {
        Self {
            queues: meridian_views::metrics::cluster_queue_rows(world),
            locals: meridian_views::metrics::local_queue_rows(world, LOCAL_QUEUES_MAX),
            cohorts: meridian_views::metrics::cohort_rows(world),
            unadmitted: meridian_views::metrics::unadmitted(world),
        }
    }
}

/// Gauges of queues.
#[derive(Debug)]
pub(super) struct Dashboards {
    kueue: Kueue,
}

impl Dashboards {
    pub(super) fn new(kueue: Kueue) -> Self {
        Self { kueue }
    }

    /// Counts scheduling rounds since the last report.
    pub(super) fn count_attempts(&self, fruitful: u64, fruitless: u64) {
        self.kueue.events.admission_attempts.add(["success"], fruitful);
        self.kueue.events.admission_attempts.add(["inadmissible"], fruitless);
    }

    pub(super) fn show(&self, rows: &Rows) {
        self.show_queues(&rows.queues);
        self.show_locals(&rows.locals);
        self.show_cohorts(&rows.cohorts);
        self.show_unadmitted(&rows.unadmitted);
    }

    fn show_queues(&self, rows: &[QueueRow]) {
        let k = &self.kueue;
        let each = || rows.iter().map(|row| (&*row.name, row));
        k.queues.pending_workloads.replace(each().flat_map(|(name, row)| {
            by_status(row.standing.waiting(), row.active_shapes).map(|(status, n)| ([name, status], n))
        }));
        let hashes = |[active, inadmissible]: [u64; 2]| {
            [("active", whole(active)), ("inadmissible", whole(inadmissible))]
        };
        k.queues.pending_hashes.replace(
            each().flat_map(|(name, row)| hashes(row.shapes).map(|(status, n)| ([name, status], n))),
        );
        k.queues
            .reserving_active
            .replace(each().map(|(name, row)| ([name], whole(row.standing.reserving()))));
        k.queues.admitted_active.replace(each().map(|(name, row)| ([name], whole(row.standing.admitted()))));
        k.queues
            .finished_workloads
            .replace(each().map(|(name, row)| ([name], whole(row.standing.phase(Phase::Finished)))));
        let status = |active: bool| {
            [("pending", i64::from(!active)), ("active", i64::from(active)), ("terminating", 0)]
        };
        k.queues.status.replace(
            each().flat_map(|(name, row)| status(row.active).map(|(status, is)| ([name, status], is))),
        );
        k.queues.info.replace(each().map(|(name, row)| ([name, text(&row.cohort), text(&row.root)], 1)));
        let cells = || {
            each().flat_map(|(name, row)| {
                row.cells
                    .iter()
                    .map(move |cell| ([text(&row.cohort), name, &*cell.flavor, &*cell.resource], cell))
            })
        };
        let amount = |cell: &Cell, of: i64| units(&cell.resource, of);
        let limit = |cell: &Cell, of: Option<i64>| of.map_or(f64::INFINITY, |of| units(&cell.resource, of));
        k.queues.reservation.replace(cells().map(|(labels, cell)| (labels, amount(cell, cell.reserved))));
        k.queues.usage.replace(cells().map(|(labels, cell)| (labels, amount(cell, cell.used))));
        k.queues.nominal_quota.replace(cells().map(|(labels, cell)| (labels, amount(cell, cell.nominal))));
        k.queues
            .borrowing_limit
            .replace(cells().map(|(labels, cell)| (labels, limit(cell, cell.borrowing_limit))));
        k.queues
            .lending_limit
            .replace(cells().map(|(labels, cell)| (labels, limit(cell, cell.lending_limit))));
        // Jobs may request any resource name, so only resources with quota in the queue get a series.
        let requested = |name, row: &QueueRow| {
            let resources: BTreeSet<Arc<str>> = row.cells.iter().map(|cell| cell.resource.clone()).collect();
            resources
                .into_iter()
                .map(|r| (name, r.to_string(), units(&r, row.standing.asked.get(&*r).copied().unwrap_or(0))))
                .collect::<Vec<_>>()
        };
        let requested: Vec<(&str, String, f64)> =
            each().flat_map(|(name, row)| requested(name, row)).collect();
        k.queues
            .resource_pending
            .replace(requested.iter().map(|(name, resource, amount)| ([*name, resource.as_str()], *amount)));
        k.queues
            .weighted_share
            .replace(each().filter_map(|(name, row)| Some(([name, text(&row.cohort)], row.share?))));
    }

    fn show_locals(&self, rows: &[LocalRow]) {
        let k = &self.kueue;
        let each = || rows.iter().map(|row| (&*row.name, &*row.namespace, row));
        let by = |row: &LocalRow| by_status(row.standing.waiting(), row.active_shapes);
        k.local_queues.pending_workloads.replace(
            each().flat_map(|(name, space, row)| by(row).map(|(status, n)| ([name, space, status], n))),
        );
        k.local_queues
            .reserving_active
            .replace(each().map(|(name, space, row)| ([name, space], whole(row.standing.reserving()))));
        k.local_queues
            .admitted_active
            .replace(each().map(|(name, space, row)| ([name, space], whole(row.standing.admitted()))));
        k.local_queues.finished_workloads.replace(
            each().map(|(name, space, row)| ([name, space], whole(row.standing.phase(Phase::Finished)))),
        );
        let status =
            |active: bool| [("True", i64::from(active)), ("False", i64::from(!active)), ("Unknown", 0)];
        k.local_queues.status.replace(each().flat_map(|(name, space, row)| {
            status(row.active).map(|(status, is)| ([name, space, status], is))
        }));
        k.local_queues.fair_sharing_usage.replace(
            each().filter_map(|(name, space, row)| {
                Some(([name, space, &*row.cluster_queue], row.weighted_use?))
            }),
        );
        for (metric, reserved) in [(&k.local_queues.reservation, true), (&k.local_queues.usage, false)] {
            let usage = |row: &&LocalRow| {
                if reserved { row.standing.reserved.clone() } else { row.standing.used.clone() }
            };
            let cells: Vec<_> = rows
                .iter()
                .flat_map(|row| usage(&row).into_iter().map(move |(key, amount)| (row, key, amount)))
                .collect();
            let series = cells.iter().map(|(row, (flavor, resource), amount)| {
                ([&*row.name, &*row.namespace, &**flavor, resource.as_str()], units(resource, *amount))
            });
            metric.replace(series);
        }
    }

    fn show_cohorts(&self, rows: &[CohortRow]) {
        let k = &self.kueue;
        k.cohorts.info.replace(rows.iter().map(|row| ([&*row.name, text(&row.parent), &*row.root], 1)));
        k.cohorts.weighted_share.replace(rows.iter().filter_map(|row| Some(([&*row.name], row.share?))));
        k.cohorts.admitted_active.replace(rows.iter().map(|row| ([&*row.name], whole(row.admitted))));
        let cells = || {
            rows.iter().flat_map(|row| {
                row.cells.iter().map(move |(flavor, resource, quota, used)| {
                    ([&*row.name, &**flavor, &**resource], *quota, *used)
                })
            })
        };
        k.cohorts.subtree_quota.replace(cells().map(|(labels, quota, _)| (labels, units(labels[2], quota))));
        k.cohorts
            .subtree_reservations
            .replace(cells().map(|(labels, _, used)| (labels, units(labels[2], used))));
    }

    fn show_unadmitted(&self, rows: &BTreeMap<Unadmitted, u64>) {
        let mut by_queue: BTreeMap<(&str, &str, &str), u64> = BTreeMap::new();
        for (row, n) in rows {
            *by_queue.entry((&row.cluster_queue, row.reason, row.cause)).or_default() += n;
        }
        self.kueue.queues.unadmitted.replace(
            by_queue.into_iter().map(|((queue, reason, cause), n)| ([queue, reason, cause], whole(n))),
        );
        let locals = rows.iter().take(LOCAL_QUEUES_MAX);
        let series = locals.map(|(row, n)| {
            ([&*row.local_queue, &*row.namespace, &*row.cluster_queue, row.reason, row.cause], whole(*n))
        });
        self.kueue.local_queues.unadmitted.replace(series);
    }
}

fn text(name: &Option<Arc<str>>) -> &str {
    name.as_deref().unwrap_or("")
}

fn whole(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Pending workloads by Kueue's status: those that will be evaluated, and those that wait for a change.
fn by_status(waiting: u64, active_shapes: u64) -> [(&'static str, i64); 2] {
    let active = active_shapes.min(waiting);
    [("active", whole(active)), ("inadmissible", whole(waiting - active))]
}

/// An amount in cores, bytes or devices, as Kueue shows it.
#[expect(
    clippy::cast_precision_loss,
    reason = "a gauge is a float; beyond 2^53 the difference doesn't matter"
)]
pub(super) fn units(resource: &str, amount: i64) -> f64 {
    if resource == "cpu" { amount as f64 / 1_000.0 } else { amount as f64 }
}
