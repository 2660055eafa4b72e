//! How agents are let in and stay in: join with a one-time token, renew with the certificate before.

use super::{Agents, Failure, json_of, parsed, read};
use crate::engine::clock::{BootClock, Clock};
use crate::tls::{Peer, Standing, ca};
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::input::{Input, Operator};
use meridian_manager_core::facts::outcome::Reply;
use meridian_shared::identity::{JoinRequest, JoinResponse, KeyHash, RenewRequest, TokenHash};
use meridian_shared::ids::{ClusterName, Jurisdiction, Region};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// Largest body of a request in bytes: a token and a signing request.
const BYTES_MAX: usize = 64 * 1024;
/// Joins at the same time, over all who ask: nobody of them has shown who they are.
const JOINS_MAX: usize = 16;
/// Joins that are remembered, so that one whose answer was lost can be repeated.
const REMEMBERED_MAX: usize = 256;

/// Tokens that were used lately, and by which key.
#[derive(Debug)]
pub(super) struct Joins {
    at_once: Semaphore,
    used: Mutex<VecDeque<Used>>,
}

#[derive(Clone, Debug)]
struct Used {
    token: TokenHash,
    key: KeyHash,
    place: Place,
}

/// Who an agent is, by the manager's own records.
#[derive(Clone, Debug)]
struct Place {
    cluster: ClusterName,
    region: Region,
    jurisdiction: Jurisdiction,
}

impl Default for Joins {
    fn default() -> Self {
        Self { at_once: Semaphore::new(JOINS_MAX), used: Mutex::default() }
    }
}

impl Joins {
    /// Where the same key has used this token before.
    fn repeated(&self, token: &TokenHash, key: &KeyHash) -> Option<Place> {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.iter().find(|u| u.token == *token && u.key == *key).map(|u| u.place.clone())
    }

    fn remember(&self, used: Used) {
        let mut all = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= REMEMBERED_MAX {
            all.pop_front();
        }
        all.push_back(used);
    }
}

pub(super) async fn join(State(agents): State<Arc<Agents>>, body: Body) -> Result<Response, Failure> {
    let busy = |_| {
        Failure::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too many agents join at the same time: try again in a moment".into(),
        )
    };
    let _permit = agents.joins.at_once.try_acquire().map_err(busy)?;
    let request: JoinRequest = parsed(&read(body, BYTES_MAX).await?)?;
    // A request that can't be signed must not use up its token.
    let key = ca::request_key(&request.csr_pem).map_err(refused)?;
    let token = request.token.hash();
    let place = match agents.joins.repeated(&token, &key) {
        Some(place) => place,
        None => {
            let place = use_token(&agents, &token).await?;
            agents.joins.remember(Used { token, key, place: place.clone() });
            place
        }
    };
    issue(&agents, &request.csr_pem, place, "join")
}

async fn use_token(agents: &Agents, token: &TokenHash) -> Result<Place, Failure> {
    let action = Operator::UseToken { hash: token.to_string() };
    match agents.parts.engine.ask(Input::Operator { actor: Actor::system(), action }).await? {
        Reply::Joined { cluster, region, jurisdiction } => Ok(Place { cluster, region, jurisdiction }),
        Reply::Rejected(why) => {
            let words: Vec<String> = why.into_iter().map(|w| w.message).collect();
            Err(Failure::new(StatusCode::FORBIDDEN, words.join("; ")))
        }
        _ => Err(Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the engine gave another kind of answer than a join's: please report this".into(),
        )),
    }
}

pub(super) async fn renew(
    State(agents): State<Arc<Agents>>,
    Extension(peer): Extension<Peer>,
    body: Body,
) -> Result<Response, Failure> {
    let cluster = match peer.standing(BootClock.now().wall) {
        Standing::Agent(agent) | Standing::RenewalOnly(agent) => agent.cluster.clone(),
        Standing::Anonymous => {
            return Err(Failure::new(
                StatusCode::UNAUTHORIZED,
                "no agent's certificate was shown: join first".into(),
            ));
        }
    };
    let _permit = agents.enter(&cluster)?;
    let request: RenewRequest = parsed(&read(body, BYTES_MAX).await?)?;
    let (region, jurisdiction) = agents.place(&cluster)?;
    issue(&agents, &request.csr_pem, Place { cluster, region, jurisdiction }, "renew")
}

fn issue(agents: &Agents, csr_pem: &str, place: Place, kind: &'static str) -> Result<Response, Failure> {
    let Place { cluster, region, jurisdiction } = place;
    let now = BootClock.now().wall;
    let issued = agents
        .parts
        .authorities
        .issue_agent(csr_pem, &cluster, now, agents.parts.certificate_lifetime)
        .map_err(refused)?;
    agents.parts.engine.metrics().certificates_issued.inc([kind]);
    tracing::info!(%cluster, fingerprint = %issued.fingerprint, kind, "issued an agent's certificate");
    Ok(json_of(&JoinResponse {
        certificate_pem: issued.pem,
        cluster,
        region,
        jurisdiction,
        not_after: issued.not_after,
    }))
}

fn refused(error: crate::tls::Error) -> Failure {
    let code = match &error {
        crate::tls::Error::Request(_) => StatusCode::BAD_REQUEST,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Failure::new(code, error.to_string())
}
