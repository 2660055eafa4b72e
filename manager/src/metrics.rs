//! Every metric of the manager: names, help and labels, and the only use of the `prometheus` crate.
//!
//! Conventions: the prefix `meridian_`; base units (seconds, bytes); counters, and only counters, end in
//! `_total`. A metric with the meaning of a Kueue metric is served under Kueue's name and labels, by
//! [`kueue`], so that existing dashboards work. Label values are names of clusters, queues and policies, and
//! words from closed lists. They are never workloads, users or text from outside, so the number of series is
//! bounded.

pub mod kueue;
mod registrar;
#[cfg(test)]
mod tests;

use crate::locks;
use kueue::Kueue;
use prometheus::core::{Atomic, AtomicF64, AtomicI64, Collector, Desc, GenericGauge, GenericGaugeVec};
use prometheus::{HistogramVec, IntCounterVec, IntGauge, Registry, TextEncoder};
use registrar::{Families, Labels, Registrar};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

const PREFIX: &str = "meridian_";

/// Defines a struct of metric handles, and a `new` that registers them. Each line has the field and its type,
/// then the method of [`Registrar`] that makes it, with its arguments.
macro_rules! metric_group {
    ($(#[$meta:meta])* pub struct $group:ident {
        $($field:ident: $handle:ty = $make:ident($($argument:expr),+ $(,)?);)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $group {
            $(pub $field: $handle,)+
        }

        impl $group {
            pub(in crate::metrics) fn new(registrar: &mut Registrar) -> Self {
                Self { $($field: registrar.$make($($argument),+),)+ }
            }
        }
    };
}
use metric_group;

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
            "meridian_journal_full", "1 while only ends and deletions are taken because the disk is full",
        );
        damaged: Gauges<1> = gauges(
            "meridian_journal_damaged",
            "what can't be read: the number of jobs with such a manifest, else 1 for a part of the journal",
            &["part"],
        );
        scrubbed_bytes: Counters<0> = counters(
            "meridian_journal_scrubbed_bytes_total", "bytes read to find damage", &[],
        );
        audit_lines: Counters<0> = counters(
            "meridian_audit_lines_total", "lines written to the audit log", &[],
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
        lapses: Counters<0> = counters("meridian_lapses_total", "leases that have provably lapsed", &[]);
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
    }
}

metric_group! {
    /// Agents and the sync protocol.
    pub struct AgentMetrics {
        sync_requests: Counters<2> = counters(
            "meridian_sync_requests_total", "sync requests of agents", &["cluster", "lane"],
        );
        sync_seconds: Histograms<1> = histograms(
            "meridian_sync_seconds", "duration of one sync; polls mostly wait", &["lane"], request_buckets(),
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
            "lists that broke off: stalled readers, or changes that are kept no longer", &["reason"],
        );
    }
}

/// Durations of requests and commits: 0.1 ms doubling to 13 s.
fn request_buckets() -> Vec<f64> {
    prometheus::exponential_buckets(0.000_1, 2.0, 18).expect("valid bounds")
}

/// Records in one commit: 1 doubling to 32768.
fn batch_buckets() -> Vec<f64> {
    prometheus::exponential_buckets(1.0, 2.0, 16).expect("valid bounds")
}

/// The client library's default buckets, as in Kueue's metrics without explicit ones: 5 ms to 10 s.
fn default_buckets() -> Vec<f64> {
    prometheus::DEFAULT_BUCKETS.to_vec()
}

/// Kueue's buckets: 1 s, then 2.5 s doubling, `count` in all.
fn kueue_buckets(count: usize) -> Vec<f64> {
    let doubling = prometheus::exponential_buckets(2.5, 2.0, count - 1).expect("valid bounds");
    [1.0].into_iter().chain(doubling).collect()
}

/// Label values of every series that matches all of `selected`, in the order of the labels.
fn series_of(collector: &impl Collector, selected: &[(&str, &str)]) -> Vec<Vec<String>> {
    let first = collector.desc().into_iter().next();
    let names: Vec<String> = first.map(|desc: &Desc| desc.variable_labels.clone()).unwrap_or_default();
    let families = collector.collect();
    let series = families.iter().flat_map(prometheus::proto::MetricFamily::get_metric).filter_map(|metric| {
        let value = |name: &str| {
            metric.get_label().iter().find(|pair| pair.name() == name).map(|pair| pair.value().to_owned())
        };
        let matches = selected.iter().all(|(name, is)| value(name).as_deref() == Some(is));
        matches.then(|| names.iter().map(|name| value(name).unwrap_or_default()).collect())
    });
    series.collect()
}

/// Counters with `N` labels, in the order of the metric's definition.
#[derive(Clone, Debug)]
pub struct Counters<const N: usize>(IntCounterVec);

impl<const N: usize> Counters<N> {
    pub fn inc(&self, labels: [&str; N]) {
        self.add(labels, 1);
    }

    pub fn add(&self, labels: [&str; N], by: u64) {
        self.0.with_label_values(&labels).inc_by(by);
    }

    /// Removes the series with these label values, because their object was deleted.
    pub fn forget(&self, selected: &[(&str, &str)]) {
        for series in series_of(&self.0, selected) {
            // fails only if it was removed concurrently
            let _ = self.0.remove_label_values(&series);
        }
    }
}

/// Gauges of whole numbers.
pub type Gauges<const N: usize> = Series<AtomicI64, N>;
/// Gauges of amounts, shares and limits, which need not be whole.
pub type Amounts<const N: usize> = Series<AtomicF64, N>;

