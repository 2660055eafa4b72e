//! Kueue's metrics that mean the same here, under Kueue's names and labels.
//!
//! Metrics of local queues have Kueue's labels `name` and `namespace`. Every metric has
//! `replica_role="leader"`. Amounts are in cores, bytes and devices, as in Kueue. The series of a queue are
//! removed with the queue.

use super::buckets::{default_buckets, kueue_buckets};
use super::handles::{Amounts, Counters, Gauges, Histograms};
use super::registrar::{Labels, Registrar, metric_group};
use meridian_manager_core::facts::lifecycle::Owner;
use meridian_shared::time::Millis;
use meridian_telemetry::trace::Trace;
use std::time::Duration;

const QUEUE_AND_CLASS: Labels<2> = &["cluster_queue", "priority_class"];
const LOCAL_AND_CLASS: Labels<3> = &["name", "namespace", "priority_class"];
const LOCAL: Labels<2> = &["name", "namespace"];
const CELL: Labels<4> = &["cohort", "cluster_queue", "flavor", "resource"];
const LOCAL_CELL: Labels<4> = &["name", "namespace", "flavor", "resource"];
const COHORT_CELL: Labels<3> = &["cohort", "flavor", "resource"];

/// A counter per cluster queue and one per local queue, both by priority class.
#[derive(Clone, Debug)]
pub struct QueueCounter {
    queue: Counters<2>,
    local: Counters<3>,
}

impl QueueCounter {
    pub(super) fn queue(&self) -> &Counters<2> {
        &self.queue
    }

    /// The metric of local queues.
    pub fn local(&self) -> &Counters<3> {
        &self.local
    }

    /// Increments the cluster queue's counter, and the local queue's if `local`.
    pub fn inc(&self, owner: &Owner, local: bool) {
        self.queue.inc([&owner.cluster_queue, &owner.priority_class]);
        if local {
            self.local.inc([&owner.local_queue, &owner.namespace, &owner.priority_class]);
        }
    }
}

/// A histogram per cluster queue and one per local queue, both by priority class.
#[derive(Clone, Debug)]
pub struct QueueTimer {
    queue: Histograms<2>,
    local: Histograms<3>,
}

impl QueueTimer {
    pub(super) fn queue(&self) -> &Histograms<2> {
        &self.queue
    }

    /// The metric of local queues.
    pub fn local(&self) -> &Histograms<3> {
        &self.local
    }

    /// Observes `span`, with the workload's trace, for the cluster queue and, if `local`, for the local
    /// queue.
    pub fn observe(&self, owner: &Owner, local: bool, span: Millis, trace: Trace) {
        let span = Duration::from_millis(span.0);
        self.queue.observe_traced([&owner.cluster_queue, &owner.priority_class], span, trace);
        if local {
            self.local.observe_duration([&owner.local_queue, &owner.namespace, &owner.priority_class], span);
        }
    }
}

impl Registrar {
    fn queue_counter(
        &mut self,
        name: &'static str,
        local_name: &'static str,
        help: &'static str,
    ) -> QueueCounter {
        QueueCounter {
            queue: self.counters(name, help, QUEUE_AND_CLASS),
            local: self.counters(local_name, help, LOCAL_AND_CLASS),
        }
    }

    fn queue_timer(
        &mut self,
        name: &'static str,
        local_name: &'static str,
        help: &'static str,
        buckets: usize,
    ) -> QueueTimer {
        QueueTimer {
            queue: self.histograms(name, help, QUEUE_AND_CLASS, kueue_buckets(buckets)),
            local: self.histograms(local_name, help, LOCAL_AND_CLASS, kueue_buckets(14)),
        }
    }
}

