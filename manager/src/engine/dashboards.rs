//! What dashboards show of queues: Kueue's metrics, from milestones that are committed and from the core's standings.

use crate::metrics::kueue::Kueue;
use meridian_manager_core::World;
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::lifecycle::{Event, Milestone};
use meridian_manager_core::state::workload::phase::Phase;
use meridian_manager_core::views::metrics::{Cell, CohortRow, LocalRow, QueueRow, Unadmitted};
use meridian_objects::Kind;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Local queues that have series of their own: each has a few hundred with its histograms. Beyond it the first by namespace
/// and name show their standing, and the first that anything happened in are counted.
const LOCAL_QUEUES_MAX: usize = 1_000;

/// Names of one local queue: namespace and name.
type Local = (Arc<str>, Arc<str>);

/// A milestone, with what counting it takes besides.
#[derive(Debug)]
pub(super) struct Reached {
    milestone: Milestone,
    /// The local queue exists.
    there: bool,
    /// Cohorts above the cluster queue, where they count it too.
    cohorts: Vec<Arc<str>>,
}

impl Reached {
    pub(super) fn new(world: &World, milestone: Milestone) -> Self {
        let Milestone { whose, event } = &milestone;
        let catalog = &world.state.catalog;
        let there = catalog.local_queue(&whose.namespace, &whose.local_queue).is_some();
        let cohorts = match event {
            Event::Admitted { .. } => {
                catalog.cohorts_above(&whose.cluster_queue).into_iter().map(Arc::from).collect()
            }
            _ => Vec::new(),
        };
        Self { milestone, there, cohorts }
    }
}

/// Counts what happens in queues.
#[derive(Debug)]
pub(super) struct Tallies {
    kueue: Kueue,
    /// Local queues with counters of their own.
    counted: BTreeSet<Local>,
}

impl Tallies {
    pub(super) fn new(kueue: Kueue) -> Self {
        Self { kueue, counted: BTreeSet::new() }
    }

    /// An object is gone, and with it what was counted of it.
    pub(super) fn removed(&mut self, key: &Key) {
        match (&key.scope, key.kind, &key.namespace) {
            (None, Kind::ClusterQueue, _) => self.kueue.forget_cluster_queue(&key.name),
            (None, Kind::LocalQueue, Some(namespace)) => {
                self.counted.remove(&(namespace.clone(), key.name.clone()));
                self.kueue.forget_local_queue(namespace, &key.name);
            }
            (None, Kind::Cohort, _) => self.kueue.cohort_admitted.forget(&[("cohort", &key.name)]),
            _ => {}
        }
    }

    /// A cluster was asked to run somebody of this queue.
    pub(super) fn dispatched(&self, cluster_queue: &str, cluster: &str) {
        self.kueue.dispatched.inc([cluster_queue, cluster]);
    }

    /// Counts one milestone.
    pub(super) fn reached(
        &mut self,
        Reached { milestone: Milestone { whose, event }, there, cohorts }: &Reached,
    ) {
        let local = (whose.namespace.clone(), whose.local_queue.clone());
        let local = *there
            && (self.counted.contains(&local)
                || (self.counted.len() < LOCAL_QUEUES_MAX && self.counted.insert(local)));
        let (k, queue, class) = (&self.kueue, &*whose.cluster_queue, &*whose.priority_class);
        match event {
            Event::QuotaReserved { waited } => {
                k.quota_reserved.inc(whose, local);
                k.quota_reserved_wait.took(whose, local, *waited);
            }
            Event::Admitted { cluster, waited, checked } => {
                k.admitted.inc(whose, local);
                k.admission_wait.took(whose, local, *waited);
                if let Some(checked) = checked {
                    k.checks_wait.took(whose, local, *checked);
                }
                k.admitted_by_cluster.inc([queue, cluster.as_str()]);
                cohorts.iter().for_each(|cohort| k.cohort_admitted.inc([&**cohort, class]));
            }
            Event::Ready { waited, started } => {
                k.ready_wait.took(whose, local, *waited);
                k.admitted_until_ready.took(whose, local, *started);
            }
            Event::Evicted { reason, cause, first, ran, cluster, displaced } => {
                k.evicted.inc([queue, reason, cause, class]);
                if *first {
                    k.evicted_once.inc([queue, reason, cause, class]);
                }
                if local {
                    k.local_evicted.inc([&whose.local_queue, &whose.namespace, reason, cause, class]);
                }
                if let Some(ran) = ran {
                    k.ready_to_evicted.took([queue, reason, cause], std::time::Duration::from_millis(ran.0));
                }
                if let Some(cluster) = cluster {
                    k.evicted_by_cluster.inc([queue, cluster.as_str(), reason]);
                }
                if let Some((by, right)) = displaced {
                    k.preempted.inc([by, right]);
                }
            }
            Event::Stopped { reason, took } => {
                k.eviction_latency.took([queue, reason], std::time::Duration::from_millis(took.0))
            }
            Event::Replaced => k.replaced_slices.inc([queue]),
            Event::Finished { ran } => {
                k.finished.inc(whose, local);
                k.execution_time.took(whose, local, *ran);
            }
        }
    }
}

