//! The API in process, with the real engine and a real journal on an in-memory disk.

mod admission;
mod create;
mod endpoints;
mod errors;
mod hostile;
mod lists;
mod many;
mod reading;
mod roles;
mod shares;
mod tenants;
mod tokens;
mod watching;
mod writing;

use super::shipped;
use super::{ApiParts, Front, ListLimits, LogBytes, Logs, router};
use crate::audit::AuditFiles;
use crate::audit::directory::AuditDirectory;
use crate::audit::key::SigningKey;
use crate::auth::{TokenInfo, TokenStore, Tokens};
use crate::engine::clock::BootClock;
use crate::engine::{self, Handle, Options, Running, StartMode};
use crate::journal::RedbJournal;
use crate::journal::faulty::{Faults, FaultyDisk};
use crate::metrics::Metrics;
use axum::Router;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use meridian_manager_core::Config;
use meridian_objects::rbac::MASTERS;
use meridian_shared::identity::CaPin;
use meridian_shared::ids::{ClusterName, JournalId};
use meridian_shared::logs::LogRequest;
use meridian_shared::mac::ReceiptKey;
use meridian_shared::time::Wall;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

const QUEUES: &str = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
/// Reached only if a test fails.
const DEADLINE: Duration = Duration::from_secs(20);

/// A manager's API, with its engine.
struct Rig {
    router: Router,
    engine: Handle,
    disk: FaultyDisk,
    running: Option<Running>,
    users: TokenStore,
    admin: String,
    submitter: String,
    requested_logs: Arc<Mutex<Vec<(ClusterName, LogRequest)>>>,
    stop: CancellationToken,
    /// The data directory, the audit log's directory in it, and its key.
    audit: (tempfile::TempDir, AuditDirectory, Arc<SigningKey>),
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            let _ = running.stop();
        }
    }
}

/// Every log has three bytes.
struct FakeLogs(Arc<Mutex<Vec<(ClusterName, LogRequest)>>>);

impl Logs for FakeLogs {
    fn open(&self, cluster: ClusterName, request: LogRequest) -> BoxFuture<'_, Result<LogBytes, String>> {
        self.0.lock().unwrap().push((cluster, request));
        Box::pin(async { Ok(futures::stream::iter([Ok(Bytes::from_static(b"log"))]).boxed()) })
    }
}

/// An answer with its whole body.
#[derive(Debug)]
struct Answer {
    code: StatusCode,
    headers: HeaderMap,
    body: Value,
}

impl Answer {
    #[track_caller]
    fn ok(self) -> Value {
        assert!(self.code.is_success(), "{self:?}");
        self.body
    }

    /// The code, the reason and the message of a `Status`.
    #[track_caller]
    fn failure(&self) -> (u16, &str, &str) {
        assert_eq!(
            (self.body["kind"].as_str(), self.body["status"].as_str()),
            (Some("Status"), Some("Failure")),
            "{self:?}"
        );
        assert_eq!(self.body["code"], self.code.as_u16());
        (self.code.as_u16(), self.body["reason"].as_str().unwrap(), self.body["message"].as_str().unwrap())
    }

    fn warnings(&self) -> Vec<&str> {
        self.headers.get_all("warning").iter().map(|w| w.to_str().unwrap()).collect()
    }
}

impl Rig {
    async fn new() -> Self {
        Self::with_lists(ListLimits::default()).await
    }

