//! Every metric of the agent, by name; and the small server that shows them.
//!
//! Names follow Prometheus' conventions: base units, `_total` for counters. Labels come from closed lists only, never from
//! users.

use crate::uplink::Landed;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use meridian_agent_core::{Agent, RunnerEvent};
use meridian_shared::protocol::{EndResult, Event, Lane, RefuseReason, SyncAnswer, SyncRequest};
use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// From a millisecond to two minutes: a sync is answered at once, or after a poll.
const SYNC_BUCKETS: [f64; 12] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 15.0, 60.0, 120.0];
/// From 100 µs to seconds: one flush of a disk.
const COMMIT_BUCKETS: [f64; 10] = [0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5];

/// Everything that is counted.
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
    untold_nodes: IntGauge,
    certificate_expiry: IntGauge,
    synced: AtomicBool,
    /// The last event of this session that was counted.
    counted: AtomicU64,
}

impl Metrics {
    /// Registers every name. `runner` is shown as a label, so that a simulated cluster says so here too.
    pub fn new(runner: &str) -> Arc<Self> {
        const OURS: &str = "the names are ours, fixed and distinct";
        let labels = std::collections::HashMap::from([("runner".to_owned(), runner.to_owned())]);
        let registry = Registry::new_custom(Some("meridian_agent".to_owned()), Some(labels)).expect(OURS);
        let histogram =
            |name, help, buckets: &[f64]| HistogramOpts::new(name, help).buckets(buckets.to_vec());
        let this = Self {
            runs: IntGaugeVec::new(Opts::new("runs", "live attempts by state"), &["state"]).expect(OURS),
            holds: IntGauge::new("holds", "offers that hold room").expect(OURS),
            refused: IntCounterVec::new(
                Opts::new("offers_refused_total", "offers refused, by reason"),
                &["reason"],
            )
            .expect(OURS),
            syncs: HistogramVec::new(
                histogram("sync_seconds", "requests to the manager, by lane and outcome", &SYNC_BUCKETS),
                &["lane", "outcome"],
            )
            .expect(OURS),
            commits: Histogram::with_opts(histogram(
                "commit_seconds",
                "durable transactions of the store",
                &COMMIT_BUCKETS,
            ))
            .expect(OURS),
            renewals: IntCounter::new("lease_renewals_total", "lease renewals that moved a deadline")
                .expect(OURS),
            lapses: IntCounter::new("lapse_stops_total", "runs that ended because their lease ran out")
                .expect(OURS),
            gangs_moved: IntCounter::new(
                "gangs_moved_total",
                "moves of gangs away from lost nodes that are done",
            )
            .expect(OURS),
            pods_moved: IntCounter::new(
                "pods_moved_total",
                "pods that were ended on a lost node and started on another",
            )
            .expect(OURS),
            stranded: IntCounter::new(
                "gangs_stranded_total",
                "gangs that ended because pods of a lost node had no other place",
            )
            .expect(OURS),
            violations: IntCounter::new(
                "invariant_violations_total",
                "recounts of the ledger that found a mistake of ours",
            )
            .expect(OURS),
            untold_nodes: IntGauge::new(
                "untold_nodes",
                "nodes that the manager isn't told of, because so many that are unlike don't fit a report",
            )
            .expect(OURS),
            certificate_expiry: IntGauge::new(
                "certificate_expiry_timestamp_seconds",
                "when the agent's certificate ends",
            )
            .expect(OURS),
            synced: AtomicBool::new(false),
            counted: AtomicU64::new(0),
            registry,
        };
        let all: [Box<dyn prometheus::core::Collector>; 13] = [
            Box::new(this.runs.clone()),
            Box::new(this.holds.clone()),
            Box::new(this.refused.clone()),
            Box::new(this.syncs.clone()),
            Box::new(this.commits.clone()),
            Box::new(this.renewals.clone()),
            Box::new(this.lapses.clone()),
            Box::new(this.gangs_moved.clone()),
            Box::new(this.pods_moved.clone()),
            Box::new(this.stranded.clone()),
            Box::new(this.violations.clone()),
            Box::new(this.untold_nodes.clone()),
            Box::new(this.certificate_expiry.clone()),
        ];
        for collector in all {
            this.registry.register(collector).expect(OURS);
        }
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
        self.untold_nodes.set(agent.untold_nodes().into());
    }

    /// Counts what a runner's event is about to change: what it only repeats changes nothing.
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
            | RunnerEvent::Spare { .. }
            | RunnerEvent::PodsFailed { .. } => {}
        }
    }

    /// Counts what a request says for the first time.
    pub(crate) fn observe_request(&self, request: &SyncRequest) {
        let counted = self.counted.load(Ordering::Relaxed);
        for (number, event) in (request.events_from..).zip(&request.events).skip_while(|(n, _)| *n <= counted)
        {
            match event {
                Event::Refused { reason, .. } => self.refused.with_label_values(&[word(*reason)]).inc(),
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

    /// Whether the manager takes our syncs: what `/readyz` says.
    pub(crate) fn set_ready(&self, ready: bool) {
        self.synced.store(ready, Ordering::Relaxed);
    }

    /// Everything as `/metrics` shows it.
    pub(crate) fn text(&self) -> String {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text).expect("writing into memory");
        String::from_utf8_lossy(&text).into_owned()
    }
}

fn word(reason: RefuseReason) -> &'static str {
    match reason {
        RefuseReason::NoRoom => "no_room",
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
        .route("/metrics", get(show))
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .with_state(metrics)
}

async fn show(State(metrics): State<Arc<Metrics>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], metrics.text())
}

async fn ready(State(metrics): State<Arc<Metrics>>) -> impl IntoResponse {
    if metrics.synced.load(Ordering::Relaxed) {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the manager does not answer our syncs")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_prefixed_and_the_runner_is_told() {
        let metrics = Metrics::new("simulated");
        metrics.count_renewal();
        metrics.observe_commit(Duration::from_millis(3));
        let text = metrics.text();
        assert!(text.contains("meridian_agent_lease_renewals_total{runner=\"simulated\"} 1"), "{text}");
        assert!(text.contains("meridian_agent_commit_seconds_count{runner=\"simulated\"} 1"), "{text}");
    }
}
