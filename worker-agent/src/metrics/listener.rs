//! Plain HTTP for collectors and probes: `/metrics`, `/healthz` and `/readyz`, and nothing else.
//!
//! Prometheus and the kubelet reach the address of a pod without credentials, so all that is served here is
//! public inside the cluster. The bounds keep a slow or hostile peer from using up the agent's file
//! descriptors and memory. The listener is open from the start of the process to its end, also while the
//! agent joins, waits for its Lease or for space on its disk: a probe that failed then would restart a
//! healthy pod.

use super::Metrics;
use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use std::collections::VecDeque;
use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

/// Open connections. A new connection closes the oldest one; a collector just opens another.
const CONNECTIONS_MAX: usize = 64;
/// How long a connection may be silent, which is longer than collectors usually wait between two scrapes.
const IDLE_MAX: Duration = Duration::from_secs(120);
/// Largest head of a request in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Pause when no connection can be accepted, such as without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// State of the agent, as probes see it. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probed(Arc<Mutex<ProbedPhase>>);

#[derive(Clone, Debug, Default)]
enum ProbedPhase {
    /// The agent joins, opens its store, or adopts runs.
    #[default]
    Starting,
    /// Another replica holds the agent's Lease.
    Standby,
    Active(Arc<Metrics>),
}

impl Probed {
    /// The agent starts, or waits before it starts again. It has no metrics.
    pub(crate) fn set_starting(&self) {
        self.set(ProbedPhase::Starting);
    }

    /// This replica waits for another one. It has no metrics, so that no series of a cluster is reported
    /// twice.
    pub(crate) fn set_standby(&self) {
        self.set(ProbedPhase::Standby);
    }

    pub(crate) fn set_active(&self, metrics: Arc<Metrics>) {
        self.set(ProbedPhase::Active(metrics));
    }

    fn set(&self, phase: ProbedPhase) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }

    fn phase(&self) -> ProbedPhase {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Serves collectors and probes at `address` until `tasks` are aborted. Fails if nothing can listen there.
pub(crate) async fn start(
    address: SocketAddr,
    probed: Probed,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind(address).await.map_err(|error| not_bound(address, &error))?;
    let address = listener.local_addr().context("the metrics' listener has no address")?;
    tracing::info!(%address, "metrics and health are served without authentication");
    tasks.spawn(serve(listener, router(probed), IDLE_MAX));
    Ok(address)
}

fn not_bound(address: SocketAddr, error: &Error) -> anyhow::Error {
    let remedy = match error.kind() {
        ErrorKind::AddrInUse => "another process listens there; stop it, or choose another port",
        ErrorKind::AddrNotAvailable => {
            "no interface of this machine has this address; use `0.0.0.0` to listen at all of its addresses"
        }
        ErrorKind::PermissionDenied => "ports below 1024 need the capability CAP_NET_BIND_SERVICE",
        _ => "choose another address",
    };
    anyhow::anyhow!("`--metrics-listen`: cannot listen at `{address}`: {error}: {remedy}")
}

async fn serve(listener: TcpListener, router: Router, idle: Duration) {
    let mut connections = JoinSet::new();
    let mut by_age: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection for metrics");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        by_age.retain(|connection| !connection.is_finished());
        if by_age.len() >= CONNECTIONS_MAX
            && let Some(oldest) = by_age.pop_front()
        {
            oldest.abort();
        }
        by_age.push_back(connections.spawn(connection(stream, router.clone(), idle)));
    }
}

async fn connection(stream: TcpStream, router: Router, idle: Duration) {
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder
        .http1()
        .timer(TokioTimer::new())
        // includes the idle time between two requests
        .header_read_timeout(idle)
        .max_buf_size(HEAD_BYTES_MAX);
    let service = TowerToHyperService::new(router);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection for metrics ended early");
    }
}

fn router(probed: Probed) -> Router {
    Router::new()
        .route("/metrics", get(text))
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .with_state(probed)
}

async fn text(State(probed): State<Probed>) -> impl IntoResponse {
    let text = match probed.phase() {
        ProbedPhase::Starting | ProbedPhase::Standby => String::new(),
        ProbedPhase::Active(metrics) => metrics.text(),
    };
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}

