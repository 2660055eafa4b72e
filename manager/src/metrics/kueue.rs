//! Kueue's metrics that mean the same here, under Kueue's own names and labels.
//!
//! Those of local queues have Kueue's labels `name` and `namespace`; every one says `replica_role="leader"`. Amounts are in
//! cores, bytes and devices, as Kueue has them. What `cluster_queue` or a local queue labels is forgotten with the queue.

use super::{Amounts, Counters, Gauges, Histograms, Maker, kueue_buckets, usual_buckets};
use meridian_manager_core::facts::lifecycle::Whose;
use meridian_shared::time::Millis;
use std::time::Duration;

/// What the names begin with.
pub(super) const PREFIX: &str = "kueue_";

/// One counter per cluster queue, and its twin per local queue; both by priority class.
#[derive(Clone, Debug)]
pub struct Counted {
    queue: Counters<2>,
    local: Counters<3>,
}

impl Counted {
    /// One more; of the local queue where `local`.
    pub fn inc(&self, whose: &Whose, local: bool) {
        self.queue.inc([&whose.cluster_queue, &whose.priority_class]);
        if local {
            self.local.inc([&whose.local_queue, &whose.namespace, &whose.priority_class]);
        }
    }
}

/// One histogram per cluster queue, and its twin per local queue; both by priority class.
#[derive(Clone, Debug)]
pub struct Timed {
    queue: Histograms<2>,
    local: Histograms<3>,
}

impl Timed {
    /// One observation; of the local queue where `local`.
    pub fn took(&self, whose: &Whose, local: bool, took: Millis) {
        let took = Duration::from_millis(took.0);
        self.queue.took([&whose.cluster_queue, &whose.priority_class], took);
        if local {
            self.local.took([&whose.local_queue, &whose.namespace, &whose.priority_class], took);
        }
    }
}

/// Handles of Kueue's metrics.
#[derive(Clone, Debug)]
pub struct Kueue {
    /// Rounds of decisions by `result`: `success`, `inadmissible`.
    pub admission_attempts: Counters<1>,
    /// How long they took.
    pub attempt_seconds: Histograms<1>,
    /// Workloads that got quota.
    pub quota_reserved: Counted,
    /// From creation, or the return to the queue, to quota.
    pub quota_reserved_wait: Timed,
    /// Workloads that a cluster got the right to run.
    pub admitted: Counted,
    /// From creation, or the return to the queue, to admission.
    pub admission_wait: Timed,
    /// From quota to admission.
    pub checks_wait: Timed,
    /// From creation, or the return to the queue, to all pods running.
    pub ready_wait: Timed,
    /// From admission to all pods running.
    pub admitted_until_ready: Timed,
    /// Run time of workloads that ended.
    pub execution_time: Timed,
    /// Workloads that ended.
    pub finished: Counted,
    /// Evictions by `cluster_queue`, `reason`, `underlying_cause`, `priority_class`.
    pub evicted: Counters<4>,
    /// Workloads that were evicted, each once for a reason.
    pub evicted_once: Counters<4>,
    /// Evictions by `name`, `namespace`, `reason`, `underlying_cause`, `priority_class`.
    pub local_evicted: Counters<5>,
    /// Running workloads that were given more pods: Kueue's new slice in place of the old one.
    pub replaced_slices: Counters<1>,
    /// Preemptions by `preempting_cluster_queue`, `reason`.
    pub preempted: Counters<2>,
    /// From all pods running to the eviction, by `cluster_queue`, `reason`, `underlying_cause`.
    pub ready_to_evicted: Histograms<3>,
    /// From the order to stop to the end, by `cluster_queue`, `reason`.
    pub eviction_latency: Histograms<2>,
    /// Admissions by `cohort`, `priority_class`, of every cohort above.
    pub cohort_admitted: Counters<2>,
    /// Clusters asked, by `cluster_queue`, `cluster`.
    pub dispatched: Counters<2>,
    /// Admissions by `cluster_queue`, `cluster`.
    pub admitted_by_cluster: Counters<2>,
    /// Evictions of what a cluster had the right to run, by `cluster_queue`, `cluster`, `reason`.
    pub evicted_by_cluster: Counters<3>,

