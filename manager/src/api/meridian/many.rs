//! Many objects in one transaction: `apply`, and `bulk` for many new jobs with an idempotency key.

use crate::api::access::{User, grants};
use crate::api::idempotency::CachedResult;
use crate::api::request::body::{self, MANY_BYTES_MAX, OBJECT_BYTES_MAX};
use crate::api::request::query;
use crate::api::response::error::common_reason;
use crate::api::response::error::{Cause, Error};
use crate::api::response::json_bytes;
use crate::api::state::Api;
use crate::api::verbs::naming;
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use meridian_manager_core::facts::input::{Change, Input, PutMode, Write};
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::outcome::{Rejection, RejectionReason, Reply, Written};
use meridian_objects::job::CLUSTER_LABEL;
use meridian_objects::object::DEFAULT_NAMESPACE;
use meridian_objects::{FieldValidation, Kind, Object, last_applied};
use meridian_shared::counted::counted_with;
use meridian_shared::ids::ClusterName;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// Most objects in one request, equal to the core's limit for one transaction.
const OBJECTS_MAX: usize = 10_000;
/// Warnings in one answer.
const REMARKS_MAX: usize = 1_000;
/// Longest idempotency key, in characters.
const KEY_CHARS_MAX: usize = 128;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManyRequest {
    objects: Vec<Box<RawValue>>,
    #[serde(default)]
    cluster: Option<String>,
    #[serde(default)]
    dry_run: bool,
    /// Like the query parameter of the Kubernetes API.
    #[serde(default)]
    field_validation: Option<String>,
}

/// A request after parsing.
struct ParsedRequest {
    objects: Vec<Object>,
    remarks: Vec<String>,
    scope: Option<ClusterName>,
    dry_run: bool,
}

/// How the objects of one request are written.
#[derive(Clone)]
struct WriteOptions {
    scope: Option<ClusterName>,
    dry_run: bool,
    mode: PutMode,
}

pub(super) async fn apply(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    body::must_be_json(&headers)?;
    user.check_writes(Kind::ALL)?;
    let bytes = body::read(&headers, body, MANY_BYTES_MAX).await?;
    let permit = api.read_permit().await;
    let batch = parsed(bytes).await?;
    may_write(&api, &user, &batch)?;
    let unnamed = batch.objects.iter().enumerate().filter(|(_, object)| object.name.is_empty());
    let message = "Required value: with only a `generateName` every apply would create another object; set a \
                   name, or create the object";
    let causes = unnamed.map(|(i, _)| Cause {
        reason: "FieldValueInvalid",
        field: format!("objects[{i}].metadata.name"),
        message: message.to_owned(),
    });
    refuse(batch.objects.len(), RejectionReason::Invalid, causes.collect())?;
    let ParsedRequest { objects, remarks, scope, dry_run } = batch;
    let count = objects.len();
    let options = WriteOptions { scope, dry_run, mode: PutMode::Apply };
    let written = write(&api, &user, objects, permit, options)
        .await?
        .map_err(|rejections| rejected(count, &rejections, &user))?;
    Ok(json_bytes(answer(remarks, &written)))
}

