//! Counts and durations of requests. Labels come from the table of kinds and the list of endpoints, never
//! from requests.

use super::state::Api;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::Response;
use meridian_telemetry::trace::{Trace, TraceParent};
use std::time::Instant;

/// Labels of a request, which its handler adds to the response's extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label {
    pub(crate) verb: &'static str,
    pub(crate) resource: &'static str,
    /// Whether the client decides how long the request takes, so that its duration isn't measured.
    pub(crate) streams: bool,
}

/// Requests without a known user, or for an unknown path.
const OTHER: Label = Label { verb: "other", resource: "other", streams: false };

/// The client's trace, if it sent a valid one.
fn trace_of(headers: &HeaderMap) -> Option<Trace> {
    let parent: TraceParent = headers.get("traceparent")?.to_str().ok()?.parse().ok()?;
    Some(parent.trace())
}

pub(crate) async fn meter(State(api): State<Api>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let trace = trace_of(request.headers());
    let response = next.run(request).await;
    let label = response.extensions().get::<Label>().copied().unwrap_or(OTHER);
    let metrics = api.handle.metrics();
    metrics.api.requests.inc([label.verb, label.resource, response.status().as_str()]);
    if !label.streams {
        let (requests, took) = (&metrics.api.request_seconds, begun.elapsed());
        match trace {
            Some(trace) => requests.observe_traced([label.verb], took, trace),
            None => requests.observe_duration([label.verb], took),
        }
    }
    response
}
