//! The audit log up to now, one line of JSON per entry.

use crate::api::access::{self, Endpoint};
use crate::api::response::error::Error;
use crate::api::state::Api;
use crate::auth::User;
use crate::journal::{self, AuditNumber, Reader};
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use serde::Deserialize;
use std::io;
use tokio::sync::mpsc;

/// Lines per read of the journal. Reads must be short, because a reload waits for them.
const LINES_AT_ONCE: u64 = 1_000;
/// Chunks that wait for a slow client.
const PIECES_WAITING: usize = 4;

#[derive(Debug, Deserialize)]
pub(super) struct AuditQuery {
    #[serde(default = "first")]
    from: u64,
}

fn first() -> u64 {
    1
}

pub(super) async fn audit(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    query: Result<Query<AuditQuery>, QueryRejection>,
) -> Result<Response, Error> {
    access::check_endpoint(&user, Endpoint::Audit)?;
    let Query(query) = query.map_err(|error| Error::BadRequest(error.body_text()))?;
    let reader = api.handle.journal();
    let (pieces, waiting) = mpsc::channel(PIECES_WAITING);
    tokio::task::spawn_blocking(move || copy(&*reader, query.from.max(1), &pieces));
    let lines = futures::stream::unfold(waiting, |mut waiting| async move {
        waiting.recv().await.map(|piece| (piece, waiting))
    });
    let mut response = Response::new(Body::from_stream(lines));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Ok(response)
}

/// Copies the lines from `from` to the current end. After an error the stream breaks off, so that the client
/// knows.
fn copy(reader: &dyn Reader, from: u64, pieces: &mpsc::Sender<io::Result<Bytes>>) {
    let broken = |error: journal::Error| io::Error::other(error.to_string());
    let end = match reader.audit_head() {
        Ok(head) => head.map_or(0, |(AuditNumber(number), _)| number),
        Err(error) => {
            let _ = pieces.blocking_send(Err(broken(error)));
            return;
        }
    };
    let mut next = from;
    while next <= end {
        let until = next.saturating_add(LINES_AT_ONCE).min(end + 1);
        let mut piece = Vec::new();
        let read = reader.audit(AuditNumber(next), AuditNumber(until), &mut |_, line| {
            piece.extend_from_slice(line);
            piece.push(b'\n');
            Ok(())
        });
        let failed = read.is_err();
        let gone = pieces.blocking_send(read.map(|()| Bytes::from(piece)).map_err(broken)).is_err();
        if failed || gone {
            return;
        }
        next = until;
    }
}
