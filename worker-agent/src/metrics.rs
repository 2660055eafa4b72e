//! Every metric of the agent, by name, and the server for them.
//!
//! Names follow Prometheus' conventions: base units, `_total` for counters. Label values come from closed
//! lists, never from users.

use crate::uplink::Landed;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use meridian_agent_core::{Agent, RunnerEvent};
use meridian_shared::protocol::{EndResult, Event, Lane, RefuseReason, SyncAnswer, SyncRequest};
use prometheus::core::Collector;
use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    synced: AtomicBool,
    /// Number of the last counted event of this session.
    counted: AtomicU64,
}

const OURS: &str = "the names are ours, fixed and distinct";

fn register<C: Collector + Clone + 'static>(registry: &Registry, made: prometheus::Result<C>) -> C {
    let collector = made.expect(OURS);
    registry.register(Box::new(collector.clone())).expect(OURS);
    collector
}

fn counter(registry: &Registry, name: &str, help: &str) -> IntCounter {
    register(registry, IntCounter::new(name, help))
}

fn counters(registry: &Registry, name: &str, help: &str, label: &str) -> IntCounterVec {
    register(registry, IntCounterVec::new(Opts::new(name, help), &[label]))
}

fn gauge(registry: &Registry, name: &str, help: &str) -> IntGauge {
    register(registry, IntGauge::new(name, help))
}

fn gauges(registry: &Registry, name: &str, help: &str, label: &str) -> IntGaugeVec {
    register(registry, IntGaugeVec::new(Opts::new(name, help), &[label]))
}

impl Metrics {
    /// Registers every name. `runner` becomes a label, so that the metrics of a simulated cluster say so.
    pub fn new(runner: &str) -> Arc<Self> {
        let labels = std::collections::HashMap::from([("runner".to_owned(), runner.to_owned())]);
        let registry = Registry::new_custom(Some("meridian_agent".to_owned()), Some(labels)).expect(OURS);
        let r = &registry;
        let this = Self {
            runs: gauges(r, "runs", "live attempts by state", "state"),
            holds: gauge(r, "holds", "offers that hold resources"),
            refused: counters(r, "offers_refused_total", "refused offers by reason", "reason"),
            syncs: register(
                r,
                HistogramVec::new(
                    HistogramOpts::new("sync_seconds", "requests to the manager by lane and outcome")
                        .buckets(SYNC_BUCKETS.to_vec()),
                    &["lane", "outcome"],
                ),
            ),
            commits: register(
                r,
                Histogram::with_opts(
                    HistogramOpts::new("commit_seconds", "durable transactions of the store")
                        .buckets(COMMIT_BUCKETS.to_vec()),
                ),
            ),
            renewals: counter(r, "lease_renewals_total", "lease renewals that extended a deadline"),
            lapses: counter(r, "lapse_stops_total", "runs that ended because their lease lapsed"),
            gangs_moved: counter(r, "gangs_moved_total", "finished moves of gangs away from lost nodes"),
            pods_moved: counter(
                r,
                "pods_moved_total",
                "pods that were moved from a lost node to another one",
            ),
            stranded: counter(
                r,
                "gangs_stranded_total",
                "gangs that ended because pods of a lost node fit nowhere else",
            ),
            violations: counter(
                r,
                "invariant_violations_total",
                "recounts of the ledger that found a bug of this program",
            ),
            unreported_nodes: gauge(
                r,
                "unreported_nodes",
                "nodes left out of the capacity report, because too many different ones do not fit it",
            ),
            certificate_expiry: gauge(
                r,
                "certificate_expiry_timestamp_seconds",
                "end of the agent's certificate",
            ),
            synced: AtomicBool::new(false),
            counted: AtomicU64::new(0),
            registry,
        };
        Arc::new(this)
    }

    pub(crate) fn observe_agent(&self, agent: &Agent) {
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
    }

    /// Counts what an event of the runner will change; a repeated event changes nothing.
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
            | RunnerEvent::PodsFailed { .. } => {}
        }
    }

    /// Counts the events that a request contains for the first time.
    pub(crate) fn observe_request(&self, request: &SyncRequest) {
        let counted = self.counted.load(Ordering::Relaxed);
        for (number, event) in (request.events_from..).zip(&request.events).skip_while(|(n, _)| *n <= counted)
        {
            match event {
                Event::Refused { reason, .. } => {
                    self.refused.with_label_values(&[reason_label(*reason)]).inc()
                }
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

    /// Whether the manager accepts syncs, for `/readyz`.
    pub(crate) fn set_ready(&self, ready: bool) {
        self.synced.store(ready, Ordering::Relaxed);
    }

    /// The body of `/metrics`.
    pub(crate) fn text(&self) -> String {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text).expect("writing into memory");
        String::from_utf8_lossy(&text).into_owned()
    }
}

fn reason_label(reason: RefuseReason) -> &'static str {
    match reason {
        RefuseReason::NoCapacity => "no_room",
        RefuseReason::NeverFits => "never_fits",
        RefuseReason::Unsupported => "unsupported",
        RefuseReason::Overloaded => "overloaded",
        RefuseReason::ProviderFailed => "provider_failed",
        RefuseReason::StillRuns => "still_runs",
    }
}

/// `/metrics`, `/healthz` and `/readyz`.
pub(crate) fn router(metrics: Arc<Metrics>) -> Router {
    Router::new()
        .route("/metrics", get(text))
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .with_state(metrics)
}

async fn text(State(metrics): State<Arc<Metrics>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], metrics.text())
}

async fn ready(State(metrics): State<Arc<Metrics>>) -> impl IntoResponse {
    if metrics.synced.load(Ordering::Relaxed) {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the manager does not answer syncs")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_prefix_and_the_runner_as_label() {
        let metrics = Metrics::new("simulated");
        metrics.count_renewal();
        metrics.observe_commit(Duration::from_millis(3));
        let text = metrics.text();
        assert!(text.contains("meridian_agent_lease_renewals_total{runner=\"simulated\"} 1"), "{text}");
        assert!(text.contains("meridian_agent_commit_seconds_count{runner=\"simulated\"} 1"), "{text}");
    }
}