    /// Classes of look-alikes that wait, by `cluster_queue`, `status`: `active`, `inadmissible`.
    pub pending_hashes: Gauges<2>,
    /// Who waits, by the same.
    pub pending_workloads: Gauges<2>,
    /// The same by `name`, `namespace`, `status`.
    pub local_pending_workloads: Gauges<3>,
    /// Who isn't admitted, by `cluster_queue`, `reason`, `underlying_cause`.
    pub unadmitted: Gauges<3>,
    /// The same by `name`, `namespace`, `cluster_queue`, `reason`, `underlying_cause`.
    pub local_unadmitted: Gauges<5>,
    /// Holders of quota by `cluster_queue`.
    pub reserving_active: Gauges<1>,
    /// The same by `name`, `namespace`.
    pub local_reserving_active: Gauges<2>,
    /// Admitted and not over, by `cluster_queue`.
    pub admitted_active: Gauges<1>,
    /// The same by `name`, `namespace`.
    pub local_admitted_active: Gauges<2>,
    /// Finished and kept, by `cluster_queue`.
    pub finished_workloads: Gauges<1>,
    /// The same by `name`, `namespace`.
    pub local_finished_workloads: Gauges<2>,
    /// 1 for one `status` of each `cluster_queue`: `pending`, `active`, `terminating`.
    pub cluster_queue_status: Gauges<2>,
    /// 1 for one `active` of each `name`, `namespace`: `True`, `False`, `Unknown`.
    pub local_queue_status: Gauges<3>,
    /// 1 for each `cluster_queue`, `parent_cohort`, `root_cohort`.
    pub cluster_queue_info: Gauges<3>,
    /// Charged, by `cohort`, `cluster_queue`, `flavor`, `resource`.
    pub reservation: Amounts<4>,
    /// Charged by what is admitted.
    pub usage: Amounts<4>,
    /// Nominal quota.
    pub nominal_quota: Amounts<4>,
    /// Borrowing limit; without one, infinite.
    pub borrowing_limit: Amounts<4>,
    /// Lending limit; without one, infinite.
    pub lending_limit: Amounts<4>,
    /// Asked for by who waits, by `cluster_queue`, `resource`.
    pub resource_pending: Amounts<2>,
    /// Charged, by `name`, `namespace`, `flavor`, `resource`.
    pub local_reservation: Amounts<4>,
    /// Charged by what is admitted.
    pub local_usage: Amounts<4>,
    /// Past use by its weight, by `name`, `namespace`, `cluster_queue`.
    pub local_past_use: Amounts<3>,
    /// Weighted share by `cluster_queue`, `cohort`.
    pub weighted_share: Amounts<2>,
    /// Weighted share by `cohort`.
    pub cohort_weighted_share: Amounts<1>,
    /// Quota of the subtree by `cohort`, `flavor`, `resource`.
    pub cohort_subtree_quota: Amounts<3>,
    /// Charged in the subtree.
    pub cohort_subtree_reservations: Amounts<3>,
    /// Admitted and not over in the subtree, by `cohort`.
    pub cohort_admitted_active: Gauges<1>,
    /// 1 for each `cohort`, `parent_cohort`, `root_cohort`.
    pub cohort_info: Gauges<3>,
}

macro_rules! counted {
    ($m:ident, $name:literal, $what:literal) => {
        Counted {
            queue: $m.counters(
                concat!("kueue_", $name),
                concat!($what, " per cluster queue"),
                &["cluster_queue", "priority_class"],
            ),
            local: $m.counters(
                concat!("kueue_local_queue_", $name),
                concat!($what, " per local queue"),
                &["name", "namespace", "priority_class"],
            ),
        }
    };
}

macro_rules! timed {
    ($m:ident, $name:literal, $what:literal, $buckets:expr) => {
        Timed {
            queue: $m.histograms(
                concat!("kueue_", $name),
                concat!($what, " per cluster queue"),
                &["cluster_queue", "priority_class"],
                kueue_buckets($buckets),
            ),
            local: $m.histograms(
                concat!("kueue_local_queue_", $name),
                concat!($what, " per local queue"),
                &["name", "namespace", "priority_class"],
                kueue_buckets(14),
            ),
        }
    };
}

