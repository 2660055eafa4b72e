//! Meridian's own endpoints: `/metrics`, and `/meridian/v1` for actions and views outside the Kubernetes
//! conventions.

mod action;
mod audit;
mod cluster;
mod logs;
mod many;
mod named_job;
mod orphan;
mod recovery;
mod tokens;
mod ttl;
mod why;

use super::access::{self, User};
use super::metering::Label;
use super::response::error::{Error, method_not_allowed};
use super::state::Api;
use crate::metrics::OPEN_METRICS;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};
use axum::{Extension, Router};
use std::collections::BTreeMap;

/// One endpoint with its handler.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    /// The label of its requests in the metrics.
    verb: &'static str,
    handler: fn() -> MethodRouter<Api>,
}

impl Route {
    const fn new(
        method: &'static str,
        path: &'static str,
        verb: &'static str,
        handler: fn() -> MethodRouter<Api>,
    ) -> Self {
        Self { method, path, verb, handler }
    }
}

/// Every endpoint. `tests/tenants.rs` states for each what it may show to, or do for, a user of another
/// namespace.
pub(crate) const ROUTES: [Route; 22] = [
    Route::new("POST", "/meridian/v1/apply", "apply", || post(many::apply)),
    Route::new("POST", "/meridian/v1/bulk", "bulk", || post(many::bulk)),
    Route::new("GET", "/meridian/v1/why/{namespace}/{name}", "why", || get(why::why)),
    Route::new("GET", "/meridian/v1/logs/{namespace}/{name}", "logs", || get(logs::logs)),
    Route::new("POST", "/meridian/v1/clusters/{name}/join-token", "join-token", || post(cluster::join_token)),
    Route::new("POST", "/meridian/v1/clusters/{name}/cordon", "cordon", || post(cluster::cordon)),
    Route::new("POST", "/meridian/v1/clusters/{name}/uncordon", "uncordon", || post(cluster::uncordon)),
    Route::new("POST", "/meridian/v1/clusters/{name}/admit", "admit", || post(cluster::admit)),
    Route::new("POST", "/meridian/v1/clusters/{name}/drain", "drain", || post(cluster::drain)),
    Route::new("POST", "/meridian/v1/clusters/{name}/revoke", "revoke", || post(cluster::revoke)),
    Route::new("POST", "/meridian/v1/clusters/{name}/declare-lost", "declare-lost", || {
        post(cluster::declare_lost)
    }),
    Route::new("GET", "/meridian/v1/recovery", "recovery", || get(recovery::get)),
    Route::new("POST", "/meridian/v1/recovery/confirm", "confirm-recovery", || post(recovery::confirm)),
    Route::new("POST", "/meridian/v1/rules/confirm", "confirm-rules", || post(recovery::confirm_rules)),
    Route::new("POST", "/meridian/v1/orphans/{uid}/{fence}/stop", "stop-orphan", || post(orphan::stop)),
    Route::new("POST", "/meridian/v1/orphans/{uid}/{fence}/adopt", "adopt-orphan", || post(orphan::adopt)),
    Route::new("GET", "/meridian/v1/audit", "audit", || get(audit::audit)),
    Route::new("GET", "/meridian/v1/audit/key", "audit-key", || get(audit::key)),
    Route::new("GET", "/meridian/v1/tokens", "list-tokens", || get(tokens::list)),
    Route::new("POST", "/meridian/v1/tokens", "create-token", || post(tokens::create)),
    Route::new("DELETE", "/meridian/v1/tokens/{name}", "revoke-token", || delete(tokens::revoke)),
    Route::new("GET", access::METRICS, "metrics", || get(metrics)),
];

pub(crate) fn router() -> Router<Api> {
    let mut by_path: BTreeMap<&'static str, Vec<&'static Route>> = BTreeMap::new();
    for route in &ROUTES {
        by_path.entry(route.path).or_default().push(route);
    }
    by_path.into_iter().fold(Router::new(), |router, (path, routes)| {
        let methods = routes.iter().map(|route| labelled(route.verb, (route.handler)()));
        let served = methods.fold(MethodRouter::new(), MethodRouter::merge);
        let allowed: Vec<&'static str> = routes.iter().map(|route| route.method).collect();
        router.route(path, served.fallback(move |m, u| method_not_allowed(m, u, allowed.clone())))
    })
}

/// Labels the endpoint's requests in the metrics.
fn labelled(verb: &'static str, method: MethodRouter<Api>) -> MethodRouter<Api> {
    method.layer(axum::middleware::map_response(move |mut response: Response| async move {
        response.extensions_mut().insert(Label {
            verb,
            resource: "meridian",
            streams: verb == "logs" || verb == "audit",
        });
        response
    }))
}

/// All metrics, or those that the parameters `name[]` select.
async fn metrics(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Query(query): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Result<Response, Error> {
    user.check_metrics()?;
    // a thousand queues make many megabytes, so render on a blocking thread, where that doesn't delay syncs
    let metrics = api.handle.metrics().clone();
    let only: Vec<String> =
        query.into_iter().filter(|(key, _)| key == "name[]").map(|(_, name)| name).collect();
    let open = accepts_open_metrics(&headers);
    let render = move || if open { metrics.render_open(&only) } else { metrics.render(&only) };
    let text = tokio::task::spawn_blocking(render).await.map_err(|e| Error::Internal(e.to_string()))?;
    let kind = if open {
        format!("{OPEN_METRICS}; version=1.0.0; charset=utf-8")
    } else {
        "text/plain; version=0.0.4".to_owned()
    };
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// Whether the client accepts OpenMetrics, which Prometheus prefers. Only that format has exemplars.
fn accepts_open_metrics(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let refused = |part: &str| part.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0));
        parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case(OPEN_METRICS)) && !parts.any(refused)
    })
}
