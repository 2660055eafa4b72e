//! Agents over real connections: join with an operator's token, sync, park, renew, and send logs.

mod certificates;
mod copies;
mod joins;

use crate::rig::{DEADLINE, Rig, Worker, submit};
use futures::StreamExt;
use meridian_agent::identity::{Error, Identity, Keeper, join};
use meridian_agent::uplink::Link;
use meridian_agent::uplink::renewal::keep_fresh;
use meridian_manager::agents::{self, CopySource, LogRelay, NoLog, SYNC_PATH};
use meridian_manager::metrics::Metrics;
use meridian_manager::tls::limits::Limits;
use meridian_manager::tls::listener::Settings;
use meridian_manager::tls::{Authorities, Connections, TlsListener, serve, token};
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::input::{Change, Input, Operator};
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::outcome::Reply;
use meridian_objects::Kind;
use meridian_shared::identity::{CertificateBinding, JoinToken, RENEW_PATH, RenewRequest};
use meridian_shared::ids::{LedgerId, RecordNumber, Uid};
use meridian_shared::logs::{LogRefusal, LogRequest, REQUESTS_PATH, answer_path};
use meridian_shared::protocol::{BODY_BYTES_MAX, Lane, SyncAnswer, SyncRequest};
use meridian_shared::time::{Millis, Wall};
use meridian_views::asker::Asker;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

fn wall_now() -> Wall {
    Wall(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().try_into().unwrap())
}

fn csr(key: &rcgen::KeyPair) -> String {
    rcgen::CertificateParams::default().serialize_request(key).unwrap().pem().unwrap()
}

/// The agents' side of a manager: engine, routes and port.
struct Port {
    rig: Rig,
    url: String,
    authorities: Arc<Authorities>,
    relay: LogRelay,
    connections: Connections,
    stop: CancellationToken,
    served: JoinHandle<()>,
    dir: tempfile::TempDir,
}

impl Port {
    async fn open(poll: Millis) -> Self {
        Self::open_with(poll, None).await
    }

    /// As `open`, for a manager that copies what this source has.
    async fn open_with(poll: Millis, copies: Option<Arc<dyn CopySource>>) -> Self {
        let rig = Rig::new().await;
        rig.create_queues(&[]).await;
        let dir = tempfile::tempdir().unwrap();
        let now = wall_now();
        let authorities = Arc::new(Authorities::load_or_create(&dir.path().join("manager"), now).unwrap());
        let tls = Settings::new(authorities.server_tls(&["127.0.0.1".to_owned()], now).unwrap().config);
        let listener = TlsListener::start(
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
            tls,
            Limits::for_files(1 << 20),
            Metrics::new("test").connections,
        )
        .unwrap();
        let url = format!("https://127.0.0.1:{}", listener.addr().port());
        let (relay, stop) = (LogRelay::default(), CancellationToken::new());
        let router = agents::router(agents::Parts {
            engine: rig.handle.clone(),
            authorities: authorities.clone(),
            relay: relay.clone(),
            poll,
            certificate_lifetime: Millis::mins(10),
            trusted: Vec::new(),
            copies,
            stop: stop.clone(),
        });
        let (engine, connections) = (rig.handle.clone(), listener.connections());
        tokio::spawn(agents::cut_void_connections(engine, connections.clone(), stop.clone()));
        let served = tokio::spawn(serve(listener, router, stop.clone()));
        Self { rig, url, authorities, relay, connections, stop, served, dir }
    }

    async fn mint(&self, cluster: &str, random: u8) -> JoinToken {
        self.mint_for(cluster, random, false).await
    }

    async fn mint_for(&self, cluster: &str, random: u8, replace: bool) -> JoinToken {
        let (token, hash) = token::mint([random; 32]);
        let (region, jurisdiction) = ("europe-west4".into(), "EU".into());
        let action = Operator::MintToken {
            hash: hash.to_string(),
            cluster: cluster.into(),
            region,
            jurisdiction,
            ttl: Millis::mins(5),
            replace,
        };
        self.operate(action).await;
        token
    }

    async fn operate(&self, action: Operator) {
        let reply =
            self.rig.handle.ask(Input::Operator { actor: Actor::user("admin"), action }).await.unwrap();
        assert!(matches!(reply, Reply::Done(_)), "{reply:?}");
    }

