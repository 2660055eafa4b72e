//! Kubernetes' verbs on objects: get, list, create, patch, delete.

use super::error::Error;
use super::http::{Client, EXCHANGE_TIMEOUT, text_at};
use super::warnings;
use meridian_objects::Kind;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, Url};
use serde_json::{Value, json};

/// Objects per page of a list; the size that `kubectl` uses.
const PAGE_ITEMS: usize = 500;
/// How often a list is started over after its first page expired. More would not end under a flood of writes.
const LIST_TRIES: usize = 3;

/// Which objects of a kind to list or watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    pub(crate) kind: Kind,
    /// `None` selects all namespaces.
    pub(crate) namespace: Option<String>,
    /// Label selector; empty selects all.
    pub(crate) labels: String,
    pub(crate) name: Option<String>,
}

impl Selection {
    /// All objects of a kind, in all namespaces.
    pub(crate) fn all(kind: Kind) -> Self {
        Self { kind, namespace: None, labels: String::new(), name: None }
    }

    /// All objects of a kind in one namespace.
    pub(crate) fn in_namespace(kind: Kind, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..Self::all(kind) }
    }
}

/// A complete list as of one resource version.
#[derive(Clone, Debug, Default)]
pub(crate) struct List {
    /// Each with `apiVersion` and `kind`.
    pub(crate) items: Vec<Value>,
    /// The resource version from which a watch continues.
    pub(crate) version: String,
}

/// How an object is created.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CreateOptions<'o> {
    /// The manager's `fieldValidation`.
    pub(crate) validation: Option<&'o str>,
    /// Whether the manager only validates the request and stores nothing.
    pub(crate) dry_run: bool,
}

/// How an object is deleted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeleteOptions {
    /// Whether to delete the object even if others refer to it.
    pub(crate) force: bool,
    /// Whether the manager only validates the request and stores nothing.
    pub(crate) dry_run: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Created {
    pub(crate) object: Value,
    /// The manager's warnings about the object.
    pub(crate) warnings: Vec<String>,
}

impl Client {
    /// One object in its storage version. Fails if it doesn't exist.
    pub(crate) async fn get(&self, kind: Kind, namespace: Option<&str>, name: &str) -> Result<Value, Error> {
        let url = self.object_url(kind, kind.storage_version(), namespace, Some(name));
        Ok(with_type(self.exchange(self.request(Method::GET, url)).await?, kind))
    }

    /// All selected objects in their storage version.
    pub(crate) async fn list(&self, selection: &Selection) -> Result<List, Error> {
        let mut tries = 1;
        loop {
            match self.list_once(selection).await {
                Err(error) if error.is_expired() && tries < LIST_TRIES => tries += 1,
                other => return other,
            }
        }
    }

    /// The names on the first page of the selected objects, for completion.
    pub(crate) async fn some_names(&self, selection: &Selection) -> Result<Vec<String>, Error> {
        let mut url = self.selection_url(selection);
        url.query_pairs_mut().append_pair("limit", &PAGE_ITEMS.to_string());
        let page = self.exchange(self.request(Method::GET, url)).await?;
        let items = page.get("items").and_then(Value::as_array);
        Ok(items.into_iter().flatten().map(|item| text_at(item, "/metadata/name")).collect())
    }