    async fn with_lists(lists: ListLimits) -> Self {
        let disk = FaultyDisk::new(1, 1, Faults::default());
        let journal = RedbJournal::init_on(disk.clone(), JournalId(1), Wall(0)).unwrap();
        let options = Options {
            config: Config::new(ReceiptKey([7; 32])),
            start: StartMode::Init,
            clock: Arc::new(BootClock),
            marks: None,
            metrics: Metrics::new("0"),
            traces: false,
        };
        let (engine, running) = engine::start(Box::new(journal), options).unwrap();
        tokio::time::timeout(DEADLINE, engine.led()).await.unwrap();
        let mut users = Tokens::default();
        let mut issue = |user, groups, random: u8| {
            let new = TokenInfo::of_user(user, groups, Wall(0));
            users.issue(new, [random; 32]).unwrap().expose().to_owned()
        };
        let (admin, submitter) = (issue("ada", &[MASTERS], 1), issue("sam", &[], 2));
        let users = TokenStore::new(users, None);
        let (requested_logs, stop) = (Arc::<Mutex<_>>::default(), CancellationToken::new());
        let data = tempfile::tempdir().unwrap();
        let key = Arc::new(SigningKey::load_or_create(data.path()).unwrap());
        let directory = AuditDirectory::new(&data.path().join("audit"));
        let router = router(ApiParts {
            engine: engine.clone(),
            users: users.clone(),
            logs: Arc::new(FakeLogs(requested_logs.clone())),
            front: Front {
                url: "https://manager.example:7443".to_owned(),
                ca_pin: CaPin([9; 32]),
                ca_pem: "-----BEGIN".to_owned(),
            },
            stop: stop.clone(),
            lists,
            audit: AuditFiles { directory: directory.clone(), key: key.public() },
        });
        let (running, audit) = (Some(running), (data, directory, key));
        Self { router, engine, disk, running, users, admin, submitter, requested_logs, stop, audit }
    }

    /// A rig with a queue `main`.
    async fn with_queue() -> Self {
        let rig = Self::new().await;
        rig.apply(&[flavor(), queue("q"), local("main", "q")]).await.ok();
        rig
    }

    /// A rig with a queue `main`, the shipped roles, and the bindings of the first users.
    async fn with_roles() -> Self {
        let rig = Self::with_queue().await;
        rig.apply(&[namespace("default", &json!({}))]).await.ok();
        rig.apply(&shipped::roles()).await.ok();
        rig.apply(&shipped::bindings("default", "sam", "vic")).await.ok();
        rig
    }

    /// A request with another user's token.
    async fn as_user(&self, token: &str, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let request = with(self.request(method, path, body), "authorization", &format!("Bearer {token}"));
        self.read(request).await
    }

    async fn send(&self, request: Request<Body>) -> axum::response::Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    async fn read(&self, request: Request<Body>) -> Answer {
        let response = self.send(request).await;
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let body = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)))
        };
        Answer { code: parts.status, headers: parts.headers, body }
    }

    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Request<Body> {
        let mut request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        request
            .headers_mut()
            .insert(AUTHORIZATION, HeaderValue::try_from(format!("Bearer {}", self.admin)).unwrap());
        if let Some(body) = body {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *request.body_mut() = Body::from(body.to_string());
        }
        request
    }

    async fn get(&self, path: &str) -> Answer {
        self.read(self.request("GET", path, None)).await
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        self.read(self.request("POST", path, Some(body))).await
    }

    async fn put(&self, path: &str, body: &Value) -> Answer {
        self.read(self.request("PUT", path, Some(body))).await
    }

    async fn delete(&self, path: &str) -> Answer {
        self.read(self.request("DELETE", path, None)).await
    }

    async fn apply(&self, objects: &[Value]) -> Answer {
        self.post("/meridian/v1/apply", &json!({"objects": objects, "cluster": null, "dryRun": false})).await
    }

    async fn names(&self, path: &str) -> Vec<String> {
        let list = self.get(path).await.ok();
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    }

    async fn watch(&self, path: &str) -> Events {
        let response = self.send(self.request("GET", path, None)).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        Events { stream: response.into_body().into_data_stream(), buffer: Vec::new() }
    }
}

/// Reads the events of a watch.
struct Events {
    stream: BodyDataStream,
    buffer: Vec<u8>,
}

