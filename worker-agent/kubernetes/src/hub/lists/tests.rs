//! Lists of API servers that stream them, refuse to, break off, or ignore the parameter.

use super::*;
use axum::body::{Body, Bytes};
use axum::http::{Response, Uri as Asked};
use futures::stream;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// What the server does with a request for a streamed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Streams {
    /// Sends the objects and the bookmark, then two events, and ends the watch.
    Well,
    Refuses(u16),
    /// Sends the objects, and then this line instead of the bookmark.
    Fails(&'static str),
    BreaksOff,
    /// Sends the objects, and waits for changes.
    Ignores,
}

/// An API server with the pods `a` and `b`.
#[derive(Clone)]
struct Server {
    streams: Arc<Mutex<Streams>>,
    asked: Arc<Mutex<Vec<String>>>,
}

fn pod(name: &str, version: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml", "resourceVersion": version},
    })
}

fn event(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

fn status(code: u16) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": "",
        "code": code,
    })
}

fn answer(code: u16, body: Body) -> Response<Body> {
    Response::builder().status(code).body(body).unwrap()
}

fn lines(events: &[String], stays_open: bool) -> Response<Body> {
    let sent = stream::once(std::future::ready(Ok::<_, std::io::Error>(Bytes::from(events.concat()))));
    let body =
        if stays_open { Body::from_stream(sent.chain(stream::pending())) } else { Body::from_stream(sent) };
    answer(200, body)
}

impl Server {
    fn new(streams: Streams) -> Self {
        Self { streams: Arc::new(Mutex::new(streams)), asked: Arc::default() }
    }

    fn answer(&self, uri: &Asked) -> Response<Body> {
        let query = uri.query().unwrap_or("").to_owned();
        self.asked.lock().unwrap().push(query.clone());
        if query.contains("sendInitialEvents=true") {
            return self.stream();
        }
        if query.contains("watch=true") {
            return lines(&[], true);
        }
        let pods = [pod("a", "1"), pod("b", "2")];
        let list = json!({
            "apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "9"}, "items": pods,
        });
        answer(200, Body::from(list.to_string()))
    }

    fn stream(&self) -> Response<Body> {
        let streams = *self.streams.lock().unwrap();
        let mut events = vec![event("ADDED", &pod("a", "1")), event("ADDED", &pod("b", "2"))];
        match streams {
            Streams::Well => {
                let end = json!({
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": {
                        "resourceVersion": "5", "annotations": {"k8s.io/initial-events-end": "true"},
                    },
                });
                events.push(event("BOOKMARK", &end));
                events.push(event("MODIFIED", &pod("a", "6")));
                events.push(event("DELETED", &pod("b", "7")));
                lines(&events, false)
            }
            Streams::Refuses(code) => answer(code, Body::from(status(code).to_string())),
            Streams::Fails(line) => {
                events.push(format!("{line}\n"));
                lines(&events, true)
            }
            Streams::BreaksOff => lines(&events[..1], false),
            Streams::Ignores => lines(&events, true),
        }
    }

    fn watch(&self, streams: bool) -> ObjectWatch {
        let server = self.clone();
        let routes = axum::Router::new().fallback(move |uri: Asked| {
            let server = server.clone();
            async move { server.answer(&uri) }
        });
        let config = watcher::Config::default().labels("app=a");
        ObjectWatch::new(Client::new(routes, "default"), streams, &crate::hub::pods(), config)
    }

    /// The requests in short.
    fn asked(&self) -> Vec<&'static str> {
        let kind = |query: &String| {
            assert!(query.contains("labelSelector=app%3Da"), "{query}");
            let has = |pair: &str| query.split('&').any(|is| is == pair);
            let is_any = query.split('&').any(|pair| pair == "resourceVersion=0");
            assert!(!is_any, "a list of any state: {query}");
            match (has("sendInitialEvents=true"), has("watch=true")) {
                (true, true) => {
                    assert!(has("resourceVersionMatch=NotOlderThan") && has("allowWatchBookmarks=true"));
                    assert!(!query.contains("resourceVersion="), "not a consistent read: {query}");
                    "stream"
                }
                (false, true) => "watch",
                _ => "page",
            }
        };
        self.asked.lock().unwrap().iter().map(kind).collect()
    }
}

/// The next events in short, without failures that are tried again.
async fn shown(watch: &mut ObjectWatch, count: usize) -> Vec<String> {
    let mut shown = Vec::new();
    while shown.len() < count {
        let name = |pod: &DynamicObject| pod.metadata.name.clone().unwrap();
        match watch.next().await.expect("a watch never ends") {
            Ok(Event::Init) => shown.push("begins".to_owned()),
            Ok(Event::InitApply(pod)) => shown.push(name(&pod)),
            Ok(Event::InitDone) => shown.push("complete".to_owned()),
            Ok(Event::Apply(pod)) => shown.push(format!("changed {}", name(&pod))),
            Ok(Event::Delete(pod)) => shown.push(format!("deleted {}", name(&pod))),
            Err(_) => {}
        }
    }
    shown
}