/// How queues stand behind a batch.
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
            queues: world.cluster_queue_rows(),
            locals: world.local_queue_rows(LOCAL_QUEUES_MAX),
            cohorts: world.cohort_rows(),
            unadmitted: world.unadmitted(),
        }
    }
}

/// Shows how queues stand.
#[derive(Debug)]
pub(super) struct Dashboards {
    kueue: Kueue,
}

impl Dashboards {
    pub(super) fn new(kueue: Kueue) -> Self {
        Self { kueue }
    }

    /// Rounds of decisions since last told.
    pub(super) fn attempted(&self, fruitful: u64, fruitless: u64) {
        self.kueue.admission_attempts.add(["success"], fruitful);
        self.kueue.admission_attempts.add(["inadmissible"], fruitless);
    }

    /// Shows how queues stand.
    pub(super) fn show(&self, rows: &Rows) {
        self.show_queues(&rows.queues);
        self.show_locals(&rows.locals);
        self.show_cohorts(&rows.cohorts);
        self.show_unadmitted(&rows.unadmitted);
    }

    fn show_queues(&self, rows: &[QueueRow]) {
        let k = &self.kueue;
        let each = || rows.iter().map(|row| (&*row.name, row));
        k.pending_workloads.replace(each().flat_map(|(name, row)| {
            by_status(row.standing.waiting(), row.awake).map(|(status, n)| ([name, status], n))
        }));
        let hashes = |[awake, asleep]: [u64; 2]| [("active", whole(awake)), ("inadmissible", whole(asleep))];
        k.pending_hashes.replace(
            each().flat_map(|(name, row)| hashes(row.shapes).map(|(status, n)| ([name, status], n))),
        );
        k.reserving_active.replace(each().map(|(name, row)| ([name], whole(row.standing.reserving()))));
        k.admitted_active.replace(each().map(|(name, row)| ([name], whole(row.standing.admitted()))));
        k.finished_workloads
            .replace(each().map(|(name, row)| ([name], whole(row.standing.phase(Phase::Finished)))));
        let status = |active: bool| {
            [("pending", i64::from(!active)), ("active", i64::from(active)), ("terminating", 0)]
        };
        k.cluster_queue_status.replace(
            each().flat_map(|(name, row)| status(row.active).map(|(status, is)| ([name, status], is))),
        );
        k.cluster_queue_info
            .replace(each().map(|(name, row)| ([name, text(&row.cohort), text(&row.root)], 1)));
        let cells = || {
            each().flat_map(|(name, row)| {
                row.cells
                    .iter()
                    .map(move |cell| ([text(&row.cohort), name, &*cell.flavor, &*cell.resource], cell))
            })
        };
        let amount = |cell: &Cell, of: i64| units(&cell.resource, of);
        let limit = |cell: &Cell, of: Option<i64>| of.map_or(f64::INFINITY, |of| units(&cell.resource, of));
        k.reservation.replace(cells().map(|(labels, cell)| (labels, amount(cell, cell.reserved))));
        k.usage.replace(cells().map(|(labels, cell)| (labels, amount(cell, cell.used))));
        k.nominal_quota.replace(cells().map(|(labels, cell)| (labels, amount(cell, cell.nominal))));
        k.borrowing_limit.replace(cells().map(|(labels, cell)| (labels, limit(cell, cell.borrowing_limit))));
        k.lending_limit.replace(cells().map(|(labels, cell)| (labels, limit(cell, cell.lending_limit))));
        // What nobody gives is still asked for, but names of resources come from jobs: only those of the queue have a series.
        let asked = |name, row: &QueueRow| {
            let given: BTreeSet<Arc<str>> = row.cells.iter().map(|cell| cell.resource.clone()).collect();
            given
                .into_iter()
                .map(|r| (name, r.to_string(), units(&r, row.standing.asked.get(&*r).copied().unwrap_or(0))))
                .collect::<Vec<_>>()
        };
        let asked: Vec<(&str, String, f64)> = each().flat_map(|(name, row)| asked(name, row)).collect();
        k.resource_pending
            .replace(asked.iter().map(|(name, resource, amount)| ([*name, resource.as_str()], *amount)));
        k.weighted_share
            .replace(each().filter_map(|(name, row)| Some(([name, text(&row.cohort)], row.share?))));
    }

