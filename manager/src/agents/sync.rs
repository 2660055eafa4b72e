//! The endpoint for one transmission of an agent. The engine answers it after the commit; it parks a poll
//! while there is nothing to send.

use super::request::{Failure, json_of, parsed, read};
use super::state::{Agents, Parts};
use crate::engine::Unavailable;
use crate::tls::Peer;
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use meridian_manager_core::facts::input::Input;
use meridian_manager_core::facts::outcome::Reply;
use meridian_manager_core::state::certificates::CertificateUse;
use meridian_shared::ids::ClusterName;
use meridian_shared::protocol::{BODY_BYTES_MAX, Lane, SyncRequest};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const SYNC_PATH: &str = "/agent/v1/sync";

pub(super) async fn sync(
    State(agents): State<Arc<Agents>>,
    Extension(peer): Extension<Peer>,
    body: Body,
) -> Result<Response, Failure> {
    // check this before the budget, which a revoked agent must not use up
    let agent = agents.admit(&peer, CertificateUse::Request).await?;
    let cluster = agent.cluster.clone();
    let _permit = agents.enter(&cluster)?;
    let started = Instant::now();
    let request: SyncRequest = parsed(&read(body, BODY_BYTES_MAX).await?)?;
    agents.check(agent, CertificateUse::Request)?;
    let lane = match request.lane {
        Lane::Poll => "poll",
        Lane::News => "news",
    };
    let answered = exchange(&agents, cluster.clone(), request).await;
    let metrics = agents.parts.engine.metrics();
    // bounded labels: the name comes from a certificate that this manager issued, the lane from a closed list
    metrics.agents.sync_requests.inc([cluster.as_str(), lane]);
    metrics.agents.sync_seconds.observe_duration([lane], started.elapsed());
    // don't send the answer if the certificate was revoked meanwhile
    agents.check(agent, CertificateUse::Request)?;
    answered
}

async fn exchange(agents: &Agents, cluster: ClusterName, request: SyncRequest) -> Result<Response, Failure> {
    let Parts { engine, poll, stop, .. } = &agents.parts;
    let (transmission, may_wait) = (request.transmission, request.may_wait());
    let mut asking = std::pin::pin!(engine.ask(Input::Sync {
        cluster: cluster.clone(),
        request: Box::new(request),
        may_park: true
    }));
    let answer = if may_wait {
        tokio::select! {
            answer = &mut asking => answer,
            () = tokio::time::sleep(Duration::from_millis(poll.0)) => {
                engine.end_poll(&cluster, transmission)?;
                asking.await
            }
            () = stop.cancelled() => Err(Unavailable::Stopping),
        }
    } else {
        asking.await
    };
    match answer? {
        Reply::Sync(answer) => Ok(json_of(&*answer)),
        _ => Err(Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal error: unexpected reply to a sync: please report this".into(),
        )),
    }
}