metric_group! {
    /// Lifecycle events of workloads.
    pub struct EventMetrics {
        admission_attempts: Counters<1> = counters(
            "kueue_admission_attempts_total",
            "scheduling rounds by result: success or inadmissible", &["result"],
        );
        attempt_seconds: Histograms<1> = histograms(
            "kueue_admission_attempt_duration_seconds",
            "duration of a scheduling round by result", &["result"],
            default_buckets(),
        );
        quota_reserved: QueueCounter = queue_counter(
            "kueue_quota_reserved_workloads_total", "kueue_local_queue_quota_reserved_workloads_total",
            "workloads that got a quota reservation",
        );
        quota_reserved_wait: QueueTimer = queue_timer(
            "kueue_quota_reserved_wait_time_seconds", "kueue_local_queue_quota_reserved_wait_time_seconds",
            "time from creation or requeueing to quota reservation", 14,
        );
        admitted: QueueCounter = queue_counter(
            "kueue_admitted_workloads_total",
            "kueue_local_queue_admitted_workloads_total", "admitted workloads",
        );
        admission_wait: QueueTimer = queue_timer(
            "kueue_admission_wait_time_seconds", "kueue_local_queue_admission_wait_time_seconds",
            "time from creation or requeueing to admission", 16,
        );
        checks_wait: QueueTimer = queue_timer(
            "kueue_admission_checks_wait_time_seconds",
            "kueue_local_queue_admission_checks_wait_time_seconds",
            "time from quota reservation to admission", 14,
        );
        ready_wait: QueueTimer = queue_timer(
            "kueue_ready_wait_time_seconds", "kueue_local_queue_ready_wait_time_seconds",
            "time from creation or requeueing until all pods run", 14,
        );
        admitted_until_ready: QueueTimer = queue_timer(
            "kueue_admitted_until_ready_wait_time_seconds",
            "kueue_local_queue_admitted_until_ready_wait_time_seconds",
            "time from admission until all pods run", 14,
        );
        execution_time: QueueTimer = queue_timer(
            "kueue_execution_time_seconds", "kueue_local_queue_execution_time_seconds",
            "run time of finished workloads", 16,
        );
        finished: QueueCounter = queue_counter(
            "kueue_finished_workloads_total",
            "kueue_local_queue_finished_workloads_total", "finished workloads",
        );
        evicted: Counters<4> = counters(
            "kueue_evicted_workloads_total", "evictions per cluster queue",
            &["cluster_queue", "reason", "underlying_cause", "priority_class"],
        );
        evicted_once: Counters<4> = counters(
            "kueue_evicted_workloads_once_total", "evicted workloads, counted once per reason",
            &["cluster_queue", "reason", "underlying_cause", "priority_class"],
        );
        local_evicted: Counters<5> = counters(
            "kueue_local_queue_evicted_workloads_total", "evictions per local queue",
            &["name", "namespace", "reason", "underlying_cause", "priority_class"],
        );
        preempted: Counters<2> = counters(
            "kueue_preempted_workloads_total", "preempted workloads by the preemptor's queue",
            &["preempting_cluster_queue", "reason"],
        );
        replaced_slices: Counters<1> = counters(
            "kueue_replaced_workload_slices_total",
            "running workloads that were scaled up", &["cluster_queue"],
        );
        ready_to_evicted: Histograms<3> = histograms(
            "kueue_pods_ready_to_evicted_time_seconds", "time from all pods running to eviction",
            &["cluster_queue", "reason", "underlying_cause"], kueue_buckets(14),
        );
        eviction_latency: Histograms<2> = histograms(
            "kueue_workload_eviction_latency_seconds", "time from the eviction until the quota is free",
            &["cluster_queue", "reason"], kueue_buckets(14),
        );
        cohort_admitted: Counters<2> = counters(
            "kueue_cohort_subtree_admitted_workloads_total", "admitted workloads in the cohort's subtree",
            &["cohort", "priority_class"],
        );
        dispatched: Counters<2> = counters(
            "kueue_multikueue_workloads_dispatched_total", "workloads offered to a cluster",
            &["cluster_queue", "cluster"],
        );
        admitted_by_cluster: Counters<2> = counters(
            "kueue_multikueue_workloads_admitted_total", "workloads admitted to a cluster",
            &["cluster_queue", "cluster"],
        );
        evicted_by_cluster: Counters<3> = counters(
            "kueue_multikueue_workloads_evicted_total", "workloads evicted from a cluster",
            &["cluster_queue", "cluster", "reason"],
        );
    }
}

