//! The requests to both API servers.

use crate::decide::{Action, DEACTIVATED};
use crate::events::{self, EventText};
use crate::resources::{Flow, Resource};
use crate::sides::ObjectKey;
use crate::webhook::CONFIGURATION;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use meridian_kubernetes::connection::ANSWER_WITHIN;
use meridian_kubernetes::error::{Failure, classify, words};
use meridian_objects::Kind;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;

/// Field manager of all writes to the management cluster.
const FIELD_MANAGER: &str = "meridian";
/// Header by which the manager learns that a job may have run before this manager process started.
pub const EXISTED: &str = "meridian-existed";
/// Header by which the manager learns that a job is stopped in the management cluster.
pub const INACTIVE: &str = "meridian-inactive";

/// One request to the management cluster: its verb and its resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestCount {
    pub verb: &'static str,
    pub resource: String,
}

/// Counts requests to the management cluster.
pub type RequestCounts = Arc<dyn Fn(RequestCount) + Send + Sync>;

/// Why a write didn't happen.
#[derive(Debug)]
pub(crate) enum NotDone {
    /// Repeat it later: no answer, an overload, or a conflict with another writer.
    Later(String),
    /// The server understood and refused.
    Refused(String),
}

/// Why the value of a Secret can't be used.
#[derive(Debug)]
pub(crate) enum Absence {
    /// The Secret doesn't exist, or its value isn't usable.
    Gone(String),
    /// The server didn't answer.
    Unknown(String),
}

/// Talks to both API servers.
#[derive(Clone)]
pub(crate) struct Performer {
    cluster: Client,
    manager: Client,
    count: RequestCounts,
}

impl fmt::Debug for Performer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Performer").finish_non_exhaustive()
    }
}

impl Performer {
    pub(crate) fn new(cluster: Client, manager: Client, count: RequestCounts) -> Self {
        Self { cluster, manager, count }
    }

