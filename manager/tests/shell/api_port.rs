//! The API for users over a real port: oversized bodies, logs, long lists, and who counts as known.

use crate::rig::{DEADLINE, Rig, Worker, job, put, submit, until};
use axum::body::Bytes;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use meridian_manager::api::{self, Front, ListLimits, LogBytes, Logs};
use meridian_manager::audit::AuditFiles;
use meridian_manager::audit::directory::AuditDirectory;
use meridian_manager::audit::key::SigningKey;
use meridian_manager::auth::{TokenInfo, TokenStore, Tokens};
use meridian_manager::tls::limits::Limits;
use meridian_manager::tls::listener::Settings;
use meridian_manager::tls::{Authorities, TlsListener, serve};
use meridian_objects::rbac::MASTERS;
use meridian_shared::identity::CaPin;
use meridian_shared::ids::ClusterName;
use meridian_shared::logs::{LogRequest, STREAMS_MAX};
use meridian_shared::time::Wall;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const NAMESPACES: &str = "/api/v1/namespaces";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
/// The secret of the webhook's path.
const SECRET: &str = "s3cret";

/// Logs that never end.
struct EndlessLogs;

impl Logs for EndlessLogs {
    fn open(&self, _: ClusterName, _: LogRequest) -> BoxFuture<'_, Result<LogBytes, String>> {
        Box::pin(async { Ok(futures::stream::pending().boxed()) })
    }
}

/// The users' side of a manager.
struct Port {
    rig: Rig,
    url: String,
    ca: reqwest::Certificate,
    tokens: Vec<String>,
    stop: CancellationToken,
    _dir: tempfile::TempDir,
}

impl Port {
    async fn open(limits: Limits, lists: ListLimits) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let rig = Rig::new().await;
        rig.create_queues(&["eu"]).await;
        let dir = tempfile::tempdir().unwrap();
        let now = Wall(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().try_into().unwrap());
        let authorities = Authorities::load_or_create(dir.path(), now).unwrap();
        let tls = Settings::new(authorities.server_tls(&["127.0.0.1".to_owned()], now).unwrap().config);
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listener =
            TlsListener::start(tcp, tls, limits, rig.handle.metrics().connections.clone()).unwrap();
        let url = format!("https://{}", listener.addr());
        let mut users = Tokens::default();
        let tokens = [("ada", 1), ("sam", 2)].map(|(name, random)| {
            let new = TokenInfo::of_user(name, &[MASTERS], Wall(0));
            users.issue(new, [random; 32]).unwrap().expose().to_owned()
        });
        let stop = CancellationToken::new();
        let router = api::router(api::ApiParts {
            engine: rig.handle.clone(),
            users: TokenStore::new(users, None),
            logs: Arc::new(EndlessLogs),
            front: Front { url: url.clone(), ca_pin: CaPin([9; 32]), ca_pem: String::new() },
            stop: stop.clone(),
            lists,
            audit: AuditFiles {
                directory: AuditDirectory::new(&dir.path().join("audit")),
                key: SigningKey::load_or_create(dir.path()).unwrap().public(),
            },
        });
        let router = router.clone().merge(api::admission_router(router, SECRET));
        tokio::spawn(serve(listener, router, stop.clone()));
        let ca = reqwest::Certificate::from_pem(authorities.server_ca_pem().as_bytes()).unwrap();
        Self { rig, url, ca, tokens: tokens.to_vec(), stop, _dir: dir }
    }

    async fn usual() -> Self {
        Self::open(Limits::for_files(1 << 20), ListLimits::default()).await
    }

    fn client(&self) -> reqwest::Client {
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([self.ca.clone()]);
        // a small window, so that answers that nobody reads stay at the manager
        client.http2_initial_stream_window_size(65_535).build().unwrap()
    }

    fn get(&self, client: &reqwest::Client, user: usize, path: &str) -> reqwest::RequestBuilder {
        client.get(format!("{}{path}", self.url)).bearer_auth(&self.tokens[user]).timeout(DEADLINE)
    }

    async fn status(&self, client: &reqwest::Client, user: usize, path: &str) -> u16 {
        self.get(client, user, path).send().await.unwrap().status().as_u16()
    }

    fn sample(&self, series: &str) -> u64 {
        let text = self.rig.handle.metrics().render(&[]);
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.map_or(0, |value| value.trim().parse().unwrap())
    }

    async fn close(self) {
        self.stop.cancel();
        self.rig.stop().await;
    }
}

#[tokio::test]
async fn an_oversized_body_is_taken_and_answered() {
    let port = Port::usual().await;
    const PIECES: usize = 96;
    const PIECE_BYTES: usize = 64 << 10;
    for announced in [false, true] {
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = sent.clone();
        let pieces = futures::stream::iter(0..PIECES).map(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok::<_, std::io::Error>(Bytes::from(vec![b' '; PIECE_BYTES]))
        });
        let mut request = port.client().post(format!("{}{JOBS}", port.url)).bearer_auth(&port.tokens[0]);
        if announced {
            request = request.header("content-length", PIECES * PIECE_BYTES);
        }
        let body = reqwest::Body::wrap_stream(pieces);
        let request = request.header("content-type", "application/json").body(body).timeout(DEADLINE);
        let response = request.send().await.unwrap();
        assert_eq!((response.version(), response.status().as_u16()), (reqwest::Version::HTTP_2, 413));
        assert!(response.text().await.unwrap().contains("split the request"));
        assert_eq!(sent.load(Ordering::Relaxed), PIECES, "the stream isn't reset before the client is done");
    }
    port.close().await;
}