pub(super) async fn bulk(
    State(api): State<Api>,
    Extension(user): Extension<User>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    body::must_be_json(&headers)?;
    let key = idempotency_key(&headers)?;
    user.check_writes(Kind::ALL.into_iter().filter(|kind| kind.is_job()))?;
    let bytes = body::read(&headers, body, MANY_BYTES_MAX).await?;
    let request = bytes.clone();
    let permit = api.read_permit().await;
    let batch = parsed(bytes).await?;
    if batch.scope.is_some() {
        return Err(Error::BadRequest(
            "cluster: not supported for bulk requests; jobs are dispatched by the manager".to_owned(),
        ));
    }
    // check even if the answer is cached, because the permission may have been revoked since
    may_write(&api, &user, &batch)?;
    match key.as_ref().and_then(|key| api.idempotency.find(&user.name, key, &request)) {
        Some(CachedResult::SameRequest(answer)) => return Ok(json_bytes(answer.to_vec())),
        Some(CachedResult::OtherRequest) => {
            return Err(Error::Conflict(
                "the `Idempotency-Key` was used with another body before: use a new key for every new request"
                    .to_owned(),
            ));
        }
        None => {}
    }
    let others = batch.objects.iter().enumerate().filter(|(_, object)| !object.kind.is_job());
    let causes = others.map(|(i, object)| Cause {
        reason: "FieldValueInvalid",
        field: format!("objects[{i}].kind"),
        message: format!(
            "Unsupported value: \"{}\": bulk takes jobs only; use `apply` for the rest",
            object.kind
        ),
    });
    refuse(batch.objects.len(), RejectionReason::Invalid, causes.collect())?;
    let ParsedRequest { mut objects, remarks, dry_run, .. } = batch;
    let count = objects.len();
    let written = match &key {
        Some(key) => {
            for (index, object) in objects.iter_mut().enumerate() {
                naming::keyed(object, &user.name, key, index);
            }
            // a repetition finds the jobs that the first request created, which counts as success
            let options = WriteOptions { scope: None, dry_run, mode: PutMode::Apply };
            write(&api, &user, objects, permit, options).await?
        }
        None => create_all(&api, &user, objects, permit, dry_run, &request).await?,
    };
    let written = written.map_err(|rejections| rejected(count, &rejections, &user))?;
    let bytes = answer(remarks, &written);
    if let Some(key) = key.filter(|_| !dry_run) {
        api.idempotency.insert(&user.name, &key, &request, Bytes::from(bytes.clone()));
    }
    Ok(json_bytes(bytes))
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Error> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let text = key.to_str().unwrap_or_default();
    if text.is_empty() || text.len() > KEY_CHARS_MAX {
        return Err(Error::BadRequest(format!(
            "`Idempotency-Key` must be 1 to {KEY_CHARS_MAX} visible characters"
        )));
    }
    Ok(Some(text.to_owned()))
}

/// Creates all objects. Replaces generated names that are taken by others. A write consumes the objects, so
/// another try parses the request again.
async fn create_all(
    api: &Api,
    user: &User,
    mut objects: Vec<Object>,
    mut permit: OwnedSemaphorePermit,
    dry_run: bool,
    request: &Bytes,
) -> Result<Result<Vec<Written>, Vec<Rejection>>, Error> {
    let options = WriteOptions { scope: None, dry_run, mode: PutMode::Create };
    let unnamed: Vec<bool> = objects.iter().map(|object| object.name.is_empty()).collect();
    let mut made: Vec<Option<String>> = vec![None; objects.len()];
    let name_of = |object: &Object| (object.namespace.clone(), object.name.clone());
    let mut taken: BTreeSet<_> = objects.iter().map(name_of).collect();
    let mut tries = 1;
    loop {
        for (index, object) in objects.iter_mut().enumerate().filter(|(index, _)| unnamed[*index]) {
            let name = made[index].get_or_insert_with(|| fresh_name(object, &mut taken));
            object.set_name(name);
        }
        let outcome = write(api, user, objects, permit, options.clone()).await?;
        let Err(rejections) = &outcome else { return Ok(outcome) };
        let only_names =
            rejections.iter().all(|r| r.reason == RejectionReason::AlreadyExists && unnamed[r.index]);
        if !only_names || tries == naming::TRIES {
            return Ok(outcome);
        }
        tries += 1;
        rejections.iter().for_each(|rejection| made[rejection.index] = None);
        permit = api.read_permit().await;
        objects = parsed(request.clone()).await?.objects;
    }
}

/// A random name that no other object of the request has.
fn fresh_name(object: &Object, taken: &mut BTreeSet<(Option<String>, String)>) -> String {
    loop {
        let name = naming::random_for(object);
        if taken.insert((object.namespace.clone(), name.clone())) {
            return name;
        }
    }
}

