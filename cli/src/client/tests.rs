use super::fake::{Answer, Fake};
use super::*;
use crate::kubeconfig::Lookup;
use serde_json::json;

fn page(names: &[&str], version: &str, next: &str) -> Answer {
    let items: Vec<Value> = names.iter().map(|name| object(name, version)).collect();
    Answer::Json(
        200,
        json!({"kind": "JobList", "metadata": {"resourceVersion": version, "continue": next}, "items": items}),
    )
}

fn object(name: &str, version: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "resourceVersion": version}})
}

fn event(kind: &str, name: &str, version: &str) -> String {
    format!("{}\n", json!({"type": kind, "object": object(name, version)}))
}

fn gone() -> Answer {
    Answer::Json(410, json!({"kind": "Status", "reason": "Expired", "code": 410, "message": "too old"}))
}

fn jobs() -> Selection {
    Selection { kind: Kind::Job, namespace: Some("default".into()), labels: String::new(), name: None }
}

fn names(items: &[Value]) -> Vec<String> {
    items.iter().map(|item| text_at(item, "/metadata/name")).collect()
}

async fn client(fake: &Fake) -> Client {
    Client::new(&fake.start().await).unwrap()
}

#[tokio::test]
async fn paths_follow_kubernetes() {
    let object = || Answer::Json(200, json!({"metadata": {"name": "x"}}));
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
    client.delete(Kind::Cluster, None, "eu").await.unwrap();
    client
        .create(Kind::LocalQueue, Some("default"), &json!({"apiVersion": "kueue.x-k8s.io/v1beta1"}))
        .await
        .unwrap();
    assert_eq!(fake.asked().len(), 5);
}

#[tokio::test]
async fn lists_are_read_in_pages_and_begun_again_when_forgotten() {
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
    assert_eq!(fake.asked().len(), 4);
}

#[tokio::test]
async fn errors_become_words() {
    let fake = Fake::new([
        ("GET ", Answer::Json(404, json!({"message": "jobs.batch \"x\" not found", "reason": "NotFound"}))),
        ("GET ", Answer::Json(200, json!([1]))),
        ("GET ", Answer::Break),
        ("GET ", Answer::Json(307, json!({}))),
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
        "the manager's answer to /apis/batch/v1/namespaces/default/jobs can't be read: it has no `items`"
    );
    let broken = client.list(&jobs()).await.unwrap_err();
    assert!(matches!(broken, Error::Unreachable { unsent: false, .. }), "{broken:?}");
    assert!(client.list(&jobs()).await.unwrap_err().to_string().contains("redirects are not followed"));
    assert_eq!(fake.asked().len(), 4);
}

#[tokio::test]
async fn nobody_there_is_told_as_such() {
    // a port that was free a moment ago
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
async fn a_watch_goes_on_over_ends_and_forgotten_versions() {
    let watch_at = |version: &str| -> &'static str {
        Box::leak(format!("GET /apis/batch/v1/namespaces/default/jobs?watch=true&allowWatchBookmarks=true&resourceVersion={version}").into_boxed_str())
    };
    let list = "GET /apis/batch/v1/namespaces/default/jobs?limit=500";
    let line = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    let (first, second) = event("MODIFIED", "a", "11").split_at(20).to_owned_pair();
    let fake = Fake::new([
        (list, page(&["a", "b"], "10", "")),
        (
            watch_at("10"),
            Answer::Stream(vec![
                line(first),
                line(second),
                line(event("ADDED", "c", "12")),
                line(event("BOOKMARK", "", "15")),
            ]),
        ),
        (
            watch_at("15"),
            Answer::Stream(vec![line(event("DELETED", "b", "16")), line(event("DELETED", "b", "16"))]),
        ),
        (
            watch_at("16"),
            Answer::Stream(vec![line(format!(
                "{}\n",
                json!({"type": "ERROR", "object": {"code": 410, "reason": "Expired"}})
            ))]),
        ),
        (
            list,
            Answer::Json(
                200,
                json!({"metadata": {"resourceVersion": "30"}, "items": [object("a", "11"), object("d", "25")]}),
            ),
        ),
        (watch_at("30"), Answer::OpenStream(vec![event("MODIFIED", "d", "31")])),
    ]);
    let (items, mut watch) = client(&fake).await.watch(jobs()).await.unwrap();
    assert_eq!(names(&items), ["a", "b"]);
    let mut told = Vec::new();
    for _ in 0..6 {
        let change = watch.next().await.unwrap();
        told.push(format!(
            "{} {} {}",
            change.kind.word(),
            text_at(&change.object, "/metadata/name"),
            version(&change.object)
        ));
    }
    assert_eq!(
        told,
        ["MODIFIED a 11", "ADDED c 12", "DELETED b 16", "DELETED c 12", "ADDED d 25", "MODIFIED d 31"]
    );
    assert_eq!(fake.asked().len(), 6);
}

fn version(object: &Value) -> String {
    text_at(object, "/metadata/resourceVersion")
}

trait ToOwnedPair {
    fn to_owned_pair(self) -> (String, String);
}

impl ToOwnedPair for (&str, &str) {
    fn to_owned_pair(self) -> (String, String) {
        (self.0.to_owned(), self.1.to_owned())
    }
}

#[tokio::test]
async fn a_watch_ends_with_an_error_that_does_not_pass() {
    let fake = Fake::new([
        ("GET ", page(&[], "1", "")),
        ("GET ", Answer::Json(503, json!({"message": "restarting"}))),
        ("GET ", Answer::Json(403, json!({"message": "no longer yours", "reason": "Forbidden"}))),
    ]);
    let (_, mut watch) = client(&fake).await.watch(jobs()).await.unwrap();
    assert_eq!(watch.next().await.unwrap_err().to_string(), "no longer yours (403 Forbidden)");
    assert_eq!(fake.asked().len(), 3);
}

#[tokio::test]
async fn tokens_travel_over_tls_to_the_named_authority_only() {
    let fake = Fake::new([("GET ", page(&["a"], "1", ""))]);
    let (server, authority) = serve_tls(&fake).await;
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, authority: &str| {
        std::fs::write(directory.path().join(format!("{name}.pem")), authority).unwrap();
        let config = json!({
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "m", "user": "u"}}],
            "clusters": [{"name": "m", "cluster": {"server": server, "certificate-authority": format!("{name}.pem")}}], "users": [{"name": "u", "user": {"token": "t0k3n"}}],
        });
        let path = directory.path().join(name);
        std::fs::write(&path, config.to_string()).unwrap();
        Lookup { flag: Some(path), ..Lookup::default() }.access().unwrap()
    };
    let stranger = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem();
    let refused = Client::new(&write("wrong", &stranger)).unwrap().list(&jobs()).await.unwrap_err();
    assert!(refused.to_string().contains("certificate"), "{refused}");
    let list = Client::new(&write("right", &authority)).unwrap().list(&jobs()).await.unwrap();
    assert_eq!(names(&list.items), ["a"]);
    let asked = fake.asked();
    assert_eq!((asked[0].authorization.as_str(), asked[0].version.as_str()), ("Bearer t0k3n", "HTTP/2.0"));
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
            // a client that does not trust the certificate goes away in mid-handshake
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
