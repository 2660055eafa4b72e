//! `get` and `list`.

use super::Api;
use super::error::Error;
use super::form::Form;
use super::pages::Page;
use super::query::{Match, Options};
use super::show::Shown;
use super::table::{self, Include};
use super::target::Target;
use crate::engine::{Reads, View};
use axum::Json;
use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use meridian_shared::ids::RecordNumber;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// One object.
pub(crate) fn get(
    api: &Api,
    target: &Target,
    name: &str,
    options: &Options,
    form: Form,
) -> Result<Response, Error> {
    not_ahead(api, options)?;
    let view = api
        .handle
        .reads()
        .get(&target.key(name, options.scope.as_ref()))
        .ok_or_else(|| Error::NotFound(target.subject()))?;
    let shown = Shown::new(&view, target.version);
    Ok(match form {
        Form::Json => Json(shown).into_response(),
        Form::Table => {
            let metadata = json!({"resourceVersion": view.version.to_string()});
            Json(table::table(
                target.kind,
                &[(&view.value, shown)],
                metadata,
                include(options)?,
                Timestamp::now(),
            ))
            .into_response()
        }
    })
}

/// All selected objects, or a page of them. On a thread of its own, because views of jobs are put together here.
pub(crate) async fn list(
    api: &Api,
    target: &Target,
    options: Options,
    form: Form,
) -> Result<Response, Error> {
    not_ahead(api, &options)?;
    let include = include(&options)?;
    let (api, target) = (api.clone(), target.clone());
    let listing = tokio::task::spawn_blocking(move || {
        page(&api, &target, &options).map(|page| write(&target, &page, form, include))
    });
    let bytes =
        listing.await.map_err(|error| Error::Internal(format!("a list could not be made: {error}")))?;
    Ok(json_bytes(bytes?))
}

fn page(api: &Api, target: &Target, options: &Options) -> Result<Page, Error> {
    let scope = options.scope.as_ref();
    // the version or the form in which objects are shown makes no other list
    let question = format!("{:?} {:?} {scope:?} {:?}", target.kind, target.namespace, options.selector);
    if let Some(token) = &options.token {
        return api.pages.next(&question, token, options.limit);
    }
    let (mut views, version) = listed(api.handle.reads(), target, options);
    if options.version_match == Some(Match::Exact) && options.version != Some(version) {
        return Err(Error::Expired(format!(
            "lists of version {} are no longer kept, the newest is {version}",
            options.version.unwrap_or_default()
        )));
    }
    views.retain(|view| options.selector.selects(&view.key, &view.value));
    Ok(api.pages.first(&question, views, version, options.limit))
}

/// What may be selected, and the version of it. One named object is not looked for among all others.
pub(crate) fn listed(reads: &Reads, target: &Target, options: &Options) -> (Vec<Arc<View>>, RecordNumber) {
    let scope = options.scope.as_ref();
    let placed = !target.kind.namespaced() || target.namespace.is_some();
    match options.selector.name() {
        Some(name) if placed => {
            // the version first: a newer object is only told once more by a watch
            let version = reads.version();
            (reads.get(&target.key(name, scope)).into_iter().collect(), version)
        }
        _ => reads.list(target.kind, target.namespace.as_deref(), scope),
    }
}

/// An answer that is JSON already.
pub(crate) fn json_bytes(bytes: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(bytes));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[derive(Serialize)]
struct List<'v> {
    kind: String,
    #[serde(rename = "apiVersion")]
    api_version: String,
    metadata: Value,
    items: Vec<Shown<'v>>,
}

fn write(target: &Target, page: &Page, form: Form, include: Include) -> Vec<u8> {
    let mut metadata = json!({"resourceVersion": page.version.to_string()});
    if let Some(token) = &page.token {
        metadata["continue"] = json!(token);
        metadata["remainingItemCount"] = json!(page.remaining);
    }
    let shown = page.views.iter().map(|view| Shown::new(view, target.version));
    let written = match form {
        Form::Json => {
            let list = List {
                kind: format!("{}List", target.kind.name()),
                api_version: target.api_version(),
                metadata,
                items: shown.collect(),
            };
            serde_json::to_vec(&list)
        }
        Form::Table => {
            let rows: Vec<(&Value, Shown<'_>)> =
                page.views.iter().map(|view| &*view.value).zip(shown).collect();
            serde_json::to_vec(&table::table(target.kind, &rows, metadata, include, Timestamp::now()))
        }
    };
    written.expect("objects have text keys and plain values")
}

/// A version that isn't there yet can't be read; it may be that another manager showed it.
fn not_ahead(api: &Api, options: &Options) -> Result<(), Error> {
    let current = api.handle.reads().version();
    match options.version {
        Some(RecordNumber(asked)) if asked > current.0 => Err(Error::FutureVersion { asked, current }),
        _ => Ok(()),
    }
}

/// What rows of a table carry.
pub(crate) fn include(options: &Options) -> Result<Include, Error> {
    match options.include.as_deref() {
        None | Some("" | "Metadata") => Ok(Include::Metadata),
        Some("None") => Ok(Include::None),
        Some("Object") => Ok(Include::Object),
        Some(other) => Err(Error::BadRequest(format!(
            "`includeObject` is `{other}`; it can be `None`, `Metadata` or `Object`"
        ))),
    }
}