/// Parses a body on a blocking thread: ten thousand objects take a while.
async fn parsed(bytes: Bytes) -> Result<ParsedRequest, Error> {
    let reading = tokio::task::spawn_blocking(move || parse(&bytes));
    reading.await.map_err(|error| Error::Internal(format!("the body could not be read: {error}")))?
}

fn parse(bytes: &[u8]) -> Result<ParsedRequest, Error> {
    let request: ManyRequest = body::json(bytes)?;
    let count = request.objects.len();
    if count == 0 || count > OBJECTS_MAX {
        return Err(Error::BadRequest(format!("objects: has {count} items: must have 1 to {OBJECTS_MAX}")));
    }
    let mut batch = ParsedRequest {
        objects: Vec::with_capacity(count),
        remarks: Vec::new(),
        scope: request.cluster.filter(|cluster| !cluster.is_empty()).map(ClusterName::new),
        dry_run: request.dry_run,
    };
    let validation = query::field_validation(request.field_validation.as_deref().unwrap_or_default())?;
    let mut causes = Vec::new();
    for (index, raw) in request.objects.iter().enumerate() {
        match object(index, raw.get(), batch.scope.as_ref(), validation, &mut batch.remarks) {
            Ok(object) => batch.objects.push(object),
            Err(found) => causes.extend(found),
        }
    }
    refuse(count, RejectionReason::Invalid, causes)?;
    Ok(batch)
}

/// The only object of a body. Fails if it isn't a valid object.
pub(super) fn one_object(bytes: &[u8]) -> Result<Object, Error> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Error::BadRequest(format!("the body can't be read: {error}")))?;
    object(0, text, None, FieldValidation::default(), &mut Vec::new()).or_else(|causes| {
        refuse(1, RejectionReason::Invalid, causes)
            .and(Err(Error::BadRequest("the body is not an object".to_owned())))
    })
}

fn object(
    index: usize,
    text: &str,
    scope: Option<&ClusterName>,
    validation: FieldValidation,
    remarks: &mut Vec<String>,
) -> Result<Object, Vec<Cause>> {
    let at = format!("objects[{index}]");
    let wrong_at = |field: &str, message: String| {
        vec![Cause { reason: "FieldValueInvalid", field: format!("{at}{field}"), message }]
    };
    let wrong = |message: String| wrong_at("", message);
    if text.len() > OBJECT_BYTES_MAX {
        return Err(wrong(format!("has more than {OBJECT_BYTES_MAX} bytes")));
    }
    let mut value: Value =
        serde_json::from_str(text).map_err(|error| wrong(format!("can't be read: {error}")))?;
    // remove fields that only the manager writes, as in a file from `get -o yaml`
    body::take_precondition(&mut value).map_err(|error| wrong(error.to_string()))?;
    if let Some(cluster) = body::take_cluster_label(&mut value, scope) {
        let remedy = format!("apply it with `--cluster {cluster}`, or remove the label");
        return Err(wrong_at(
            &format!(".metadata.labels[{CLUSTER_LABEL}]"),
            format!("the label says that the object belongs to cluster `{cluster}`: {remedy}"),
        ));
    }
    let (mut object, warnings) = Object::validated(value, validation)
        .map_err(|errors| errors.iter().map(|error| Cause::of_field(&at, error)).collect::<Vec<_>>())?;
    if object.kind.namespaced() && object.namespace.is_none() {
        object.set_namespace(DEFAULT_NAMESPACE);
    }
    if !object.kind.is_job() {
        last_applied::record(&mut object);
    }
    let title = object.title();
    remarks.extend(warnings.iter().map(|warning| format!("{title}: {warning}")));
    Ok(object)
}

/// Fails unless the user may write every object.
fn may_write(api: &Api, user: &User, batch: &ParsedRequest) -> Result<(), Error> {
    for object in &batch.objects {
        let key = Key {
            scope: batch.scope.clone(),
            kind: object.kind,
            namespace: object.namespace_or_default().map(Arc::from),
            name: Arc::from(object.name.as_str()),
        };
        let exists = !object.kind.is_job() && !api.handle.reads().listing_of(&key).is_empty();
        user.check_apply(&key, exists)?;
        grants::check_object(&api.authority, user, object)?;
    }
    Ok(())
}