impl Events {
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(at) = self.buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=at).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let piece =
                tokio::time::timeout(DEADLINE, self.stream.next()).await.expect("an event in time")?;
            self.buffer.extend(piece.unwrap());
        }
    }

    /// `TYPE NAME` of the next event.
    async fn next_summary(&mut self) -> String {
        let event = self.next().await.expect("an event");
        format!(
            "{} {}",
            event["type"].as_str().unwrap(),
            event["object"]["metadata"]["name"].as_str().unwrap_or_default()
        )
    }
}

fn with(mut request: Request<Body>, name: &'static str, value: &str) -> Request<Body> {
    request.headers_mut().insert(HeaderName::from_static(name), HeaderValue::try_from(value).unwrap());
    request
}

fn flavor() -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor",
        "metadata": {"name": "any"}, "spec": {},
    })
}

fn queue(name: &str) -> Value {
    let group = json!({
        "coveredResources": ["cpu"],
        "flavors": [{"name": "any", "resources": [{"name": "cpu", "nominalQuota": "100"}]}],
    });
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
    })
}

fn local(name: &str, queue: &str) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"clusterQueue": queue},
    })
}

fn namespace(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

fn job(name: &str) -> Value {
    let container = json!({
        "name": "main", "image": "example/train", "command": ["true"],
        "resources": {"requests": {"cpu": "1"}},
    });
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {
            "parallelism": 2, "completions": 2, "suspend": true,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    })
}

fn generated(prefix: &str) -> Value {
    let mut job = job("x");
    job["metadata"].as_object_mut().unwrap().remove("name");
    job["metadata"]["generateName"] = json!(prefix);
    job
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn scrapers_that_accept_open_metrics_get_the_traces_of_clients() {
    let rig = Rig::with_queue().await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    let get = async |path: &str, name: &'static str, value: &str| {
        rig.read(with(rig.request("GET", path, None), name, value)).await
    };
    get(JOBS, "traceparent", &parent).await.ok();
    get(JOBS, "traceparent", "00-no-trace-01").await.ok();
    let scrape = async |accept: &'static str| {
        let answer = get("/metrics", "accept", accept).await;
        let kind = answer.headers[CONTENT_TYPE].to_str().unwrap().to_owned();
        (kind, answer.ok().as_str().unwrap().to_owned())
    };
    let (kind, text) =
        scrape("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3").await;
    assert_eq!(kind, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    let traced = text.lines().find(|line| line.contains(trace)).unwrap();
    assert!(traced.starts_with(r#"meridian_api_request_seconds_bucket{verb="list",le="#), "{traced}");
    for accept in ["*/*", "text/plain", "application/openmetrics-text;q=0, text/plain"] {
        let (kind, text) = scrape(accept).await;
        assert!(kind == "text/plain; version=0.0.4" && !text.contains(trace), "{accept}: {kind}");
    }
}

#[tokio::test]
async fn requests_are_counted_by_verb_resource_and_code() {
    let rig = Rig::with_queue().await;
    rig.get(JOBS).await.ok();
    rig.get("/apis/batch/v1/namespaces/default/jobs/absent").await;
    rig.get("/nothing/here").await;
    let watch = rig.watch(&format!("{JOBS}?watch=true")).await;
    let text = rig.engine.metrics().render(&[]);
    for line in [
        r#"meridian_api_requests_total{code="200",resource="jobs",verb="list"} 1"#,
        r#"meridian_api_requests_total{code="404",resource="jobs",verb="get"} 1"#,
        r#"meridian_api_requests_total{code="404",resource="other",verb="other"} 1"#,
        r#"meridian_api_requests_total{code="200",resource="meridian",verb="apply"} 1"#,
        r#"meridian_api_requests_total{code="200",resource="jobs",verb="watch"} 1"#,
        r#"meridian_api_request_seconds_count{verb="list"} 1"#,
        "meridian_watchers 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains(r#"meridian_api_request_seconds_count{verb="watch"}"#));
    drop(watch);
    assert!(rig.engine.metrics().render(&[]).contains("meridian_watchers 0"));
}