    pub(crate) async fn perform(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        action: &Action,
    ) -> Result<(), NotDone> {
        let done = async {
            match action {
                Action::Submit { manifest, existed, inactive } => {
                    self.submit(resource, key, manifest, [(EXISTED, *existed), (INACTIVE, *inactive)]).await
                }
                Action::Change { manifest } => self.change(resource, key, manifest).await,
                Action::Remove { uid } => self.remove(&self.manager, resource, key, uid.clone(), true).await,
                Action::SetActive(active) => {
                    let patch = json!({"spec": {"active": active}});
                    let patched = api(&self.manager, &resource.api, key)
                        .patch(&key.name, &PatchParams::default(), &Patch::Merge(patch))
                        .await;
                    patched.map(drop)
                }
                Action::ApplyWorkload { object } => {
                    self.count("patch", resource.api.plural.clone());
                    let params = PatchParams::apply(FIELD_MANAGER).force();
                    let applied = api(&self.cluster, &resource.api, key)
                        .patch(&key.name, &params, &Patch::Apply(object))
                        .await;
                    applied.map(drop)
                }
                Action::CreateWorkload { object } => {
                    self.count("create", resource.api.plural.clone());
                    self.create_workload(resource, key, object).await
                }
                Action::Deactivate { mark, version } => {
                    self.count("patch", resource.api.plural.clone());
                    let patch = json!({
                        "metadata": {"resourceVersion": version, "annotations": {DEACTIVATED: mark}},
                        "spec": {"active": false},
                    });
                    let patched = api(&self.cluster, &resource.api, key)
                        .patch(&key.name, &by_us(), &Patch::Merge(patch))
                        .await;
                    patched.map(drop)
                }
                Action::WriteStatus { status } => {
                    self.count("patch", format!("{}/status", resource.api.plural));
                    let params = PatchParams::apply(FIELD_MANAGER).force();
                    let body = json!({
                        "apiVersion": resource.api.api_version, "kind": resource.api.kind,
                        "metadata": {"name": key.name}, "status": status,
                    });
                    let patched = api(&self.cluster, &resource.api, key)
                        .patch_status(&key.name, &params, &Patch::Apply(body))
                        .await;
                    patched.map(drop)
                }
                Action::RemoveWorkload { uid } => {
                    self.count("delete", resource.api.plural.clone());
                    self.remove(&self.cluster, resource, key, uid.clone(), false).await
                }
                // an event is written after the action
                Action::Explain { .. } => Ok(()),
            }
        };
        match tokio::time::timeout(ANSWER_WITHIN, done).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => not_done(resource.flow, action, &error),
            Err(_) => Err(NotDone::Later(format!("no answer within {} s", ANSWER_WITHIN.as_secs()))),
        }
    }

    /// Confirms policies and quotas if the manager doubts them. Returns whether it did.
    pub(crate) async fn confirm_doubted_rules(&self) -> Result<bool, String> {
        let asked = async {
            let recovery: Value = self.manager.request(http_request("GET", "/meridian/v1/recovery")?).await?;
            if recovery["rulesDoubted"].is_null() {
                return Ok(false);
            }
            let confirmed = http_request("POST", "/meridian/v1/rules/confirm")?;
            self.manager.request::<Value>(confirmed).await.map(|_| true)
        };
        match tokio::time::timeout(ANSWER_WITHIN, asked).await {
            Ok(done) => done.map_err(|error: kube::Error| words(&error)),
            Err(_) => Err(format!("no answer within {} s", ANSWER_WITHIN.as_secs())),
        }
    }

    /// Creates or changes the webhook's configuration.
    pub(crate) async fn apply_webhook(&self, object: &Value) -> Result<(), String> {
        self.count("patch", "validatingwebhookconfigurations".to_owned());
        let gvk = kube::core::GroupVersionKind::gvk(
            "admissionregistration.k8s.io",
            "v1",
            "ValidatingWebhookConfiguration",
        );
        let resource = ApiResource::from_gvk_with_plural(&gvk, "validatingwebhookconfigurations");
        let api: Api<DynamicObject> = Api::all_with(self.cluster.clone(), &resource);
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(object);
        match tokio::time::timeout(ANSWER_WITHIN, api.patch(CONFIGURATION, &params, &patch)).await {
            Ok(done) => done.map(drop).map_err(|error| words(&error)),
            Err(_) => Err(format!("no answer within {} s", ANSWER_WITHIN.as_secs())),
        }
    }

    /// The text of a Secret's key. It is neither stored nor logged.
    pub(crate) async fn secret_text(
        &self,
        namespace: &str,
        name: &str,
        key: &str,
    ) -> Result<String, Absence> {
        self.count("get", "secrets".to_owned());
        let resource = ApiResource::from_gvk_with_plural(
            &kube::core::GroupVersionKind::gvk("", "v1", "Secret"),
            "secrets",
        );
        let api: Api<DynamicObject> = Api::namespaced_with(self.cluster.clone(), namespace, &resource);
        let secret = match tokio::time::timeout(ANSWER_WITHIN, api.get(name)).await {
            Ok(Ok(secret)) => secret,
            Ok(Err(error)) => {
                let why = format!("the Secret `{namespace}/{name}` can't be read: {}", words(&error));
                return Err(match classify(&error) {
                    Failure::Absent | Failure::Refused => Absence::Gone(why),
                    _ => Absence::Unknown(why),
                });
            }
            Err(_) => {
                return Err(Absence::Unknown(format!("no answer within {} s", ANSWER_WITHIN.as_secs())));
            }
        };
        let gone = |what: &str| Absence::Gone(format!("the Secret `{namespace}/{name}` has no {what}"));
        let encoded = secret.data["data"][key].as_str().ok_or_else(|| gone(&format!("key `{key}`")))?;
        let bytes = STANDARD.decode(encoded).map_err(|_| gone("base64 text"))?;
        String::from_utf8(bytes).map_err(|_| gone("UTF-8 text"))
    }

    async fn submit(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        manifest: &Value,
        marks: [(&str, bool); 2],
    ) -> kube::Result<()> {
        let path = collection(resource, key, manifest);
        let mut request = http::Request::post(format!("{path}?fieldValidation=Ignore"))
            .header(http::header::CONTENT_TYPE, "application/json");
        for (mark, _) in marks.into_iter().filter(|(_, is_set)| *is_set) {
            request = request.header(mark, "true");
        }
        let body = serde_json::to_vec(manifest).map_err(kube::Error::SerdeError)?;
        let request = request.body(body).map_err(kube::Error::HttpError)?;
        self.manager.request::<Value>(request).await.map(drop)
    }

    async fn create_workload(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        object: &Value,
    ) -> kube::Result<()> {
        let object =
            serde_json::from_value::<DynamicObject>(object.clone()).map_err(kube::Error::SerdeError)?;
        let params = PostParams { field_manager: by_us().field_manager, ..PostParams::default() };
        api(&self.cluster, &resource.api, key).create(&params, &object).await.map(drop)
    }

    async fn change(&self, resource: &Resource, key: &ObjectKey, manifest: &Value) -> kube::Result<()> {
        let mut manifest = manifest.clone();
        if let Some(metadata) = manifest["metadata"].as_object_mut() {
            metadata.remove("uid");
        }
        let path = format!("{}/{}?fieldValidation=Ignore", collection(resource, key, &manifest), key.name);
        let body = serde_json::to_vec(&manifest).map_err(kube::Error::SerdeError)?;
        let request = http::Request::put(path).header(http::header::CONTENT_TYPE, "application/json");
        let request = request.body(body).map_err(kube::Error::HttpError)?;
        self.manager.request::<Value>(request).await.map(drop)
    }

    async fn remove(
        &self,
        client: &Client,
        resource: &Resource,
        key: &ObjectKey,
        uid: Option<String>,
        force: bool,
    ) -> kube::Result<()> {
        let params = DeleteParams {
            // the object is already deleted in the cluster, so force it even if other objects refer to it
            grace_period_seconds: force.then_some(0),
            preconditions: uid.map(|uid| Preconditions { uid: Some(uid), resource_version: None }),
            ..DeleteParams::default()
        };
        api(client, &resource.api, key).delete(&key.name, &params).await.map(drop)
    }

    /// Writes an event about an object. A failure is logged only: events are for users.
    pub(crate) async fn event(&self, object: &Value, text: EventText) {
        let about = events::about(object);
        let namespace = about["namespace"].as_str().unwrap_or("default").to_owned();
        let now = Timestamp::now();
        let event = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"generateName": format!("{}.", about["name"].as_str().unwrap_or("object")),
                "namespace": namespace},
            "involvedObject": about,
            "type": if text.is_warning { "Warning" } else { "Normal" },
            "reason": text.reason, "message": clipped(&text.message),
            "source": {"component": FIELD_MANAGER}, "reportingComponent": FIELD_MANAGER,
            "reportingInstance": FIELD_MANAGER, "action": text.reason,
            "firstTimestamp": seconds(now), "lastTimestamp": seconds(now), "count": 1,
        });
        self.count("create", "events".to_owned());
        let resource = ApiResource::from_gvk_with_plural(
            &kube::core::GroupVersionKind::gvk("", "v1", "Event"),
            "events",
        );
        let Ok(event) = serde_json::from_value::<DynamicObject>(event) else { return };
        let events: Api<DynamicObject> = Api::namespaced_with(self.cluster.clone(), &namespace, &resource);
        if let Err(error) = events.create(&PostParams::default(), &event).await {
            tracing::debug!(error = words(&error), "an event could not be written");
        }
    }

    fn count(&self, verb: &'static str, resource: String) {
        (self.count)(RequestCount { verb, resource });
    }
}

