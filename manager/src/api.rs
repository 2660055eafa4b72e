//! The API that people and programs speak to: the Kubernetes API conventions for every kind of the table, and Meridian's
//! own endpoints beside them. See `docs/api.md`.
//!
//! What it owns: HTTP. It turns requests into one input for the engine, and committed views into answers. What it must not
//! know: how anything is decided, and the journal beyond the audit log's lines.
//!
//! | room | owns |
//! |---|---|
//! | `target`, `query`, `form`, `body`, `selector` | what a request says |
//! | `access` | who may do what |
//! | `read`, `watch`, `write`, `pages`, `naming` | the verbs |
//! | `show`, `table`, `warning`, `error`, `discovery` | what an answer looks like |
//! | `meridian` | what Kubernetes has no place for |
//!
//! Invariants:
//! - Nothing is answered to anybody unknown, and every write carries its user.
//! - An answer to a write is given after its commit; readers see committed state only.
//! - Bodies, answers in flight, watches and kept lists are bounded.

mod access;
mod activity;
mod body;
mod discovery;
mod error;
mod form;
mod meridian;
mod metering;
mod naming;
mod pages;
mod query;
mod read;
mod selector;
mod show;
mod table;
mod target;
#[cfg(test)]
mod tests;
mod warning;
mod watch;
mod write;

pub use meridian::logs::{LogBytes, Logs};

use crate::auth::{User, Users};
use crate::engine::Handle;
use access::Verb;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::header::ALLOW;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use axum::{Extension, Json, Router};
use error::Error;
use form::Form;
use meridian_manager_core::facts::input::Input;
use meridian_manager_core::facts::outcome::Reply;
use meridian_shared::identity::CaPin;
use metering::Label;
use pages::Pages;
use query::Options;
use serde_json::Value;
use std::num::NonZero;
use std::sync::Arc;
use target::Target;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate};

/// Requests in work at once; streams count until they begin. Each may hold a body of many megabytes.
const REQUESTS_MAX: usize = 512;
/// Answers shorter than this are sent as they are, as Kubernetes does.
const COMPRESSED_FROM_BYTES: u64 = 128 * 1024;

/// How the manager is reached from outside, for the commands that it prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Front {
    /// `https://HOST:PORT`.
    pub url: String,
    /// What agents pin.
    pub ca_pin: CaPin,
}

/// What the API works with.
pub struct Parts {
    /// The engine.
    pub engine: Handle,
    /// Who may call.
    pub users: Arc<Users>,
    /// Where logs come from.
    pub logs: Arc<dyn Logs>,
    /// How we are reached.
    pub front: Front,
    /// Ends watches and logs, which would go on for ever.
    pub stop: CancellationToken,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("front", &self.front).finish_non_exhaustive()
    }
}

/// What the handlers share.
#[derive(Clone)]
pub(crate) struct Api {
    handle: Handle,
    users: Arc<Users>,
    logs: Arc<dyn Logs>,
    front: Arc<Front>,
    stop: CancellationToken,
    pages: Arc<Pages>,
    kept: Arc<meridian::Kept>,
    watches: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    readers: Arc<Semaphore>,
}

impl Api {
    /// Whose turn it is to read many objects. More of them at once than there are cores would only hold more memory, as trees and
    /// in threads of their own, and take the engine's time: pages that nobody has touched yet cost more than reading does.
    async fn turn_to_read(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.readers).acquire_owned().await.expect("nobody closes it")
    }

    /// Asks the engine.
    async fn ask(&self, input: Input) -> Result<Reply, Error> {
        self.handle.ask(input).await.map_err(|why| Error::Unavailable(why.to_string()))
    }
}

/// The API as a router. Everything that nobody else serves is answered by it, so it is merged with routers without a
/// fallback of their own.
pub fn router(parts: Parts) -> Router {
    let Parts { engine, users, logs, front, stop } = parts;
    let api = Api {
        handle: engine,
        users,
        logs,
        front: Arc::new(front),
        stop,
        pages: Arc::default(),
        kept: Arc::default(),
        watches: Arc::new(Semaphore::new(watch::WATCHES_MAX)),
        requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
        readers: Arc::new(Semaphore::new(std::thread::available_parallelism().map_or(1, NonZero::get))),
    };
    let document =
        |method: MethodRouter<Api>| method.fallback(|method, uri| method_not_allowed(method, uri, &["GET"]));
    Router::new()
        .route("/version", document(get(|| discovered(Some(discovery::version())))))
        .route("/api", document(get(|| discovered(Some(discovery::core_versions())))))
        .route("/apis", document(get(|| discovered(Some(discovery::groups())))))
        .route(
            "/api/{version}",
            document(get(|Path(version): Path<String>| discovered(discovery::resources("", &version)))),
        )
        .route(
            "/apis/{group}",
            document(get(|Path(group): Path<String>| discovered(discovery::group(&group)))),
        )
        .route(
            "/apis/{group}/{version}",
            document(get(|Path((group, version)): Path<(String, String)>| {
                discovered(discovery::resources(&group, &version))
            })),
        )
        .merge(meridian::router())
        .fallback(objects)
        // Metrics are many megabytes, and would be compressed on a thread that syncs need.
        .layer(
            CompressionLayer::new()
                .gzip(true)
                .compress_when(Large.and(NotForContentType::const_new("text/plain"))),
        )
        .layer(CatchPanicLayer::custom(|_| {
            Error::Internal("the request met a bug of this manager; its log has more".to_owned())
                .into_response()
        }))
        .layer(middleware::from_fn_with_state(api.clone(), guard))
        .layer(middleware::from_fn_with_state(api.clone(), metering::meter))
        .with_state(api)
}

