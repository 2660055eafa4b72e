//! The API for users and programs: the Kubernetes API conventions for every kind of the table, and Meridian's
//! own endpoints. See `docs/api.md`.
//!
//! This module owns HTTP: it turns requests into one input for the engine, and committed views into answers.
//! It must not know how anything is decided, nor the journal beyond the audit log's lines.
//!
//! | module | owns |
//! |---|---|
//! | `request` | parsing of requests |
//! | `access` | permissions of users |
//! | `verbs` | reads, watches and writes of objects |
//! | `response`, `discovery` | formats of answers |
//! | `meridian` | endpoints outside the Kubernetes conventions |
//! | `reviews` | questions about permissions (`SelfSubjectAccessReview` and others) |
//! | `logs` | the source of jobs' logs |
//! | `internal` | the API for controllers in this process |
//! | `admission` | the webhook that a management cluster's API server calls before it stores a job |
//! | `callers` | each caller's share of resources that all callers use together |
//! | `lists`, `pages` | long lists in pieces, and lists that are kept for their next page |
//! | `idempotency` | recent answers by idempotency key |
//! | `requests` | the shares of requests in progress and of their bodies |
//! | `state`, `metering` | state that the handlers share, and counts of requests |
//!
//! Invariants:
//! - Unknown users get no answer, and every write carries its user.
//! - A write is answered after its commit. Readers see committed state only.
//! - Bodies, requests in work, watches and cached lists are bounded.

mod access;
mod admission;
mod callers;
mod discovery;
mod front;
mod idempotency;
mod internal;
mod lists;
mod logs;
mod meridian;
mod metering;
mod pages;
mod request;
mod requests;
mod response;
mod reviews;
mod state;
#[cfg(test)]
mod tests;
mod verbs;

pub(crate) use access::shipped;
pub use admission::{ADMISSION_PATH, admission_router};
pub use front::Front;
pub use internal::InternalApi;
pub use lists::ListLimits;
pub use logs::{LogBytes, Logs};

use crate::audit::AuditFiles;
use crate::auth::TokenStore;
use crate::bounded_body;
use crate::engine::Handle;
use crate::tls::ConnectionClass;
use access::{ObjectAccess, User, Verb};
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, Method, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use axum::{Extension, Json, Router};
use lists::LongList;
use metering::Label;
use request::accept::ResponseFormat;
use request::query::Options;
use request::resource_path::ResourcePath;
use response::error::{Error, echoed_path, method_not_allowed};
use serde_json::Value;
use state::Api;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate};
use verbs::{read, watch, write};

/// Smaller answers are not compressed, as in Kubernetes.
const COMPRESSED_FROM_BYTES: u64 = 128 * 1024;

/// Parts of the manager that the API uses.
pub struct ApiParts {
    pub engine: Handle,
    pub users: TokenStore,
    pub logs: Arc<dyn Logs>,
    pub front: Front,
    /// Ends watches and logs, which would otherwise never end.
    pub stop: CancellationToken,
    pub lists: ListLimits,
    pub audit: AuditFiles,
}

impl std::fmt::Debug for ApiParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiParts").field("front", &self.front).finish_non_exhaustive()
    }
}

/// The API as a router. It has a fallback for all other paths, so merge it only with routers without a
/// fallback.
pub fn router(parts: ApiParts) -> Router {
    let ApiParts { engine, users, logs, front, stop, lists, audit } = parts;
    let api = Api::new(engine, users, logs, front, stop, lists, audit);
    let document =
        |method: MethodRouter<Api>| method.fallback(|method, uri| method_not_allowed(method, uri, ["GET"]));
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
        .merge(reviews::router())
        .merge(meridian::router())
        .fallback(objects)
        // don't compress metrics: they are many megabytes, and compression would occupy a thread that syncs
        // need
        .layer(
            CompressionLayer::new()
                .gzip(true)
                .compress_when(Large.and(NotForContentType::const_new("text/plain"))),
        )
        .layer(CatchPanicLayer::custom(|_| {
            Error::Internal("internal error: the request met a bug of this manager; see its log".to_owned())
                .into_response()
        }))
        .layer(middleware::from_fn_with_state(api.clone(), guard))
        .layer(middleware::from_fn(bounded_body::drain_if_refused))
        .layer(middleware::from_fn_with_state(api.clone(), metering::meter))
        .with_state(api)
}

/// Admits known users, each with its share of the requests in progress.
async fn guard(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    let is_internal = request.extensions().get::<internal::ManagementCluster>().is_some();
    let user = match is_internal {
        true => Ok(api.authority.management_cluster()),
        false => api.authority.authenticate(request.headers()),
    };
    let user = match user {
        Ok(user) => user,
        Err(error) => return error.into_response(),
    };
    // only tests make requests without a connection, and so without this extension
    if request.extensions().get::<ConnectionClass>().is_some_and(|class| !class.authenticate()) {
        return Error::Busy("too many connections of users are open: close some and try again".to_owned())
            .into_response();
    }
    let _admitted = match api.requests.admit(&user, &request) {
        Ok(admitted) => admitted,
        Err(error) => return error.into_response(),
    };
    request.extensions_mut().insert(user);
    next.run(request).await
}

/// Selects the answers to compress: those of a known, large size, and long lists. Other streams aren't
/// compressed, because that would delay them.
#[derive(Clone, Copy, Debug)]
struct Large;

impl Predicate for Large {
    fn should_compress<B: axum::body::HttpBody>(&self, response: &axum::http::Response<B>) -> bool {
        response.extensions().get::<LongList>().is_some()
            || response.body().size_hint().exact().is_some_and(|bytes| bytes >= COMPRESSED_FROM_BYTES)
    }
}

async fn discovered(document: Option<Value>) -> Result<Response, Error> {
    let label = Label { verb: "get", resource: "discovery", streams: false };
    let document = document.ok_or_else(|| {
        Error::Missing("no such group or version: see `/api` and `/apis` for what is served".to_owned())
    })?;
    Ok((Extension(label), Json(document)).into_response())
}

/// Handles every request for objects of the table.
async fn objects(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let Some(target) = ResourcePath::parse(uri.path()) else {
        return Error::NoSuchPath(echoed_path(&uri)).into_response();
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
    let label = Label { verb: verb.name(), resource: target.kind.plural(), streams: verb == Verb::Watch };
    let answer = perform(&api, &user, verb, &target, options, &headers, body).await;
    (Extension(label), answer).into_response()
}

fn methods(target: &ResourcePath) -> &'static [&'static str] {
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
    target: &ResourcePath,
    options: Options,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    let access = ObjectAccess::of_request(verb, target, &options);
    user.check(&access.access())?;
    let form = ResponseFormat::from_headers(headers)?;
    let request = write::Request { api, user, target, options: &options, headers };
    match (verb, target.name.as_deref()) {
        (Verb::Watch, _) => watch::watch(api, user, access, target, options, form).await,
        (Verb::Get, Some(name)) => read::get(api, user, target, name, &options, form),
        (Verb::Create, None) => request.create(body).await,
        (Verb::Update, Some(name)) => request.replace(name, body).await,
        (Verb::Patch, Some(name)) => request.patch(name, body).await,
        (Verb::Delete, Some(name)) => request.delete(name, body).await,
        (Verb::List, None) => read::list(api, user, target, options, form).await,
        // can't happen: the verb was derived from the presence of a name
        (Verb::Get | Verb::Update | Verb::Patch | Verb::Delete, None)
        | (Verb::List | Verb::Create, Some(_)) => {
            Err(Error::Internal(format!("`{}` was asked of the wrong path", verb.name())))
        }
    }
}
