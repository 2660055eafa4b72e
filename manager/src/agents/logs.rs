//! Logs on their way from an agent to whoever asked. The manager can't dial in, so requests wait at a desk until the agent
//! comes for them, and the answer's body is handed on piece by piece.
//!
//! Everything is bounded: requests per cluster, pieces under way per log, time until an answer begins. A reader that is slow
//! slows its agent's stream down and nothing else; one that goes away ends it. A log that has ended says so: one that stops
//! without a word is broken, whoever went away.

use super::{Agents, Failure, agent, json_of, parsed, read};
use crate::engine::clock::{BootClock, Clock};
use crate::tls::Peer;
use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use dashmap::DashMap;
use futures::{Stream, StreamExt};
use meridian_shared::ids::ClusterName;
use meridian_shared::logs::{CHUNK_BYTES_MAX, LogRefusal, LogRequest, PARK, REQUESTS_MAX};
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

/// Logs of one cluster that may be open at the same time.
const OPEN_MAX: usize = 128;
/// Pieces of one log under way.
const PIECES_MAX: usize = 16;
/// A request whose answer hasn't begun is shown to the agent again after this long: the answer to its question may be lost.
const SHOW_AGAIN: Duration = Duration::from_secs(5);
/// Longest wait for an answer to begin: an agent asks again at once after every answer, so this is a silent one.
const BEGIN_MAX: Duration = Duration::from_secs(20);
/// Longest words of an agent that are handed on, in characters.
const WORDS_MAX: usize = 512;
/// Largest refusal in bytes.
const REFUSAL_BYTES_MAX: usize = 16 * 1024;

/// Why there is no log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLog {
    /// Too many of this cluster are open.
    #[error("{OPEN_MAX} logs of cluster `{0}` are open already: close one and ask again")]
    TooMany(ClusterName),
    /// The agent says no, in its words.
    #[error("{0}")]
    Refused(String),
    /// The agent didn't come for the request.
    #[error("the agent of cluster `{0}` doesn't answer: see whether it is connected")]
    Silent(ClusterName),
    /// The stream broke before it began.
    #[error("the agent of cluster `{0}` broke off: ask again")]
    Broken(ClusterName),
}

/// Hands logs from agents to readers; clones are the same relay.
#[derive(Clone, Debug)]
pub struct LogRelay(Arc<Relay>);

#[derive(Debug)]
struct Relay {
    desks: DashMap<ClusterName, Arc<Desk>>,
    next: AtomicU64,
}

#[derive(Debug, Default)]
struct Desk {
    open: Mutex<BTreeMap<u64, Asked>>,
    asked: Notify,
}

#[derive(Debug)]
struct Asked {
    request: LogRequest,
    shown: Option<Instant>,
    to: mpsc::Sender<Piece>,
}

#[derive(Debug)]
enum Piece {
    /// The agent has the log and begins to send.
    Begun,
    Bytes(Bytes),
    /// That was all of it.
    Ended,
    Refused(String),
}

impl Default for LogRelay {
    fn default() -> Self {
        // Numbers of an earlier life of this manager may still be streaming: begin above them.
        let first = u64::try_from(BootClock.now().wall.0).unwrap_or(0) << 16;
        Self(Arc::new(Relay { desks: DashMap::new(), next: AtomicU64::new(first) }))
    }
}

impl Desk {
    fn open(&self) -> MutexGuard<'_, BTreeMap<u64, Asked>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests that the agent should see now.
    fn to_show(&self, now: Instant) -> Vec<LogRequest> {
        let mut open = self.open();
        let due = |asked: &&mut Asked| asked.shown.is_none_or(|at| now.duration_since(at) >= SHOW_AGAIN);
        open.values_mut()
            .filter(due)
            .take(REQUESTS_MAX)
            .map(|asked| {
                asked.shown = Some(now);
                asked.request.clone()
            })
            .collect()
    }
}

impl LogRelay {
    fn desk(&self, cluster: &ClusterName) -> Arc<Desk> {
        Arc::clone(&self.0.desks.entry(cluster.clone()).or_default())
    }

