//! Every metric of the manager: names, help and labels, and the only use of the `prometheus` crate.
//!
//! Conventions: the prefix `meridian_`; base units (seconds, bytes); counters, and only counters, end in
//! `_total`. A metric with the meaning of a Kueue metric is served under Kueue's name and labels, by
//! [`kueue`], so that existing dashboards work. Label values are names of clusters, queues and policies, and
//! words from closed lists. They are never workloads, users or text from outside, so the number of series is
//! bounded; [`LABELS`] names each bound.

mod buckets;
mod exemplars;
pub mod fleet;
mod handles;
pub mod kueue;
mod labels;
mod named;
mod registrar;
#[cfg(test)]
mod tests;

pub use exemplars::OPEN_METRICS;
pub use handles::{Amounts, Counters, Definition, Entered, Gauge, Gauges, Histograms, Series, Sums};
pub use labels::{LABELS, Label};
pub use named::Named;

use crate::locks;
use buckets::{batch_buckets, request_buckets};
use exemplars::Exemplars;
use fleet::FleetMetrics;
use kueue::Kueue;
use prometheus::{Registry, TextEncoder};
use registrar::{Families, Registrar, metric_group};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

metric_group! {
    /// The journal and its audit log.
    pub struct JournalMetrics {
        commit_seconds: Histograms<0> = histograms(
            "meridian_journal_commit_seconds",
            "duration of one journal commit, including the sync of the disk",
            &[], request_buckets(),
        );
        commit_records: Histograms<0> = histograms(
            "meridian_journal_commit_records", "records in one journal commit", &[], batch_buckets(),
        );
        records: Counters<0> = counters(
            "meridian_journal_records_total", "records committed to the journal", &[],
        );
        full: Gauge = gauge(
            "meridian_journal_full", "1 while the disk is full: only ends and deletions are recorded",
        );
        damaged: Gauges<1> = gauges(
            "meridian_journal_damaged",
            "number of jobs with an unreadable manifest, or 1 for another unreadable part of the journal",
            &["part"],
        );
        scrubbed_bytes: Counters<0> = counters(
            "meridian_journal_scrubbed_bytes_total", "bytes read to find damage", &[],
        );
        audit_lines: Counters<0> = counters(
            "meridian_audit_lines_total", "lines written to the audit log", &[],
        );
        audit_segments: Counters<0> = counters(
            "meridian_audit_segments_total", "segments of the audit log that were finished", &[],
        );
        audit_failures: Counters<1> = counters(
            "meridian_audit_failures_total",
            "failed attempts to finish, remove or export a segment; each is repeated", &["action"],
        );
        audit_segments_waiting: Gauge = gauge(
            "meridian_audit_segments_waiting", "finished segments that wait for the export hook",
        );
        bytes: Gauge = gauge("meridian_journal_bytes", "size of the journal's file");
        reserve_bytes: Gauge = gauge(
            "meridian_journal_reserve_bytes",
            "disk space kept back for ends and deletions, 0 while it is used",
        );
        disk_free_bytes: Gauge = gauge(
            "meridian_journal_disk_free_bytes",
            "free space of the journal's disk, without the space kept back",
        );
    }
}

metric_group! {
    /// Workloads from submission to end.
    pub struct WorkloadMetrics {
        submissions: Counters<1> = counters(
            "meridian_submissions_total",
            "submissions by result: accepted, duplicate, refused or failed", &["result"],
        );
        by_state: Gauges<1> = gauges("meridian_workloads", "workloads by state", &["state"]);
        legs: Gauges<2> = gauges(
            "meridian_legs", "legs (one workload on one cluster) by state", &["state", "cluster"],
        );
        dispatched: Counters<2> = counters(
            "meridian_workloads_dispatched_total",
            "workloads granted to a cluster", &["cluster_queue", "cluster"],
        );
        grants: Counters<0> = counters("meridian_grants_total", "grants committed to the journal", &[]);
        lease_renewals: Counters<0> = counters("meridian_lease_renewals_total", "leases renewed", &[]);
        lapses: Counters<1> = counters(
            "meridian_lapses_total", "leases that have provably lapsed", &["cluster"],
        );
        refusals: Counters<1> = counters(
            "meridian_refusals_total", "offers and grants that an agent refused", &["reason"],
        );
        orphans: Gauge = gauge(
            "meridian_orphans", "orphans: runs of unknown workloads that wait for an operator",
        );
        residency_denials: Counters<1> = counters(
            "meridian_residency_denials_total",
            "clusters denied to a workload by a residency policy", &["policy"],
        );
        oldest_pending: Gauges<2> = gauges(
            "meridian_oldest_pending_age_seconds",
            "time since the creation of the oldest pending workload", &["cluster_queue", "priority_class"],
        );
        starved_heads: Gauges<1> = gauges(
            "meridian_starved_heads",
            "1 while the head of the queue has waited longer than the starvation guard allows",
            &["cluster_queue"],
        );
        near_run_limit: Gauges<1> = gauges(
            "meridian_workloads_near_run_limit",
            "running workloads with less than a tenth of their maximum execution time left",
            &["cluster_queue"],
        );
    }
}

