//! Every metric of the agent, by name, and the listener for collectors and probes.
//!
//! Names follow Prometheus' conventions: base units, `_total` for counters. The metrics of GPUs have the
//! names and units of NVIDIA's DCGM exporter instead, so that its dashboards work. Label values come from
//! closed lists or name a GPU, never from users: the listener shows them to everyone who reaches it.

pub(crate) mod listener;
pub mod names;
pub(crate) mod simulated_gpus;

use crate::inventory::accelerators::Reading;
use crate::uplink::Landed;
use meridian_agent_core::{Agent, RunnerEvent};
use meridian_shared::ids::OfferId;
use meridian_shared::protocol::{EndResult, Event, Lane, SyncAnswer, SyncRequest};
use meridian_shared::time::{Millis, Mono};
use names::Definition;
use prometheus::core::Collector;
use prometheus::{
    Encoder, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// From a millisecond to two minutes, because a sync is answered at once or after a poll.
const SYNC_BUCKETS: [f64; 12] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 15.0, 60.0, 120.0];
/// From 100 µs to seconds, as one flush of a disk takes.
const COMMIT_BUCKETS: [f64; 10] = [0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5];

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    runs: IntGaugeVec,
    holds: IntGauge,
    refused: IntCounterVec,
    syncs: HistogramVec,
    commits: Histogram,
    renewals: IntCounter,
    lapses: IntCounter,
    gangs_moved: IntCounter,
    pods_moved: IntCounter,
    stranded: IntCounter,
    violations: IntCounter,
    unreported_nodes: IntGauge,
    certificate_expiry: IntGauge,
    node_requests: IntGaugeVec,
    node_requests_limit: IntGauge,
    unused_booking_age: IntGauge,
    gpu_utilisation: GaugeVec,
    gpu_memory_used: GaugeVec,
    gpu_power: GaugeVec,
    synced: AtomicBool,
    /// Number of the last counted event of this session.
    counted: AtomicU64,
    unused_since: Mutex<UnusedSince>,
    /// The last readings of GPUs.
    shown_gpus: Mutex<Vec<Reading>>,
}

/// When nodes of a provider were first seen without pods, by their offer.
type UnusedSince = BTreeMap<OfferId, Mono>;

const OURS: &str = "the names are ours, fixed and distinct";

fn register<C: Collector + Clone + 'static>(registry: &Registry, made: prometheus::Result<C>) -> C {
    let collector = made.expect(OURS);
    registry.register(Box::new(collector.clone())).expect(OURS);
    collector
}

/// The definitions as options of the client library, with the labels that all metrics have.
struct Options {
    labels: HashMap<String, String>,
}

impl Options {
    fn of(&self, definition: &Definition) -> Opts {
        Opts::new(definition.name, definition.help).const_labels(self.labels.clone())
    }

    fn with_buckets(&self, definition: &Definition, buckets: &[f64]) -> HistogramOpts {
        HistogramOpts::from(self.of(definition)).buckets(buckets.to_vec())
    }
}

impl Metrics {
    /// Registers every name. `runner` becomes a label, so that the metrics of a simulated cluster say so.
    pub fn new(runner: &str, cluster: &str) -> Arc<Self> {
        let labels = names::CONSTANT_LABELS.map(str::to_owned).into_iter();
        let options = Options { labels: labels.zip([cluster, runner].map(str::to_owned)).collect() };
        let registry = Registry::new();
        let r = &registry;
        let counter = |of: &Definition| register(r, IntCounter::with_opts(options.of(of)));
        let gauge = |of: &Definition| register(r, IntGauge::with_opts(options.of(of)));
        let of_gpus = |of: &Definition| register(r, GaugeVec::new(options.of(of), of.labels));
        let this = Self {
            runs: register(r, IntGaugeVec::new(options.of(&names::RUNS), names::RUNS.labels)),
            holds: gauge(&names::HOLDS),
            refused: register(r, IntCounterVec::new(options.of(&names::REFUSED), names::REFUSED.labels)),
            syncs: register(
                r,
                HistogramVec::new(options.with_buckets(&names::SYNCS, &SYNC_BUCKETS), names::SYNCS.labels),
            ),
            commits: register(
                r,
                Histogram::with_opts(options.with_buckets(&names::COMMITS, &COMMIT_BUCKETS)),
            ),
            renewals: counter(&names::RENEWALS),
            lapses: counter(&names::LAPSES),
            gangs_moved: counter(&names::GANGS_MOVED),
            pods_moved: counter(&names::PODS_MOVED),
            stranded: counter(&names::STRANDED),
            violations: counter(&names::VIOLATIONS),
            unreported_nodes: gauge(&names::UNREPORTED_NODES),
            certificate_expiry: gauge(&names::CERTIFICATE_EXPIRY),
            node_requests: register(
                r,
                IntGaugeVec::new(options.of(&names::NODE_REQUESTS), names::NODE_REQUESTS.labels),
            ),
            node_requests_limit: gauge(&names::NODE_REQUESTS_LIMIT),
            unused_booking_age: gauge(&names::UNUSED_BOOKING_AGE),
            gpu_utilisation: of_gpus(&names::GPU_UTILISATION),
            gpu_memory_used: of_gpus(&names::GPU_MEMORY_USED),
            gpu_power: of_gpus(&names::GPU_POWER),
            synced: AtomicBool::new(false),
            counted: AtomicU64::new(0),
            unused_since: Mutex::default(),
            shown_gpus: Mutex::default(),
            registry,
        };
        Arc::new(this)
    }

