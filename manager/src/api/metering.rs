//! Counts and times of requests. Labels come from the table of kinds and the list of endpoints, never from the request.

use super::Api;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use std::time::Instant;

/// What a request was, left by its handler among the answer's extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label {
    /// What was done.
    pub(crate) verb: &'static str,
    /// To what.
    pub(crate) resource: &'static str,
    /// Its length is the asker's wish, so that its time says nothing.
    pub(crate) streams: bool,
}

/// Requests that no handler took: without a known user, or for nothing that is there.
const OTHER: Label = Label { verb: "other", resource: "other", streams: false };

pub(crate) async fn meter(State(api): State<Api>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let response = next.run(request).await;
    let label = response.extensions().get::<Label>().copied().unwrap_or(OTHER);
    let metrics = api.handle.metrics();
    metrics.api_requests.inc([label.verb, label.resource, response.status().as_str()]);
    if !label.streams {
        metrics.api_request_seconds.took([label.verb], begun.elapsed());
    }
    response
}
