//! Sends logs that the manager requests. The manager can't connect to the agent, so the agent polls for
//! requests.
//!
//! Owns the streams, and knows runs only through [`Query`]. Nothing here can delay a sync: logs use separate
//! HTTP requests, their number is bounded, and each keeps at most a few chunks in memory.
//!
//! ```text
//! this task ──GET requests──▶ manager        loop ◀──Query── one task per stream ──POST body──▶ manager
//! ```

use crate::uplink::{self, Link, link};
use bytes::Bytes;
use meridian_agent_core::runtime::LogSource;
use meridian_shared::backoff;
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::logs::{
    LogRefusal, LogRequest, PARK, REQUESTS_MAX, REQUESTS_PATH, STREAMS_MAX, answer_path,
};
use meridian_shared::time::Millis;
use meridian_telemetry::with_causes;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

mod lines;

use lines::Lines;

/// How much longer than its parking time a poll may take.
const ANSWER_MARGIN: Millis = Millis::secs(10);
/// Largest list of requests, in bytes.
const LIST_BYTES_MAX: usize = REQUESTS_MAX * 1_024;
/// First pause after a failed poll.
const PAUSE_FIRST: Millis = Millis(200);
/// Longest pause after a failed poll.
const PAUSE_MAX: Millis = Millis::secs(15);
/// Shortest time between two polls with an empty answer.
const EMPTY_LEAST: Duration = Duration::from_millis(50);
/// Pause between two reads of a followed log.
const READ_AGAIN: Duration = Duration::from_millis(200);
/// Chunks that wait for the network, per stream.
const CHUNKS_WAITING: usize = 4;

/// Requests a log source from the loop, which owns the runner.
#[derive(Debug)]
pub struct Query {
    pub uid: Uid,
    /// The newest attempt if absent.
    pub fence: Option<Fence>,
    /// All pods if absent.
    pub pod: Option<u32>,
    /// Gets the source, or the reason why there is none.
    pub reply: oneshot::Sender<Result<Box<dyn LogSource>, String>>,
}

/// Serves log requests until it is dropped.
pub async fn serve(link: Link, queries: mpsc::Sender<Query>, seed: u64) {
    let mut open = BTreeSet::new();
    let mut streams: JoinSet<u64> = JoinSet::new();
    let mut failures = 0_u32;
    loop {
        let began = Instant::now();
        let polled = poll(&link).await;
        while let Some(ended) = streams.try_join_next() {
            match ended {
                Ok(id) => open.remove(&id),
                Err(broken) => std::panic::resume_unwind(broken.into_panic()),
            };
        }
        match polled {
            Ok(requests) => {
                failures = 0;
                let none = requests.is_empty();
                for request in
                    requests.into_iter().take(REQUESTS_MAX).filter(|r| open.insert(r.id)).collect::<Vec<_>>()
                {
                    let (link, queries, full) = (link.clone(), queries.clone(), streams.len() >= STREAMS_MAX);
                    streams.spawn(async move {
                        answer(&link, &queries, &request, full).await;
                        request.id
                    });
                }
                if none && began.elapsed() < EMPTY_LEAST {
                    tokio::time::sleep(EMPTY_LEAST).await;
                }
            }
            Err(error) => {
                let wait = backoff::wait(PAUSE_FIRST, PAUSE_MAX, failures, seed);
                failures = failures.saturating_add(1);
                // Syncs already log at a higher level that the manager can't be reached.
                tracing::debug!(failures, "polling for log requests failed: {}", with_causes(&error));
                tokio::time::sleep(Duration::from_millis(wait.0)).await;
            }
        }
    }
}

async fn poll(link: &Link) -> Result<Vec<LogRequest>, uplink::Error> {
    let limit = PARK + ANSWER_MARGIN;
    let polling = async {
        let response =
            link.client().get(link.url(REQUESTS_PATH)).send().await.map_err(uplink::Error::Unreachable)?;
        let body = link::body(response, LIST_BYTES_MAX).await?;
        serde_json::from_slice(&body).map_err(uplink::Error::Unreadable)
    };
    tokio::time::timeout(Duration::from_millis(limit.0), polling)
        .await
        .unwrap_or(Err(uplink::Error::Silent(limit)))
}