const LISTED: [&str; 4] = ["begins", "a", "b", "complete"];

#[tokio::test(start_paused = true)]
async fn a_streamed_list_is_a_consistent_read_and_the_watch_goes_on_from_its_end() {
    let server = Server::new(Streams::Well);
    let mut watch = server.watch(true);
    assert_eq!(shown(&mut watch, 6).await, [&LISTED[..], &["changed a", "deleted b"]].concat());
    let until_resumed = tokio::time::timeout(Duration::from_secs(200), watch.next()).await;
    assert!(until_resumed.is_err(), "nothing else happens");
    assert_eq!(server.asked(), ["stream", "watch"]);
    let resumed = server.asked.lock().unwrap()[1].clone();
    assert!(resumed.split('&').any(|pair| pair == "resourceVersion=7"), "{resumed}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_streamed_lists_is_asked_for_pages_from_then_on() {
    for code in [422, 400, 500, 504] {
        let server = Server::new(Streams::Refuses(code));
        let mut watch = server.watch(true);
        assert_eq!(shown(&mut watch, 4).await, LISTED, "{code}");
        *server.streams.lock().unwrap() = Streams::Well;
        assert!(tokio::time::timeout(Duration::from_secs(280), watch.next()).await.is_err());
        assert_eq!(server.asked(), ["stream", "page", "watch"], "{code}");
        assert_eq!(watch.lists, Lists::Paged);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_no_time_is_asked_for_a_streamed_list_again() {
    for code in ASK_AGAIN {
        let server = Server::new(Streams::Refuses(code));
        let mut watch = server.watch(true);
        assert!(matches!(watch.next().await, Some(Err(_))));
        *server.streams.lock().unwrap() = Streams::Well;
        assert_eq!(shown(&mut watch, 4).await, LISTED, "{code}");
        assert_eq!(server.asked(), ["stream", "stream"], "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_without_an_end_begins_anew_in_pages() {
    let failure =
        r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":500,"message":"no"}}"#;
    let unreadable = r#"{"type":"ADDED","object":{"metadata":7}}"#;
    // A bookmark without the annotation ends no list.
    let bookmark =
        r#"{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":"Pod","metadata":{"resourceVersion":"5"}}}"#;
    let cases = [
        (Streams::Ignores, 2, 1),
        (Streams::Fails(bookmark), 2, 1),
        (Streams::Fails(failure), 2, 1),
        (Streams::Fails(unreadable), 2, 1),
        // kube asks once more, and shows only then that the first stream has ended.
        (Streams::BreaksOff, 1, 2),
    ];
    for (streams, sent, requests) in cases {
        let server = Server::new(streams);
        let mut watch = server.watch(true);
        let partial = &LISTED[..=sent];
        let started = Instant::now();
        let all = shown(&mut watch, partial.len() + 4).await;
        assert_eq!(all, [partial, &LISTED[..]].concat(), "{streams:?}");
        assert!(started.elapsed() <= STREAMED_WITHIN + Duration::from_millis(1), "{streams:?}");
        assert!(tokio::time::timeout(Duration::from_secs(200), watch.next()).await.is_err());
        let expected = [&["stream", "stream"][..requests], &["page", "watch"]].concat();
        assert_eq!(server.asked(), expected, "{streams:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_older_server_is_asked_for_pages() {
    let server = Server::new(Streams::Well);
    assert_eq!(shown(&mut server.watch(false), 4).await, LISTED);
    assert_eq!(server.asked(), ["page"]);
}

#[test]
fn a_watch_that_breaks_after_its_list_asks_for_no_list_unless_its_version_is_forgotten() {
    let now = Instant::now();
    let failure = |code| -> Box<_> { serde_json::from_value(status(code)).unwrap() };
    let start = |code| Err(watcher::Error::WatchStartFailed(kube::Error::Api(failure(code))));
    let reported = |code| Err(watcher::Error::WatchError(failure(code)));
    assert_eq!(after(Progress::Done, &start(503), now), Ok(Progress::Done));
    assert_eq!(after(Progress::Done, &reported(500), now), Ok(Progress::Done));
    assert_eq!(after(Progress::Done, &reported(410), now), Ok(Progress::Wanted));
    assert_eq!(after(Progress::Done, &Err(watcher::Error::NoResourceVersion), now), Ok(Progress::Wanted));
    assert!(after(Progress::Wanted, &start(422), now).is_err());
    assert_eq!(after(Progress::Wanted, &start(429), now), Ok(Progress::Wanted));
}
