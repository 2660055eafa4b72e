//! HTTP over the port's streams, with settings that `axum::serve` lacks: keep-alive pings that detect dead
//! peers, deadlines of silent peers, limits on streams and on request heads, and a shutdown that cuts
//! connections after a grace period.

use super::activity::{Activity, Silence};
use super::limits::Deadlines;
use super::listener::{Stream, TlsListener};
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use futures::TryFutureExt as _;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use std::pin::pin;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Interval of HTTP/2 pings. A dead peer is detected within this plus [`PING_TIMEOUT`]. Pings also keep
/// middleboxes from dropping connections that are idle for a minute.
pub const PING_INTERVAL: Duration = Duration::from_secs(20);
/// How long a ping may remain unanswered.
pub const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Most requests in flight on one HTTP/2 connection: an agent needs a handful, `kubectl` one per watch.
pub const STREAMS_MAX: u32 = 128;
/// Largest head of a request in bytes.
const HEAD_BYTES_MAX: u32 = 64 * 1024;
/// How long requests in flight may take on shutdown before their connections are cut. Parked polls end at
/// once.
pub const DRAIN: Duration = Duration::from_secs(5);

/// How long an idle connection may take to close in an orderly way.
const CLOSE_MAX: Duration = Duration::from_secs(1);

/// Serves `router` until `stop`, and returns once every connection is closed. Handlers find a
/// [`super::Peer`], a `ConnectInfo<Peer>` and a [`super::ConnectionClass`] among the request's extensions.
pub async fn serve(mut listener: TlsListener, router: Router, stop: CancellationToken) {
    let (connections, deadlines) = (listener.connections(), listener.deadlines());
    let tasks = TaskTracker::new();
    loop {
        let stream = tokio::select! {
            () = stop.cancelled() => break,
            stream = listener.next() => stream,
        };
        tasks.spawn(connection(stream, router.clone(), deadlines, stop.clone()));
    }
    drop(listener);
    tasks.close();
    if tokio::time::timeout(DRAIN, tasks.wait()).await.is_err() {
        let cut = connections.cut_all();
        tracing::info!(cut, "cut connections that did not end in time");
        tasks.wait().await;
    }
}

async fn connection(stream: Stream, router: Router, deadlines: Deadlines, stop: CancellationToken) {
    let (peer, class, cut) = (stream.peer().clone(), stream.class(), stream.cut());
    let activity = Activity::new(Instant::now());
    let addr = peer.addr;
    let (requests, their_class) = (activity.clone(), class.clone());
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        let in_progress = requests.begin();
        request.extensions_mut().insert(ConnectInfo(peer.clone()));
        request.extensions_mut().insert(peer.clone());
        request.extensions_mut().insert(their_class.clone());
        // a router is always ready
        let answer = tower::Service::call(&mut router.clone(), request.map(Body::new));
        answer.map_ok(|answer| in_progress.until_sent(answer))
    });
    // Use the protocol that the handshake has negotiated. Detecting it from the first bytes would wait for
    // them without a limit.
    let builder = builder(&deadlines);
    let builder = if stream.is_http2() { builder.http2_only() } else { builder.http1_only() };
    let mut serving = pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
    let mut stopping = false;
    let mut check = pin!(tokio::time::sleep(Duration::ZERO));
    let mut closing = false;
    loop {
        tokio::select! {
            ended = serving.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%addr, error = %error, "a connection ended early");
                }
                return;
            }
            // dropping the connection ends its requests too
            () = cut.cancelled() => return,
            () = check.as_mut() => {
                let now = Instant::now();
                match activity.check(now, &class, &deadlines) {
                    // a request may have arrived while the connection closed
                    Ok(again) if closing => check.as_mut().reset(again.min(now + CLOSE_MAX)),
                    Ok(again) => check.as_mut().reset(again),
                    Err(Silence::Idle) if !closing => {
                        class.refused(Silence::Idle.name());
                        closing = true;
                        serving.as_mut().graceful_shutdown();
                        check.as_mut().reset(now + CLOSE_MAX);
                    }
                    Err(Silence::Idle) => return,
                    Err(silence) => {
                        class.refused(silence.name());
                        tracing::debug!(%addr, reason = silence.name(), "closed a connection");
                        return;
                    }
                }
            }
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                serving.as_mut().graceful_shutdown();
            }
        }
    }
}

fn builder(deadlines: &Deadlines) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // includes the idle time between two requests
        .header_read_timeout(deadlines.idle)
        .max_buf_size(HEAD_BYTES_MAX as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX)
        .enable_connect_protocol();
    builder
}
