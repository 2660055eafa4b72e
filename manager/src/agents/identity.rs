//! Issues certificates to agents: the first for a join token, later ones for the previous certificate.

use super::admission;
use super::issuers::Refusal;
use super::joins::Joined;
use super::request::{Failure, json_of, parsed, read, read_join};
use super::state::Agents;
use crate::engine::clock::{BootClock, Clock};
use crate::tls::{Peer, ca};
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::input::{ClusterPlace, Input, Operator};
use meridian_manager_core::facts::outcome::Reply;
use meridian_manager_core::state::certificates::CertificateUse;
use meridian_shared::identity::{IssuerJoinRequest, JoinRequest, JoinResponse, RenewRequest};
use std::sync::Arc;
use tokio::sync::SemaphorePermit;
use tokio_util::sync::CancellationToken;

/// Largest body of a request in bytes: a token and a signing request.
const BYTES_MAX: usize = 64 * 1024;

pub(super) async fn join(
    State(agents): State<Arc<Agents>>,
    Extension(peer): Extension<Peer>,
    body: Body,
) -> Result<Response, Failure> {
    let (bytes, _turn) = arrive(&agents, &peer, body).await?;
    let request: JoinRequest = parsed(&bytes)?;
    // check this first, because a request that can't be signed must not use up its token
    let key = ca::request_key(&request.csr_pem).map_err(refused)?;
    let token = request.token.hash();
    // if the answer was lost, the join may be repeated as long as its certificate isn't void
    let repeated = agents
        .joins
        .repeated(&token, &key)
        .filter(|joined| admission::is_valid(&agents.parts.engine, &joined.place.cluster, joined.binding));
    let joined = match repeated {
        Some(joined) => joined,
        None => {
            let joined = admit(&agents, Operator::UseToken { hash: token.to_string() }).await?;
            agents.joins.remember(token, key, joined.clone());
            joined
        }
    };
    issue(&agents, &request.csr_pem, joined, "join")
}

/// Lets an agent join by its service account.
pub(super) async fn join_by_issuer(
    State(agents): State<Arc<Agents>>,
    Extension(peer): Extension<Peer>,
    body: Body,
) -> Result<Response, Failure> {
    let verified = while_waiting(&agents, &peer, async {
        let request: IssuerJoinRequest = parsed(&read_join(body, BYTES_MAX).await?)?;
        let place = agents.issuers.verify(&request.service_account_token).await.map_err(|refusal| {
            tracing::warn!(%refusal, from = %peer.addr, "an agent may not join by its service account");
            let code = match refusal {
                Refusal::Malformed(_) => StatusCode::BAD_REQUEST,
                Refusal::Unknown { .. } | Refusal::Invalid(_) => StatusCode::FORBIDDEN,
                Refusal::Keys { .. } => StatusCode::SERVICE_UNAVAILABLE,
            };
            Failure::new(code, refusal.to_string())
        })?;
        // counts against the cluster's rate limit, because the token can be used again and each join is a
        // commit
        let permit = agents.enter(&place.cluster)?;
        // take the turn only after the keys were read, because an issuer may be slow
        let turn = agents.joins.turn().await.ok_or_else(busy)?;
        Ok((request, place, permit, turn))
    });
    let (request, place, _permit, _turn) = verified.await?;
    ca::request_key(&request.csr_pem).map_err(refused)?;
    let joined = admit(&agents, Operator::JoinByIssuer(place)).await?;
    issue(&agents, &request.csr_pem, joined, "join")
}

/// The body of a request to join, and permission to work on it.
async fn arrive<'a>(
    agents: &'a Agents,
    peer: &Peer,
    body: Body,
) -> Result<(Bytes, SemaphorePermit<'a>), Failure> {
    let arriving = while_waiting(agents, peer, async {
        let bytes = read_join(body, BYTES_MAX).await?;
        // take the turn only after the body has arrived, so that a slow client doesn't delay others
        let turn = agents.joins.turn().await.ok_or_else(busy)?;
        Ok((bytes, turn))
    });
    arriving.await
}

/// The outcome of `work`. Fails if a later request to join needs this one's place in the queue.
async fn while_waiting<T>(
    agents: &Agents,
    peer: &Peer,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let cut = CancellationToken::new();
    let _waiting = agents.joins.wait(peer.addr.ip(), cut.clone());
    tokio::select! {
        done = work => done,
        () = cut.cancelled() => Err(busy()),
    }
}

fn busy() -> Failure {
    Failure::new(
        StatusCode::TOO_MANY_REQUESTS,
        "too many agents join at the same time: try again in a moment".into(),
    )
}

async fn admit(agents: &Agents, action: Operator) -> Result<Joined, Failure> {
    match agents.parts.engine.ask(Input::Operator { actor: Actor::System, action }).await? {
        Reply::Joined { cluster, region, jurisdiction, binding } => {
            Ok(Joined { place: ClusterPlace { cluster, region, jurisdiction }, binding })
        }
        Reply::Rejected(rejections) => {
            let messages: Vec<String> = rejections.into_iter().map(|rejection| rejection.message).collect();
            Err(Failure::new(StatusCode::FORBIDDEN, messages.join("; ")))
        }
        _ => Err(Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal error: unexpected reply to a join: please report this".into(),
        )),
    }
}

pub(super) async fn renew(
    State(agents): State<Arc<Agents>>,
    Extension(peer): Extension<Peer>,
    body: Body,
) -> Result<Response, Failure> {
    let agent = agents.admit(&peer, CertificateUse::Renewal).await?;
    let _permit = agents.enter(&agent.cluster)?;
    let request: RenewRequest = parsed(&read(body, BYTES_MAX).await?)?;
    let place = agents.check(agent, CertificateUse::Renewal)?;
    issue(&agents, &request.csr_pem, Joined { place, binding: agent.binding }, "renew")
}

fn issue(
    agents: &Agents,
    csr_pem: &str,
    Joined { place, binding }: Joined,
    kind: &'static str,
) -> Result<Response, Failure> {
    let ClusterPlace { cluster, region, jurisdiction } = place;
    let now = BootClock.now().wall;
    let issued = agents
        .parts
        .authorities
        .issue_agent(csr_pem, (&cluster, binding), now, agents.parts.certificate_lifetime)
        .map_err(refused)?;
    agents.parts.engine.metrics().agents.certificates_issued.inc([kind]);
    tracing::info!(%cluster, fingerprint = %issued.fingerprint, kind, "issued an agent certificate");
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

#[cfg(test)]
mod tests;
