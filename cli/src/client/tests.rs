use super::fake::{Fake, FakeAnswer};
use super::http::text_at;
use super::kubeconfig::{Access, Lookup};
use super::*;
use meridian_objects::Kind;
use serde_json::{Value, json};

fn page(names: &[&str], version: &str, next: &str) -> FakeAnswer {
    let items: Vec<Value> = names.iter().map(|name| object(name, version)).collect();
    FakeAnswer::Json(
        200,
        json!({
            "kind": "JobList", "metadata": {"resourceVersion": version, "continue": next}, "items": items,
        }),
    )
}

fn object(name: &str, version: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "resourceVersion": version}})
}

fn event(kind: &str, name: &str, version: &str) -> String {
    format!("{}\n", json!({"type": kind, "object": object(name, version)}))
}

fn gone() -> FakeAnswer {
    FakeAnswer::Json(410, json!({"kind": "Status", "reason": "Expired", "code": 410, "message": "too old"}))
}

fn jobs() -> Selection {
    Selection::in_namespace(Kind::Job, "default")
}

fn names(items: &[Value]) -> Vec<String> {
    items.iter().map(|item| text_at(item, "/metadata/name")).collect()
}

async fn client(fake: &Fake) -> Client {
    Client::new(&fake.start().await).unwrap()
}

#[tokio::test]
async fn paths_follow_kubernetes() {
    let object = || FakeAnswer::Json(200, json!({"metadata": {"name": "x"}}));
    let fake = Fake::new([
        ("GET /api/v1/namespaces/research", object()),
        ("GET /apis/batch/v1/namespaces/default/jobs/train", object()),
        ("GET /apis/kueue.x-k8s.io/v1beta2/clusterqueues/q", object()),
        ("DELETE /apis/meridian.dev/v1alpha1/clusters/eu", object()),
        ("POST /apis/kueue.x-k8s.io/v1beta1/namespaces/default/localqueues", object()),
    ]);
    let client = client(&fake).await;
    let namespace = client.get(Kind::Namespace, Some("ignored"), "research").await.unwrap();
    assert_eq!(
        (text_at(&namespace, "/kind"), text_at(&namespace, "/apiVersion")),
        ("Namespace".into(), "v1".into())
    );
    client.get(Kind::Job, Some("default"), "train").await.unwrap();
    client.get(Kind::ClusterQueue, None, "q").await.unwrap();
    client.delete(Kind::Cluster, None, "eu", DeleteOptions::default()).await.unwrap();
    client
        .create(
            Kind::LocalQueue,
            Some("default"),
            &json!({"apiVersion": "kueue.x-k8s.io/v1beta1"}),
            CreateOptions::default(),
        )
        .await
        .unwrap();
    assert_eq!(fake.requests().len(), 5);
}

#[tokio::test]
async fn lists_are_paged_and_start_over_when_expired() {
    let fake = Fake::new([
        (
            "GET /apis/batch/v1/namespaces/default/jobs?labelSelector=team%3Dvision&limit=500",
            page(&["a"], "7", "more"),
        ),
        (
            "GET /apis/batch/v1/namespaces/default/jobs?labelSelector=team%3Dvision&limit=500&continue=more",
            gone(),
        ),
        (
            "GET /apis/batch/v1/namespaces/default/jobs?labelSelector=team%3Dvision&limit=500",
            page(&["a", "b"], "9", "more"),
        ),
        (
            "GET /apis/batch/v1/namespaces/default/jobs?labelSelector=team%3Dvision&limit=500&continue=more",
            page(&["c"], "9", ""),
        ),
    ]);
    let list = client(&fake).await.list(&Selection { labels: "team=vision".into(), ..jobs() }).await.unwrap();
    assert_eq!(
        (names(&list.items), list.version.as_str()),
        (vec!["a".to_owned(), "b".into(), "c".into()], "9")
    );
    assert_eq!(list.items[0]["kind"], "Job");
    assert_eq!(fake.requests().len(), 4);
}

#[tokio::test]
async fn errors_become_messages() {
    let fake = Fake::new([
        (
            "GET ",
            FakeAnswer::Json(404, json!({"message": "jobs.batch \"x\" not found", "reason": "NotFound"})),
        ),
        ("GET ", FakeAnswer::Json(200, json!([1]))),
        ("GET ", FakeAnswer::Break),
        ("GET ", FakeAnswer::Json(307, json!({}))),
    ]);
    let client = client(&fake).await;
    let missing = client.get(Kind::Job, Some("default"), "x").await.unwrap_err();
    assert!(
        missing.is_not_found() && missing.to_string() == "jobs.batch \"x\" not found (404 NotFound)",
        "{missing}"
    );
    let nonsense = client.list(&jobs()).await.unwrap_err().to_string();
    assert_eq!(
        nonsense,
        "can't read the manager's answer to /apis/batch/v1/namespaces/default/jobs: it has no `items`"
    );
    let broken = client.list(&jobs()).await.unwrap_err();
    assert!(matches!(broken, Error::Unreachable { unsent: false, .. }), "{broken:?}");
    assert!(client.list(&jobs()).await.unwrap_err().to_string().contains("redirects are not followed"));
    assert_eq!(fake.requests().len(), 4);
}