    async fn delete_and_create_cluster(&self, cluster: &str) {
        let key = Key::global(Kind::Cluster, cluster);
        self.rig
            .handle
            .ask(crate::rig::write(vec![Change::Delete { key, uid: None, force: false }]))
            .await
            .unwrap();
        self.rig.create_queues(&[cluster]).await;
    }

    /// The status of a cluster, as readers see it.
    fn status(&self, cluster: &str) -> Value {
        let view = self.rig.handle.reads().get(&Key::global(Kind::Cluster, cluster), &Asker::unlimited());
        view.expect("it exists").value["status"].clone()
    }

    fn binding(&self, cluster: &str) -> CertificateBinding {
        serde_json::from_value(self.status(cluster)["certificates"]["valid"].clone()).unwrap()
    }

    /// The client of an agent whose certificate has this binding and ended `expired` ago.
    fn client_of(&self, cluster: &str, binding: CertificateBinding, expired: Millis) -> reqwest::Client {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let lifetime = Millis::mins(10);
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let then = Wall(wall_now().0 - i64::try_from((expired + lifetime).0).unwrap());
        let issued =
            self.authorities.issue_agent(&csr(&key), (&cluster.into(), binding), then, lifetime).unwrap();
        let pem = format!("{}{}", issued.pem, key.serialize_pem());
        let ca = reqwest::Certificate::from_pem(self.authorities.server_ca_pem().as_bytes()).unwrap();
        reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([ca])
            .identity(reqwest::Identity::from_pem(pem.as_bytes()).unwrap())
            .build()
            .unwrap()
    }

    /// Status and text of the answer to a renewal.
    async fn renew(&self, client: &reqwest::Client) -> (u16, String) {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        self.answer(client, RENEW_PATH, &serde_json::to_value(RenewRequest { csr_pem: csr(&key) }).unwrap())
            .await
    }

    /// Status and text of the answer to a sync.
    async fn refusal(&self, client: &reqwest::Client, request: &SyncRequest) -> (u16, String) {
        self.answer(client, SYNC_PATH, &serde_json::to_value(request).unwrap()).await
    }