    /// Asks the agent of `cluster` for a log; the request's `id` is chosen here. The stream ends when the log does, and with an
    /// error when it breaks off before. Where there is no log, the stream is one line that says why.
    pub fn open(&self, cluster: &ClusterName, request: LogRequest) -> LogStream {
        let desk = self.desk(cluster);
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let (to, pieces) = mpsc::channel(PIECES_MAX);
        let mut open = desk.open();
        if open.len() >= OPEN_MAX {
            // Room is there: the channel is new.
            let _ = to.try_send(Piece::Refused(NoLog::TooMany(cluster.clone()).to_string()));
        } else {
            open.insert(id, Asked { request: LogRequest { id, ..request }, shown: None, to });
        }
        drop(open);
        desk.asked.notify_waiters();
        LogStream { pieces, id, desk, over: false }
    }

    /// The same, once the agent has begun to answer: a refusal is an error instead of a line.
    pub async fn begin(&self, cluster: &ClusterName, request: LogRequest) -> Result<LogStream, NoLog> {
        let mut stream = self.open(cluster, request);
        match tokio::time::timeout(BEGIN_MAX, stream.pieces.recv()).await {
            Ok(Some(Piece::Begun)) => Ok(stream),
            Ok(Some(Piece::Refused(words))) => Err(NoLog::Refused(words)),
            // An answer begins with its beginning.
            Ok(Some(Piece::Bytes(_) | Piece::Ended) | None) => Err(NoLog::Broken(cluster.clone())),
            Err(_) => Err(NoLog::Silent(cluster.clone())),
        }
    }

    /// Requests for the agent of `cluster`, as soon as there are any; none after [`PARK`].
    async fn requests(&self, cluster: &ClusterName, stop: &CancellationToken) -> Vec<LogRequest> {
        let desk = self.desk(cluster);
        let until = tokio::time::Instant::now() + Duration::from_millis(PARK.0);
        loop {
            let mut asked = std::pin::pin!(desk.asked.notified());
            // Listens before it looks.
            asked.as_mut().enable();
            let requests = desk.to_show(Instant::now());
            if !requests.is_empty() {
                return requests;
            }
            tokio::select! {
                () = asked => {}
                // Also looks for what must be shown again.
                () = tokio::time::sleep(SHOW_AGAIN) => {}
                () = tokio::time::sleep_until(until) => return Vec::new(),
                () = stop.cancelled() => return Vec::new(),
            }
        }
    }

    /// Who waits for this answer; nobody else gets it.
    fn answer(&self, cluster: &ClusterName, id: u64) -> Option<mpsc::Sender<Piece>> {
        let desk = self.0.desks.get(cluster).map(|desk| Arc::clone(&desk))?;
        desk.open().remove(&id).map(|asked| asked.to)
    }
}

/// A log as it comes. Dropping it ends the agent's stream.
#[derive(Debug)]
pub struct LogStream {
    pieces: mpsc::Receiver<Piece>,
    id: u64,
    desk: Arc<Desk>,
    /// Whether how it ended was told.
    over: bool,
}

impl Stream for LogStream {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        while !self.over {
            return match self.pieces.poll_recv(cx) {
                Poll::Ready(Some(Piece::Begun)) => continue,
                Poll::Ready(Some(Piece::Bytes(bytes))) => Poll::Ready(Some(Ok(bytes))),
                Poll::Ready(Some(Piece::Refused(words))) => {
                    self.over = true;
                    Poll::Ready(Some(Ok(Bytes::from(format!("{words}\n")))))
                }
                Poll::Ready(Some(Piece::Ended)) => {
                    self.over = true;
                    continue;
                }
                Poll::Ready(None) => {
                    self.over = true;
                    Poll::Ready(Some(Err(io::Error::other("the log broke off"))))
                }
                Poll::Pending => Poll::Pending,
            };
        }
        Poll::Ready(None)
    }
}

impl Drop for LogStream {
    fn drop(&mut self) {
        self.desk.open().remove(&self.id);
    }
}

pub(super) async fn requests(
    State(agents): State<Arc<Agents>>,
    Extension(peer): Extension<Peer>,
) -> Result<Response, Failure> {
    let cluster = &agent(&peer)?.cluster;
    let _permit = agents.enter(cluster)?;
    agents.place(cluster)?;
    Ok(json_of(&agents.parts.relay.requests(cluster, &agents.parts.stop).await))
}