    fn show_locals(&self, rows: &[LocalRow]) {
        let k = &self.kueue;
        let each = || rows.iter().map(|row| (&*row.name, &*row.namespace, row));
        let by = |row: &LocalRow| by_status(row.standing.waiting(), row.awake);
        k.local_pending_workloads.replace(
            each().flat_map(|(name, space, row)| by(row).map(|(status, n)| ([name, space, status], n))),
        );
        k.local_reserving_active
            .replace(each().map(|(name, space, row)| ([name, space], whole(row.standing.reserving()))));
        k.local_admitted_active
            .replace(each().map(|(name, space, row)| ([name, space], whole(row.standing.admitted()))));
        k.local_finished_workloads.replace(
            each().map(|(name, space, row)| ([name, space], whole(row.standing.phase(Phase::Finished)))),
        );
        let status =
            |active: bool| [("True", i64::from(active)), ("False", i64::from(!active)), ("Unknown", 0)];
        k.local_queue_status.replace(each().flat_map(|(name, space, row)| {
            status(row.active).map(|(status, is)| ([name, space, status], is))
        }));
        k.local_past_use.replace(
            each().filter_map(|(name, space, row)| {
                Some(([name, space, &*row.cluster_queue], row.weighted_use?))
            }),
        );
        for (metric, reserved) in [(&k.local_reservation, true), (&k.local_usage, false)] {
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
        k.cohort_info.replace(rows.iter().map(|row| ([&*row.name, text(&row.parent), &*row.root], 1)));
        k.cohort_weighted_share.replace(rows.iter().filter_map(|row| Some(([&*row.name], row.share?))));
        k.cohort_admitted_active.replace(rows.iter().map(|row| ([&*row.name], whole(row.admitted))));
        let cells = || {
            rows.iter().flat_map(|row| {
                row.cells.iter().map(move |(flavor, resource, quota, used)| {
                    ([&*row.name, &**flavor, &**resource], *quota, *used)
                })
            })
        };
        k.cohort_subtree_quota.replace(cells().map(|(labels, quota, _)| (labels, units(labels[2], quota))));
        k.cohort_subtree_reservations
            .replace(cells().map(|(labels, _, used)| (labels, units(labels[2], used))));
    }

    fn show_unadmitted(&self, rows: &BTreeMap<Unadmitted, u64>) {
        let mut by_queue: BTreeMap<(&str, &str, &str), u64> = BTreeMap::new();
        for (row, n) in rows {
            *by_queue.entry((&row.cluster_queue, row.reason, row.cause)).or_default() += n;
        }
        self.kueue.unadmitted.replace(
            by_queue.into_iter().map(|((queue, reason, cause), n)| ([queue, reason, cause], whole(n))),
        );
        let locals = rows.iter().take(LOCAL_QUEUES_MAX);
        let series = locals.map(|(row, n)| {
            ([&*row.local_queue, &*row.namespace, &*row.cluster_queue, row.reason, row.cause], whole(*n))
        });
        self.kueue.local_unadmitted.replace(series);
    }
}

fn text(name: &Option<Arc<str>>) -> &str {
    name.as_deref().unwrap_or("")
}

fn whole(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Who may be looked at, and who waits for a change.
fn by_status(waiting: u64, awake: u64) -> [(&'static str, i64); 2] {
    let active = awake.min(waiting);
    [("active", whole(active)), ("inadmissible", whole(waiting - active))]
}

/// An amount in cores, bytes or devices, as Kueue shows it.
#[expect(clippy::cast_precision_loss, reason = "a gauge is a float; beyond 2^53 nobody sees the difference")]
fn units(resource: &str, amount: i64) -> f64 {
    if resource == "cpu" { amount as f64 / 1_000.0 } else { amount as f64 }
}
