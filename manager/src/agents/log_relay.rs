//! Passes logs from agents to readers. The manager can't connect to agents, so requests wait until the agent
//! asks for them, and the body that the agent sends is passed on piece by piece.
//!
//! Everything is bounded: requests per cluster, buffered pieces per log, and the time until an answer begins.
//! A slow reader slows down only its own stream; a reader that goes away ends it. A complete log is marked as
//! ended; a stream without that mark broke off.

use crate::engine::clock::{BootClock, Clock};
use crate::locks;
use bytes::Bytes;
use dashmap::DashMap;
use futures::Stream;
use meridian_shared::ids::ClusterName;
use meridian_shared::logs::{LogRequest, PARK, REQUESTS_MAX};
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

/// Open logs per cluster.
const OPEN_MAX: usize = 128;
/// Buffered pieces per log.
const PIECES_MAX: usize = 16;
/// Time after which a request is sent to the agent again if its log hasn't begun, because the response with
/// the request may be lost.
const RESEND_AFTER: Duration = Duration::from_secs(5);
/// Longest wait for a log to begin. A connected agent asks again right after every response, so a silent one
/// is disconnected.
const BEGIN_MAX: Duration = Duration::from_secs(20);
/// Longest message of an agent that is passed on, in characters.
const MESSAGE_CHARS_MAX: usize = 512;

/// Why there is no log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLog {
    #[error("too many open logs: {OPEN_MAX} of cluster `{0}`; close one and try again")]
    TooMany(ClusterName),
    /// The agent refused, with this message.
    #[error("{0}")]
    Refused(String),
    /// The agent didn't ask for requests in time.
    #[error("the agent of cluster `{0}` doesn't answer: check that it is connected")]
    Disconnected(ClusterName),
    /// The stream ended before the log began.
    #[error("the agent of cluster `{0}` went away: try again")]
    Broken(ClusterName),
}

/// Passes logs from agents to readers. Clones share the relay.
#[derive(Clone, Debug)]
pub struct LogRelay(Arc<Relay>);

#[derive(Debug)]
struct Relay {
    queues: DashMap<ClusterName, Arc<RequestQueue>>,
    next: AtomicU64,
}

#[derive(Debug, Default)]
struct RequestQueue {
    open: Mutex<BTreeMap<u64, OpenRequest>>,
    added: Notify,
}

#[derive(Debug)]
struct OpenRequest {
    request: LogRequest,
    sent: Option<Instant>,
    to: mpsc::Sender<Piece>,
}

#[derive(Debug)]
pub(super) enum Piece {
    /// The agent has the log and begins to send it.
    Begun,
    Bytes(Bytes),
    /// The log is complete.
    Ended,
    Refused(String),
}

impl Default for LogRelay {
    fn default() -> Self {
        // agents may still stream logs that this manager requested before a restart, so begin above their ids
        let first = u64::try_from(BootClock.now().wall.0).unwrap_or(0) << 16;
        Self(Arc::new(Relay { queues: DashMap::new(), next: AtomicU64::new(first) }))
    }
}

impl RequestQueue {
    fn open(&self) -> MutexGuard<'_, BTreeMap<u64, OpenRequest>> {
        locks::lock(&self.open)
    }

    /// Requests to send to the agent now.
    fn take_due(&self, now: Instant) -> Vec<LogRequest> {
        let mut open = self.open();
        let due = |open: &&mut OpenRequest| open.sent.is_none_or(|at| now.duration_since(at) >= RESEND_AFTER);
        open.values_mut()
            .filter(due)
            .take(REQUESTS_MAX)
            .map(|open| {
                open.sent = Some(now);
                open.request.clone()
            })
            .collect()
    }
}

impl LogRelay {
    fn queue(&self, cluster: &ClusterName) -> Arc<RequestQueue> {
        Arc::clone(&self.0.queues.entry(cluster.clone()).or_default())
    }

