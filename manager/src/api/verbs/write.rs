//! The verbs `create`, `update`, `patch` and `delete`, each one transaction of the core.

use super::naming;
use crate::api::access::{User, Verb, grants};
use crate::api::request::body::{self, OBJECT_BYTES_MAX, Precondition};
use crate::api::request::query::{self, Options};
use crate::api::request::resource_path::ResourcePath;
use crate::api::response::error::{Cause, Error, Subject};
use crate::api::response::rendered::RenderedObject;
use crate::api::response::{json_bytes, warning};
use crate::api::state::Api;
use axum::Json;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use meridian_manager_core::facts::input::{Change, Input, PutMode, Write};
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::outcome::{Reply, WriteResult, Written};
use meridian_manager_kubernetes::{EXISTED, INACTIVE};
use meridian_objects::{Kind, Object};
use meridian_shared::ids::{RecordNumber, Uid};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// How often a patch without a version is repeated after another writer was faster.
const PATCH_TRIES: usize = 5;

/// A write of one object.
pub(crate) struct Request<'r> {
    pub(crate) api: &'r Api,
    pub(crate) user: &'r User,
    pub(crate) target: &'r ResourcePath,
    pub(crate) options: &'r Options,
    pub(crate) headers: &'r HeaderMap,
}

impl Request<'_> {
    /// `POST` to a collection.
    pub(crate) async fn create(&self, body: Body) -> Result<Response, Error> {
        body::must_be_json(self.headers)?;
        let mut value: Value = body::json(&body::read(self.headers, body, OBJECT_BYTES_MAX).await?)?;
        let precondition = body::take_precondition(&mut value)?;
        if precondition.version.is_some() {
            return Err(Error::BadRequest(
                "resourceVersion should not be set on objects to be created".to_owned(),
            ));
        }
        // as in Kubernetes, uids of other clients are ignored
        let uid = precondition.uid.filter(|_| self.user.is_management_cluster());
        let (mut object, mut remarks) = self.object(value)?;
        let generated = object.name.is_empty();
        let pattern = object.clone();
        for left in (0..naming::TRIES).rev() {
            naming::random(&mut object);
            match self.put(object.clone(), PutMode::Create, uid).await {
                Err(Error::AlreadyExists(_)) if generated && left > 0 => object = pattern.clone(),
                Err(error) => return Err(error),
                Ok(written) => {
                    remarks.extend(written.warnings.iter().cloned());
                    return Ok(self.answer(StatusCode::CREATED, &written, &object, &remarks));
                }
            }
        }
        Err(Error::Conflict(format!(
            "every name generated from `{}` was taken: try again",
            pattern.generate_name.unwrap_or_default()
        )))
    }

    /// `PUT` of one object.
    pub(crate) async fn replace(&self, name: &str, body: Body) -> Result<Response, Error> {
        body::must_be_json(self.headers)?;
        let value: Value = body::json(&body::read(self.headers, body, OBJECT_BYTES_MAX).await?)?;
        if self.target.kind == Kind::Workload {
            return self.put_workload(name, value).await;
        }
        self.put_read_back(name, value).await
    }

    /// `PATCH` of one object: a JSON merge patch (RFC 7386), applied as a read and a replacement.
    pub(crate) async fn patch(&self, name: &str, body: Body) -> Result<Response, Error> {
        match body::media_type(self.headers).as_str() {
            "application/merge-patch+json" => {}
            other => {
                return Err(Error::MediaType(format!(
                    "patches of type `{other}` are not supported: send `application/merge-patch+json`, with \
                     kubectl `patch --type=merge`, or replace the object"
                )));
            }
        }
        let patch: Value = body::json(&body::read(self.headers, body, OBJECT_BYTES_MAX).await?)?;
        if !patch.is_object() {
            return Err(Error::BadRequest("a merge patch must be a JSON object".to_owned()));
        }
        let versioned = patch.pointer("/metadata/resourceVersion").is_some();
        if self.target.kind == Kind::Workload {
            return self.patch_workload(name, &patch).await;
        }
        let mut tries = 1;
        loop {
            let view = self
                .api
                .handle
                .reads()
                .get(&self.key(name), &self.user.asker())
                .ok_or_else(|| Error::NotFound(self.target.subject()))?;
            let mut value = RenderedObject::new(&view, self.target.version).into_value();
            // the JSON reader bounds the depth of a patch
            json_patch::merge(&mut value, &patch);
            match self.put_read_back(name, value).await {
                Err(Error::Conflict(_)) if !versioned && tries < PATCH_TRIES => tries += 1,
                other => return other,
            }
        }
    }

    /// `DELETE` of one object. A job with a running gang is deleted once the gang is confirmed stopped.
    pub(crate) async fn delete(&self, name: &str, body: Body) -> Result<Response, Error> {
        let bytes = body::read(self.headers, body, body::ACTION_BYTES_MAX).await?;
        let options: DeleteOptions = if bytes.is_empty() {
            DeleteOptions::default()
        } else {
            body::must_be_json(self.headers)?;
            body::json(&bytes)?
        };
        let mut dry_run = self.options.dry_run;
        for stage in options.dry_run.iter().flatten() {
            dry_run |= query::dry_run(stage)?;
        }
        let preconditions = options.preconditions.unwrap_or_default();
        if preconditions.resource_version.is_some_and(|version| !version.is_empty()) {
            return Err(Error::BadRequest(
                "preconditions.resourceVersion is not supported: use preconditions.uid".to_owned(),
            ));
        }
        let key = self.key(name);
        // `kubectl delete --force` sends it. A job's gang is stopped in any case.
        let force = options.grace_period_seconds == Some(0);
        let uid = preconditions.uid.filter(|uid| !uid.is_empty()).map(|uid| uid.parse::<Uid>()).transpose();
        let uid = uid.map_err(|_| Error::Conflict(format!("{key} has another uid now")))?;
        let written = self.change(Change::Delete { key: key.clone(), uid, force }, dry_run).await?;
        if written.result == WriteResult::Deleting
            && let Some(view) = self.api.handle.reads().get(&key, &self.user.asker())
        {
            return Ok(Json(RenderedObject::new(&view, self.target.version)).into_response());
        }
        let kind = self.target.kind;
        let details = json!({
            "name": name, "group": kind.group(), "kind": kind.plural(), "uid": written.uid.to_string(),
        });
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
        });
        Ok(Json(status).into_response())
    }

    /// Replaces an object by one that a client has read and changed. Its version is a precondition, and its
    /// status is ignored.
    async fn put_read_back(&self, name: &str, mut value: Value) -> Result<Response, Error> {
        let precondition = body::take_precondition(&mut value)?;
        if let Some(fields) = value.as_object_mut() {
            fields.remove("status");
        }
        let (object, mut remarks) = self.object(value)?;
        if object.name != name {
            return Err(Error::BadRequest(format!(
                "the name of the object (`{}`) does not match the name in the path (`{name}`)",
                object.name
            )));
        }
        let mode = PutMode::Replace(self.condition(name, precondition)?);
        let written = self.put(object.clone(), mode, None).await?;
        remarks.extend(written.warnings.iter().cloned());
        Ok(self.answer(StatusCode::OK, &written, &object, &remarks))
    }

    /// The core's version of the object, if the client has seen it. A reader's version also grows with the
    /// status, which clients don't write. So a client that has seen the newest content is up to date even if
    /// the status has changed since.
    pub(super) fn condition(
        &self,
        name: &str,
        precondition: Precondition,
    ) -> Result<Option<RecordNumber>, Error> {
        if precondition == Precondition::default() {
            return Ok(None);
        }
        let key = self.key(name);
        let view = self
            .api
            .handle
            .reads()
            .get(&key, &self.user.asker())
            .ok_or_else(|| Error::NotFound(self.target.subject()))?;
        let text = |pointer| view.value.pointer(pointer).and_then(Value::as_str);
        let uid = text("/metadata/uid").and_then(|uid| uid.parse::<Uid>().ok());
        if precondition.uid.is_some() && precondition.uid != uid {
            return Err(Error::Conflict(format!(
                "{key} has another uid now: it was deleted and created again"
            )));
        }
        let Some(seen) = precondition.version else { return Ok(None) };
        let changed = text("/metadata/resourceVersion")
            .and_then(|version| version.parse().ok())
            .map_or(view.version, RecordNumber);
        if seen < changed || seen > self.api.handle.reads().version() {
            return Err(Error::Conflict(format!(
                "{key} has been modified; please apply your changes to the latest version and try again \
                 (read: {seen}, current: {changed})"
            )));
        }
        Ok(Some(changed))
    }

    /// The object in a body. Fails unless it has the path's kind, version and namespace.
    fn object(&self, mut value: Value) -> Result<(Object, Vec<String>), Error> {
        let target = self.target;
        for (field, expect) in [("apiVersion", target.api_version()), ("kind", target.kind.name().to_owned())]
        {
            let written = value.get(field).and_then(Value::as_str).unwrap_or_default();
            if written != expect {
                return Err(Error::BadRequest(format!(
                    "{field}: Invalid value: \"{written}\": does not match `{expect}` in the path"
                )));
            }
        }
        // a label that names another cluster, or on an object without scope, is the client's own
        let _ = body::take_cluster_label(&mut value, self.options.scope.as_ref());
        let subject = |value: &Value| {
            let name = ["/metadata/name", "/metadata/generateName"]
                .into_iter()
                .find_map(|pointer| value.pointer(pointer)?.as_str());
            Subject::new(target.kind, name.unwrap_or_default())
        };
        let about = subject(&value);
        let (mut object, warnings) = Object::validated(value, self.options.validation).map_err(|errors| {
            let causes = errors.iter().map(|error| Cause::of_field("", error)).collect();
            Error::Invalid(about, causes)
        })?;
        if let Some(namespace) = &target.namespace {
            if object.namespace.as_ref().is_some_and(|written| written != namespace) {
                let written = object.namespace.unwrap_or_default();
                return Err(Error::BadRequest(format!(
                    "the namespace of the object (`{written}`) does not match the namespace in the path \
                     (`{namespace}`)"
                )));
            }
            object.set_namespace(namespace);
        }
        Ok((object, warnings.iter().map(ToString::to_string).collect()))
    }

    pub(super) fn key(&self, name: &str) -> Key {
        self.target.key(name, self.options.scope.as_ref())
    }

    async fn put(&self, object: Object, mode: PutMode, uid: Option<Uid>) -> Result<Written, Error> {
        grants::check_object(&self.api.authority, self.user, &object)?;
        let change = Change::Put {
            object: Box::new(object),
            scope: self.options.scope.clone(),
            uid: uid.unwrap_or_else(naming::uid),
            mode,
        };
        self.change(change, self.options.dry_run).await
    }

    pub(super) async fn change(&self, change: Change, dry_run: bool) -> Result<Written, Error> {
        let (subject, namespace) = match &change {
            Change::Put { object, .. } => {
                let namespace = object.namespace_or_default().map(Arc::from);
                (Subject::new(object.kind, &object.name), namespace)
            }
            Change::Delete { key, .. } | Change::SetActive { key, .. } => {
                (Subject::new(key.kind, &key.name), key.namespace.clone())
            }
        };
        let mut write = Write::new(self.user.actor(), vec![change], dry_run);
        if self.user.is_management_cluster() && self.headers.contains_key(EXISTED) {
            write = write.of_existing();
        }
        if self.user.is_management_cluster() && self.headers.contains_key(INACTIVE) {
            write = write.of_inactive();
        }
        match self.api.ask(Input::Write(Box::new(write))).await? {
            Reply::Written(mut written) if written.len() == 1 => Ok(written.remove(0)),
            Reply::Rejected(rejections) => {
                let asker = self.user.asker().about(namespace.as_ref());
                Err(Error::rejected(subject, &rejections, &asker))
            }
            other => Err(Error::unexpected("a write", &other)),
        }
    }

    /// The answer to a write: the object as it is now or, in a dry run, as it would be.
    fn answer(&self, code: StatusCode, written: &Written, object: &Object, remarks: &[String]) -> Response {
        let view = (!self.options.dry_run)
            .then(|| self.api.handle.reads().get(&written.key, &self.user.asker()))
            .flatten();
        let mut response = match view {
            Some(view) => json_bytes(
                serde_json::to_vec(&RenderedObject::new(&view, self.target.version))
                    .expect("objects have text keys and plain values"),
            ),
            None => {
                // a dry run, or the object is already deleted again
                let mut value = object.in_version(self.target.version);
                value["metadata"]["uid"] = json!(written.uid.to_string());
                Json(value).into_response()
            }
        };
        *response.status_mut() = code;
        warning::add(response.headers_mut(), remarks);
        response
    }
}

/// The supported options of a `DELETE`. There is no propagation policy: a job's only dependent is its
/// workload.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeleteOptions {
    preconditions: Option<Preconditions>,
    grace_period_seconds: Option<i64>,
    dry_run: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

/// The verb of a method, for one object or for a collection.
pub(crate) fn verb_of(method: &axum::http::Method, named: bool, watch: bool) -> Option<Verb> {
    match (method.as_str(), named) {
        ("GET" | "HEAD", _) if watch => Some(Verb::Watch),
        ("GET" | "HEAD", true) => Some(Verb::Get),
        ("GET" | "HEAD", false) => Some(Verb::List),
        ("POST", false) => Some(Verb::Create),
        ("PUT", true) => Some(Verb::Update),
        ("PATCH", true) => Some(Verb::Patch),
        ("DELETE", true) => Some(Verb::Delete),
        _ => None,
    }
}
