//! Users' tokens: created, listed and revoked.

use super::action;
use super::ttl::TtlRange;
use crate::api::access::{Endpoint, User, grants};
use crate::api::request::body;
use crate::api::response::error::Error;
use crate::api::state::Api;
use crate::auth::{self, Kubeconfig, TokenInfo, UserToken};
use crate::engine::clock::{BootClock, Clock};
use crate::random;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use jiff::SignedDuration;
use meridian_manager_core::facts::input::Operator;
use meridian_objects::object::DEFAULT_NAMESPACE;
use meridian_shared::time::{Millis, Wall};
use meridian_shared::timestamp::timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Validity of a token of a user.
const TTL: TtlRange = TtlRange {
    usual: SignedDuration::from_hours(30 * 24),
    most: SignedDuration::from_hours(366 * 24),
    example: "720h",
};
/// Longest name of a token, a user or a group, in characters.
const NAME_CHARS_MAX: usize = 253;
/// Most groups of one token.
const GROUPS_MAX: usize = 32;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// Name by which the token is listed and revoked.
    name: String,
    /// The user that the token authenticates; by default, the token's name.
    user: Option<String>,
    #[serde(default)]
    groups: BTreeSet<String>,
    ttl: Option<String>,
    /// The namespace in the token's kubeconfig.
    namespace: Option<String>,
}

pub(super) async fn create(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    user.check_endpoint(Endpoint::CreateToken, None)?;
    body::must_be_json(&headers)?;
    let wanted: Wanted = body::json(&body::read(&headers, body, body::ACTION_BYTES_MAX).await?)?;
    let of_user = wanted.user.unwrap_or_else(|| wanted.name.clone());
    let named = [("name", &wanted.name), ("user", &of_user)];
    named.into_iter().try_for_each(|(field, text)| check_name(field, text))?;
    wanted.groups.iter().try_for_each(|group| check_name("groups", group))?;
    if wanted.groups.len() > GROUPS_MAX {
        return Err(Error::BadRequest(format!("groups: at most {GROUPS_MAX} are allowed")));
    }
    let ttl = TTL.read(wanted.ttl.as_deref())?;
    grants::check_token(&user, &of_user, &wanted.groups)?;
    let store = api.authority.tokens().clone();
    if store.has(&wanted.name) {
        return Err(failed(&auth::Error::Taken(wanted.name)));
    }
    let created = BootClock.now().wall;
    let expires = created + Millis(u64::try_from(ttl.as_millis()).expect("checked to be positive"));
    let info = TokenInfo {
        name: wanted.name,
        user: of_user,
        groups: wanted.groups,
        created,
        expires: Some(expires),
    };
    let audited = Operator::CreateUserToken {
        name: info.name.clone(),
        user: info.user.clone(),
        groups: info.groups.iter().cloned().collect(),
    };
    action::perform(&api, &user, audited).await?;
    let random = random::bytes().map_err(|error| Error::Internal(error.to_string()))?;
    let issued = info.clone();
    let token = changed(move || store.change(|tokens| tokens.issue(issued, random))).await?;
    let namespace = wanted.namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    let mut answer = shown(&info, created);
    answer["token"] = json!(token.expose());
    answer["kubeconfig"] = json!(kubeconfig(&api, &info, &token, &namespace));
    Ok((StatusCode::CREATED, Json(answer)).into_response())
}

fn kubeconfig(api: &Api, info: &TokenInfo, token: &UserToken, namespace: &str) -> String {
    let front = &api.front;
    let config = Kubeconfig { server: &front.url, ca_pem: &front.ca_pem, user: &info.user, token, namespace };
    config.to_yaml()
}

pub(super) async fn list(
    State(api): State<Api>,
    Extension(user): Extension<User>,
) -> Result<Response, Error> {
    user.check_endpoint(Endpoint::ListTokens, None)?;
    let now = BootClock.now().wall;
    let tokens: Vec<Value> = api.authority.tokens().list().iter().map(|info| shown(info, now)).collect();
    Ok(Json(json!({"tokens": tokens})).into_response())
}

pub(super) async fn revoke(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path(name): Path<String>,
) -> Result<Response, Error> {
    user.check_endpoint(Endpoint::RevokeToken, Some(&name))?;
    let store = api.authority.tokens().clone();
    if !store.has(&name) {
        return Err(failed(&auth::Error::Unknown(name)));
    }
    let message = action::perform(&api, &user, Operator::RevokeUserToken { name: name.clone() }).await?;
    changed(move || store.change(|tokens| tokens.revoke(&name))).await?;
    action::done(message)
}

/// Makes a change on a blocking thread, because it writes to the disk.
async fn changed<T: Send + 'static>(
    change: impl FnOnce() -> Result<T, auth::Error> + Send + 'static,
) -> Result<T, Error> {
    let changing = tokio::task::spawn_blocking(change);
    let changed = changing.await.map_err(|error| Error::Internal(error.to_string()))?;
    changed.map_err(|error| failed(&error))
}

fn failed(error: &auth::Error) -> Error {
    let message = error.to_string();
    match error {
        auth::Error::Taken(_) | auth::Error::Full => Error::Conflict(message),
        auth::Error::Unknown(_) => Error::Missing(message),
        auth::Error::File(_) | auth::Error::Unusable { .. } => Error::Internal(message),
    }
}

fn shown(info: &TokenInfo, now: Wall) -> Value {
    json!({
        "name": info.name, "user": info.user, "groups": info.groups,
        "created": timestamp(info.created), "expires": info.expires.map(timestamp),
        "expired": info.expires.is_some_and(|at| at <= now),
    })
}

fn check_name(field: &str, text: &str) -> Result<(), Error> {
    let is_plain = |c: char| c.is_ascii_graphic() && !"/%\"'\\".contains(c);
    if !text.is_empty() && text.len() <= NAME_CHARS_MAX && text.chars().all(is_plain) {
        return Ok(());
    }
    let rule =
        format!("must be 1 to {NAME_CHARS_MAX} letters, digits and signs such as `-`, `.`, `:` or `@`");
    Err(Error::BadRequest(format!("{field}: Invalid value: {text:?}: {rule}")))
}
