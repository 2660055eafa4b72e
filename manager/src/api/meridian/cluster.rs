//! Operators' actions on worker clusters.

use super::action;
use super::ttl::TtlRange;
use crate::api::access::{Endpoint, User};
use crate::api::request::body;
use crate::api::response::error::Error;
use crate::api::state::Api;
use crate::random;
use crate::tls::token;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use jiff::{SignedDuration, Timestamp};
use meridian_manager_core::facts::input::{ClusterPlace, Operator};
use meridian_shared::identity::is_cluster_name;
use meridian_shared::ids::{ClusterName, Jurisdiction, LedgerId, Region};
use meridian_shared::time::Millis;
use serde::Deserialize;
use serde_json::{Value, json};

/// Validity of a join token: long enough to log in to the other cluster, but short, because the secret may
/// stay in a shell history.
const TTL: TtlRange = TtlRange {
    usual: SignedDuration::from_hours(1),
    most: SignedDuration::from_hours(7 * 24),
    example: "1h",
};
/// Longest region or jurisdiction, in characters.
const PLACE_CHARS_MAX: usize = 63;

#[derive(Deserialize)]
struct Join {
    region: String,
    jurisdiction: String,
    ttl: Option<String>,
    #[serde(default)]
    replace: bool,
    /// Whether the cluster's service account may join, in place of a token.
    #[serde(default)]
    issuer: bool,
}

pub(super) async fn join_token(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    user.check_endpoint(Endpoint::Cluster("join-token"), Some(&name))?;
    body::must_be_json(&headers)?;
    let join: Join = body::json(&body::read(&headers, body, body::ACTION_BYTES_MAX).await?)?;
    for (what, text) in [("region", &join.region), ("jurisdiction", &join.jurisdiction)] {
        let fits = text.len() <= PLACE_CHARS_MAX
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_' || b == b'.');
        if text.is_empty() || !fits {
            return Err(Error::BadRequest(format!(
                "{what}: must be 1 to {PLACE_CHARS_MAX} letters, digits, `-`, `_` and `.`"
            )));
        }
    }
    let (cluster, region) = (cluster(&name)?, Region::new(&join.region));
    let jurisdiction = Jurisdiction::new(&join.jurisdiction);
    if join.issuer {
        if join.ttl.is_some() {
            return Err(Error::BadRequest("ttl: has no effect with `issuer`, remove it".to_owned()));
        }
        let place = ClusterPlace { cluster, region, jurisdiction };
        let action = Operator::LetAccountJoin { place, replace: join.replace };
        return action::done(action::perform(&api, &user, action).await?);
    }
    let ttl = TTL.read(join.ttl.as_deref())?;
    let random = random::bytes().map_err(|error| Error::Internal(error.to_string()))?;
    let (token, hash) = token::mint(random);
    let action = Operator::MintToken {
        hash: hash.to_string(),
        cluster,
        region,
        jurisdiction,
        ttl: Millis(u64::try_from(ttl.as_millis()).expect("checked to be positive and bounded")),
        replace: join.replace,
    };
    action::perform(&api, &user, action).await?;
    let expires = (Timestamp::now() + ttl).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let (front, secret) = (&api.front, token.expose());
    let command = format!(
        "echo {secret} | meridian agent join --manager {} --ca-pin {} --data-dir meridian-agent-{name} \
         --token-file -",
        front.url, front.ca_pin
    );
    Ok(Json(json!({"command": command, "token": secret, "expires": expires})).into_response())
}

fn cluster(name: &str) -> Result<ClusterName, Error> {
    if is_cluster_name(name) {
        Ok(ClusterName::new(name))
    } else {
        Err(Error::BadRequest(format!("`{name}` is not a valid cluster name")))
    }
}

pub(super) async fn cordon(
    state: State<Api>,
    user: Extension<User>,
    name: Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    act(state, user, name, headers, body, ("cordon", Operator::Cordon)).await
}

pub(super) async fn uncordon(
    state: State<Api>,
    user: Extension<User>,
    name: Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    act(state, user, name, headers, body, ("uncordon", Operator::Uncordon)).await
}

pub(super) async fn admit(
    state: State<Api>,
    user: Extension<User>,
    name: Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    act(state, user, name, headers, body, ("admit", Operator::Admit)).await
}

pub(super) async fn drain(
    state: State<Api>,
    user: Extension<User>,
    name: Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    act(state, user, name, headers, body, ("drain", Operator::Drain)).await
}

async fn act(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
    (word, action): (&'static str, fn(ClusterName) -> Operator),
) -> Result<Response, Error> {
    user.check_endpoint(Endpoint::Cluster(word), Some(&name))?;
    action::read_body(&headers, body).await?;
    action::done(action::perform(&api, &user, action(cluster(&name)?)).await?)
}

/// Voids the certificates and tokens of a cluster. Its runs stop when their leases end, so the operator must
/// repeat the cluster's name.
pub(super) async fn revoke(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    user.check_endpoint(Endpoint::Cluster("revoke"), Some(&name))?;
    let body = action::read_body(&headers, body).await?;
    if body.get("confirm").and_then(Value::as_str) != Some(&name) {
        return Err(Error::BadRequest(format!(
            "the cluster's agent would be locked out, and its gangs stop when their leases end, unless an \
             agent joins again before that: send `\"confirm\": \"{name}\"`"
        )));
    }
    action::done(action::perform(&api, &user, Operator::Revoke(cluster(&name)?)).await?)
}

/// Declares a ledger lost. If the operator is wrong, workloads run twice, so the operator must repeat the
/// cluster's name.
pub(super) async fn declare_lost(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    user.check_endpoint(Endpoint::Cluster("declare-lost"), Some(&name))?;
    let body = action::read_body(&headers, body).await?;
    if body.get("confirm").and_then(Value::as_str) != Some(&name) {
        return Err(Error::BadRequest(format!(
            "workloads that still run there would also start elsewhere: make sure that the cluster's \
             machines are off, then send `\"confirm\": \"{name}\"`"
        )));
    }
    let ledger = match body.get("ledger") {
        None | Some(Value::Null) => None,
        Some(ledger) => {
            let parsed = ledger.as_str().and_then(|ledger| ledger.parse::<LedgerId>().ok());
            Some(parsed.ok_or_else(|| Error::BadRequest("ledger: not a ledger id".to_owned()))?)
        }
    };
    let lost = Operator::DeclareLost { cluster: cluster(&name)?, ledger };
    action::done(action::perform(&api, &user, lost).await?)
}