#[tokio::test]
async fn a_refusal_that_needs_no_body_arrives() {
    let port = Port::usual().await;
    const PIECES: usize = 16;
    for (token, path, code) in
        [("mu_x", JOBS, 401), (&*port.tokens[0], "/nowhere", 404), (&*port.tokens[0], "/agent/v1/none", 404)]
    {
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = sent.clone();
        let pieces = futures::stream::iter(0..PIECES).map(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 64 << 10]))
        });
        let request = port.client().post(format!("{}{path}", port.url)).bearer_auth(token);
        let request = request.header("content-type", "application/json").timeout(DEADLINE);
        let response = request.body(reqwest::Body::wrap_stream(pieces)).send().await.unwrap();
        assert_eq!((response.version(), response.status().as_u16()), (reqwest::Version::HTTP_2, code));
        assert!(!response.text().await.unwrap().is_empty());
        assert_eq!(sent.load(Ordering::Relaxed), PIECES, "{path}: the stream isn't reset before");
    }
    port.close().await;
}

#[tokio::test]
async fn a_connection_counts_as_a_users_with_its_first_valid_token() {
    let port = Port::usual().await;
    let (client, stranger) = (port.client(), port.client());
    let unknown = stranger.get(format!("{}{NAMESPACES}", port.url)).bearer_auth("mu_x").timeout(DEADLINE);
    assert_eq!(unknown.send().await.unwrap().status().as_u16(), 401);
    assert_eq!(port.status(&client, 0, NAMESPACES).await, 200);
    let open = |class: &str| port.sample(&format!("meridian_connections{{class=\"{class}\"}}"));
    assert_eq!((open("user"), open("unauthenticated"), open("agent")), (1, 1, 0));
    port.close().await;
}

#[tokio::test]
async fn one_users_logs_leave_the_cluster_to_others() {
    let port = Port::usual().await;
    submit(&port.rig.handle, "one").await.unwrap();
    let mut worker = Worker::new("eu", 1, 4, port.rig.clock.clone());
    worker.until(&port.rig.handle, "it runs", |worker| !worker.runs.is_empty()).await;
    let client = port.client();
    let path = "/meridian/v1/logs/default/one?follow=true";
    let mut open = Vec::new();
    let refused = loop {
        let response = port.get(&client, 0, path).send().await.unwrap();
        if response.status().as_u16() != 200 {
            break response;
        }
        open.push(response);
    };
    assert_eq!((refused.status().as_u16(), refused.headers().contains_key("retry-after")), (429, true));
    assert!(open.len() * 2 <= STREAMS_MAX, "the agent sends logs of others too: {}", open.len());
    assert_eq!(port.status(&client, 1, path).await, 200);
    open.pop();
    until("a closed log makes room", async || port.status(&client, 0, path).await == 200).await;
    port.close().await;
}

#[tokio::test]
async fn a_reader_that_does_not_read_a_list_loses_it() {
    // long enough for the requests in between on a busy machine
    let stall = Duration::from_secs(1);
    let lists = ListLimits { stall, objects_per_caller: 40, piece_bytes: 16 << 10, ..ListLimits::default() };
    let port = Port::open(Limits::for_files(1 << 20), lists).await;
    let space = |i| {
        json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": format!("n{i:02}"), "annotations": {"text": "x".repeat(40_000)}},
        })
    };
    put(&port.rig.handle, (0..30).map(space).collect()).await.unwrap();
    let client = port.client();
    let unread = port.get(&client, 0, NAMESPACES).send().await.unwrap();
    assert_eq!(unread.status().as_u16(), 200);
    assert_eq!(port.status(&client, 0, NAMESPACES).await, 429, "the caller's share is in use");
    assert_eq!(port.status(&client, 1, NAMESPACES).await, 200, "another caller has its own");
    let free = async {
        while port.status(&client, 0, NAMESPACES).await != 200 {
            tokio::time::sleep(stall / 10).await;
        }
    };
    tokio::time::timeout(DEADLINE, free).await.expect("the listing is dropped");
    assert!(unread.bytes().await.is_err(), "the rest is missing, and the reader notices");
    assert!(port.sample("meridian_lists_broken_off_total{reason=\"stalled\"}") > 0);
    port.close().await;
}

#[tokio::test]
async fn a_connection_with_the_webhooks_secret_lasts() {
    const SOON: Duration = Duration::from_millis(500);
    let mut limits = Limits::for_files(1 << 20);
    limits.deadlines.unauthenticated = SOON;
    let port = Port::open(limits, ListLimits::default()).await;
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "r-1", "operation": "CREATE", "object": job("train", 1)},
    });
    let ask = async |client: &reqwest::Client, secret: &str| {
        let url = format!("{}{}{secret}", port.url, api::ADMISSION_PATH);
        client.post(url).json(&review).timeout(DEADLINE).send().await.unwrap().status().as_u16()
    };
    let (server, other) = (port.client(), port.client());
    assert_eq!(ask(&server, SECRET).await, 200);
    assert_eq!(ask(&other, "wrong").await, 404);
    let cut = "meridian_connections_refused_total{reason=\"unauthenticated_timeout\"}";
    until("the connection without the secret is cut", async || {
        tokio::time::sleep(SOON / 10).await;
        port.sample(cut) == 1
    })
    .await;
    tokio::time::sleep(SOON).await;
    assert_eq!(port.sample("meridian_connections{class=\"user\"}"), 1, "the API server's connection stays");
    assert_eq!(ask(&server, SECRET).await, 200);
    assert_eq!(port.sample(cut), 1);
    port.close().await;
}