/// Longest message of an event, in bytes, as Kubernetes bounds it.
const MESSAGE_BYTES_MAX: usize = 1_024;

fn clipped(message: &str) -> &str {
    let mut end = message.len().min(MESSAGE_BYTES_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}

/// Parameters of a patch that isn't an apply.
fn by_us() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn api(client: &Client, resource: &ApiResource, key: &ObjectKey) -> Api<DynamicObject> {
    match key.namespace.as_str() {
        "" => Api::all_with(client.clone(), resource),
        namespace => Api::namespaced_with(client.clone(), namespace, resource),
    }
}

fn http_request(method: &str, path: &str) -> kube::Result<http::Request<Vec<u8>>> {
    let request = http::Request::builder().method(method).uri(path);
    request.body(Vec::new()).map_err(kube::Error::HttpError)
}

/// Path of the collection, in the version of the manifest.
fn collection(resource: &Resource, key: &ObjectKey, manifest: &Value) -> String {
    let ApiResource { group, api_version, plural, .. } = &resource.api;
    let version = manifest["apiVersion"].as_str().unwrap_or(api_version);
    let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{version}") };
    match (key.namespace.as_str(), resource.kind) {
        ("", _) | (_, Kind::Namespace) => format!("{root}/{plural}"),
        (namespace, _) => format!("{root}/namespaces/{namespace}/{plural}"),
    }
}

/// Classifies an error. "Already gone" and "changed meanwhile" aren't failures if the next decision settles
/// them.
fn not_done(flow: Flow, action: &Action, error: &kube::Error) -> Result<(), NotDone> {
    let is_removal = matches!(action, Action::Remove { .. } | Action::RemoveWorkload { .. });
    let is_status = matches!(action, Action::WriteStatus { .. });
    match classify(error) {
        Failure::Absent if is_removal || is_status => Ok(()),
        // the watch will show the object soon
        Failure::Exists
            if matches!(flow, Flow::Job | Flow::Group) && matches!(action, Action::Submit { .. }) =>
        {
            Ok(())
        }
        // another client wrote the Workload, perhaps its `spec.active`
        Failure::Conflict | Failure::Exists
            if matches!(action, Action::Deactivate { .. } | Action::CreateWorkload { .. }) =>
        {
            Err(NotDone::Later(words(error)))
        }
        Failure::Refused => Err(NotDone::Refused(words(error))),
        // an orphan of the same uid, or a change that jobs of this kind don't permit
        Failure::Conflict if !is_removal => Err(NotDone::Refused(words(error))),
        Failure::Absent | Failure::Exists | Failure::Conflict | Failure::Unknown => {
            Err(NotDone::Later(words(error)))
        }
    }
}
