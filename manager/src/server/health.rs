//! What probes ask: whether the process lives, and whether it leads.

use crate::engine::Handle;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::sync::watch;

/// The engine, and why the management cluster can't be used, if one is set.
type Probed = (Handle, Option<watch::Receiver<Option<String>>>);

/// Answers `/healthz` and `/readyz`.
pub(super) fn router(engine: Handle, absence: Option<watch::Receiver<Option<String>>>) -> Router {
    let router = Router::new().route("/healthz", get(|| async { "ok" })).route("/readyz", get(readyz));
    router.with_state((engine, absence))
}

async fn readyz(State((engine, absence)): State<Probed>) -> impl IntoResponse {
    if !engine.leading() {
        return (StatusCode::SERVICE_UNAVAILABLE, engine.pause());
    }
    // A leader with a problem stays in service: without it no lease is renewed, and every gang stops.
    let (mut problems, holds) = (engine.problems(), engine.holds().join("; "));
    problems.extend(absence.and_then(|absence| absence.borrow().clone()));
    let text = match (problems.is_empty(), holds.is_empty()) {
        (true, true) => "ok".to_owned(),
        (true, false) => format!("ok; {holds}"),
        (false, true) => format!("degraded: {}", problems.join("; ")),
        (false, false) => format!("degraded: {}; {holds}", problems.join("; ")),
    };
    (StatusCode::OK, text)
}