/// Lets known users in, and only so many requests at once.
async fn guard(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    let user = match access::identify(&api.users, request.headers()) {
        Ok(user) => user,
        Err(error) => return error.into_response(),
    };
    let Ok(_permit) = api.requests.clone().try_acquire_owned() else {
        return Error::Busy(format!("{REQUESTS_MAX} requests are being worked on")).into_response();
    };
    request.extensions_mut().insert(user);
    next.run(request).await
}

/// Answers of a known, large size: streams are never held back to be compressed.
#[derive(Clone, Copy, Debug)]
struct Large;

impl Predicate for Large {
    fn should_compress<B: axum::body::HttpBody>(&self, response: &axum::http::Response<B>) -> bool {
        response.body().size_hint().exact().is_some_and(|bytes| bytes >= COMPRESSED_FROM_BYTES)
    }
}

async fn discovered(document: Option<Value>) -> Result<Response, Error> {
    let label = Label { verb: "get", resource: "discovery", streams: false };
    let document = document.ok_or_else(|| {
        Error::Missing("no such group or version is served: `/api` and `/apis` list what is".to_owned())
    })?;
    Ok((Extension(label), Json(document)).into_response())
}

/// For a method that a path doesn't take; `OPTIONS` asks just that.
async fn method_not_allowed(method: Method, uri: Uri, allowed: &'static [&'static str]) -> Response {
    let mut allowed = allowed.to_vec();
    if allowed.contains(&"GET") {
        allowed.push("HEAD");
    }
    allowed.push("OPTIONS");
    if method == Method::OPTIONS {
        let value = HeaderValue::try_from(allowed.join(", ")).expect("methods are header text");
        return (StatusCode::NO_CONTENT, [(ALLOW, value)]).into_response();
    }
    Error::Method { method: method.to_string(), path: shown_path(&uri), allowed }.into_response()
}

fn shown_path(uri: &Uri) -> String {
    uri.path().chars().take(body::SHOWN_CHARS_MAX).collect()
}

/// Every request for objects of the table.
async fn objects(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let Some(target) = Target::parse(uri.path()) else {
        return Error::NoSuchPath(shown_path(&uri)).into_response();
    };
    let options = match Options::parse(&uri) {
        Ok(options) => Options { watch: options.watch && method != Method::HEAD, ..options },
        Err(error) => return error.into_response(),
    };
    let verb = write::verb_of(&method, target.name.is_some(), options.watch);
    let known = verb.filter(|verb| {
        Verb::of(target.kind).contains(verb)
            && !(*verb == Verb::Create && target.kind.namespaced() && target.namespace.is_none())
    });
    let Some(verb) = known else { return method_not_allowed(method, uri, methods(&target)).await };
    let label = Label { verb: verb.word(), resource: target.kind.plural(), streams: verb == Verb::Watch };
    let answer = perform(&api, &user, verb, &target, options, &headers, body).await;
    (Extension(label), answer).into_response()
}

fn methods(target: &Target) -> &'static [&'static str] {
    let creates = !target.kind.namespaced() || target.namespace.is_some();
    match (target.kind.writable(), target.name.is_some()) {
        (true, true) => &["GET", "PUT", "PATCH", "DELETE"],
        (true, false) if creates => &["GET", "POST"],
        (false, true) => &["GET", "PUT", "PATCH"],
        _ => &["GET"],
    }
}

async fn perform(
    api: &Api,
    user: &User,
    verb: Verb,
    target: &Target,
    options: Options,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    access::object(user, verb, target.kind, options.scope.is_some())?;
    let form = Form::wanted(headers)?;
    let request = write::Request { api, user, target, options: &options, headers };
    match (verb, target.name.as_deref()) {
        (Verb::Watch, _) => watch::watch(api, target, options, form),
        (Verb::Get, Some(name)) => read::get(api, target, name, &options, form),
        (Verb::Create, None) => request.create(body).await,
        (Verb::Update, Some(name)) => request.replace(name, body).await,
        (Verb::Patch, Some(name)) => request.patch(name, body).await,
        (Verb::Delete, Some(name)) => request.delete(name, body).await,
        (Verb::List, None) => read::list(api, target, options, form).await,
        // the verb was made from whether there is a name
        (Verb::Get | Verb::Update | Verb::Patch | Verb::Delete, None)
        | (Verb::List | Verb::Create, Some(_)) => {
            Err(Error::Internal(format!("`{}` was asked of the wrong path", verb.word())))
        }
    }
}