    pub(crate) fn observe_agent(&self, now: Mono, agent: &Agent) {
        let (mut starting, mut running, mut stopping) = (0, 0, 0);
        for (_, _, is_running, is_stopping) in agent.runs() {
            match (is_running, is_stopping) {
                (_, true) => stopping += 1,
                (true, false) => running += 1,
                (false, false) => starting += 1,
            }
        }
        for (state, count) in [("starting", starting), ("running", running), ("stopping", stopping)] {
            self.runs.with_label_values(&[state]).set(count);
        }
        self.holds.set(i64::try_from(agent.held().count()).unwrap_or(i64::MAX));
        self.unreported_nodes.set(agent.unreported_nodes().into());
        let provided: Vec<(OfferId, bool)> = agent.provided().collect();
        for (state, count) in [("waiting", agent.waiting().count()), ("provided", provided.len())] {
            self.node_requests.with_label_values(&[state]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        let unused = provided.into_iter().filter(|(_, is_used)| !is_used).map(|(offer, _)| offer);
        self.unused_booking_age.set(self.longest_unused(now, unused));
    }

    /// Age in seconds of the oldest of these bookings, counted from when it was first seen.
    fn longest_unused(&self, now: Mono, unused: impl Iterator<Item = OfferId>) -> i64 {
        let mut since = self.unused_since.lock().unwrap_or_else(PoisonError::into_inner);
        *since = unused.map(|offer| (offer, since.get(&offer).copied().unwrap_or(now))).collect();
        let oldest = since.values().min().map_or(Millis(0), |seen| now.since(*seen));
        i64::try_from(oldest.0 / 1_000).unwrap_or(i64::MAX)
    }

    /// How many requests for nodes may be open; 0 without a limit.
    pub(crate) fn set_node_requests_limit(&self, limit: usize) {
        self.node_requests_limit.set(i64::try_from(limit).unwrap_or(i64::MAX));
    }

    /// Counts the change by an event of the runner; a repeated event counts nothing.
    pub(crate) fn observe_event(&self, agent: &Agent, event: &RunnerEvent) {
        match event {
            RunnerEvent::Moved { uid, fence, number } => {
                let pods = agent.moving(*uid, *fence, *number);
                if pods > 0 {
                    self.gangs_moved.inc();
                    self.pods_moved.inc_by(pods as u64);
                }
            }
            RunnerEvent::Ended { uid, fence, result: EndResult::Stopped, .. }
                if agent.is_stranded(*uid, *fence) =>
            {
                self.stranded.inc()
            }
            RunnerEvent::Ended { .. }
            | RunnerEvent::Running { .. }
            | RunnerEvent::Reclaimable { .. }
            | RunnerEvent::Completed { .. }
            | RunnerEvent::PodsFailed { .. } => {}
        }
    }

    /// Counts the events that a request contains for the first time.
    pub(crate) fn observe_request(&self, request: &SyncRequest) {
        let counted = self.counted.load(Ordering::Relaxed);
        for (number, event) in (request.events_from..).zip(&request.events).skip_while(|(n, _)| *n <= counted)
        {
            match event {
                Event::Refused { reason, .. } => self.refused.with_label_values(&[reason.word()]).inc(),
                Event::Ended(end) if end.result == EndResult::LeaseLapsed => self.lapses.inc(),
                _ => {}
            }
            self.counted.store(number, Ordering::Relaxed);
        }
    }

    pub(crate) fn observe_landed(&self, landed: &Landed) {
        let lane = match landed.lane {
            Lane::Poll => "poll",
            Lane::News => "news",
        };
        let outcome = match &landed.result {
            Ok(SyncAnswer::Ok(_)) => "ok",
            Ok(SyncAnswer::Refused(_)) => "refused",
            Err(_) => "failed",
        };
        self.syncs.with_label_values(&[lane, outcome]).observe(landed.took.as_secs_f64());
    }

    pub(crate) fn observe_commit(&self, took: Duration) {
        self.commits.observe(took.as_secs_f64());
    }

    pub(crate) fn count_renewal(&self) {
        self.renewals.inc();
    }

    pub(crate) fn count_violation(&self) {
        self.violations.inc();
    }

    pub(crate) fn set_certificate_expiry(&self, not_after_ms: i64) {
        self.certificate_expiry.set(not_after_ms / 1_000);
    }

    /// Replaces the values of all GPUs, so that a lost one is not shown with its last value.
    pub(crate) fn set_accelerators(&self, readings: &[Reading]) {
        type Field = fn(&Reading) -> Option<f64>;
        let mut shown = self.shown_gpus.lock().unwrap_or_else(PoisonError::into_inner);
        if *shown == readings {
            return;
        }
        *shown = readings.to_vec();
        let all: [(&GaugeVec, Field); 3] = [
            (&self.gpu_utilisation, |of| of.utilisation_percent),
            (&self.gpu_memory_used, |of| of.memory_used_mib),
            (&self.gpu_power, |of| of.power_watts),
        ];
        for (gauges, value) in all {
            gauges.reset();
            for (reading, value) in readings.iter().filter_map(|of| Some((of, value(of)?))) {
                let labels = [&reading.index.to_string(), &reading.uuid, &reading.model];
                gauges.with_label_values(&labels.map(String::as_str)).set(value);
            }
        }
    }

    /// Whether the manager accepts syncs, for `/readyz`.
    pub(crate) fn set_ready(&self, ready: bool) {
        self.synced.store(ready, Ordering::Relaxed);
    }

    fn is_ready(&self) -> bool {
        self.synced.load(Ordering::Relaxed)
    }

    /// The body of `/metrics`.
    pub(crate) fn text(&self) -> String {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text).expect("writing into memory");
        String::from_utf8_lossy(&text).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_prefix_and_the_runner_as_label() {
        let metrics = Metrics::new("simulated", "eu");
        metrics.count_renewal();
        metrics.observe_commit(Duration::from_millis(3));
        let text = metrics.text();
        // Constant labels have no fixed order.
        let orders = [r#"cluster="eu",runner="simulated""#, r#"runner="simulated",cluster="eu""#];
        for name in ["meridian_agent_lease_renewals_total", "meridian_agent_commit_seconds_count"] {
            assert!(orders.iter().any(|labels| text.contains(&format!("{name}{{{labels}}} 1"))), "{text}");
        }
    }

    #[test]
    fn no_label_can_name_a_job_a_namespace_or_a_user() {
        let public = ["cluster", "runner", "state", "reason", "lane", "outcome", "gpu", "UUID", "modelName"];
        let own = names::ALL.iter().flat_map(|definition| definition.labels);
        let unknown: Vec<&str> =
            own.chain(&names::CONSTANT_LABELS).copied().filter(|label| !public.contains(label)).collect();
        assert!(unknown.is_empty(), "the listener shows {unknown:?} without authentication");
    }

    #[test]
    fn a_bookings_age_counts_from_its_first_sight_until_it_is_used() {
        let metrics = Metrics::new("kubernetes", "eu");
        let offer = |counter| OfferId { epoch: 1, leadership: 7, counter };
        let age = |secs: u64, unused: &[u64]| {
            metrics.longest_unused(Mono(secs * 1_000), unused.iter().map(|number| offer(*number)))
        };
        assert_eq!(age(10, &[1]), 0);
        assert_eq!(age(40, &[1, 2]), 30);
        assert_eq!(age(50, &[2]), 10, "the first one is in use");
        assert_eq!(age(60, &[]), 0);
        assert_eq!(age(70, &[2]), 0, "it was given back, and made again");
    }

    #[test]
    fn a_gpu_has_the_labels_of_dcgm_and_a_lost_one_no_value() {
        let metrics = Metrics::new("process", "eu");
        let of = |index: u32, utilisation_percent| Reading {
            index,
            uuid: format!("GPU-{index}"),
            model: "NVIDIA L4".into(),
            utilisation_percent,
            memory_used_mib: None,
            power_watts: None,
        };
        metrics.set_accelerators(&[of(0, Some(12.0)), of(1, Some(90.0)), of(2, None)]);
        let samples = |metrics: &Metrics| -> Vec<String> {
            let text = metrics.text();
            text.lines().filter(|line| line.starts_with("DCGM_")).map(str::to_owned).collect()
        };
        let shown = samples(&metrics);
        assert_eq!(shown.len(), 2, "{shown:?}");
        for part in
            [r#"UUID="GPU-1""#, r#"gpu="1""#, r#"modelName="NVIDIA L4""#, r#"runner="process""#, "} 90"]
        {
            assert!(shown[1].starts_with("DCGM_FI_DEV_GPU_UTIL{") && shown[1].contains(part), "{shown:?}");
        }
        metrics.set_accelerators(&[]);
        assert!(samples(&metrics).is_empty());
    }
}
