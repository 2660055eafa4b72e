//! The verbs `get` and `list`.

use super::pages::Page;
use crate::api::request::accept::ResponseFormat;
use crate::api::request::query::{Options, VersionMatch};
use crate::api::request::resource_path::ResourcePath;
use crate::api::response::error::Error;
use crate::api::response::json_bytes;
use crate::api::response::rendered::RenderedObject;
use crate::api::response::table::{self, Include};
use crate::api::state::Api;
use crate::engine::{Reads, View};
use axum::Json;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use meridian_shared::ids::RecordNumber;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// One object. Fails if it doesn't exist, or if the client asks for a version that doesn't exist yet.
pub(crate) fn get(
    api: &Api,
    target: &ResourcePath,
    name: &str,
    options: &Options,
    form: ResponseFormat,
) -> Result<Response, Error> {
    not_ahead(api, options)?;
    let view = api
        .handle
        .reads()
        .get(&target.key(name, options.scope.as_ref()))
        .ok_or_else(|| Error::NotFound(target.subject()))?;
    let shown = RenderedObject::new(&view, target.version);
    Ok(match form {
        ResponseFormat::Json => Json(shown).into_response(),
        ResponseFormat::Table => {
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

/// All selected objects, or a page of them. Runs on a blocking thread, because views of jobs are rendered
/// here.
pub(crate) async fn list(
    api: &Api,
    target: &ResourcePath,
    options: Options,
    form: ResponseFormat,
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

fn page(api: &Api, target: &ResourcePath, options: &Options) -> Result<Page, Error> {
    let scope = options.scope.as_ref();
    // the version or the format of the answer is not part of the query: it selects the same objects
    let query_key = format!("{:?} {:?} {scope:?} {:?}", target.kind, target.namespace, options.selector);
    if let Some(token) = &options.token {
        return api.pages.next(&query_key, token, options.limit);
    }
    let (mut views, version) = listed(api.handle.reads(), target, options);
    if options.version_match == Some(VersionMatch::Exact) && options.version != Some(version) {
        return Err(Error::Expired(format!(
            "The provided resource version is unavailable: {}, newest: {version}",
            options.version.unwrap_or_default()
        )));
    }
    views.retain(|view| options.selector.selects(&view.key, &view.value));
    Ok(api.pages.first(&query_key, views, version, options.limit))
}

/// The objects to select from, and their version. One object that is named is read directly.
pub(crate) fn listed(
    reads: &Reads,
    target: &ResourcePath,
    options: &Options,
) -> (Vec<Arc<View>>, RecordNumber) {
    let scope = options.scope.as_ref();
    let placed = !target.kind.namespaced() || target.namespace.is_some();
    match options.selector.name() {
        Some(name) if placed => {
            // read the version first: a newer object then only appears once more in a watch
            let version = reads.version();
            (reads.get(&target.key(name, scope)).into_iter().collect(), version)
        }
        _ => reads.list(target.kind, target.namespace.as_deref(), scope),
    }
}

#[derive(Serialize)]
struct List<'v> {
    kind: String,
    #[serde(rename = "apiVersion")]
    api_version: String,
    metadata: Value,
    items: Vec<RenderedObject<'v>>,
}

fn write(target: &ResourcePath, page: &Page, form: ResponseFormat, include: Include) -> Vec<u8> {
    let mut metadata = json!({"resourceVersion": page.version.to_string()});
    if let Some(token) = &page.token {
        metadata["continue"] = json!(token);
        metadata["remainingItemCount"] = json!(page.remaining);
    }
    let shown = page.views.iter().map(|view| RenderedObject::new(view, target.version));
    let written = match form {
        ResponseFormat::Json => {
            let list = List {
                kind: format!("{}List", target.kind.name()),
                api_version: target.api_version(),
                metadata,
                items: shown.collect(),
            };
            serde_json::to_vec(&list)
        }
        ResponseFormat::Table => {
            let rows: Vec<(&Value, RenderedObject<'_>)> =
                page.views.iter().map(|view| &*view.value).zip(shown).collect();
            serde_json::to_vec(&table::table(target.kind, &rows, metadata, include, Timestamp::now()))
        }
    };
    written.expect("objects have text keys and plain values")
}

/// Fails if the requested version doesn't exist yet. Another manager may have shown it.
fn not_ahead(api: &Api, options: &Options) -> Result<(), Error> {
    let current = api.handle.reads().version();
    match options.version {
        Some(RecordNumber(asked)) if asked > current.0 => Err(Error::FutureVersion { asked, current }),
        _ => Ok(()),
    }
}

/// What rows of a table include. Fails on an unknown value.
pub(crate) fn include(options: &Options) -> Result<Include, Error> {
    match options.include.as_deref() {
        None | Some("" | "Metadata") => Ok(Include::Metadata),
        Some("None") => Ok(Include::None),
        Some("Object") => Ok(Include::Object),
        Some(other) => Err(Error::BadRequest(format!(
            "includeObject: Unsupported value: \"{other}\": supported values: `None`, `Metadata`, `Object`"
        ))),
    }
}