#[tokio::test]
async fn an_unreachable_manager_is_reported_with_its_url() {
    // The port was free a moment ago, so nothing listens there.
    let server = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let access = Access {
        server: server.clone(),
        authorities: None,
        token: None,
        identity: None,
        namespace: "default".into(),
    };
    let error = Client::new(&access).unwrap().list(&jobs()).await.unwrap_err();
    assert!(error.to_string().starts_with(&format!("can't reach the manager at `{server}`: ")), "{error}");
    assert!(matches!(error, Error::Unreachable { unsent: true, .. }));
}

#[tokio::test]
async fn a_watch_survives_ended_streams_and_expired_versions() {
    let watch_at = |version: &str| -> &'static str {
        let query = format!("watch=true&allowWatchBookmarks=true&resourceVersion={version}");
        let line = format!("GET /apis/batch/v1/namespaces/default/jobs?{query}");
        Box::leak(line.into_boxed_str())
    };
    let list = "GET /apis/batch/v1/namespaces/default/jobs?limit=500";
    let line = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    let modified = event("MODIFIED", "a", "11");
    let (first, second) = modified.split_at(20);
    let fake = Fake::new([
        (list, page(&["a", "b"], "10", "")),
        (
            watch_at("10"),
            FakeAnswer::Stream(vec![
                line(first.to_owned()),
                line(second.to_owned()),
                line(event("ADDED", "c", "12")),
                line(event("BOOKMARK", "", "15")),
            ]),
        ),
        (
            watch_at("15"),
            FakeAnswer::Stream(vec![line(event("DELETED", "b", "16")), line(event("DELETED", "b", "16"))]),
        ),
        (
            watch_at("16"),
            FakeAnswer::Stream(vec![line(format!(
                "{}\n",
                json!({"type": "ERROR", "object": {"code": 410, "reason": "Expired"}})
            ))]),
        ),
        (
            list,
            FakeAnswer::Json(
                200,
                json!({
                    "metadata": {"resourceVersion": "30"},
                    "items": [object("a", "11"), object("d", "25")],
                }),
            ),
        ),
        (watch_at("30"), FakeAnswer::OpenStream(vec![event("MODIFIED", "d", "31")])),
    ]);
    let (items, mut watch) = client(&fake).await.watch(jobs()).await.unwrap();
    assert_eq!(names(&items), ["a", "b"]);
    let mut events = Vec::new();
    for _ in 0..6 {
        let event = watch.next().await.unwrap();
        events.push(format!(
            "{} {} {}",
            event.kind.name(),
            text_at(&event.object, "/metadata/name"),
            version(&event.object)
        ));
    }
    assert_eq!(
        events,
        ["MODIFIED a 11", "ADDED c 12", "DELETED b 16", "DELETED c 12", "ADDED d 25", "MODIFIED d 31"]
    );
    assert_eq!(fake.requests().len(), 6);
}

fn version(object: &Value) -> String {
    text_at(object, "/metadata/resourceVersion")
}

#[tokio::test]
async fn a_watch_ends_with_a_permanent_error() {
    let fake = Fake::new([
        ("GET ", page(&[], "1", "")),
        ("GET ", FakeAnswer::Json(503, json!({"message": "restarting"}))),
        ("GET ", FakeAnswer::Json(403, json!({"message": "no longer yours", "reason": "Forbidden"}))),
    ]);
    let (_, mut watch) = client(&fake).await.watch(jobs()).await.unwrap();
    assert_eq!(watch.next().await.unwrap_err().to_string(), "no longer yours (403 Forbidden)");
    assert_eq!(fake.requests().len(), 3);
}

#[tokio::test]
async fn tokens_are_sent_only_to_a_server_of_the_named_authority() {
    let fake = Fake::new([("GET ", page(&["a"], "1", ""))]);
    let (server, authority) = serve_tls(&fake).await;
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, authority: &str| {
        std::fs::write(directory.path().join(format!("{name}.pem")), authority).unwrap();
        let config = json!({
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "m", "user": "u"}}],
            "clusters": [
                {"name": "m", "cluster": {"server": server, "certificate-authority": format!("{name}.pem")}},
            ],
            "users": [{"name": "u", "user": {"token": "t0k3n"}}],
        });
        let path = directory.path().join(name);
        std::fs::write(&path, config.to_string()).unwrap();
        Lookup::file(path).access().unwrap()
    };
    let stranger = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem();
    let refused = Client::new(&write("wrong", &stranger)).unwrap().list(&jobs()).await.unwrap_err();
    assert!(refused.to_string().contains("certificate"), "{refused}");
    let list = Client::new(&write("right", &authority)).unwrap().list(&jobs()).await.unwrap();
    assert_eq!(names(&list.items), ["a"]);
    let received = &fake.requests()[0];
    assert_eq!(
        (received.authorization.as_str(), received.http_version.as_str()),
        ("Bearer t0k3n", "HTTP/2.0")
    );
}

/// Serves the fake over TLS; returns the URL and the PEM of the certificate.
async fn serve_tls(fake: &Fake) -> (String, String) {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let mut config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let service = hyper_util::service::TowerToHyperService::new(fake.router());
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // A client that does not trust the certificate leaves in the middle of the handshake.
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let (io, service) = (hyper_util::rt::TokioIo::new(stream), service.clone());
            tokio::spawn(async move {
                hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new())
                    .serve_connection(io, service)
                    .await
            });
        }
    });
    (format!("https://localhost:{port}"), cert.pem())
}