impl Kueue {
    pub(super) fn new(m: &mut Maker) -> Self {
        const CELL: &[&str; 4] = &["cohort", "cluster_queue", "flavor", "resource"];
        const LOCAL: &[&str; 2] = &["name", "namespace"];
        const LOCAL_CELL: &[&str; 4] = &["name", "namespace", "flavor", "resource"];
        Self {
            admission_attempts: m.counters(
                "kueue_admission_attempts_total",
                "rounds of decisions by whether anybody was admitted",
                &["result"],
            ),
            attempt_seconds: m.histograms(
                "kueue_admission_attempt_duration_seconds",
                "duration of a round of decisions by whether anybody was admitted",
                &["result"],
                usual_buckets(),
            ),
            quota_reserved: counted!(m, "quota_reserved_workloads_total", "workloads that got quota"),
            quota_reserved_wait: timed!(
                m,
                "quota_reserved_wait_time_seconds",
                "time from creation or requeueing to quota",
                14
            ),
            admitted: counted!(
                m,
                "admitted_workloads_total",
                "workloads that a cluster got the right to run"
            ),
            admission_wait: timed!(
                m,
                "admission_wait_time_seconds",
                "time from creation or requeueing to admission",
                16
            ),
            checks_wait: timed!(m, "admission_checks_wait_time_seconds", "time from quota to admission", 14),
            ready_wait: timed!(
                m,
                "ready_wait_time_seconds",
                "time from creation or requeueing until all pods run",
                14
            ),
            admitted_until_ready: timed!(
                m,
                "admitted_until_ready_wait_time_seconds",
                "time from admission until all pods run",
                14
            ),
            execution_time: timed!(m, "execution_time_seconds", "run time of workloads that ended", 16),
            finished: counted!(m, "finished_workloads_total", "workloads that ended"),
            evicted: m.counters(
                "kueue_evicted_workloads_total",
                "evictions per cluster queue",
                &["cluster_queue", "reason", "underlying_cause", "priority_class"],
            ),
            evicted_once: m.counters(
                "kueue_evicted_workloads_once_total",
                "workloads that were evicted, each once for a reason",
                &["cluster_queue", "reason", "underlying_cause", "priority_class"],
            ),
            local_evicted: m.counters(
                "kueue_local_queue_evicted_workloads_total",
                "evictions per local queue",
                &["name", "namespace", "reason", "underlying_cause", "priority_class"],
            ),
            preempted: m.counters(
                "kueue_preempted_workloads_total",
                "preemptions by the queue they were for",
                &["preempting_cluster_queue", "reason"],
            ),
            replaced_slices: m.counters(
                "kueue_replaced_workload_slices_total",
                "running workloads that were given more pods",
                &["cluster_queue"],
            ),
            ready_to_evicted: m.histograms(
                "kueue_pods_ready_to_evicted_time_seconds",
                "time from all pods running to the eviction",
                &["cluster_queue", "reason", "underlying_cause"],
                kueue_buckets(14),
            ),
            eviction_latency: m.histograms(
                "kueue_workload_eviction_latency_seconds",
                "time from an ordered stop until quota is free",
                &["cluster_queue", "reason"],
                kueue_buckets(14),
            ),
            cohort_admitted: m.counters(
                "kueue_cohort_subtree_admitted_workloads_total",
                "admissions in the cohort's subtree",
                &["cohort", "priority_class"],
            ),
            dispatched: m.counters(
                "kueue_multikueue_workloads_dispatched_total",
                "workloads that a cluster was asked to run",
                &["cluster_queue", "cluster"],
            ),
            admitted_by_cluster: m.counters(
                "kueue_multikueue_workloads_admitted_total",
                "workloads admitted to a cluster",
                &["cluster_queue", "cluster"],
            ),
            evicted_by_cluster: m.counters(
                "kueue_multikueue_workloads_evicted_total",
                "workloads that a cluster lost the right to run",
                &["cluster_queue", "cluster", "reason"],
            ),
            pending_hashes: m.gauges(
                "kueue_pending_scheduling_hashes",
                "classes of look-alikes that wait for quota",
                &["cluster_queue", "status"],
            ),
            pending_workloads: m.gauges(
                "kueue_pending_workloads",
                "workloads that wait for quota",
                &["cluster_queue", "status"],
            ),
            local_pending_workloads: m.gauges(
                "kueue_local_queue_pending_workloads",
                "workloads that wait for quota",
                &["name", "namespace", "status"],
            ),
            unadmitted: m.gauges(
                "kueue_unadmitted_workloads",
                "workloads that aren't admitted, by why",
                &["cluster_queue", "reason", "underlying_cause"],
            ),
            local_unadmitted: m.gauges(
                "kueue_local_queue_unadmitted_workloads",
                "workloads that aren't admitted, by why",
                &["name", "namespace", "cluster_queue", "reason", "underlying_cause"],
            ),
            reserving_active: m.gauges(
                "kueue_reserving_active_workloads",
                "workloads that hold quota",
                &["cluster_queue"],
            ),
            local_reserving_active: m.gauges(
                "kueue_local_queue_reserving_active_workloads",
                "workloads that hold quota",
                LOCAL,
            ),
            admitted_active: m.gauges(
                "kueue_admitted_active_workloads",
                "workloads admitted and not over",
                &["cluster_queue"],
            ),
            local_admitted_active: m.gauges(
                "kueue_local_queue_admitted_active_workloads",
                "workloads admitted and not over",
                LOCAL,
            ),
            finished_workloads: m.gauges(
                "kueue_finished_workloads",
                "finished workloads that are kept",
                &["cluster_queue"],
            ),
            local_finished_workloads: m.gauges(
                "kueue_local_queue_finished_workloads",
                "finished workloads that are kept",
                LOCAL,
            ),
            cluster_queue_status: m.gauges(
                "kueue_cluster_queue_status",
                "1 for the status that the cluster queue has",
                &["cluster_queue", "status"],
            ),
            local_queue_status: m.gauges(
                "kueue_local_queue_status",
                "1 for the status that the local queue has",
                &["name", "namespace", "active"],
            ),
            cluster_queue_info: m.gauges(
                "kueue_cluster_queue_info",
                "constant 1, with the cohorts above",
                &["cluster_queue", "parent_cohort", "root_cohort"],
            ),
            reservation: m.amounts("kueue_cluster_queue_resource_reservation", "quota that is charged", CELL),
            usage: m.amounts(
                "kueue_cluster_queue_resource_usage",
                "quota that admitted workloads are charged",
                CELL,
            ),
            nominal_quota: m.amounts(
                "kueue_cluster_queue_nominal_quota",
                "nominal quota of the cluster queue",
                CELL,
            ),
            borrowing_limit: m.amounts(
                "kueue_cluster_queue_borrowing_limit",
                "most that may be borrowed, infinite without a limit",
                CELL,
            ),
            lending_limit: m.amounts(
                "kueue_cluster_queue_lending_limit",
                "most that may be lent, infinite without a limit",
                CELL,
            ),
            resource_pending: m.amounts(
                "kueue_cluster_queue_resource_pending",
                "what waiting workloads ask for",
                &["cluster_queue", "resource"],
            ),
            local_reservation: m.amounts(
                "kueue_local_queue_resource_reservation",
                "quota that is charged",
                LOCAL_CELL,
            ),
            local_usage: m.amounts(
                "kueue_local_queue_resource_usage",
                "quota that admitted workloads are charged",
                LOCAL_CELL,
            ),
            local_past_use: m.amounts(
                "kueue_local_queue_admission_fair_sharing_usage",
                "past use of the local queue and what its admissions cost, by weight",
                &["name", "namespace", "cluster_queue"],
            ),
            weighted_share: m.amounts(
                "kueue_cluster_queue_weighted_share",
                "dominant share of what is borrowed, by weight",
                &["cluster_queue", "cohort"],
            ),
            cohort_weighted_share: m.amounts(
                "kueue_cohort_weighted_share",
                "dominant share of what is borrowed, by weight",
                &["cohort"],
            ),
            cohort_subtree_quota: m.amounts(
                "kueue_cohort_subtree_quota",
                "quota of the cohort's subtree",
                &["cohort", "flavor", "resource"],
            ),
            cohort_subtree_reservations: m.amounts(
                "kueue_cohort_subtree_resource_reservations",
                "quota that is charged in the cohort's subtree",
                &["cohort", "flavor", "resource"],
            ),
            cohort_admitted_active: m.gauges(
                "kueue_cohort_subtree_admitted_active_workloads",
                "workloads of the subtree admitted and not over",
                &["cohort"],
            ),
            cohort_info: m.gauges(
                "kueue_cohort_info",
                "constant 1, with the cohorts above",
                &["cohort", "parent_cohort", "root_cohort"],
            ),
        }
    }

