//! Certificates of agents: the first one for a join token, later ones for the previous certificate.

use super::request::{Failure, json_of, no_certificate, parsed, read};
use super::state::{Agents, ClusterPlace};
use crate::engine::clock::{BootClock, Clock};
use crate::tls::{CertificateStatus, Peer, ca};
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::input::{Input, Operator};
use meridian_manager_core::facts::outcome::Reply;
use meridian_shared::identity::{JoinRequest, JoinResponse, RenewRequest, TokenHash};
use std::sync::Arc;

/// Largest body of a request in bytes: a token and a signing request.
const BYTES_MAX: usize = 64 * 1024;

pub(super) async fn join(State(agents): State<Arc<Agents>>, body: Body) -> Result<Response, Failure> {
    let busy = || {
        Failure::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too many agents join at the same time: try again in a moment".into(),
        )
    };
    let _permit = agents.joins.try_enter().ok_or_else(busy)?;
    let request: JoinRequest = parsed(&read(body, BYTES_MAX).await?)?;
    // checked first: a request that can't be signed must not use up its token
    let key = ca::request_key(&request.csr_pem).map_err(refused)?;
    let token = request.token.hash();
    let place = match agents.joins.repeated(&token, &key) {
        Some(place) => place,
        None => {
            let place = use_token(&agents, &token).await?;
            agents.joins.remember(token, key, place.clone());
            place
        }
    };
    issue(&agents, &request.csr_pem, place, "join")
}

async fn use_token(agents: &Agents, token: &TokenHash) -> Result<ClusterPlace, Failure> {
    let action = Operator::UseToken { hash: token.to_string() };
    match agents.parts.engine.ask(Input::Operator { actor: Actor::System, action }).await? {
        Reply::Joined { cluster, region, jurisdiction } => Ok(ClusterPlace { cluster, region, jurisdiction }),
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
    let cluster = match peer.certificate_status(BootClock.now().wall) {
        CertificateStatus::Valid(agent) | CertificateStatus::RenewalOnly(agent) => agent.cluster.clone(),
        CertificateStatus::None => return Err(no_certificate()),
    };
    let _permit = agents.enter(&cluster)?;
    let request: RenewRequest = parsed(&read(body, BYTES_MAX).await?)?;
    let place = agents.place(&cluster)?;
    issue(&agents, &request.csr_pem, place, "renew")
}

fn issue(
    agents: &Agents,
    csr_pem: &str,
    place: ClusterPlace,
    kind: &'static str,
) -> Result<Response, Failure> {
    let ClusterPlace { cluster, region, jurisdiction } = place;
    let now = BootClock.now().wall;
    let issued = agents
        .parts
        .authorities
        .issue_agent(csr_pem, &cluster, now, agents.parts.certificate_lifetime)
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