/// Sends one log, or the reason why there is none. If the upload fails, the reader's stream breaks off.
async fn answer(link: &Link, queries: &mpsc::Sender<Query>, request: &LogRequest, full: bool) {
    let source = if full {
        Err(format!("this agent already sends {STREAMS_MAX} logs: close one and try again"))
    } else {
        open_source(queries, request).await
    };
    let sending = link.client().post(link.url(&answer_path(request.id)));
    let sending = match source {
        Err(message) => sending.json(&LogRefusal { message }),
        Ok(source) => {
            let (chunks, waiting) = mpsc::channel(CHUNKS_WAITING);
            tokio::spawn(pump(
                source,
                Lines::new(request.pod.is_none(), request.tail_lines),
                request.follow,
                chunks,
            ));
            let body = futures::stream::unfold(Some(waiting), |waiting| async move {
                let mut waiting = waiting?;
                match waiting.recv().await {
                    Some(Piece::Bytes(bytes)) => Some((Ok(bytes), Some(waiting))),
                    Some(Piece::Ended) => None,
                    Some(Piece::Broken(error)) => Some((Err(error), None)),
                    // The task that reads the log is gone, because this agent ends.
                    None => Some((Err(std::io::Error::other("the agent ends")), None)),
                }
            });
            sending
                .header(reqwest::header::CONTENT_TYPE, "application/octet-stream")
                .body(reqwest::Body::wrap_stream(body))
        }
    };
    match sending.send().await {
        Ok(response) if response.status().is_success() => {}
        Ok(response) => tracing::debug!(
            request = request.id,
            status = response.status().as_u16(),
            "the manager did not take a log"
        ),
        Err(error) => tracing::debug!(request = request.id, "a log stream broke: {}", with_causes(&error)),
    }
}

async fn open_source(
    queries: &mpsc::Sender<Query>,
    request: &LogRequest,
) -> Result<Box<dyn LogSource>, String> {
    let stopping = || "this agent is stopping: try again in a moment".to_owned();
    let (reply, answer) = oneshot::channel();
    queries
        .send(Query { uid: request.uid, fence: request.fence, pod: request.pod, reply })
        .await
        .map_err(|_| stopping())?;
    answer.await.map_err(|_| stopping())?
}

/// Pieces of a log stream. A stream without `Ended` is broken.
enum Piece {
    Bytes(Bytes),
    Ended,
    Broken(std::io::Error),
}

/// Reads until the log has ended or its stream was closed. An error breaks the stream off.
async fn pump(mut source: Box<dyn LogSource>, mut lines: Lines, follow: bool, chunks: mpsc::Sender<Piece>) {
    loop {
        let step = tokio::task::spawn_blocking(move || (source.read(), source));
        let read;
        (read, source) = match step.await {
            Ok(step) => step,
            Err(broken) => std::panic::resume_unwind(broken.into_panic()),
        };
        let ready = match read {
            Ok(Some(chunk)) => lines.take(chunk),
            Ok(None) if source.has_ended() || !follow => {
                let last = lines.finish().into_iter().map(Piece::Bytes).chain([Piece::Ended]);
                for piece in last {
                    let _ = chunks.send(piece).await;
                }
                return;
            }
            Ok(None) => {
                let ready = lines.caught_up();
                if ready.is_empty() {
                    tokio::select! {
                        () = tokio::time::sleep(READ_AGAIN) => {}
                        () = chunks.closed() => return,
                    }
                }
                ready
            }
            Err(error) => {
                let _ = chunks.send(Piece::Broken(std::io::Error::other(with_causes(&error)))).await;
                return;
            }
        };
        for bytes in ready {
            if chunks.send(Piece::Bytes(bytes)).await.is_err() {
                return;
            }
        }
    }
}