    /// Forgets what was counted of a cluster queue.
    pub fn forget_cluster_queue(&self, name: &str) {
        let wanted = [("cluster_queue", name)];
        for of in [&self.quota_reserved, &self.admitted, &self.finished] {
            of.queue.forget(&wanted);
        }
        for of in [
            &self.quota_reserved_wait,
            &self.admission_wait,
            &self.checks_wait,
            &self.ready_wait,
            &self.admitted_until_ready,
            &self.execution_time,
        ] {
            of.queue.forget(&wanted);
        }
        self.evicted.forget(&wanted);
        self.evicted_once.forget(&wanted);
        self.replaced_slices.forget(&wanted);
        self.preempted.forget(&[("preempting_cluster_queue", name)]);
        self.ready_to_evicted.forget(&wanted);
        self.eviction_latency.forget(&wanted);
        self.dispatched.forget(&wanted);
        self.admitted_by_cluster.forget(&wanted);
        self.evicted_by_cluster.forget(&wanted);
    }

    /// Forgets what was counted of a local queue.
    pub fn forget_local_queue(&self, namespace: &str, name: &str) {
        let wanted = [("name", name), ("namespace", namespace)];
        for of in [&self.quota_reserved, &self.admitted, &self.finished] {
            of.local.forget(&wanted);
        }
        for of in [
            &self.quota_reserved_wait,
            &self.admission_wait,
            &self.checks_wait,
            &self.ready_wait,
            &self.admitted_until_ready,
            &self.execution_time,
        ] {
            of.local.forget(&wanted);
        }
        self.local_evicted.forget(&wanted);
    }
}