/// Gauges with `N` labels, in the order of the metric's definition.
#[derive(Debug)]
pub struct Series<P: Atomic, const N: usize> {
    vec: GenericGaugeVec<P>,
    /// The series of the last [`Self::replace`], in its order.
    current: Arc<Mutex<Vec<LabelledGauge<P, N>>>>,
}

type LabelledGauge<P, const N: usize> = ([Box<str>; N], GenericGauge<P>);

impl<P: Atomic, const N: usize> Clone for Series<P, N> {
    fn clone(&self) -> Self {
        Self { vec: self.vec.clone(), current: Arc::clone(&self.current) }
    }
}

impl<P: Atomic, const N: usize> Series<P, N> {
    fn new(vec: GenericGaugeVec<P>) -> Self {
        Self { vec, current: Arc::default() }
    }

    pub fn set(&self, labels: [&str; N], value: P::T) {
        self.vec.with_label_values(&labels).set(value);
    }

    /// Replaces the series of the last call. Series that are in both never disappear in between. Optimised
    /// for the usual case: the same series in the same order.
    pub fn replace<'a>(&self, values: impl IntoIterator<Item = ([&'a str; N], P::T)>) {
        let mut current = locks::lock(&self.current);
        let mut same = 0;
        let mut others = Vec::new();
        for (labels, value) in values {
            let is_next = |known: &[Box<str>; N]| known.iter().map(|label| &**label).eq(labels);
            match current.get(same).filter(|(known, _)| others.is_empty() && is_next(known)) {
                Some((_, gauge)) => {
                    gauge.set(value);
                    same += 1;
                }
                None => others.push((labels, value)),
            }
        }
        let stay: BTreeSet<[&str; N]> = others.iter().map(|(labels, _)| *labels).collect();
        for (labels, _) in current.drain(same..) {
            if !stay.contains(&labels.each_ref().map(|label| &**label)) {
                // fails only if it was removed concurrently
                let _ = self.vec.remove_label_values(&labels.each_ref().map(|label| &**label));
            }
        }
        for (labels, value) in others {
            let gauge = self.vec.with_label_values(&labels);
            gauge.set(value);
            current.push((labels.map(Box::from), gauge));
        }
    }
}

impl Gauges<1> {
    /// Increments the gauge with this label until the guard is dropped.
    pub fn enter(&self, labels: [&str; 1]) -> Entered {
        let gauge = self.vec.with_label_values(&labels);
        gauge.inc();
        Entered(gauge)
    }
}

/// A gauge without labels.
#[derive(Clone, Debug)]
pub struct Gauge(IntGauge);

impl Gauge {
    pub fn set(&self, value: i64) {
        self.0.set(value);
    }

    /// Increments the gauge until the guard is dropped.
    pub fn enter(&self) -> Entered {
        self.0.inc();
        Entered(self.0.clone())
    }
}

/// Counts as one in a gauge while it lives.
#[derive(Debug)]
pub struct Entered(IntGauge);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Histograms with `N` labels, in the order of the metric's definition.
#[derive(Clone, Debug)]
pub struct Histograms<const N: usize>(HistogramVec);

impl<const N: usize> Histograms<N> {
    pub fn observe(&self, labels: [&str; N], value: f64) {
        self.0.with_label_values(&labels).observe(value);
    }

    /// Observes a duration in seconds.
    pub fn observe_duration(&self, labels: [&str; N], duration: Duration) {
        self.observe(labels, duration.as_secs_f64());
    }

    /// Removes the series with these label values, because their object was deleted.
    pub fn forget(&self, selected: &[(&str, &str)]) {
        for series in series_of(&self.0, selected) {
            // fails only if it was removed concurrently
            let _ = self.0.remove_label_values(&series);
        }
    }
}

/// Handles of all metrics. Clones share the numbers.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    families: Arc<Families>,
    /// Held while gauges are replaced and while all are gathered, so that no scrape sees half of an update.
    update: Arc<Mutex<()>>,
    catalog: Arc<[Definition]>,
    pub journal: JournalMetrics,
    pub workloads: WorkloadMetrics,
    pub agents: AgentMetrics,
    pub engine: EngineMetrics,
    pub api: ApiMetrics,
    pub connections: ConnectionMetrics,
    pub kueue: Kueue,
}

/// The definition of one metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition {
    pub name: &'static str,
    pub help: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    pub labels: &'static [&'static str],
}

impl Metrics {
    /// All metrics, and `meridian_build_info` with `version`.
    pub fn new(version: &str) -> Self {
        let mut registrar =
            Registrar { registry: Registry::new(), families: Families::default(), catalog: Vec::new() };
        let build: Gauges<1> =
            registrar.gauges("meridian_build_info", "constant 1, labelled with the version", &["version"]);
        build.set([version], 1);
        Self {
            journal: JournalMetrics::new(&mut registrar),
            workloads: WorkloadMetrics::new(&mut registrar),
            agents: AgentMetrics::new(&mut registrar),
            engine: EngineMetrics::new(&mut registrar),
            api: ApiMetrics::new(&mut registrar),
            connections: ConnectionMetrics::new(&mut registrar),
            kueue: Kueue::new(&mut registrar),
            catalog: registrar.catalog.into(),
            registry: registrar.registry,
            families: Arc::new(registrar.families),
            update: Arc::default(),
        }
    }

    /// Prevents scrapes until the guard is dropped, so that several metrics change together.
    pub fn begin_update(&self) -> MutexGuard<'_, ()> {
        locks::lock(&self.update)
    }

    /// As [`Metrics::begin_update`]; `None` if a scrape or another update is in progress.
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

    /// Every metric, for tests of their definitions.
    pub fn catalog(&self) -> &[Definition] {
        &self.catalog
    }
}
