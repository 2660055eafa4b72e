//! A manager for tests: scripted answers behind a real socket, and the requests that it got.

use super::kubeconfig::Access;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use futures::StreamExt as _;
use futures::stream;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

/// One request as the fake got it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReceivedRequest {
    /// Such as `GET /api/v1/namespaces?limit=500`.
    pub(crate) line: String,
    pub(crate) authorization: String,
    pub(crate) http_version: String,
    pub(crate) body: String,
}

/// One answer of the script.
#[derive(Clone, Debug)]
pub(crate) enum FakeAnswer {
    /// A status and a JSON body.
    Json(u16, serde_json::Value),
    /// A created object, and a `Warning` header.
    Warned(serde_json::Value, &'static str),
    /// A stream that ends after these chunks.
    Stream(Vec<&'static str>),
    /// A stream that stays open after these chunks.
    OpenStream(Vec<String>),
    Log {
        /// The attempt number, a space and the fence.
        attempt: &'static str,
        chunks: Vec<&'static str>,
        /// Whether the connection breaks after the chunks.
        breaks: bool,
    },
    /// The connection breaks in the middle of the answer.
    Break,
}

#[derive(Debug, Default)]
struct Script {
    requests: Mutex<Vec<ReceivedRequest>>,
    answers: Mutex<VecDeque<(String, FakeAnswer)>>,
}

/// Every request must begin with the line that the script expects next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fake(Arc<Script>);

impl Fake {
    /// Expects these requests in this order.
    pub(crate) fn new(script: impl IntoIterator<Item = (&'static str, FakeAnswer)>) -> Self {
        let fake = Self::default();
        let answers = script.into_iter().map(|(line, answer)| (line.to_owned(), answer));
        fake.0.answers.lock().unwrap().extend(answers);
        fake
    }

    /// Serves on a free port of this machine.
    pub(crate) async fn start(&self) -> Access {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let router = self.router();
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Access { server, authorities: None, token: None, identity: None, namespace: "default".into() }
    }

    /// The router, for another listener.
    pub(crate) fn router(&self) -> Router {
        Router::new().fallback(handle).with_state(self.clone())
    }

    /// Every request so far. Panics if the script isn't used up.
    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        let left = self.0.answers.lock().unwrap();
        assert!(left.is_empty(), "never requested: {left:?}");
        self.0.requests.lock().unwrap().clone()
    }
}

async fn handle(State(fake): State<Fake>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let authorization = parts.headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let line = format!("{} {}", parts.method, parts.uri.path_and_query().unwrap());
    let received = ReceivedRequest {
        line: line.clone(),
        authorization: authorization.unwrap_or_default(),
        http_version: format!("{:?}", parts.version),
        body: String::from_utf8(body.to_vec()).unwrap(),
    };
    let next = fake.0.answers.lock().unwrap().pop_front();
    fake.0.requests.lock().unwrap().push(received);
    let unexpected = |text: String| (axum::http::StatusCode::IM_A_TEAPOT, text).into_response();
    match next {
        Some((expected, answer)) if line.starts_with(&expected) => respond(answer),
        Some((expected, _)) => unexpected(format!("expected `{expected}`, got `{line}`")),
        None => unexpected(format!("nothing expected, got `{line}`")),
    }
}

fn respond(answer: FakeAnswer) -> Response {
    let chunk = |text: &'static str| Ok::<_, io::Error>(Bytes::from_static(text.as_bytes()));
    let broken = || io::Error::other("broken on purpose");
    match answer {
        FakeAnswer::Json(code, body) => {
            (axum::http::StatusCode::from_u16(code).unwrap(), axum::Json(body)).into_response()
        }
        FakeAnswer::Warned(body, warning) => {
            (axum::http::StatusCode::CREATED, [("warning", warning)], axum::Json(body)).into_response()
        }
        FakeAnswer::Stream(chunks) => {
            Response::new(Body::from_stream(stream::iter(chunks.into_iter().map(chunk))))
        }
        FakeAnswer::OpenStream(chunks) => {
            let chunks = chunks.into_iter().map(|text| Ok::<_, io::Error>(Bytes::from(text)));
            Response::new(Body::from_stream(stream::iter(chunks).chain(stream::pending())))
        }
        FakeAnswer::Log { attempt, chunks, breaks } => {
            // The chunks leave the buffer while the break is awaited.
            let end = stream::once(async move {
                tokio::task::yield_now().await;
                breaks.then(|| Err(broken()))
            });
            let end = end.filter_map(std::future::ready);
            let chunks = stream::iter(chunks.into_iter().map(chunk));
            let mut response = Response::new(Body::from_stream(chunks.chain(end)));
            let (number, fence) = attempt.split_once(' ').unwrap();
            response.headers_mut().insert("meridian-attempt-number", number.parse().unwrap());
            response.headers_mut().insert("meridian-attempt", fence.parse().unwrap());
            response
        }
        FakeAnswer::Break => Response::new(Body::from_stream(stream::iter([chunk("{"), Err(broken())]))),
    }
}