/// A replica that waits for the Lease counts as ready, because a rollout would otherwise wait for it forever.
async fn ready(State(probed): State<Probed>) -> impl IntoResponse {
    match probed.phase() {
        ProbedPhase::Starting => (StatusCode::SERVICE_UNAVAILABLE, "the agent is starting"),
        ProbedPhase::Standby => (StatusCode::OK, "ok; another replica holds the agent's Lease"),
        ProbedPhase::Active(metrics) if metrics.is_ready() => (StatusCode::OK, "ok"),
        ProbedPhase::Active(_) => (StatusCode::SERVICE_UNAVAILABLE, "the manager does not answer syncs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    const ANY: &str = "127.0.0.1:0";

    async fn listening() -> (SocketAddr, Probed, JoinSet<()>) {
        let (probed, mut tasks) = (Probed::default(), JoinSet::new());
        let address = start(ANY.parse().unwrap(), probed.clone(), &mut tasks).await.unwrap();
        (address, probed, tasks)
    }

    /// The whole answer to one request, whose connection ends with it.
    async fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!("{request} HTTP/1.1\r\nhost: agent\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn probes_follow_the_agent_and_a_waiting_replica_is_ready_without_series() {
        let (address, probed, _tasks) = listening().await;
        let status = async |path: &str| {
            let answer = ask(address, &format!("GET {path}")).await;
            answer.split_whitespace().nth(1).unwrap().to_owned()
        };
        assert_eq!((status("/healthz").await, status("/readyz").await), ("200".into(), "503".into()));
        probed.set_standby();
        assert_eq!(status("/readyz").await, "200");
        let nothing = ask(address, "GET /metrics").await;
        assert!(nothing.starts_with("HTTP/1.1 200") && !nothing.contains("meridian_agent"), "{nothing}");

        let metrics = Metrics::new("kubernetes", "eu");
        probed.set_active(Arc::clone(&metrics));
        assert_eq!(status("/readyz").await, "503");
        metrics.set_ready(true);
        assert_eq!(status("/readyz").await, "200");
        let series = ask(address, "GET /metrics").await;
        assert!(series.contains("text/plain; version=0.0.4") && series.contains("meridian_agent_holds{"));
        probed.set_starting();
        assert_eq!(status("/readyz").await, "503");
    }

    #[tokio::test]
    async fn nothing_else_is_served() {
        let (address, _probed, _tasks) = listening().await;
        for request in ["GET /", "GET /logs", "GET /debug/pprof", "GET /apis", "POST /metrics", "PUT /readyz"]
        {
            let answer = ask(address, request).await;
            let status = if request.starts_with("GET") { "404" } else { "405" };
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
        }
    }

    #[tokio::test]
    async fn an_address_that_cannot_be_used_is_refused_with_a_remedy() {
        let (taken, _probed, mut tasks) = listening().await;
        let mut refusal = async |address: SocketAddr| {
            format!("{:#}", start(address, Probed::default(), &mut tasks).await.unwrap_err())
        };
        let busy = refusal(taken).await;
        assert!(busy.starts_with(&format!("`--metrics-listen`: cannot listen at `{taken}`: ")), "{busy}");
        assert!(busy.contains("another process listens there"), "{busy}");
        let elsewhere = refusal("192.0.2.1:9".parse().unwrap()).await;
        assert!(elsewhere.contains("no interface of this machine"), "{elsewhere}");
    }

    #[tokio::test]
    async fn a_newcomer_takes_the_place_of_the_oldest_connection() {
        let (address, _probed, _tasks) = listening().await;
        let mut crowd = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            crowd.push(TcpStream::connect(address).await.unwrap());
        }
        assert!(ask(address, "GET /healthz").await.ends_with("ok"));
        assert_eq!(crowd[0].read(&mut [0; 8]).await.unwrap(), 0, "the oldest one was closed");
        crowd[1].write_all(b"GET /healthz HTTP/1.1\r\nhost: agent\r\n\r\n").await.unwrap();
        assert!(crowd[1].read(&mut [0; 8]).await.unwrap() > 0, "the others were not");
    }

    #[tokio::test]
    async fn a_silent_connection_is_closed() {
        let listener = TcpListener::bind(ANY).await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve(listener, router(Probed::default()), Duration::from_millis(50)));
        let mut silent = TcpStream::connect(address).await.unwrap();
        silent.write_all(b"GET /healthz HTT").await.unwrap();
        let mut rest = Vec::new();
        let closed = silent.read_to_end(&mut rest);
        tokio::time::timeout(Duration::from_secs(20), closed).await.expect("it is closed").unwrap();
        server.abort();
    }
}
