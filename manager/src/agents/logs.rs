//! The endpoints through which an agent receives log requests and sends logs.

use super::log_relay::{Piece, clean};
use super::request::{Failure, json_of, parsed, read};
use super::state::Agents;
use crate::tls::Peer;
use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use futures::StreamExt;
use meridian_manager_core::state::certificates::CertificateUse;
use meridian_shared::logs::{CHUNK_BYTES_MAX, LogRefusal};
use std::sync::Arc;

/// Largest refusal in bytes.
const REFUSAL_BYTES_MAX: usize = 16 * 1024;

pub(super) async fn requests(
    State(agents): State<Arc<Agents>>,
    Extension(peer): Extension<Peer>,
) -> Result<Response, Failure> {
    let agent = agents.admit(&peer, CertificateUse::Request).await?;
    let _permit = agents.enter(&agent.cluster)?;
    let requests = agents.parts.relay.requests(&agent.cluster, &agents.parts.stop).await;
    agents.check(agent, CertificateUse::Request)?;
    Ok(json_of(&requests))
}

pub(super) async fn answer(
    State(agents): State<Arc<Agents>>,
    Extension(peer): Extension<Peer>,
    Path(id): Path<u64>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Failure> {
    let cluster = &agents.admit(&peer, CertificateUse::Request).await?.cluster;
    // logs don't count against the budget of requests, so that they can't crowd out syncs; their own limit is
    // the number of open logs
    let gone = || Failure::new(StatusCode::GONE, format!("log `{id}` is no longer requested"));
    let to = agents.parts.relay.take_reader(cluster, id).ok_or_else(gone)?;
    let refusal = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if refusal {
        let LogRefusal { message } = parsed(&read(body, REFUSAL_BYTES_MAX).await?)?;
        to.send(Piece::Refused(clean(&message))).await.map_err(|_| gone())?;
        return Ok(StatusCode::NO_CONTENT);
    }
    to.send(Piece::Begun).await.map_err(|_| gone())?;
    let mut chunks = body.into_data_stream();
    loop {
        let chunk = tokio::select! {
            chunk = chunks.next() => chunk,
            () = to.closed() => return Err(gone()),
            () = agents.parts.stop.cancelled() => return Err(gone()),
        };
        let mut chunk = match chunk {
            Some(Ok(chunk)) => chunk,
            Some(Err(_)) => return Err(Failure::new(StatusCode::BAD_REQUEST, "the log ended early".into())),
            None => break,
        };
        while !chunk.is_empty() {
            let piece = chunk.split_to(chunk.len().min(CHUNK_BYTES_MAX));
            to.send(Piece::Bytes(piece)).await.map_err(|_| gone())?;
        }
    }
    to.send(Piece::Ended).await.map_err(|_| gone())?;
    Ok(StatusCode::NO_CONTENT)
}
