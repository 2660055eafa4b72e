//! Meridian's own endpoints: `/metrics`, and `/meridian/v1` for what the Kubernetes conventions have no place
//! for.

mod action;
mod audit;
mod cluster;
pub(crate) mod idempotency;
mod logs;
mod many;
mod orphan;
mod recovery;
mod why;

use super::access::{self, Endpoint};
use super::metering::Label;
use super::response::error::{Error, method_not_allowed};
use super::state::Api;
use crate::auth::User;
use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Router};
pub(crate) fn router() -> Router<Api> {
    let getting = |verb: &'static str, method: MethodRouter<Api>| {
        labelled(verb, method).fallback(|m, u| method_not_allowed(m, u, &["GET"]))
    };
    let posting = |verb: &'static str, method: MethodRouter<Api>| {
        labelled(verb, method).fallback(|m, u| method_not_allowed(m, u, &["POST"]))
    };
    Router::new()
        .route("/meridian/v1/apply", posting("apply", post(many::apply)))
        .route("/meridian/v1/bulk", posting("bulk", post(many::bulk)))
        .route("/meridian/v1/why/{namespace}/{name}", getting("why", get(why::why)))
        .route("/meridian/v1/logs/{namespace}/{name}", getting("logs", get(logs::logs)))
        .route("/meridian/v1/clusters/{name}/join-token", posting("join-token", post(cluster::join_token)))
        .route("/meridian/v1/clusters/{name}/cordon", posting("cordon", post(cluster::cordon)))
        .route("/meridian/v1/clusters/{name}/uncordon", posting("uncordon", post(cluster::uncordon)))
        .route("/meridian/v1/clusters/{name}/admit", posting("admit", post(cluster::admit)))
        .route("/meridian/v1/clusters/{name}/drain", posting("drain", post(cluster::drain)))
        .route("/meridian/v1/clusters/{name}/revoke", posting("revoke", post(cluster::revoke)))
        .route(
            "/meridian/v1/clusters/{name}/declare-lost",
            posting("declare-lost", post(cluster::declare_lost)),
        )
        .route("/meridian/v1/recovery", getting("recovery", get(recovery::get)))
        .route("/meridian/v1/recovery/confirm", posting("confirm-recovery", post(recovery::confirm)))
        .route("/meridian/v1/rules/confirm", posting("confirm-rules", post(recovery::confirm_rules)))
        .route("/meridian/v1/orphans/{uid}/{fence}/stop", posting("stop-orphan", post(orphan::stop)))
        .route("/meridian/v1/orphans/{uid}/{fence}/adopt", posting("adopt-orphan", post(orphan::adopt)))
        .route("/meridian/v1/audit", getting("audit", get(audit::audit)))
        .route("/metrics", getting("metrics", get(metrics)))
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
) -> Result<Response, Error> {
    access::check_endpoint(&user, Endpoint::Metrics)?;
    // a thousand queues make many megabytes: rendering must not delay syncs
    let metrics = api.handle.metrics().clone();
    let only: Vec<String> =
        query.into_iter().filter(|(key, _)| key == "name[]").map(|(_, name)| name).collect();
    let text = tokio::task::spawn_blocking(move || metrics.render(&only))
        .await
        .map_err(|error| Error::Internal(error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}