metric_group! {
    /// Agents and the sync protocol.
    pub struct AgentMetrics {
        sync_requests: Counters<2> = counters(
            "meridian_sync_requests_total", "sync requests of agents", &["cluster", "lane"],
        );
        sync_seconds: Histograms<1> = histograms(
            "meridian_sync_seconds", "duration of one sync, with the wait of polls", &["lane"],
            request_buckets(),
        );
        events_put_off: Counters<0> = counters(
            "meridian_events_put_off_total",
            "events of agents that were delayed because of too many repetitions", &[],
        );
        link_events: Counters<1> = counters(
            "meridian_link_events_total", "anomalies of the sync protocol by kind", &["kind"],
        );
        requests_refused: Counters<1> = counters(
            "meridian_agent_requests_refused_total",
            "requests above the rate limit of an agent, or with a void certificate", &["cluster"],
        );
        connected: Gauges<2> = gauges(
            "meridian_agents_connected", "1 while the agent is connected, else 0", &["cluster", "region"],
        );
        last_sync_age_seconds: Gauges<1> = gauges(
            "meridian_agent_last_sync_age_seconds", "seconds since the agent's last sync", &["cluster"],
        );
        certificates_issued: Counters<1> = counters(
            "meridian_certificates_issued_total", "agent certificates issued, by join or renew", &["kind"],
        );
    }
}

metric_group! {
    /// Connections to the port.
    pub struct ConnectionMetrics {
        open: Gauges<1> = gauges(
            "meridian_connections",
            "open connections by class: handshake, unauthenticated, user or agent", &["class"],
        );
        refused: Counters<1> = counters(
            "meridian_connections_refused_total",
            "connections that were closed or refused because of a limit or a deadline", &["reason"],
        );
    }
}

metric_group! {
    /// Leaderships, and the engine's checks of itself.
    pub struct EngineMetrics {
        recoveries: Counters<0> = counters("meridian_recoveries_total", "recoveries opened", &[]);
        recovery_open: Gauge = gauge(
            "meridian_recovery_open", "1 while recovery is open, so some workloads are held back",
        );
        invariant_violations: Counters<0> = counters(
            "meridian_invariant_violations_total", "broken invariants found by the periodic check", &[],
        );
    }
}

metric_group! {
    /// The API for users.
    pub struct ApiMetrics {
        requests: Counters<3> = counters(
            "meridian_api_requests_total", "requests to the API by verb, resource and status code",
            &["verb", "resource", "code"],
        );
        request_seconds: Histograms<1> = histograms(
            "meridian_api_request_seconds", "duration of one API request, except watches and logs", &["verb"],
            request_buckets(),
        );
        watchers: Gauge = gauge("meridian_watchers", "open watches");
        lists: Gauge = gauge("meridian_lists", "lists that are being sent in pieces");
        lists_broken_off: Counters<1> = counters(
            "meridian_lists_broken_off_total",
            "lists that ended early: their reader stalled, or their changes are no longer kept", &["reason"],
        );
    }
}

metric_group! {
    /// The Kubernetes management cluster.
    pub struct ManagementMetrics {
        requests: Counters<2> = counters(
            "meridian_management_cluster_requests_total",
            "writes to the Kubernetes management cluster", &["verb", "resource"],
        );
    }
}

/// Handles of all metrics. Clones share the numbers.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    families: Arc<Families>,
    /// Held while gauges are replaced and while metrics are gathered, so that no scrape sees half of an
    /// update.
    update: Arc<Mutex<()>>,
    catalog: Arc<[Definition]>,
    exemplars: Exemplars,
    pub build_info: Gauges<1>,
    pub journal: JournalMetrics,
    pub workloads: WorkloadMetrics,
    pub agents: AgentMetrics,
    pub engine: EngineMetrics,
    pub api: ApiMetrics,
    pub connections: ConnectionMetrics,
    pub management: ManagementMetrics,
    pub fleet: FleetMetrics,
    pub kueue: Kueue,
}

impl Metrics {
    /// All metrics, and `meridian_build_info` with `version`.
    pub fn new(version: &str) -> Self {
        let mut registrar = Registrar {
            registry: Registry::new(),
            families: Families::default(),
            catalog: Vec::new(),
            exemplars: Exemplars::default(),
        };
        let build_info: Gauges<1> =
            registrar.gauges("meridian_build_info", "constant 1, labelled with the version", &["version"]);
        build_info.set([version], 1);
        Self {
            build_info,
            journal: JournalMetrics::new(&mut registrar),
            workloads: WorkloadMetrics::new(&mut registrar),
            agents: AgentMetrics::new(&mut registrar),
            engine: EngineMetrics::new(&mut registrar),
            api: ApiMetrics::new(&mut registrar),
            connections: ConnectionMetrics::new(&mut registrar),
            management: ManagementMetrics::new(&mut registrar),
            fleet: FleetMetrics::new(&mut registrar),
            kueue: Kueue::new(&mut registrar),
            catalog: registrar.catalog.into(),
            exemplars: registrar.exemplars,
            registry: registrar.registry,
            families: Arc::new(registrar.families),
            update: Arc::default(),
        }
    }

    /// Prevents scrapes until the guard is dropped, so that several metrics change together.
    pub fn begin_update(&self) -> MutexGuard<'_, ()> {
        locks::lock(&self.update)
    }

    /// Like [`Metrics::begin_update`]; `None` if a scrape or another update is in progress.
    pub fn try_begin_update(&self) -> Option<MutexGuard<'_, ()>> {
        match self.update.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The metrics in the text format of Prometheus: those in `only`, or all if it is empty.
    pub fn render(&self, only: &[String]) -> String {
        let gathered = {
            let _update = self.begin_update();
            if only.is_empty() { self.registry.gather() } else { self.families.collect(only) }
        };
        let text = TextEncoder::new()
            .encode_to_string(&gathered)
            .expect("families gathered from a registry have names and samples");
        // the encoder writes infinity as `inf`, but the format requires `+Inf`
        text.replace(" inf\n", " +Inf\n")
    }

    /// Like [`Metrics::render`], in the format of OpenMetrics, with exemplars.
    pub fn render_open(&self, only: &[String]) -> String {
        self.exemplars.open_metrics(&self.render(only))
    }

    /// Every metric, for tests and for the reference.
    pub fn catalog(&self) -> &[Definition] {
        &self.catalog
    }
}