    /// Requests a log from the agent of `cluster`, under an `id` chosen here. The stream ends with an error
    /// if the log breaks off. If there is no log, the stream is one line with the reason.
    pub fn open(&self, cluster: &ClusterName, request: LogRequest) -> LogStream {
        let queue = self.queue(cluster);
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let (to, pieces) = mpsc::channel(PIECES_MAX);
        let mut open = queue.open();
        if open.len() >= OPEN_MAX {
            // can't be full: the channel is new
            let _ = to.try_send(Piece::Refused(NoLog::TooMany(cluster.clone()).to_string()));
        } else {
            open.insert(id, OpenRequest { request: LogRequest { id, ..request }, sent: None, to });
        }
        drop(open);
        queue.added.notify_waiters();
        LogStream { pieces, id, queue, over: false }
    }

    /// Like [`LogRelay::open`], but waits for the log to begin, and returns a refusal as an error.
    ///
    /// # Errors
    /// If the agent refuses, is disconnected or goes away, or too many logs are open.
    pub async fn begin(&self, cluster: &ClusterName, request: LogRequest) -> Result<LogStream, NoLog> {
        let mut stream = self.open(cluster, request);
        match tokio::time::timeout(BEGIN_MAX, stream.pieces.recv()).await {
            Ok(Some(Piece::Begun)) => Ok(stream),
            Ok(Some(Piece::Refused(message))) => Err(NoLog::Refused(message)),
            // a log starts with `Begun`
            Ok(Some(Piece::Bytes(_) | Piece::Ended) | None) => Err(NoLog::Broken(cluster.clone())),
            Err(_) => Err(NoLog::Disconnected(cluster.clone())),
        }
    }

    /// Requests for the agent of `cluster`, as soon as there are any; none after [`PARK`].
    pub(super) async fn requests(&self, cluster: &ClusterName, stop: &CancellationToken) -> Vec<LogRequest> {
        let queue = self.queue(cluster);
        let until = tokio::time::Instant::now() + Duration::from_millis(PARK.0);
        loop {
            let mut added = std::pin::pin!(queue.added.notified());
            // registered before the check, so that no notification is missed
            added.as_mut().enable();
            let requests = queue.take_due(Instant::now());
            if !requests.is_empty() {
                return requests;
            }
            tokio::select! {
                () = added => {}
                // look for requests that must be sent again
                () = tokio::time::sleep(RESEND_AFTER) => {}
                () = tokio::time::sleep_until(until) => return Vec::new(),
                () = stop.cancelled() => return Vec::new(),
            }
        }
    }

    /// The reader that waits for this log. Only the first call returns it.
    pub(super) fn take_reader(&self, cluster: &ClusterName, id: u64) -> Option<mpsc::Sender<Piece>> {
        let queue = self.0.queues.get(cluster).map(|queue| Arc::clone(&queue))?;
        queue.open().remove(&id).map(|open| open.to)
    }
}

/// A log in transit. Dropping it ends the agent's stream.
#[derive(Debug)]
pub struct LogStream {
    pieces: mpsc::Receiver<Piece>,
    id: u64,
    queue: Arc<RequestQueue>,
    /// Whether the end, or an error, was returned.
    over: bool,
}

impl Stream for LogStream {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        while !self.over {
            return match self.pieces.poll_recv(cx) {
                Poll::Ready(Some(Piece::Begun)) => continue,
                Poll::Ready(Some(Piece::Bytes(bytes))) => Poll::Ready(Some(Ok(bytes))),
                Poll::Ready(Some(Piece::Refused(message))) => {
                    self.over = true;
                    Poll::Ready(Some(Ok(Bytes::from(format!("{message}\n")))))
                }
                Poll::Ready(Some(Piece::Ended)) => {
                    self.over = true;
                    continue;
                }
                Poll::Ready(None) => {
                    self.over = true;
                    Poll::Ready(Some(Err(io::Error::other("the log ended early"))))
                }
                Poll::Pending => Poll::Pending,
            };
        }
        Poll::Ready(None)
    }
}