    /// Status and text of the answer to a request, which is repeated while the connection breaks.
    async fn answer(&self, client: &reqwest::Client, path: &str, body: &Value) -> (u16, String) {
        let send = async || {
            let sending = client.post(format!("{}{path}", self.url)).json(body).timeout(DEADLINE);
            let response = sending.send().await?;
            Ok::<_, reqwest::Error>((response.status().as_u16(), response.text().await?))
        };
        for _ in 0..100 {
            match send().await {
                Ok(answer) => return answer,
                Err(error) => assert!(!error.is_timeout(), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the connection breaks again and again")
    }

    async fn join(&self, token: &JoinToken, name: &str) -> Result<Identity, Error> {
        join(&self.url, token, self.authorities.ca_pin(), None, &self.dir.path().join(name)).await
    }

    /// A joined agent and its client.
    async fn agent(&self, cluster: &str, random: u8) -> (Worker, reqwest::Client) {
        let identity = self.join(&self.mint(cluster, random).await, cluster).await.unwrap();
        (Worker::new(cluster, u128::from(random), 4, self.rig.clock.clone()), identity.http_client().unwrap())
    }

    async fn sync(&self, client: &reqwest::Client, request: &SyncRequest) -> (u16, Option<Box<SyncAnswer>>) {
        let sending = client.post(format!("{}{SYNC_PATH}", self.url)).json(request).timeout(DEADLINE).send();
        let response = sending.await.unwrap();
        let status = response.status().as_u16();
        let body = response.bytes().await.unwrap();
        (status, serde_json::from_slice(&body).ok())
    }

    async fn exchange(&self, worker: &mut Worker, client: &reqwest::Client) {
        let request = worker.compose(Lane::News);
        let (status, answer) = self.sync(client, &request).await;
        worker.receive(answer.unwrap_or_else(|| panic!("status {status}")));
    }

    async fn close(self) {
        self.stop.cancel();
        tokio::time::timeout(DEADLINE, self.served).await.expect("it ends").unwrap();
        self.rig.stop().await;
    }
}

#[tokio::test]
async fn slow_bodies_keep_nobody_from_joining() {
    let port = Port::open(Millis::secs(5)).await;
    let client = port.agent("eu", 1).await.1;
    let url = format!("{}{}", port.url, meridian_shared::identity::JOIN_PATH);
    // one request that never ends for each join that may be in progress, and more
    let mut slow = tokio::task::JoinSet::new();
    let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..40 {
        let begun = begun.clone();
        let piece = futures::stream::once(async move {
            begun.send(()).unwrap();
            Ok::<_, std::io::Error>(b"{".to_vec())
        });
        let body = reqwest::Body::wrap_stream(piece.chain(futures::stream::pending()));
        slow.spawn(client.post(&url).body(body).send());
    }
    for _ in 0..40 {
        tokio::time::timeout(DEADLINE, begins.recv()).await.unwrap();
    }
    // the eight oldest have given their places to later ones
    for _ in 0..8 {
        let refused = tokio::time::timeout(DEADLINE, slow.join_next()).await.expect("it is refused");
        assert_eq!(refused.unwrap().unwrap().unwrap().status(), 429);
    }
    port.agent("us", 2).await;
    slow.abort_all();
    port.close().await;
}

#[tokio::test]
async fn an_agent_joins_runs_a_gang_and_renews() {
    let port = Port::open(Millis::secs(5)).await;
    let (mut worker, client) = port.agent("eu", 1).await;
    submit(&port.rig.handle, "one").await.unwrap();
    while port.rig.state_of("one").as_deref() != Some("Running") {
        port.exchange(&mut worker, &client).await;
    }
    let keeper = Keeper::open(&port.dir.path().join("eu")).unwrap();
    keeper.renew(&client).await.unwrap();
    assert_eq!((keeper.current().cluster.as_str(), keeper.current().jurisdiction.as_str()), ("eu", "EU"));
    let client = keeper.current().http_client().unwrap();
    worker.finish();
    while port.rig.state_of("one").as_deref() != Some("Finished") {
        port.exchange(&mut worker, &client).await;
    }
    let text = port.rig.handle.metrics().render(&[]);
    assert!(text.contains(r#"meridian_certificates_issued_total{kind="renew"} 1"#), "{text}");
    assert!(text.contains(r#"meridian_sync_requests_total{cluster="eu",lane="news"}"#), "{text}");
    port.close().await;
}

#[tokio::test]
async fn a_certificate_is_renewed_at_two_thirds_and_then_used() {
    let port = Port::open(Millis::secs(5)).await;
    let (mut worker, _) = port.agent("eu", 1).await;
    let keeper = Arc::new(Keeper::open(&port.dir.path().join("eu")).unwrap());
    let joined = keeper.current();
    let connects = Arc::clone(&keeper);
    let link = Link::open(&port.url, move || Ok(connects.current().http_client()?)).unwrap();
    let clock = Arc::new(AtomicI64::new(joined.renew_at(0).0 - 1_000));
    let (kept, linked, read) = (Arc::clone(&keeper), link.clone(), Arc::clone(&clock));
    let renews =
        tokio::spawn(
            async move { keep_fresh(&kept, &linked, || Wall(read.load(Ordering::Relaxed)), 0).await },
        );
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(keeper.current(), joined, "not due yet");
    clock.fetch_add(2_000, Ordering::Relaxed);
    let mut changes = keeper.subscribe();
    tokio::time::timeout(DEADLINE, changes.wait_for(|identity| **identity != *joined))
        .await
        .expect("it renews itself")
        .unwrap();
    assert_eq!(
        Identity::load(&port.dir.path().join("eu")).unwrap().as_ref(),
        Some(&*keeper.current()),
        "the new identity is stored"
    );
    port.exchange(&mut worker, &link.client()).await;
    renews.abort();
    port.close().await;
}

#[tokio::test]
async fn polls_are_parked_woken_replaced_and_time_out() {
    let port = Port::open(Millis(300)).await;
    let (mut worker, client) = port.agent("eu", 1).await;
    let long = Port::open(Millis::mins(10)).await;
    // a poll that times out
    for _ in 0..4 {
        port.exchange(&mut worker, &client).await;
    }
    let request = worker.compose(Lane::Poll);
    let (status, answer) = port.sync(&client, &request).await;
    assert_eq!(status, 200);
    worker.receive(answer.unwrap());

    let (mut worker, client) = long.agent("eu", 2).await;
    for _ in 0..4 {
        long.exchange(&mut worker, &client).await;
    }
    let long = Arc::new(long);
    let park = |request: SyncRequest| {
        let (long, client) = (Arc::clone(&long), client.clone());
        tokio::spawn(async move { long.sync(&client, &request).await })
    };
    let (first, second) = (park(worker.compose(Lane::Poll)), park(worker.compose(Lane::Poll)));
    // the later poll replaces the earlier one
    let (ended, parked) = futures::future::select(first, second).await.factor_first();
    assert_eq!(ended.unwrap().0, 503, "one poll per agent is parked");
    submit(&long.rig.handle, "one").await.unwrap();
    let (status, answer) = tokio::time::timeout(DEADLINE, parked).await.expect("the offer wakes it").unwrap();
    assert_eq!(status, 200);
    let Some(SyncAnswer::Ok(answer)) = answer.map(|a| *a) else { panic!("refused") };
    assert!(!answer.commands.is_empty());
    port.close().await;
    long.stop.cancel();
}

#[tokio::test]
async fn unknown_clients_and_malformed_bodies_are_refused() {
    let port = Port::open(Millis::secs(5)).await;
    let (mut worker, client) = port.agent("eu", 1).await;
    let ca = reqwest::Certificate::from_pem(port.authorities.server_ca_pem().as_bytes()).unwrap();
    let unknown = reqwest::Client::builder().tls_certs_only([ca]).no_proxy().build().unwrap();
    let request = worker.compose(Lane::News);
    assert_eq!(port.sync(&unknown, &request).await.0, 401);
    let send =
        |body: Vec<u8>| client.post(format!("{}{SYNC_PATH}", port.url)).body(body).timeout(DEADLINE).send();
    assert_eq!(send(b"{".to_vec()).await.unwrap().status(), 400);
    let large = send(vec![b' '; BODY_BYTES_MAX + 1]).await;
    assert!(large.is_err() || large.unwrap().status() == 413);
    port.exchange(&mut worker, &client).await;
    port.close().await;
}

#[tokio::test]
async fn logs_come_from_the_agent_that_has_them() {
    let port = Port::open(Millis::secs(5)).await;
    let (_, client) = port.agent("eu", 1).await;
    let (_, other) = port.agent("us", 2).await;
    let request = LogRequest { id: 0, uid: Uid(1), fence: None, pod: None, follow: true, tail_lines: None };
    let list = async |client: &reqwest::Client| -> Vec<LogRequest> {
        client
            .get(format!("{}{REQUESTS_PATH}", port.url))
            .timeout(DEADLINE)
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap()
    };
    let stream = port.relay.open(&"eu".into(), request.clone());
    let requests = list(&client).await;
    assert_eq!((requests.len(), requests[0].uid, requests[0].follow), (1, Uid(1), true));
    let path = format!("{}{}", port.url, answer_path(requests[0].id));
    assert_eq!(other.post(&path).body("forged").send().await.unwrap().status(), 410);
    let chunks = futures::stream::iter(["one\n", "two\n"].map(Ok::<_, std::io::Error>));
    let posting = client
        .post(&path)
        .header("content-type", "application/octet-stream")
        .body(reqwest::Body::wrap_stream(chunks))
        .send();
    let (status, text) = tokio::join!(
        posting,
        stream.fold(String::new(), async |text, piece| text + std::str::from_utf8(&piece.unwrap()).unwrap())
    );
    assert_eq!((status.unwrap().status().as_u16(), text.as_str()), (204, "one\ntwo\n"));

    // a refusal is an error for a caller that waits for the log to begin
    let begun = tokio::spawn({
        let relay = port.relay.clone();
        async move { relay.begin(&"eu".into(), request).await.map(drop) }
    });
    let id = list(&client).await[0].id;
    let refusal = LogRefusal { message: "no such run\u{1b}[2J".into() };
    let posted = client.post(format!("{}{}", port.url, answer_path(id))).json(&refusal).send().await.unwrap();
    assert_eq!(posted.status(), 204);
    assert_eq!(begun.await.unwrap(), Err(NoLog::Refused("no such run [2J".into())));
    port.close().await;
}
