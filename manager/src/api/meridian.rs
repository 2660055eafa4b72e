//! Meridian's own endpoints, `/metrics` and what is below `/meridian/v1`: what the Kubernetes conventions have no place for.

mod audit;
mod cluster;
mod idempotency;
pub(crate) mod logs;
mod many;
mod orphan;

pub(crate) use idempotency::Kept;

use super::access::{self, Own};
use super::body::{self, ACTION_BYTES_MAX};
use super::error::Error;
use super::metering::Label;
use super::{Api, method_not_allowed};
use crate::auth::User;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Json, Router};
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::input::{Input, Operator};
use meridian_manager_core::facts::outcome::Reply;
use serde_json::{Value, json};

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
        .route("/meridian/v1/why/{namespace}/{name}", getting("why", get(why)))
        .route("/meridian/v1/logs/{namespace}/{name}", getting("logs", get(logs::logs)))
        .route("/meridian/v1/clusters/{name}/join-token", posting("join-token", post(cluster::join_token)))
        .route("/meridian/v1/clusters/{name}/cordon", posting("cordon", post(cluster::cordon)))
        .route("/meridian/v1/clusters/{name}/uncordon", posting("uncordon", post(cluster::uncordon)))
        .route("/meridian/v1/clusters/{name}/admit", posting("admit", post(cluster::admit)))
        .route("/meridian/v1/clusters/{name}/drain", posting("drain", post(cluster::drain)))
        .route(
            "/meridian/v1/clusters/{name}/declare-lost",
            posting("declare-lost", post(cluster::declare_lost)),
        )
        .route("/meridian/v1/recovery", getting("recovery", get(recovery)))
        .route("/meridian/v1/recovery/confirm", posting("confirm-recovery", post(confirm_recovery)))
        .route("/meridian/v1/rules/confirm", posting("confirm-rules", post(confirm_rules)))
        .route("/meridian/v1/orphans/{uid}/{fence}/stop", posting("stop-orphan", post(orphan::stop)))
        .route("/meridian/v1/orphans/{uid}/{fence}/adopt", posting("adopt-orphan", post(orphan::adopt)))
        .route("/meridian/v1/audit", getting("audit", get(audit::audit)))
        .route("/metrics", getting("metrics", get(metrics)))
}

/// Names the endpoint for the metrics.
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

async fn why(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Response, Error> {
    access::own(&user, Own::Why)?;
    Ok(Json(explain(&api, &namespace, &name).await?).into_response())
}

async fn explain(api: &Api, namespace: &str, name: &str) -> Result<Value, Error> {
    let missing = || Error::NotFound(super::error::Subject::new(meridian_objects::Kind::Job, name));
    let found =
        api.handle.explain(namespace, name).await.map_err(|why| Error::Unavailable(why.to_string()))?;
    found.ok_or_else(missing)
}

async fn recovery(State(api): State<Api>, Extension(user): Extension<User>) -> Result<Response, Error> {
    access::own(&user, Own::Recovery)?;
    recovery_now(&api).await
}

async fn recovery_now(api: &Api) -> Result<Response, Error> {
    match api.handle.recovery().await {
        Value::Null => Err(Error::Unavailable(
            "the manager can't say how its recovery stands: try again in a moment".to_owned(),
        )),
        state => Ok(Json(state).into_response()),
    }
}

/// All metrics, or those that `name[]` asks for.
async fn metrics(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Query(query): Query<Vec<(String, String)>>,
) -> Result<Response, Error> {
    access::own(&user, Own::Metrics)?;
    // A thousand queues make many megabytes: no sync waits behind them.
    let metrics = api.handle.metrics().clone();
    let only: Vec<String> =
        query.into_iter().filter(|(key, _)| key == "name[]").map(|(_, name)| name).collect();
    let text = tokio::task::spawn_blocking(move || metrics.render(&only))
        .await
        .map_err(|error| Error::Internal(error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}

async fn confirm_recovery(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    access::own(&user, Own::Operate)?;
    action_body(&headers, body).await?;
    operate(&api, &user, Operator::ConfirmRecovery).await?;
    recovery_now(&api).await
}

async fn confirm_rules(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    access::own(&user, Own::Operate)?;
    action_body(&headers, body).await?;
    done(operate(&api, &user, Operator::ConfirmRules).await?)
}

/// The JSON object of an action's body; empty where there is none.
async fn action_body(headers: &HeaderMap, body: Body) -> Result<Value, Error> {
    body::must_be_json(headers)?;
    let bytes = body::read(headers, body, ACTION_BYTES_MAX).await?;
    match if bytes.is_empty() { json!({}) } else { body::json(&bytes)? } {
        Value::Object(fields) => Ok(Value::Object(fields)),
        _ => Err(Error::BadRequest("the body must be a JSON object".to_owned())),
    }
}

/// An operator's action; its outcome in words.
async fn operate(api: &Api, user: &User, action: Operator) -> Result<String, Error> {
    match api.ask(Input::Operator { actor: Actor::user(&user.name), action }).await? {
        Reply::Done(words) => Ok(words),
        Reply::Rejected(rejections) => Err(Error::refused(&rejections)),
        other => Err(Error::Internal(format!("an operator's action was answered with {other:?}"))),
    }
}

fn done(words: String) -> Result<Response, Error> {
    Ok(Json(json!({"message": words})).into_response())
}
