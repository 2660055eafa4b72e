//! What probes ask: whether the process lives, and whether it leads.

use crate::engine::Handle;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;

/// Answers `/healthz` and `/readyz`.
pub(super) fn router(engine: Handle) -> Router {
    Router::new().route("/healthz", get(|| async { "ok" })).route("/readyz", get(readyz)).with_state(engine)
}

async fn readyz(State(engine): State<Handle>) -> impl IntoResponse {
    if !engine.leading() {
        return (StatusCode::SERVICE_UNAVAILABLE, engine.pause());
    }
    // A leader with a problem stays in service: without it no lease is renewed, and every gang stops.
    let (problems, holds) = (engine.problems(), engine.holds().join("; "));
    let text = match (problems.is_empty(), holds.is_empty()) {
        (true, true) => "ok".to_owned(),
        (true, false) => format!("ok; {holds}"),
        (false, true) => format!("degraded: {}", problems.join("; ")),
        (false, false) => format!("degraded: {}; {holds}", problems.join("; ")),
    };
    (StatusCode::OK, text)
}
