//! One transmission of an agent: taken by the engine, answered after the commit; a poll with nothing new waits there until there is
//! something to say, or for as long as polls are parked.

use super::{Agents, Failure, Parts, agent, json_of, parsed, read};
use crate::engine::Unavailable;
use crate::tls::Peer;
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use meridian_manager_core::facts::input::Input;
use meridian_manager_core::facts::outcome::Reply;
use meridian_shared::ids::ClusterName;
use meridian_shared::protocol::{BODY_BYTES_MAX, Lane, SyncRequest};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where agents sync.
pub const SYNC_PATH: &str = "/agent/v1/sync";

pub(super) async fn sync(
    State(agents): State<Arc<Agents>>,
    Extension(peer): Extension<Peer>,
    body: Body,
) -> Result<Response, Failure> {
    let cluster = agent(&peer)?.cluster.clone();
    let _permit = agents.enter(&cluster)?;
    let started = Instant::now();
    let request: SyncRequest = parsed(&read(body, BODY_BYTES_MAX).await?)?;
    let lane = match request.lane {
        Lane::Poll => "poll",
        Lane::News => "news",
    };
    let answered = exchange(&agents, cluster.clone(), request).await;
    let metrics = agents.parts.engine.metrics();
    // The name is from a certificate of ours, and the lane from a closed list.
    metrics.sync_requests.inc([cluster.as_str(), lane]);
    metrics.sync_seconds.took([lane], started.elapsed());
    answered
}

async fn exchange(agents: &Agents, cluster: ClusterName, request: SyncRequest) -> Result<Response, Failure> {
    let Parts { engine, poll, stop, .. } = &agents.parts;
    let (transmission, may_wait) = (request.transmission, request.may_wait());
    let mut asked = std::pin::pin!(engine.ask(Input::Sync {
        cluster: cluster.clone(),
        request: Box::new(request),
        may_park: true
    }));
    let answer = if may_wait {
        tokio::select! {
            answer = &mut asked => answer,
            () = tokio::time::sleep(Duration::from_millis(poll.0)) => {
                engine.end_poll(&cluster, transmission)?;
                asked.await
            }
            () = stop.cancelled() => Err(Unavailable::Stopping),
        }
    } else {
        asked.await
    };
    match answer? {
        Reply::Sync(answer) => Ok(json_of(&*answer)),
        _ => Err(Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the engine gave another kind of answer than a sync's: please report this".into(),
        )),
    }
}
