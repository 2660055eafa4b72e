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
use std::convert::Infallible;
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
        waiting.recv().await.map(|piece| (Ok::<_, Infallible>(piece), waiting))
    });
    let mut response = Response::new(Body::from_stream(lines));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Ok(response)
}

/// Copies the lines from `from` to the current end. If the log can't be read, the last line is a `Status`
/// that says why: a stream that only broke off would look like an unreachable manager.
fn copy(reader: &dyn Reader, from: u64, pieces: &mpsc::Sender<Bytes>) {
    let end = match reader.audit_head() {
        Ok(head) => head.map_or(0, |(AuditNumber(number), _)| number),
        Err(error) => {
            let _ = pieces.blocking_send(refusal(&error));
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
        if let Err(error) = &read {
            // the intact lines before it come first
            piece.extend_from_slice(&refusal(error));
        }
        if pieces.blocking_send(Bytes::from(piece)).is_err() || read.is_err() {
            return;
        }
        next = until;
    }
}

/// A line that says why the log ends here.
fn refusal(error: &journal::Error) -> Bytes {
    let status = Error::Internal(format!("the audit log can't be read: {error}")).status();
    Bytes::from(format!("{status}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::faulty::{Faults, FaultyDisk};
    use crate::journal::{Batch, Journal, RedbJournal};
    use meridian_shared::ids::{JournalId, Leadership, RecordNumber};
    use meridian_shared::time::Wall;
    use serde_json::Value;

    #[test]
    fn a_damaged_line_ends_the_log_with_a_status() {
        let disk = FaultyDisk::new(1, 1, Faults::default());
        let mut journal = RedbJournal::init_on(disk.clone(), JournalId(1), Wall(0)).unwrap();
        let lines = [b"the first line".to_vec(), b"the second line".to_vec()];
        let leadership = Leadership { epoch: 1, id: 1 };
        let batch = Batch { audit: lines.to_vec(), ..Batch::new(leadership, RecordNumber(0)) };
        journal.commit(&batch).unwrap();
        drop(journal);
        let mut image = disk.image();
        let found: Vec<usize> = (0..image.len()).filter(|at| image[*at..].starts_with(&lines[1])).collect();
        found.into_iter().for_each(|at| image[at] ^= 1);
        let journal = RedbJournal::open_on(FaultyDisk::from_image(image, 1, 1, Faults::default())).unwrap();
        let (pieces, mut waiting) = mpsc::channel(PIECES_WAITING);
        copy(&*journal.reader(), 1, &pieces);
        drop(pieces);
        let mut text = Vec::new();
        while let Some(piece) = waiting.blocking_recv() {
            text.extend_from_slice(&piece);
        }
        let text = String::from_utf8(text).unwrap();
        let status: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!((status["kind"].as_str(), status["code"].as_u64()), (Some("Status"), Some(500)), "{text}");
        assert!(status["message"].as_str().unwrap().contains("is damaged"), "{text}");
    }
}