metric_group! {
    /// State of cluster queues.
    pub struct QueueMetrics {
        pending_hashes: Gauges<2> = gauges(
            "kueue_pending_scheduling_hashes",
            "classes of equivalent pending workloads, active or inadmissible",
            &["cluster_queue", "status"],
        );
        pending_workloads: Gauges<2> = gauges(
            "kueue_pending_workloads",
            "pending workloads, active or inadmissible", &["cluster_queue", "status"],
        );
        unadmitted: Gauges<3> = gauges(
            "kueue_unadmitted_workloads", "workloads that are not admitted, by reason",
            &["cluster_queue", "reason", "underlying_cause"],
        );
        reserving_active: Gauges<1> = gauges(
            "kueue_reserving_active_workloads", "workloads that hold quota", &["cluster_queue"],
        );
        admitted_active: Gauges<1> = gauges(
            "kueue_admitted_active_workloads", "admitted workloads that are not finished", &["cluster_queue"],
        );
        finished_workloads: Gauges<1> = gauges(
            "kueue_finished_workloads", "finished workloads that are retained", &["cluster_queue"],
        );
        status: Gauges<2> = gauges(
            "kueue_cluster_queue_status", "1 for the current status of the cluster queue",
            &["cluster_queue", "status"],
        );
        info: Gauges<3> = gauges(
            "kueue_cluster_queue_info", "constant 1, labelled with the cohorts of the cluster queue",
            &["cluster_queue", "parent_cohort", "root_cohort"],
        );
        reservation: Amounts<4> = amounts("kueue_cluster_queue_resource_reservation", "reserved quota", CELL);
        usage: Amounts<4> = amounts(
            "kueue_cluster_queue_resource_usage", "quota used by admitted workloads", CELL,
        );
        nominal_quota: Amounts<4> = amounts("kueue_cluster_queue_nominal_quota", "nominal quota", CELL);
        borrowing_limit: Amounts<4> = amounts(
            "kueue_cluster_queue_borrowing_limit", "borrowing limit, infinite if there is none", CELL,
        );
        lending_limit: Amounts<4> = amounts(
            "kueue_cluster_queue_lending_limit", "lending limit, infinite if there is none", CELL,
        );
        resource_pending: Amounts<2> = amounts(
            "kueue_cluster_queue_resource_pending", "resources requested by pending workloads",
            &["cluster_queue", "resource"],
        );
        weighted_share: Amounts<2> = amounts(
            "kueue_cluster_queue_weighted_share",
            "dominant share of borrowed resources, divided by the weight",
            &["cluster_queue", "cohort"],
        );
    }
}

metric_group! {
    /// State of local queues.
    pub struct LocalQueueMetrics {
        pending_workloads: Gauges<3> = gauges(
            "kueue_local_queue_pending_workloads", "pending workloads, active or inadmissible",
            &["name", "namespace", "status"],
        );
        unadmitted: Gauges<5> = gauges(
            "kueue_local_queue_unadmitted_workloads", "workloads that are not admitted, by reason",
            &["name", "namespace", "cluster_queue", "reason", "underlying_cause"],
        );
        reserving_active: Gauges<2> = gauges(
            "kueue_local_queue_reserving_active_workloads", "workloads that hold quota", LOCAL,
        );
        admitted_active: Gauges<2> = gauges(
            "kueue_local_queue_admitted_active_workloads", "admitted workloads that are not finished", LOCAL,
        );
        finished_workloads: Gauges<2> = gauges(
            "kueue_local_queue_finished_workloads", "finished workloads that are retained", LOCAL,
        );
        status: Gauges<3> = gauges(
            "kueue_local_queue_status", "1 for the current status of the local queue",
            &["name", "namespace", "active"],
        );
        reservation: Amounts<4> = amounts(
            "kueue_local_queue_resource_reservation", "reserved quota", LOCAL_CELL,
        );
        usage: Amounts<4> = amounts(
            "kueue_local_queue_resource_usage", "quota used by admitted workloads", LOCAL_CELL,
        );
        fair_sharing_usage: Amounts<3> = amounts(
            "kueue_local_queue_admission_fair_sharing_usage",
            "consumed resources and admission penalties, divided by the weight",
            &["name", "namespace", "cluster_queue"],
        );
    }
}

