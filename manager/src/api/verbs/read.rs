//! The verbs `get` and `list`.

use crate::api::access::User;
use crate::api::lists::List;
use crate::api::pages::PageStart;
use crate::api::request::accept::ResponseFormat;
use crate::api::request::query::{Options, VersionMatch};
use crate::api::request::resource_path::ResourcePath;
use crate::api::response::error::Error;
use crate::api::response::rendered::RenderedObject;
use crate::api::response::table::{self, Include};
use crate::api::state::Api;
use crate::engine::{Listing, Reads};
use axum::Json;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use meridian_shared::ids::RecordNumber;
use serde_json::json;
use std::sync::Arc;

/// One object. Fails if it doesn't exist, or if the client asks for a version that doesn't exist yet.
pub(crate) fn get(
    api: &Api,
    user: &User,
    target: &ResourcePath,
    name: &str,
    options: &Options,
    form: ResponseFormat,
) -> Result<Response, Error> {
    not_ahead(api, options)?;
    let view = api
        .handle
        .reads()
        .get(&target.key(name, options.scope.as_ref()), &user.asker())
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

/// All selected objects, or a page of them.
pub(crate) async fn list(
    api: &Api,
    user: &User,
    target: &ResourcePath,
    options: Options,
    form: ResponseFormat,
) -> Result<Response, Error> {
    not_ahead(api, &options)?;
    let form = (form, include(&options)?);
    let scope = options.scope.as_ref();
    // version and format of the answer aren't part of the key, because they don't change which objects are
    // selected
    let query_key = format!("{:?} {:?} {scope:?} {:?}", target.kind, target.namespace, options.selector);
    let (start, share) = match &options.token {
        Some(token) => {
            let start = api.pages.next(&query_key, token)?;
            let share = api.lists.admit(&user.name, start.listing.len())?;
            (start, share)
        }
        None => {
            let listing = Arc::new(snapshot(api, target, &options).await?);
            let version = listing.version();
            if options.version_match == Some(VersionMatch::Exact) && options.version != Some(version) {
                return Err(Error::Expired(format!(
                    "The provided resource version is unavailable: {}, newest: {version}",
                    options.version.unwrap_or_default()
                )));
            }
            let share = api.lists.admit(&user.name, listing.len())?;
            let start = if options.limit.is_some_and(|limit| limit < listing.len()) {
                api.pages.keep(&user.name, &query_key, listing)
            } else {
                PageStart { listing, at: 0, id: 0 }
            };
            (start, share)
        }
    };
    let list = List::new(start, target, &options, form, share, user.asker());
    api.lists.answer(&user.name, list, &api.handle.metrics().api).await
}

/// The objects to select from. Few listings are created at once, on blocking threads, because a long listing
/// copies many references.
pub(crate) async fn snapshot(api: &Api, target: &ResourcePath, options: &Options) -> Result<Listing, Error> {
    let _permit = api.lists.snapshot_permit().await;
    let (reads, target, options) = (api.handle.reads().clone(), target.clone(), options.clone());
    let taking = tokio::task::spawn_blocking(move || listed(&reads, &target, &options));
    taking.await.map_err(|error| Error::Internal(format!("a list could not be made: {error}")))
}

/// The objects to select from. If the query names one object, reads only that.
fn listed(reads: &Reads, target: &ResourcePath, options: &Options) -> Listing {
    let scope = options.scope.as_ref();
    let placed = !target.kind.namespaced() || target.namespace.is_some();
    match options.selector.name() {
        Some(name) if placed => reads.listing_of(&target.key(name, scope)),
        _ => reads.listing(target.kind, target.namespace.as_deref(), scope),
    }
}

/// Fails if the requested version doesn't exist yet, as after a request to another manager.
fn not_ahead(api: &Api, options: &Options) -> Result<(), Error> {
    let current = api.handle.reads().version();
    match options.version {
        Some(RecordNumber(asked)) if asked > current.0 => Err(Error::FutureVersion { asked, current }),
        _ => Ok(()),
    }
}

/// Content of table rows. Fails on an unknown value.
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
