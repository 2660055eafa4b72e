//! Identities over a real port: an agent joins, is recognised, renews, is cut, and is refused where it should
//! be. The handlers here stand in for the manager's; tokens and revocation are theirs.

use axum::extract::{ConnectInfo, State};
use axum::http::{StatusCode, Version};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use meridian_agent::identity::{Error, Identity, Keeper, join};
use meridian_manager::metrics::Metrics;
use meridian_manager::tls::limits::Limits;
use meridian_manager::tls::listener::Settings;
use meridian_manager::tls::{Authorities, Connections, Peer, TlsListener, serve, token};
use meridian_shared::identity::{
    CaPin, CertificateBinding, JOIN_PATH, JoinRequest, JoinResponse, JoinToken, RENEW_PATH, RenewRequest,
    TokenHash,
};
use meridian_shared::ids::{RecordNumber, Uid};
use meridian_shared::time::{Millis, Wall};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Long enough for anything on loopback; reached only if a test fails.
const DEADLINE: Duration = Duration::from_secs(20);

const BINDING: CertificateBinding = CertificateBinding { cluster_uid: Uid(1), generation: RecordNumber(1) };

fn now() -> Wall {
    Wall(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().try_into().unwrap())
}

#[derive(Clone)]
struct Manager {
    authorities: Arc<Authorities>,
    /// The only valid token.
    token: Arc<Mutex<Option<TokenHash>>>,
    /// Lifetime of issued certificates, and how far in the past they are issued.
    lifetime: Millis,
    age: Millis,
    /// Notified when a request is parked.
    parked: Arc<Notify>,
}

impl Manager {
    fn issue(&self, csr_pem: &str) -> Result<Json<JoinResponse>, (StatusCode, String)> {
        let then = Wall(now().0 - i64::try_from(self.age.0).unwrap());
        let issued = self
            .authorities
            .issue_agent(csr_pem, (&"eu".into(), BINDING), then, self.lifetime)
            .map_err(|e| (StatusCode::BAD_REQUEST, e.to_string()))?;
        let answer = JoinResponse {
            certificate_pem: issued.pem,
            cluster: "eu".into(),
            region: "europe-west4".into(),
            jurisdiction: "EU".into(),
            not_after: issued.not_after,
        };
        Ok(Json(answer))
    }
}

async fn on_join(
    State(manager): State<Manager>,
    Json(request): Json<JoinRequest>,
) -> Result<Json<JoinResponse>, (StatusCode, String)> {
    let good = manager.token.lock().unwrap().take_if(|kept| *kept == request.token.hash()).is_some();
    if !good {
        return Err((
            StatusCode::FORBIDDEN,
            r#"{"kind":"Status","message":"the token is unknown, used or expired"}"#.to_owned(),
        ));
    }
    manager.issue(&request.csr_pem)
}

async fn on_renew(
    State(manager): State<Manager>,
    peer: Extension<Peer>,
    Json(request): Json<RenewRequest>,
) -> Result<Json<JoinResponse>, (StatusCode, String)> {
    match &peer.agent {
        None => Err((StatusCode::UNAUTHORIZED, "no certificate".to_owned())),
        Some(_) => Manager { age: Millis(0), ..manager }.issue(&request.csr_pem),
    }
}

async fn show_peer(version: Version, ConnectInfo(peer): ConnectInfo<Peer>) -> String {
    let expired = peer.agent.as_ref().is_some_and(|agent| now() > agent.not_after);
    format!("{version:?} {} {expired}", peer.agent.map_or_else(|| "nobody".into(), |agent| agent.cluster))
}

async fn park(State(manager): State<Manager>) {
    manager.parked.notify_one();
    std::future::pending().await
}

/// A manager's port, open while this value lives.
struct Port {
    url: String,
    authorities: Arc<Authorities>,
    token: JoinToken,
    connections: Connections,
    settings: Settings,
    parked: Arc<Notify>,
    stop: CancellationToken,
    served: JoinHandle<()>,
    _dir: tempfile::TempDir,
}

