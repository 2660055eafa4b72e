//! A manager for tests: scripted answers behind a real socket, and what was asked of it.

use crate::kubeconfig::Access;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// One request as the fake saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// `GET /api/v1/namespaces?limit=500`
    pub(crate) line: String,
    /// The `authorization` header.
    pub(crate) authorization: String,
    /// The HTTP version.
    pub(crate) version: String,
    /// The body.
    pub(crate) body: String,
}

/// One answer of the script.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// A status and a JSON body.
    Json(u16, serde_json::Value),
    /// An object that was made, and a `warning` header.
    Warned(serde_json::Value, &'static str),
    /// A stream's pieces; then it ends.
    Stream(Vec<&'static str>),
    /// A stream's pieces; then it stays open.
    OpenStream(Vec<String>),
    /// The output of an attempt; whether it is all, or the connection breaks then.
    Log(&'static str, Vec<&'static str>, bool),
    /// The connection breaks in the middle of the answer.
    Break,
}

#[derive(Debug, Default)]
struct Script {
    asked: Mutex<Vec<Asked>>,
    answers: Mutex<VecDeque<(String, Answer)>>,
}

/// The fake. Every request must begin with what the script says is next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fake(Arc<Script>);

impl Fake {
    /// A fake that expects these requests, in this order.
    pub(crate) fn new(script: impl IntoIterator<Item = (&'static str, Answer)>) -> Self {
        let fake = Self::default();
        fake.0
            .answers
            .lock()
            .unwrap()
            .extend(script.into_iter().map(|(line, answer)| (line.to_owned(), answer)));
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

    /// The router, for a listener of the caller's.
    pub(crate) fn router(&self) -> Router {
        Router::new().fallback(answer).with_state(self.clone())
    }

    /// Every request so far; the script must be used up.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        let left = self.0.answers.lock().unwrap();
        assert!(left.is_empty(), "never asked: {left:?}");
        self.0.asked.lock().unwrap().clone()
    }
}

async fn answer(State(fake): State<Fake>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let mut asked = Asked {
        line: format!("{} {}", parts.method, parts.uri.path_and_query().unwrap()),
        authorization: parts
            .headers
            .get("authorization")
            .map(|value| value.to_str().unwrap().to_owned())
            .unwrap_or_default(),
        version: format!("{:?}", parts.version),
        body: String::new(),
    };
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    asked.body = String::from_utf8(body.to_vec()).unwrap();
    let next = fake.0.answers.lock().unwrap().pop_front();
    let line = asked.line.clone();
    fake.0.asked.lock().unwrap().push(asked);
    match next {
        Some((expected, answer)) if line.starts_with(&expected) => respond(answer),
        Some((expected, _)) => {
            (axum::http::StatusCode::IM_A_TEAPOT, format!("expected `{expected}`, got `{line}`"))
                .into_response()
        }
        None => {
            (axum::http::StatusCode::IM_A_TEAPOT, format!("nothing expected, got `{line}`")).into_response()
        }
    }
}

fn respond(answer: Answer) -> Response {
    match answer {
        Answer::Json(code, body) => {
            (axum::http::StatusCode::from_u16(code).unwrap(), axum::Json(body)).into_response()
        }
        Answer::Warned(body, warning) => {
            (axum::http::StatusCode::CREATED, [("warning", warning)], axum::Json(body)).into_response()
        }
        Answer::Stream(pieces) => {
            let pieces =
                pieces.into_iter().map(|piece| Ok::<_, std::io::Error>(Bytes::from_static(piece.as_bytes())));
            Response::new(Body::from_stream(futures::stream::iter(pieces)))
        }
        Answer::OpenStream(pieces) => {
            let pieces = pieces.into_iter().map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece)));
            Response::new(Body::from_stream(futures::StreamExt::chain(
                futures::stream::iter(pieces),
                futures::stream::pending(),
            )))
        }
        Answer::Log(attempt, pieces, whole) => {
            let pieces = futures::stream::iter(
                pieces.into_iter().map(|piece| Ok(Bytes::from_static(piece.as_bytes()))),
            );
            // what was sent before goes out while the break is waited for
            let end = futures::stream::once(async move {
                tokio::task::yield_now().await;
                (!whole).then(|| Err(std::io::Error::other("broken on purpose")))
            });
            let end = futures::StreamExt::filter_map(end, std::future::ready);
            let mut response = Response::new(Body::from_stream(futures::StreamExt::chain(pieces, end)));
            response.headers_mut().insert("meridian-attempt", attempt.parse().unwrap());
            response
        }
        Answer::Break => {
            let pieces = [Ok(Bytes::from_static(b"{")), Err(std::io::Error::other("broken on purpose"))];
            Response::new(Body::from_stream(futures::stream::iter(pieces)))
        }
    }
}
