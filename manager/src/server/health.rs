//! Answers to probes: whether the process lives, and whether it leads.

use crate::engine::Handle;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::sync::watch;

/// The problem of a part other than the engine; `None` while there is none.
type Problem = watch::Receiver<Option<String>>;

/// The engine, and the problems of other parts: the management cluster, and files of objects.
type Probed = (Handle, Vec<Problem>);

/// Answers `/healthz` and `/readyz`.
pub(super) fn router(engine: Handle, others: Vec<Problem>) -> Router {
    let router = Router::new().route("/healthz", get(|| async { "ok" })).route("/readyz", get(readyz));
    router.with_state((engine, others))
}

async fn readyz(State((engine, others)): State<Probed>) -> impl IntoResponse {
    if !engine.leading() {
        return (StatusCode::SERVICE_UNAVAILABLE, engine.pause());
    }
    // A leader with a problem stays ready: if it were taken out of service, no lease would be renewed, and
    // every gang would stop.
    let (mut problems, holds) = (engine.problems(), engine.holds().join("; "));
    problems.extend(others.iter().filter_map(|problem| problem.borrow().clone()));
    let text = match (problems.is_empty(), holds.is_empty()) {
        (true, true) => "ok".to_owned(),
        (true, false) => format!("ok; {holds}"),
        (false, true) => format!("degraded: {}", problems.join("; ")),
        (false, false) => format!("degraded: {}; {holds}", problems.join("; ")),
    };
    (StatusCode::OK, text)
}
