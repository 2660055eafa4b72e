//! Connections that do nothing, or that have no credentials, over a real port: they are closed, bounded, and
//! never in the way of agents and known users.

use crate::rig::{DEADLINE, until};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Extension, Router};
use meridian_manager::metrics::Metrics;
use meridian_manager::tls::limits::{Deadlines, Limits, PoolLimits};
use meridian_manager::tls::listener::Settings;
use meridian_manager::tls::{Authorities, ConnectionClass, Connections, Peer, TlsListener, serve};
use meridian_shared::identity::CertificateBinding;
use meridian_shared::ids::{RecordNumber, Uid};
use meridian_shared::time::{Millis, Wall};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

/// Short enough for a test; the others of a test are long, so that each test meets one deadline.
const SOON: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(3_600);
/// The first bytes of an HTTP/2 client: its preface and empty settings.
const HTTP2_OPENING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A port with handlers that stand in for the manager's. Closed when it is dropped.
struct Port {
    address: String,
    authorities: Authorities,
    connections: Connections,
    metrics: Metrics,
    stop: CancellationToken,
    _served: JoinHandle<()>,
    _dir: tempfile::TempDir,
}

impl Drop for Port {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn now() -> Wall {
    Wall(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().try_into().unwrap())
}

fn long() -> Deadlines {
    Deadlines { handshake: LONG, first_request: LONG, unauthenticated: LONG, idle: LONG }
}

/// Room for a few connections of each class.
fn few() -> Limits {
    let pool = |total, per_key| PoolLimits { total, per_key };
    Limits {
        handshakes: pool(8, 8),
        agent_handshakes: pool(8, 8),
        unauthenticated: pool(8, 6),
        users: 2,
        agents: pool(4, 2),
        deadlines: long(),
    }
}

async fn login(class: Extension<ConnectionClass>) -> StatusCode {
    if class.authenticate() { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS }
}

async fn name(peer: Extension<Peer>) -> String {
    peer.agent.as_ref().map_or_else(|| "nobody".to_owned(), |agent| agent.cluster.to_string())
}

impl Port {
    async fn open(limits: Limits) -> Self {
        // fails if another test was first
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let dir = tempfile::tempdir().unwrap();
        let authorities = Authorities::load_or_create(dir.path(), now()).unwrap();
        let tls = authorities.server_tls(&["127.0.0.1".to_owned()], now()).unwrap().config;
        let (tcp, metrics) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), Metrics::new("test"));
        let listener =
            TlsListener::start(tcp, Settings::new(tls), limits, metrics.connections.clone()).unwrap();
        let (address, connections) = (listener.addr().to_string(), listener.connections());
        let router = Router::new()
            .route("/name", get(name))
            .route("/login", get(login))
            .route("/park", get(std::future::pending::<()>));
        let stop = CancellationToken::new();
        let served = tokio::spawn(serve(listener, router, stop.clone()));
        Self { address, authorities, connections, metrics, stop, _served: served, _dir: dir }
    }

    async fn with_deadlines(change: impl FnOnce(&mut Deadlines)) -> Self {
        let mut limits = few();
        change(&mut limits.deadlines);
        Self::open(limits).await
    }

    /// A client with connections of its own: a user's, or an agent's if it has a cluster.
    fn client(&self, cluster: Option<&str>) -> reqwest::Client {
        let ca = reqwest::Certificate::from_pem(self.authorities.server_ca_pem().as_bytes()).unwrap();
        let mut builder = reqwest::Client::builder().no_proxy().tls_certs_only([ca]).timeout(DEADLINE);
        if let Some(cluster) = cluster {
            let key = rcgen::KeyPair::generate().unwrap();
            let request = rcgen::CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
            let binding = CertificateBinding { cluster_uid: Uid(1), generation: RecordNumber(1) };
            let issued = self
                .authorities
                .issue_agent(&request, (&cluster.into(), binding), now(), Millis::mins(10))
                .unwrap();
            let pem = format!("{}{}", issued.pem, key.serialize_pem());
            builder = builder.identity(reqwest::Identity::from_pem(pem.as_bytes()).unwrap());
        }
        builder.build().unwrap()
    }

    async fn get(&self, client: &reqwest::Client, path: &str) -> Result<(u16, String), reqwest::Error> {
        let response = client.get(format!("https://{}{path}", self.address)).send().await?;
        Ok((response.status().as_u16(), response.text().await?))
    }

    /// A finished handshake, and nothing after it.
    async fn tls(&self, protocol: &[u8]) -> std::io::Result<TlsStream<TcpStream>> {
        tls(&self.address, &self.authorities, protocol).await
    }

    fn refused(&self, reason: &str) -> u64 {
        self.sample(&format!("meridian_connections_refused_total{{reason=\"{reason}\"}}"))
    }

    fn open_of(&self, class: &str) -> u64 {
        self.sample(&format!("meridian_connections{{class=\"{class}\"}}"))
    }

    fn sample(&self, series: &str) -> u64 {
        let text = self.metrics.render(&[]);
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.map_or(0, |value| value.trim().parse().unwrap())
    }
}