pub(super) async fn answer(
    State(agents): State<Arc<Agents>>,
    Extension(peer): Extension<Peer>,
    Path(id): Path<u64>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Failure> {
    let cluster = &agent(&peer)?.cluster;
    // The number of open logs bounds these; a budget of requests would let logs crowd out syncs.
    let gone = || Failure::new(StatusCode::GONE, format!("nobody waits for log `{id}`"));
    let to = agents.parts.relay.answer(cluster, id).ok_or_else(gone)?;
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
            Some(Err(_)) => return Err(Failure::new(StatusCode::BAD_REQUEST, "the log broke off".into())),
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

fn clean(words: &str) -> String {
    words.chars().map(|c| if c.is_control() { ' ' } else { c }).take(WORDS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_shared::ids::Uid;

    fn request() -> LogRequest {
        LogRequest { id: 0, uid: Uid(1), fence: None, pod: None, follow: false, tail_lines: None }
    }

    async fn shown(relay: &LogRelay, cluster: &ClusterName) -> Vec<LogRequest> {
        relay.requests(cluster, &CancellationToken::new()).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_reaches_its_agent_alone_and_the_answer_whoever_asked() {
        let relay = LogRelay::default();
        let (eu, us) = ("eu".into(), "us".into());
        let waiting = tokio::spawn({
            let (relay, eu) = (relay.clone(), ClusterName::new("eu"));
            async move { shown(&relay, &eu).await }
        });
        tokio::task::yield_now().await;
        let stream = relay.open(&eu, request());
        let id = waiting.await.unwrap()[0].id;
        assert!(relay.answer(&us, id).is_none(), "another agent can't answer");
        let to = relay.answer(&eu, id).unwrap();
        assert!(relay.answer(&eu, id).is_none(), "once");
        to.send(Piece::Begun).await.unwrap();
        to.send(Piece::Bytes(Bytes::from_static(b"a\n"))).await.unwrap();
        to.send(Piece::Ended).await.unwrap();
        drop(to);
        assert_eq!(stream.map(Result::unwrap).collect::<Vec<_>>().await, [Bytes::from_static(b"a\n")]);
        assert!(relay.desk(&eu).open().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_that_stops_without_a_word_is_broken() {
        let relay = LogRelay::default();
        let eu = ClusterName::new("eu");
        let mut stream = relay.open(&eu, request());
        let to = relay.answer(&eu, shown(&relay, &eu).await[0].id).unwrap();
        to.send(Piece::Begun).await.unwrap();
        to.send(Piece::Bytes(Bytes::from_static(b"a"))).await.unwrap();
        drop(to);
        assert_eq!(stream.next().await.unwrap().unwrap(), Bytes::from_static(b"a"));
        assert!(stream.next().await.unwrap().is_err());
        assert!(stream.next().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_request_is_shown_again_and_nobody_waits_for_ever() {
        let relay = LogRelay::default();
        let eu = ClusterName::new("eu");
        assert_eq!(relay.begin(&eu, request()).await.unwrap_err(), NoLog::Silent(eu.clone()));
        assert!(shown(&relay, &eu).await.is_empty(), "who gave up is not shown");
        let _stream = relay.open(&eu, request());
        let now = Instant::now();
        let desk = relay.desk(&eu);
        assert_eq!(desk.to_show(now).len(), 1);
        assert_eq!(desk.to_show(now).len(), 0);
        assert_eq!(desk.to_show(now + SHOW_AGAIN).len(), 1);
    }

    #[tokio::test]
    async fn open_logs_are_bounded_and_refusals_are_words() {
        let relay = LogRelay::default();
        let eu = ClusterName::new("eu");
        let held: Vec<_> = (0..OPEN_MAX).map(|_| relay.open(&eu, request())).collect();
        let line = relay.open(&eu, request()).collect::<Vec<_>>().await;
        assert!(String::from_utf8_lossy(line[0].as_ref().unwrap()).contains("close one"));
        assert!(matches!(relay.begin(&eu, request()).await, Err(NoLog::Refused(_))));
        drop(held);
        assert!(relay.desk(&eu).open().is_empty());
        assert_eq!(clean("a\u{1b}[31mb"), "a [31mb");
    }
}