impl Port {
    async fn open(names: &[&str], lifetime: Millis, age: Millis) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authorities = Arc::new(Authorities::load_or_create(dir.path(), now()).unwrap());
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        let settings = Settings::new(authorities.server_tls(&names, now()).unwrap().config);
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listener = TlsListener::start(
            tcp,
            settings.clone(),
            Limits::for_files(1 << 20),
            Metrics::new("test").connections,
        )
        .unwrap();
        let (url, connections) =
            (format!("https://127.0.0.1:{}", listener.addr().port()), listener.connections());
        let (token, hash) = token::mint([7; 32]);
        let parked = Arc::new(Notify::new());
        let manager = Manager {
            authorities: authorities.clone(),
            token: Arc::new(Mutex::new(Some(hash))),
            lifetime,
            age,
            parked: parked.clone(),
        };
        let router = Router::new()
            .route(JOIN_PATH, post(on_join))
            .route(RENEW_PATH, post(on_renew))
            .route("/peer", get(show_peer))
            .route("/park", get(park))
            .with_state(manager);
        let stop = CancellationToken::new();
        let served = tokio::spawn(serve(listener, router, stop.clone()));
        Self { url, authorities, token, connections, settings, parked, stop, served, _dir: dir }
    }

    async fn usual() -> Self {
        Self::open(&["127.0.0.1", "localhost"], Millis::mins(10), Millis(0)).await
    }

    async fn join(&self, dir: &std::path::Path) -> Result<Identity, Error> {
        join(&self.url, &self.token, self.authorities.ca_pin(), None, dir).await
    }

    async fn ask_peer(&self, client: &reqwest::Client) -> Result<String, reqwest::Error> {
        client
            .get(format!("{}/peer", self.url))
            .timeout(DEADLINE)
            .send()
            .await?
            .error_for_status()?
            .text()
            .await
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |e| e.source()).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[tokio::test]
async fn an_agent_joins_is_recognised_and_renews() {
    let port = Port::usual().await;
    let dir = tempfile::tempdir().unwrap();
    let joined = port.join(dir.path()).await.unwrap();
    assert_eq!(
        (joined.cluster.as_str(), joined.region.as_str(), joined.jurisdiction.as_str()),
        ("eu", "europe-west4", "EU")
    );
    assert_eq!(Identity::load(dir.path()).unwrap().as_ref(), Some(&joined));
    assert!(!dir.path().join("joining.key").exists());
    assert!(!format!("{joined:?}").contains("PRIVATE"));

    let keeper = Keeper::open(dir.path()).unwrap();
    let mut swaps = keeper.subscribe();
    let client = keeper.current().http_client().unwrap();
    assert_eq!(port.ask_peer(&client).await.unwrap(), "HTTP/2.0 eu false");
    keeper.renew(&client).await.unwrap();
    assert!(swaps.has_changed().unwrap());
    let renewed = swaps.borrow_and_update().clone();
    assert_ne!(*renewed, joined);
    assert_eq!(Identity::load(dir.path()).unwrap().as_ref(), Some(&*renewed));
    assert_eq!(port.ask_peer(&renewed.http_client().unwrap()).await.unwrap(), "HTTP/2.0 eu false");
}

#[tokio::test]
async fn a_token_works_once() {
    let port = Port::usual().await;
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    port.join(first.path()).await.unwrap();
    assert!(matches!(port.join(first.path()).await, Err(Error::AlreadyJoined { .. })));
    let error = port.join(second.path()).await.unwrap_err();
    assert!(matches!(error, Error::Refused { status: 403, .. }), "{error}");
    assert!(error.to_string().contains("unknown, used or expired"), "{error}");
    assert_eq!(Identity::load(second.path()).unwrap(), None);
}

#[tokio::test]
async fn another_authority_is_refused_before_the_token_is_sent() {
    let (port, other) = (Port::usual().await, Port::usual().await);
    let dir = tempfile::tempdir().unwrap();
    let (right, wrong) = (port.authorities.ca_pin(), other.authorities.ca_pin());
    let error = join(&port.url, &port.token, wrong, None, dir.path()).await.unwrap_err();
    assert!(matches!(error, Error::Pin { expected, .. } if expected == wrong), "{error}");
    let words = error.to_string();
    assert!(
        words.contains(&right.to_string())
            && words.contains(&wrong.to_string())
            && words.contains("not sent"),
        "{words}"
    );
    // the token is still valid
    port.join(dir.path()).await.unwrap();
}