    async fn list_once(&self, selection: &Selection) -> Result<List, Error> {
        let mut list = List::default();
        let mut next = String::new();
        loop {
            let mut url = self.selection_url(selection);
            url.query_pairs_mut().append_pair("limit", &PAGE_ITEMS.to_string());
            if !next.is_empty() {
                url.query_pairs_mut().append_pair("continue", &next);
            }
            let request = url.path().to_owned();
            let mut page = self.exchange(self.request(Method::GET, url)).await?;
            let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) else {
                return Err(Error::Malformed { request, why: "it has no `items`".to_owned() });
            };
            list.items.extend(items.into_iter().map(|item| with_type(item, selection.kind)));
            list.version = text_at(&page, "/metadata/resourceVersion");
            next = text_at(&page, "/metadata/continue");
            if next.is_empty() {
                // A manager that ignores `fieldSelector` answers with every name.
                list.items.retain(|item| {
                    selection.name.as_ref().is_none_or(|name| text_at(item, "/metadata/name") == *name)
                });
                return Ok(list);
            }
        }
    }

    /// Creates an object; with `generateName` the manager names it. Fails if it exists or is invalid.
    pub(crate) async fn create(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        object: &Value,
        options: CreateOptions<'_>,
    ) -> Result<Created, Error> {
        let version = written_version(kind, object);
        let mut url = self.object_url(kind, version, namespace, None);
        if let Some(validation) = options.validation {
            url.query_pairs_mut().append_pair("fieldValidation", validation);
        }
        if options.dry_run {
            url.query_pairs_mut().append_pair("dryRun", "All");
        }
        let response =
            self.send(self.request(Method::POST, url).json(object).timeout(EXCHANGE_TIMEOUT)).await?;
        let warnings = warnings::parse(response.headers());
        Ok(Created { object: with_type(self.read_json(response).await?, kind), warnings })
    }

    /// Replaces an object in its storage version. Fails if it has changed since its `resourceVersion`, or is
    /// invalid.
    pub(crate) async fn replace(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        name: &str,
        object: &Value,
    ) -> Result<Created, Error> {
        let url = self.object_url(kind, kind.storage_version(), namespace, Some(name));
        let response =
            self.send(self.request(Method::PUT, url).json(object).timeout(EXCHANGE_TIMEOUT)).await?;
        let warnings = warnings::parse(response.headers());
        Ok(Created { object: with_type(self.read_json(response).await?, kind), warnings })
    }

    /// Changes fields of an object by a JSON merge patch. Fails if the object doesn't exist.
    pub(crate) async fn patch(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        name: &str,
        patch: &Value,
    ) -> Result<Value, Error> {
        let url = self.object_url(kind, kind.storage_version(), namespace, Some(name));
        let request = self
            .request(Method::PATCH, url)
            .header(CONTENT_TYPE, "application/merge-patch+json")
            .body(patch.to_string());
        Ok(with_type(self.exchange(request).await?, kind))
    }

    /// Deletes an object; a job stays until its gang has stopped. Fails if it doesn't exist.
    pub(crate) async fn delete(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        name: &str,
        options: DeleteOptions,
    ) -> Result<Value, Error> {
        let DeleteOptions { force, dry_run } = options;
        let mut url = self.object_url(kind, kind.storage_version(), namespace, Some(name));
        if dry_run {
            url.query_pairs_mut().append_pair("dryRun", "All");
        }
        let mut request = self.request(Method::DELETE, url);
        if force {
            request = request.json(&json!({"gracePeriodSeconds": 0}));
        }
        self.exchange(request).await
    }

    fn object_url(&self, kind: Kind, version: &str, namespace: Option<&str>, name: Option<&str>) -> Url {
        let root =
            if kind.group().is_empty() { vec!["api", version] } else { vec!["apis", kind.group(), version] };
        let namespace = namespace.filter(|_| kind.namespaced()).map(|namespace| ["namespaces", namespace]);
        let segments = root.into_iter().chain(namespace.into_iter().flatten());
        let mut url = self.url(segments.chain([kind.plural()]).chain(name));
        if let Some(cluster) = self.cluster() {
            url.query_pairs_mut().append_pair("cluster", cluster);
        }
        url
    }

    pub(super) fn selection_url(&self, selection: &Selection) -> Url {
        let Selection { kind, namespace, labels, name } = selection;
        let mut url = self.object_url(*kind, kind.storage_version(), namespace.as_deref(), None);
        if !labels.is_empty() {
            url.query_pairs_mut().append_pair("labelSelector", labels);
        }
        if let Some(name) = name {
            url.query_pairs_mut().append_pair("fieldSelector", &format!("metadata.name={name}"));
        }
        url
    }
}

/// Items of a list carry no `kind`; files and readers need it.
pub(super) fn with_type(mut object: Value, kind: Kind) -> Value {
    if let Value::Object(fields) = &mut object
        && !fields.contains_key("kind")
    {
        fields.insert("apiVersion".to_owned(), kind.api_version(kind.storage_version()).into());
        fields.insert("kind".to_owned(), kind.name().into());
    }
    object
}

/// The version that an object is written in; the storage version if it names none that is served.
fn written_version(kind: Kind, object: &Value) -> &'static str {
    let written = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let version = written.rsplit('/').next().unwrap_or_default();
    kind.served(version).unwrap_or_else(|| kind.storage_version())
}
