//! The audit log up to now, one line of JSON per entry, and the key of its seals.

use crate::api::access::{Endpoint, User};
use crate::api::callers::Share;
use crate::api::response::error::Error;
use crate::api::response::warning;
use crate::api::state::{AUDITS_MAX, AUDITS_PER_CALLER_MAX, Api};
use crate::audit::{self, walk::Walk};
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime;
use tokio::sync::mpsc;

/// Chunks that wait for a slow client.
const PIECES_WAITING: usize = 4;

#[derive(Debug, Deserialize)]
pub(super) struct AuditQuery {
    /// First line to send. The default is the first line that is kept. Ignored with `seals`.
    from: Option<u64>,
    /// Whether to send segments as they are on disk, with their seals.
    #[serde(default)]
    seals: bool,
}

pub(super) async fn audit(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    query: Result<Query<AuditQuery>, QueryRejection>,
) -> Result<Response, Error> {
    user.check_endpoint(Endpoint::Audit, None)?;
    let Query(query) = query.map_err(|error| Error::BadRequest(error.body_text()))?;
    let kept = first_kept(&api).await?;
    let removed = audit::Error::Removed { last: kept - 1 };
    if query.from.is_some_and(|from| from.max(1) < kept) && !query.seals {
        return Err(Error::Removed(removed.to_string()));
    }
    let query = AuditQuery { from: query.from.or(Some(kept)), ..query };
    let place = api.audits.take_one(user.name.clone()).map_err(too_many)?;
    let stall = api.lists.stall();
    let mut response = Response::new(streamed(stall, place, move |pieces| copy(&api, &query, pieces)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    if kept > 1 {
        let begin = format!("the log begins at line {kept}: the lines before were exported and removed");
        warning::add(response.headers_mut(), &[begin]);
    }
    Ok(response)
}

fn too_many(own: usize) -> Error {
    Error::Busy(format!(
        "the audit log is being read too often: you have {own} readers; at most {AUDITS_PER_CALLER_MAX} per \
         user and {AUDITS_MAX} in all are possible; read it to its end"
    ))
}

/// Takes one piece of the log; breaks if the reader takes no more.
type Pieces<'a> = &'a mut dyn FnMut(Bytes) -> ControlFlow<()>;

/// A body of the pieces that `write` makes on a blocking thread. If the reader takes no piece for `stall`,
/// the body breaks off and the thread ends. `place` is in use until both have ended.
fn streamed(stall: Duration, place: Share<String>, write: impl FnOnce(Pieces<'_>) + Send + 'static) -> Body {
    let (pieces, waiting) = mpsc::channel(PIECES_WAITING);
    let (is_complete, place) = (Arc::new(AtomicBool::new(false)), Arc::new(place));
    let reader =
        AuditStream { waiting, is_complete: Arc::clone(&is_complete), is_over: false, _place: place.clone() };
    let runtime = runtime::Handle::current();
    tokio::task::spawn_blocking(move || {
        let (mut is_taken, _place) = (true, place);
        write(&mut |piece| {
            let sent = runtime.block_on(async { tokio::time::timeout(stall, pieces.send(piece)).await });
            is_taken = matches!(sent, Ok(Ok(())));
            if is_taken { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        is_complete.store(is_taken, Ordering::Release);
    });
    Body::from_stream(futures::stream::unfold(reader, AuditStream::next))
}

/// The reader's end of the log.
struct AuditStream {
    waiting: mpsc::Receiver<Bytes>,
    /// Whether all pieces were sent. Set before the sender is dropped.
    is_complete: Arc<AtomicBool>,
    is_over: bool,
    _place: Arc<Share<String>>,
}

impl AuditStream {
    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        if self.is_over {
            return None;
        }
        if let Some(piece) = self.waiting.recv().await {
            return Some((Ok(piece), self));
        }
        self.is_over = true;
        // an end without an error would look like the whole log
        let broken = || Err(io::Error::other("the audit log was read too slowly: read the rest again"));
        (!self.is_complete.load(Ordering::Acquire)).then(|| (broken(), self))
    }
}

/// The first line that is kept.
async fn first_kept(api: &Api) -> Result<u64, Error> {
    let api = api.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let reader = api.handle.journal();
        Walk { directory: &api.audit.directory, journal: &*reader }.first_kept()
    });
    let unreadable =
        |error: &dyn std::error::Error| Error::Internal(format!("the audit log can't be read: {error}"));
    reading.await.map_err(|error| unreadable(&error))?.map_err(|error| unreadable(&error))
}

/// The public key that signs the seals of segments.
pub(super) async fn key(
    State(api): State<Api>,
    Extension(user): Extension<User>,
) -> Result<Json<Value>, Error> {
    user.check_endpoint(Endpoint::Audit, None)?;
    Ok(Json(json!({"publicKey": api.audit.key.to_pem()})))
}

/// Copies the log up to its current end. If it can't be read, the last line is a `Status` that says why: a
/// stream that only broke off would look like an unreachable manager.
fn copy(api: &Api, query: &AuditQuery, pieces: Pieces<'_>) {
    let reader = api.handle.journal();
    let walk = Walk { directory: &api.audit.directory, journal: &*reader };
    send(walk, query, pieces);
}

fn send(walk: Walk<'_>, query: &AuditQuery, pieces: Pieces<'_>) {
    let mut pass_on = |piece: Vec<u8>| pieces(Bytes::from(piece));
    let read =
        if query.seals { walk.all(&mut pass_on) } else { walk.lines(query.from.unwrap_or(1), &mut pass_on) };
    if let Err(error) = read {
        // ignore a client that has gone away
        let _ = pieces(refusal(&error));
    }
}

/// A line that says why the log ends here.
fn refusal(error: &audit::Error) -> Bytes {
    let status = Error::Internal(format!("the audit log can't be read: {error}")).status();
    Bytes::from(format!("{status}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::callers::CallerShares;
    use crate::audit::directory::AuditDirectory;
    use crate::journal::faulty::{Faults, FaultyDisk};
    use crate::journal::{Batch, Journal, RedbJournal};
    use meridian_shared::ids::{JournalId, Leadership, RecordNumber};
    use meridian_shared::time::Wall;
    use std::path::Path;

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
        let (directory, reader) = (AuditDirectory::new(Path::new("missing")), journal.reader());
        let walk = Walk { directory: &directory, journal: &*reader };
        let mut text = Vec::new();
        send(walk, &AuditQuery { from: None, seals: false }, &mut |piece| {
            text.extend_from_slice(&piece);
            ControlFlow::Continue(())
        });
        let text = String::from_utf8(text).unwrap();
        let status: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!((status["kind"].as_str(), status["code"].as_u64()), (Some("Status"), Some(500)), "{text}");
        assert!(status["message"].as_str().unwrap().contains("is damaged"), "{text}");
    }

    #[tokio::test]
    async fn a_reader_that_takes_nothing_is_broken_off() {
        let places = CallerShares::new(1, 1);
        let place = places.take_one("ada".to_owned()).unwrap();
        let (ended, end) = tokio::sync::oneshot::channel();
        let slow = streamed(Duration::from_millis(50), place, |pieces| {
            while pieces(Bytes::from_static(b"line\n")).is_continue() {}
            ended.send(()).unwrap();
        });
        end.await.expect("the thread ends though nobody reads");
        assert!(places.take_one("sam".to_owned()).is_err(), "the pieces that wait hold the place");
        let read = axum::body::to_bytes(slow, usize::MAX).await;
        assert!(read.unwrap_err().to_string().contains("too slowly"), "it doesn't look whole");

        let place = places.take_one("sam".to_owned()).unwrap();
        let whole = streamed(Duration::from_secs(20), place, |pieces| {
            for _ in 0..100 {
                assert!(pieces(Bytes::from_static(b"line\n")).is_continue());
            }
        });
        assert_eq!(axum::body::to_bytes(whole, usize::MAX).await.unwrap().len(), 500);
    }
}