impl Drop for LogStream {
    fn drop(&mut self) {
        self.queue.open().remove(&self.id);
    }
}

/// A message of an agent without control characters, cut to a length that may be displayed.
pub(super) fn clean(message: &str) -> String {
    message.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MESSAGE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;
    use meridian_shared::ids::Uid;

    fn request() -> LogRequest {
        LogRequest { id: 0, uid: Uid(1), fence: None, pod: None, follow: false, tail_lines: None }
    }

    async fn requests(relay: &LogRelay, cluster: &ClusterName) -> Vec<LogRequest> {
        relay.requests(cluster, &CancellationToken::new()).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_reaches_only_its_agent_and_the_log_only_its_reader() {
        let relay = LogRelay::default();
        let (eu, us) = ("eu".into(), "us".into());
        let waiting = tokio::spawn({
            let (relay, eu) = (relay.clone(), ClusterName::new("eu"));
            async move { requests(&relay, &eu).await }
        });
        tokio::task::yield_now().await;
        let stream = relay.open(&eu, request());
        let id = waiting.await.unwrap()[0].id;
        assert!(relay.take_reader(&us, id).is_none(), "another agent can't answer");
        let to = relay.take_reader(&eu, id).unwrap();
        assert!(relay.take_reader(&eu, id).is_none(), "one reader per log");
        to.send(Piece::Begun).await.unwrap();
        to.send(Piece::Bytes(Bytes::from_static(b"a\n"))).await.unwrap();
        to.send(Piece::Ended).await.unwrap();
        drop(to);
        assert_eq!(stream.map(Result::unwrap).collect::<Vec<_>>().await, [Bytes::from_static(b"a\n")]);
        assert!(relay.queue(&eu).open().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_without_end_mark_is_an_error() {
        let relay = LogRelay::default();
        let eu = ClusterName::new("eu");
        let mut stream = relay.open(&eu, request());
        let to = relay.take_reader(&eu, requests(&relay, &eu).await[0].id).unwrap();
        to.send(Piece::Begun).await.unwrap();
        to.send(Piece::Bytes(Bytes::from_static(b"a"))).await.unwrap();
        drop(to);
        assert_eq!(stream.next().await.unwrap().unwrap(), Bytes::from_static(b"a"));
        assert!(stream.next().await.unwrap().is_err());
        assert!(stream.next().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_request_is_sent_again_and_every_wait_ends() {
        let relay = LogRelay::default();
        let eu = ClusterName::new("eu");
        assert_eq!(relay.begin(&eu, request()).await.unwrap_err(), NoLog::Disconnected(eu.clone()));
        assert!(requests(&relay, &eu).await.is_empty(), "a reader that gave up is gone");
        let _stream = relay.open(&eu, request());
        let now = Instant::now();
        let queue = relay.queue(&eu);
        assert_eq!(queue.take_due(now).len(), 1);
        assert_eq!(queue.take_due(now).len(), 0);
        assert_eq!(queue.take_due(now + RESEND_AFTER).len(), 1);
    }

    #[tokio::test]
    async fn open_logs_are_bounded_and_refusals_have_a_message() {
        let relay = LogRelay::default();
        let eu = ClusterName::new("eu");
        let held: Vec<_> = (0..OPEN_MAX).map(|_| relay.open(&eu, request())).collect();
        let line = relay.open(&eu, request()).collect::<Vec<_>>().await;
        assert!(String::from_utf8_lossy(line[0].as_ref().unwrap()).contains("close one"));
        assert!(matches!(relay.begin(&eu, request()).await, Err(NoLog::Refused(_))));
        drop(held);
        assert!(relay.queue(&eu).open().is_empty());
        assert_eq!(clean("a\u{1b}[31mb"), "a [31mb");
    }
}