#[tokio::test]
async fn a_pinned_authority_is_valid_for_signed_names_only() {
    let port = Port::open(&["elsewhere.example"], Millis::mins(10), Millis(0)).await;
    let dir = tempfile::tempdir().unwrap();
    let error = port.join(dir.path()).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert!(chain(&error).contains("elsewhere.example"), "{}", chain(&error));
    // another pin doesn't help
    let error = join(&port.url, &port.token, CaPin::of(b""), None, dir.path()).await.unwrap_err();
    assert!(matches!(error, Error::Pin { .. }), "{error}");
}

#[tokio::test]
async fn an_expired_certificate_permits_renewal() {
    let port = Port::open(&["127.0.0.1"], Millis::mins(10), Millis::mins(30)).await;
    let dir = tempfile::tempdir().unwrap();
    let joined = port.join(dir.path()).await.unwrap();
    assert!(joined.not_after < now());
    let keeper = Keeper::open(dir.path()).unwrap();
    let client = keeper.current().http_client().unwrap();
    assert_eq!(port.ask_peer(&client).await.unwrap(), "HTTP/2.0 eu true");
    keeper.renew(&client).await.unwrap();
    assert_eq!(port.ask_peer(&keeper.current().http_client().unwrap()).await.unwrap(), "HTTP/2.0 eu false");
}

#[tokio::test]
async fn certificates_of_another_authority_are_refused_on_both_sides() {
    let (port, other) = (Port::usual().await, Port::usual().await);
    let dir = tempfile::tempdir().unwrap();
    let stranger = other.join(dir.path()).await.unwrap();
    // the agent trusts its own manager only
    let error = port.ask_peer(&stranger.http_client().unwrap()).await.unwrap_err();
    assert!(chain(&error).contains("invalid peer certificate"), "{}", chain(&error));
    // if the agent trusts this manager, the manager refuses the agent
    let path = dir.path().join("identity.json");
    let mut kept: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    kept["ca_pem"] = port.authorities.server_ca_pem().into();
    std::fs::write(&path, kept.to_string()).unwrap();
    let stranger = Identity::load(dir.path()).unwrap().unwrap();
    let error = port.ask_peer(&stranger.http_client().unwrap()).await.unwrap_err();
    assert!(
        error.status().is_none() && !chain(&error).contains("invalid peer certificate"),
        "{}",
        chain(&error)
    );
    // an identity of this manager is accepted, so the client's certificate was the reason
    let own = tempfile::tempdir().unwrap();
    assert!(port.ask_peer(&port.join(own.path()).await.unwrap().http_client().unwrap()).await.is_ok());
}

#[tokio::test]
async fn a_stored_identity_with_mismatched_parts_is_refused() {
    let port = Port::usual().await;
    let dir = tempfile::tempdir().unwrap();
    port.join(dir.path()).await.unwrap();
    let path = dir.path().join("identity.json");
    let good: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let damages = [
        ("cluster", serde_json::json!("us")),
        ("key_pem", key.into()),
        ("version", 9.into()),
        ("not_after", 1.into()),
        ("ca_pem", "".into()),
    ];
    for (field, value) in damages {
        let mut damaged = good.clone();
        damaged[field] = value;
        std::fs::write(&path, damaged.to_string()).unwrap();
        let error = Keeper::open(dir.path()).unwrap_err();
        assert!(matches!(error, Error::Unusable { .. }), "{field}: {error}");
    }
    std::fs::write(&path, good.to_string()).unwrap();
    assert!(Keeper::open(dir.path()).is_ok());
}

