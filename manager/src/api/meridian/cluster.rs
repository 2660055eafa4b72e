//! What operators do to worker clusters.

use super::{action_body, done, operate};
use crate::api::Api;
use crate::api::access::{self, Own};
use crate::api::body;
use crate::api::error::Error;
use crate::auth::User;
use crate::tls::token;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use jiff::{SignedDuration, Timestamp};
use meridian_manager_core::facts::input::Operator;
use meridian_shared::identity::is_cluster_name;
use meridian_shared::ids::{ClusterName, Jurisdiction, LedgerId, Region};
use meridian_shared::time::Millis;
use serde::Deserialize;
use serde_json::{Value, json};

/// How long a join token is good that names no time: long enough to walk over to the other cluster.
const TTL_DEFAULT: SignedDuration = SignedDuration::from_hours(1);
/// Longest life of a join token: it is a secret in a shell's history.
const TTL_MAX: SignedDuration = SignedDuration::from_hours(7 * 24);
/// Longest region or jurisdiction, in characters.
const PLACE_CHARS_MAX: usize = 63;

#[derive(Deserialize)]
struct Join {
    region: String,
    jurisdiction: String,
    ttl: Option<String>,
    #[serde(default)]
    replace: bool,
}

pub(super) async fn join_token(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    access::own(&user, Own::Operate)?;
    body::must_be_json(&headers)?;
    let join: Join = body::json(&body::read(&headers, body, body::ACTION_BYTES_MAX).await?)?;
    for (what, text) in [("region", &join.region), ("jurisdiction", &join.jurisdiction)] {
        let fits = text.len() <= PLACE_CHARS_MAX
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_' || b == b'.');
        if text.is_empty() || !fits {
            return Err(Error::BadRequest(format!(
                "`{what}` must be at most {PLACE_CHARS_MAX} letters, digits, `-`, `_` and `.`"
            )));
        }
    }
    let ttl = ttl(join.ttl.as_deref())?;
    let mut random = [0; 32];
    getrandom::fill(&mut random)
        .map_err(|error| Error::Internal(format!("the system has no random numbers: {error}")))?;
    let (token, hash) = token::mint(random);
    let action = Operator::MintToken {
        hash: hash.to_string(),
        cluster: cluster(&name)?,
        region: Region::new(&join.region),
        jurisdiction: Jurisdiction::new(&join.jurisdiction),
        ttl: Millis(u64::try_from(ttl.as_millis()).expect("checked to be positive and bounded")),
        replace: join.replace,
    };
    operate(&api, &user, action).await?;
    let expires = (Timestamp::now() + ttl).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let (front, secret) = (&api.front, token.expose());
    let command = format!(
        "meridian agent join --manager {} --ca-pin {} --token {secret} --data-dir meridian-agent-{name}",
        front.url, front.ca_pin
    );
    Ok(Json(json!({"command": command, "token": secret, "expires": expires})).into_response())
}

fn ttl(text: Option<&str>) -> Result<SignedDuration, Error> {
    let Some(text) = text else { return Ok(TTL_DEFAULT) };
    let ttl: SignedDuration = text.parse().map_err(|_| {
        Error::BadRequest(format!("`ttl` is `{text}`; write a number with a unit, such as `1h`"))
    })?;
    if ttl <= SignedDuration::ZERO || ttl > TTL_MAX {
        return Err(Error::BadRequest(format!(
            "`ttl` is `{text}`; it can be up to {} h",
            TTL_MAX.as_hours()
        )));
    }
    Ok(ttl)
}

fn cluster(name: &str) -> Result<ClusterName, Error> {
    if is_cluster_name(name) {
        Ok(ClusterName::new(name))
    } else {
        Err(Error::BadRequest(format!("`{name}` is not a cluster's name")))
    }
}

pub(super) async fn cordon(
    state: State<Api>,
    user: Extension<User>,
    name: Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    act(state, user, name, headers, body, Operator::Cordon).await
}

pub(super) async fn uncordon(
    state: State<Api>,
    user: Extension<User>,
    name: Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    act(state, user, name, headers, body, Operator::Uncordon).await
}

pub(super) async fn admit(
    state: State<Api>,
    user: Extension<User>,
    name: Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    act(state, user, name, headers, body, Operator::Admit).await
}

pub(super) async fn drain(
    state: State<Api>,
    user: Extension<User>,
    name: Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    act(state, user, name, headers, body, Operator::Drain).await
}

async fn act(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
    action: fn(ClusterName) -> Operator,
) -> Result<Response, Error> {
    access::own(&user, Own::Operate)?;
    action_body(&headers, body).await?;
    done(operate(&api, &user, action(cluster(&name)?)).await?)
}

/// The one exception to at-most-one, by a person's word; so the word must be the cluster's name.
pub(super) async fn declare_lost(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    access::own(&user, Own::Operate)?;
    let asked = action_body(&headers, body).await?;
    if asked.get("confirm").and_then(Value::as_str) != Some(&name) {
        let risk = "whatever still runs there would run twice, once there and once elsewhere";
        return Err(Error::BadRequest(format!(
            "{risk}: make sure that its machines are off, then send `\"confirm\": \"{name}\"`"
        )));
    }
    let ledger = match asked.get("ledger") {
        None | Some(Value::Null) => None,
        Some(ledger) => {
            let parsed = ledger.as_str().and_then(|ledger| ledger.parse::<LedgerId>().ok());
            Some(parsed.ok_or_else(|| Error::BadRequest("`ledger` is not a ledger's id".to_owned()))?)
        }
    };
    done(operate(&api, &user, Operator::DeclareLost { cluster: cluster(&name)?, ledger }).await?)
}