/// Writes `objects` in one transaction. Rejections and results have the order of the request. Releases
/// `permit` before it waits for the engine.
async fn write(
    api: &Api,
    user: &User,
    objects: Vec<Object>,
    permit: OwnedSemaphorePermit,
    options: WriteOptions,
) -> Result<Result<Vec<Written>, Vec<Rejection>>, Error> {
    let WriteOptions { scope, dry_run, mode } = options;
    let rank = |kind: Kind| Kind::ALL.iter().position(|known| *known == kind);
    let mut ordered: Vec<(usize, Object)> = objects.into_iter().enumerate().collect();
    // write objects that others refer to first, whatever their order in the request
    ordered.sort_by_key(|(_, object)| rank(object.kind));
    let order: Vec<usize> = ordered.iter().map(|(index, _)| *index).collect();
    let actor = user.actor();
    let put = move |(_, object)| Change::Put {
        object: Box::new(object),
        scope: scope.clone(),
        uid: naming::uid(),
        mode,
    };
    let reading = tokio::task::spawn_blocking(move || {
        Write::new(actor, ordered.into_iter().map(put).collect(), dry_run)
    });
    let write =
        reading.await.map_err(|error| Error::Internal(format!("the objects could not be read: {error}")))?;
    drop(permit);
    match api.ask(Input::Write(Box::new(write))).await? {
        Reply::Written(written) if written.len() == order.len() => {
            let mut placed: Vec<(usize, Written)> = order.into_iter().zip(written).collect();
            placed.sort_by_key(|(index, _)| *index);
            Ok(Ok(placed.into_iter().map(|(_, written)| written).collect()))
        }
        Reply::Rejected(mut rejections) => {
            for rejection in &mut rejections {
                rejection.index = order.get(rejection.index).copied().unwrap_or_default();
            }
            rejections.sort_by_key(|rejection| rejection.index);
            Ok(Err(rejections))
        }
        other => Err(Error::unexpected("a write", &other)),
    }
}

fn rejected(objects: usize, rejections: &[Rejection], user: &User) -> Error {
    let asker = user.asker();
    let causes = rejections
        .iter()
        .map(|rejection| Cause::of_rejection(&format!("objects[{}]", rejection.index), rejection, &asker))
        .collect();
    Error::Many {
        objects,
        reason: common_reason(rejections.iter().map(|rejection| rejection.reason)),
        causes,
    }
}

fn refuse(objects: usize, reason: RejectionReason, causes: Vec<Cause>) -> Result<(), Error> {
    if causes.is_empty() { Ok(()) } else { Err(Error::Many { objects, reason, causes }) }
}

fn answer(mut remarks: Vec<String>, written: &[Written]) -> Vec<u8> {
    let results: Vec<Value> = written
        .iter()
        .map(|written| {
            let key = &written.key;
            json!({
                "kind": key.kind.name(), "namespace": key.namespace.as_deref(), "name": &*key.name,
                "uid": written.uid.to_string(), "result": written.result.word(),
            })
        })
        .collect();
    remarks.extend(written.iter().flat_map(|written| {
        written.warnings.iter().map(|warning| format!("{}: {warning}", title(&written.key)))
    }));
    if remarks.len() > REMARKS_MAX {
        let more = remarks.len() - REMARKS_MAX;
        remarks.truncate(REMARKS_MAX);
        remarks.push(format!("{} omitted", counted_with(more, "more warning", "is", "are")));
    }
    serde_json::to_vec(&json!({"results": results, "warnings": remarks}))
        .expect("results have text keys and plain values")
}

/// Names the key's object in the form of [`Object::title`].
fn title(key: &Key) -> String {
    let namespace = key.namespace.iter().map(|namespace| format!("{namespace}/")).collect::<String>();
    format!("{}/{namespace}{}", key.kind.singular(), key.name)
}