#[tokio::test]
async fn users_need_no_certificate_and_use_either_protocol() {
    let port = Port::usual().await;
    let ca = reqwest::Certificate::from_pem(port.authorities.server_ca_pem().as_bytes()).unwrap();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let builder = || reqwest::Client::builder().tls_certs_only([ca.clone()]).no_proxy();
    assert_eq!(port.ask_peer(&builder().build().unwrap()).await.unwrap(), "HTTP/2.0 nobody false");
    assert_eq!(
        port.ask_peer(&builder().http1_only().build().unwrap()).await.unwrap(),
        "HTTP/1.1 nobody false"
    );
    let renewal = builder()
        .build()
        .unwrap()
        .post(format!("{}{RENEW_PATH}", port.url))
        .json(&RenewRequest { csr_pem: String::new() })
        .send()
        .await
        .unwrap();
    assert_eq!(renewal.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn cutting_an_agent_ends_its_requests_in_flight_only() {
    let port = Port::usual().await;
    let dir = tempfile::tempdir().unwrap();
    let client = port.join(dir.path()).await.unwrap().http_client().unwrap();
    port.ask_peer(&client).await.unwrap();
    let parked = tokio::spawn(client.get(format!("{}/park", port.url)).timeout(DEADLINE).send());
    port.parked.notified().await;
    assert_eq!(port.connections.cut_agents(|agent| agent.cluster.as_str() == "eu"), 0);
    assert_eq!(port.connections.cut_agents(|agent| agent.cluster.as_str() == "us"), 1);
    // sooner than the agent's next ping, which would detect the dead connection anyway
    let ended =
        tokio::time::timeout(Duration::from_secs(5), parked).await.expect("the cut wakes the connection");
    let error = ended.unwrap().unwrap_err();
    assert!(!error.is_timeout(), "{}", chain(&error));
    // the port stays open; handlers check revocation on the next request
    assert_eq!(port.ask_peer(&client).await.unwrap(), "HTTP/2.0 eu false");
}

#[tokio::test]
async fn new_settings_serve_the_next_handshake() {
    let port = Port::usual().await;
    let dir = tempfile::tempdir().unwrap();
    let identity = port.join(dir.path()).await.unwrap();
    let open = identity.http_client().unwrap();
    port.ask_peer(&open).await.unwrap();
    let elsewhere = port.authorities.server_tls(&["elsewhere.example".to_owned()], now()).unwrap();
    port.settings.swap(elsewhere.config);
    assert!(port.ask_peer(&identity.http_client().unwrap()).await.is_err());
    assert!(port.ask_peer(&open).await.is_ok(), "an open connection stays");
    port.settings.swap(port.authorities.server_tls(&["127.0.0.1".to_owned()], now()).unwrap().config);
    assert!(port.ask_peer(&identity.http_client().unwrap()).await.is_ok());
}

#[tokio::test]
async fn silent_peers_block_nobody_and_stopping_closes_the_port() {
    let port = Port::usual().await;
    let address = port.url.strip_prefix("https://").unwrap().to_owned();
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(tokio::net::TcpStream::connect(&address).await.unwrap());
    }
    let dir = tempfile::tempdir().unwrap();
    let started = std::time::Instant::now();
    let client = port.join(dir.path()).await.unwrap().http_client().unwrap();
    assert!(
        started.elapsed() < meridian_manager::tls::limits::HANDSHAKE_TIMEOUT,
        "the join waited for silent peers"
    );
    port.ask_peer(&client).await.unwrap();
    port.stop.cancel();
    tokio::time::timeout(DEADLINE, port.served).await.expect("it ends").unwrap();
    assert_eq!(port.connections.open(), 0);
    assert!(tokio::net::TcpStream::connect(&address).await.is_err(), "the port is closed");
}

#[tokio::test]
async fn renewal_is_due_at_two_thirds_with_jitter() {
    let port = Port::usual().await;
    let dir = tempfile::tempdir().unwrap();
    let identity = port.join(dir.path()).await.unwrap();
    let lifetime = identity.not_after.0 - identity.not_before.0;
    let at = |jitter| identity.renew_at(jitter).0 - identity.not_before.0;
    for jitter in [0, 1, 4_321, u64::MAX] {
        assert!((at(jitter) - lifetime * 2 / 3).abs() <= lifetime / 24 + 1, "{jitter}");
    }
    assert_ne!(at(0), at(20_000));
}