/// A connection without a client certificate after its handshake.
pub(crate) async fn tls(
    address: &str,
    authorities: &Authorities,
    protocol: &[u8],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authorities.server_ca_pem().as_bytes()).unwrap()).unwrap();
    let mut config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    if !protocol.is_empty() {
        config.alpn_protocols.push(protocol.to_vec());
    }
    let tcp = TcpStream::connect(address).await?;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, tcp).await
}

/// Reads until the server closes the connection, and returns what it sent.
async fn closed(mut stream: TlsStream<TcpStream>) -> Vec<u8> {
    let mut sent = Vec::new();
    // a server that cuts doesn't always say goodbye
    let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut sent)).await.expect("it is closed");
    sent
}

#[tokio::test]
async fn a_handshake_that_does_not_end_is_closed() {
    let port = Port::with_deadlines(|deadlines| deadlines.handshake = SOON).await;
    let mut silent = TcpStream::connect(&port.address).await.unwrap();
    let read = tokio::time::timeout(DEADLINE, silent.read(&mut [0; 16])).await.expect("it is closed");
    assert!(matches!(read, Ok(0) | Err(_)));
    assert_eq!(port.refused("handshake_timeout"), 1);
    until("nothing is open", async || port.open_of("handshake") == 0).await;
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed() {
    let port = Port::with_deadlines(|deadlines| deadlines.first_request = SOON).await;
    let http2 = |opening: &'static [u8]| (b"h2".as_slice(), opening);
    let http1 = |opening: &'static [u8]| (b"".as_slice(), opening);
    // nothing, half of a preface, a whole one, nothing, half of a head
    let openings = [
        http2(b""),
        http2(&HTTP2_OPENING[..10]),
        http2(HTTP2_OPENING),
        http1(b""),
        http1(b"GET /name HTTP/1.1\r\nHost: "),
    ];
    for (protocol, opening) in openings {
        let mut stream = port.tls(protocol).await.unwrap();
        stream.write_all(opening).await.unwrap();
        closed(stream).await;
    }
    assert_eq!(port.refused("first_request_timeout"), 5);
    until("nothing is open", async || port.connections.open() == 0).await;
}

#[tokio::test]
async fn a_connection_without_credentials_ends_even_with_a_request_in_progress() {
    let port = Port::with_deadlines(|deadlines| deadlines.unauthenticated = SOON * 5).await;
    let mut parked = port.tls(b"").await.unwrap();
    parked.write_all(b"GET /park HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    closed(parked).await;
    assert_eq!(port.refused("unauthenticated_timeout"), 1);

    let (user, agent) = (port.client(None), port.client(Some("eu")));
    assert_eq!(port.get(&user, "/login").await.unwrap().0, 200);
    assert_eq!(port.get(&agent, "/name").await.unwrap().1, "eu");
    tokio::time::sleep(SOON * 8).await;
    assert_eq!((port.open_of("user"), port.open_of("agent")), (1, 1), "they have credentials");
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_a_waiting_one_is_not() {
    let port = Port::with_deadlines(|deadlines| deadlines.idle = SOON).await;
    let agent = port.client(Some("eu"));
    assert_eq!(port.get(&agent, "/name").await.unwrap().1, "eu");
    until("the idle connection is closed", async || {
        tokio::time::sleep(SOON / 10).await;
        port.open_of("agent") == 0
    })
    .await;
    assert_eq!(port.refused("idle"), 1);

    let url = format!("https://{}/park", port.address);
    let parked = tokio::spawn(agent.get(url).timeout(SOON * 5).send());
    let error = parked.await.unwrap().unwrap_err();
    assert!(error.is_timeout(), "its request is in progress: {error}");
    assert_eq!(port.refused("idle"), 1);
}

#[tokio::test]
async fn silent_connections_lock_nobody_out() {
    let port = Port::open(few()).await;
    // more than the port has room for, all from this address, as is the agent
    let (mut silent, mut idle) = (Vec::new(), Vec::new());
    for _ in 0..30 {
        silent.push(TcpStream::connect(&port.address).await.unwrap());
        idle.push(port.tls(b"h2").await.unwrap());
    }
    until("connections without credentials are bounded", async || {
        port.open_of("handshake") <= 8 && port.open_of("unauthenticated") <= 6
    })
    .await;
    assert!(port.refused("handshakes_of_address") > 0 && port.refused("unauthenticated_of_address") > 0);
    let agent = port.client(Some("eu"));
    assert_eq!(port.get(&agent, "/name").await.unwrap().1, "eu");
    let user = port.client(None);
    assert_eq!(port.get(&user, "/login").await.unwrap().0, 200);
}

#[tokio::test]
async fn dead_connections_that_go_on_to_arrive_keep_no_agent_away() {
    let places = PoolLimits { total: 64, per_key: 64 };
    let port = Port::open(Limits { handshakes: places, agent_handshakes: places, ..few() }).await;
    let (agent, user) = (port.client(Some("eu")), port.client(None));
    assert_eq!(port.get(&agent, "/name").await.unwrap().1, "eu");
    assert_eq!(port.get(&user, "/login").await.unwrap().0, 200);
    let address = port.address.clone();
    let flood = tokio::spawn(async move {
        let mut silent = std::collections::VecDeque::new();
        loop {
            silent.push_back(TcpStream::connect(&address).await);
            if silent.len() > 200 {
                silent.pop_front();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    until("the flood has taken all places", async || {
        tokio::time::sleep(SOON / 10).await;
        port.refused("handshakes_of_address") > 0
    })
    .await;
    for _ in 0..5 {
        assert_eq!(port.get(&port.client(Some("us")), "/name").await.unwrap().1, "us", "an agent connects");
        assert_eq!(port.get(&user, "/login").await.unwrap().0, 200, "a known user's connection stays");
        assert_eq!(port.get(&agent, "/name").await.unwrap().1, "eu", "an agent's connection stays");
    }
    flood.abort();
}

#[tokio::test]
async fn each_class_has_its_own_share() {
    let port = Port::open(few()).await;
    let users: Vec<_> = (0..3).map(|_| port.client(None)).collect();
    assert_eq!(port.get(&users[0], "/login").await.unwrap().0, 200);
    assert_eq!(port.get(&users[1], "/login").await.unwrap().0, 200);
    assert_eq!(port.get(&users[2], "/login").await.unwrap().0, 429, "the users' share is used up");
    assert_eq!(port.refused("users"), 1);
    assert_eq!(port.get(&users[0], "/login").await.unwrap().0, 200, "one request more needs no connection");

    let agents: Vec<_> = (0..3).map(|_| port.client(Some("eu"))).collect();
    for agent in &agents {
        assert_eq!(port.get(agent, "/name").await.unwrap().1, "eu");
    }
    until("the oldest connection of the agent is cut", async || {
        tokio::time::sleep(SOON / 10).await;
        port.open_of("agent") == 2
    })
    .await;
    assert_eq!(port.refused("connections_of_agent"), 1);
    drop(users);
    until("the users' share is free again", async || {
        tokio::time::sleep(SOON / 10).await;
        port.open_of("user") == 0
    })
    .await;
    assert_eq!(port.get(&port.client(None), "/login").await.unwrap().0, 200);
}
