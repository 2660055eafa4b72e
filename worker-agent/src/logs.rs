//! Sends logs to whoever asked the manager for them. The manager can't dial in, so the agent asks for requests.
//!
//! Owns the streams; knows of runs only what [`Query`] brings back. Nothing here can delay a sync: these are requests of
//! their own, their number is bounded, and each holds at most a few chunks in memory.
//!
//! ```text
//! this task ──GET requests──▶ manager        loop ◀──Query── one task per stream ──POST body──▶ manager
//! ```

use crate::runner::LogReader;
use crate::uplink::{self, Link, link};
use bytes::Bytes;
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

/// How much longer than it is parked the question may take.
const ANSWER_MARGIN: Millis = Millis::secs(10);
/// Largest list of requests, in bytes: some hundred bytes each.
const LIST_BYTES_MAX: usize = REQUESTS_MAX * 1_024;
/// The first and the longest pause after a failed question.
const PAUSE_FIRST: Millis = Millis(200);
const PAUSE_MAX: Millis = Millis::secs(15);
/// An empty list that came sooner than this is not asked for again at once.
const EMPTY_LEAST: Duration = Duration::from_millis(50);
/// How soon a followed log is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// Chunks that wait for the network, per stream.
const CHUNKS_WAITING: usize = 4;

/// Asks the loop, which owns the runner, for a reader.
#[derive(Debug)]
pub struct Query {
    /// The workload.
    pub uid: Uid,
    /// The attempt; the newest one when absent.
    pub fence: Option<Fence>,
    /// The pod; all of them when absent.
    pub pod: Option<u32>,
    /// Where the reader goes, or why there is none.
    pub reply: oneshot::Sender<Result<LogReader, String>>,
}

/// Answers log requests for ever.
pub async fn serve(link: Link, queries: mpsc::Sender<Query>, seed: u64) {
    let mut open = BTreeSet::new();
    let mut streams: JoinSet<u64> = JoinSet::new();
    let mut failures = 0_u32;
    loop {
        let began = Instant::now();
        let asked = ask(&link).await;
        while let Some(ended) = streams.try_join_next() {
            match ended {
                Ok(id) => open.remove(&id),
                Err(broken) => std::panic::resume_unwind(broken.into_panic()),
            };
        }
        match asked {
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
                // The syncs say loudly when the manager is away; this is only that logs are.
                tracing::debug!(failures, "log requests can't be asked for: {}", with_causes(&error));
                tokio::time::sleep(Duration::from_millis(wait.0)).await;
            }
        }
    }
}

async fn ask(link: &Link) -> Result<Vec<LogRequest>, uplink::Error> {
    let limit = PARK + ANSWER_MARGIN;
    let asking = async {
        let response =
            link.client().get(link.url(REQUESTS_PATH)).send().await.map_err(uplink::Error::Unreachable)?;
        let body = link::body(response, LIST_BYTES_MAX).await?;
        serde_json::from_slice(&body).map_err(uplink::Error::Unreadable)
    };
    tokio::time::timeout(Duration::from_millis(limit.0), asking)
        .await
        .unwrap_or(Err(uplink::Error::Silent(limit)))
}

/// Sends one log, or why there is none. Whoever asked sees a stream that breaks off when this fails.
async fn answer(link: &Link, queries: &mpsc::Sender<Query>, request: &LogRequest, full: bool) {
    let reader = if full {
        Err(format!("this agent already sends {STREAMS_MAX} logs: close one and ask again"))
    } else {
        reader(queries, request).await
    };
    let sending = link.client().post(link.url(&answer_path(request.id)));
    let sending = match reader {
        Err(message) => sending.json(&LogRefusal { message }),
        Ok(reader) => {
            let (chunks, waiting) = mpsc::channel(CHUNKS_WAITING);
            tokio::spawn(pump(
                reader,
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
                    // who reads is gone without a word: this agent ends
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
            "the manager did not want a log any more"
        ),
        Err(error) => tracing::debug!(request = request.id, "a log stream broke: {}", with_causes(&error)),
    }
}

async fn reader(queries: &mpsc::Sender<Query>, request: &LogRequest) -> Result<LogReader, String> {
    let going = || "this agent is stopping: ask again in a moment".to_owned();
    let (reply, answer) = oneshot::channel();
    queries
        .send(Query { uid: request.uid, fence: request.fence, pod: request.pod, reply })
        .await
        .map_err(|_| going())?;
    answer.await.map_err(|_| going())?
}

/// What comes of a log. An end is said: a stream that stops without one is broken.
enum Piece {
    Bytes(Bytes),
    Ended,
    Broken(std::io::Error),
}

/// Reads until there is nothing more, or nobody who wants it. An error breaks the stream off.
async fn pump(mut reader: LogReader, mut lines: Lines, follow: bool, chunks: mpsc::Sender<Piece>) {
    loop {
        let step = tokio::task::spawn_blocking(move || (reader.read(), reader));
        let read;
        (read, reader) = match step.await {
            Ok(step) => step,
            Err(broken) => std::panic::resume_unwind(broken.into_panic()),
        };
        let ready = match read {
            Ok(Some(chunk)) => lines.take(chunk),
            Ok(None) if reader.ended() || !follow => {
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
                        () = tokio::time::sleep(LOOK_AGAIN) => {}
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