metric_group! {
    /// State of cohorts.
    pub struct CohortMetrics {
        weighted_share: Amounts<1> = amounts(
            "kueue_cohort_weighted_share", "dominant share of borrowed resources, divided by the weight",
            &["cohort"],
        );
        subtree_quota: Amounts<3> = amounts(
            "kueue_cohort_subtree_quota", "quota of the cohort's subtree", COHORT_CELL,
        );
        subtree_reservations: Amounts<3> = amounts(
            "kueue_cohort_subtree_resource_reservations",
            "reserved quota in the cohort's subtree", COHORT_CELL,
        );
        admitted_active: Gauges<1> = gauges(
            "kueue_cohort_subtree_admitted_active_workloads",
            "admitted workloads in the cohort's subtree that are not finished", &["cohort"],
        );
        info: Gauges<3> = gauges(
            "kueue_cohort_info", "constant 1, labelled with the cohorts above",
            &["cohort", "parent_cohort", "root_cohort"],
        );
    }
}

/// Handles of Kueue's metrics.
#[derive(Clone, Debug)]
pub struct Kueue {
    pub events: EventMetrics,
    pub queues: QueueMetrics,
    pub local_queues: LocalQueueMetrics,
    pub cohorts: CohortMetrics,
}

impl Kueue {
    pub(super) fn new(registrar: &mut Registrar) -> Self {
        Self {
            events: EventMetrics::new(registrar),
            queues: QueueMetrics::new(registrar),
            local_queues: LocalQueueMetrics::new(registrar),
            cohorts: CohortMetrics::new(registrar),
        }
    }

    /// Removes the series of events in a deleted cluster queue.
    pub fn forget_cluster_queue(&self, name: &str) {
        let events = &self.events;
        let selected = [("cluster_queue", name)];
        events.counters().iter().for_each(|counter| counter.queue.forget(&selected));
        events.timers().iter().for_each(|timer| timer.queue.forget(&selected));
        events.evicted.forget(&selected);
        events.evicted_once.forget(&selected);
        events.replaced_slices.forget(&selected);
        events.preempted.forget(&[("preempting_cluster_queue", name)]);
        events.ready_to_evicted.forget(&selected);
        events.eviction_latency.forget(&selected);
        events.dispatched.forget(&selected);
        events.admitted_by_cluster.forget(&selected);
        events.evicted_by_cluster.forget(&selected);
    }

    /// Removes the series of events in a deleted local queue.
    pub fn forget_local_queue(&self, namespace: &str, name: &str) {
        let events = &self.events;
        let selected = [("name", name), ("namespace", namespace)];
        events.counters().iter().for_each(|counter| counter.local.forget(&selected));
        events.timers().iter().for_each(|timer| timer.local.forget(&selected));
        events.local_evicted.forget(&selected);
    }
}

impl EventMetrics {
    fn counters(&self) -> [&QueueCounter; 3] {
        [&self.quota_reserved, &self.admitted, &self.finished]
    }

    fn timers(&self) -> [&QueueTimer; 6] {
        [
            &self.quota_reserved_wait,
            &self.admission_wait,
            &self.checks_wait,
            &self.ready_wait,
            &self.admitted_until_ready,
            &self.execution_time,
        ]
    }
}
