//! The REST client: Kubernetes' conventions for the objects, and Meridian's own endpoints beside them.
//!
//! What it owns: URLs, headers, time limits, sizes, paging, and the reading of answers and errors. What it must not know:
//! commands, tables, or what the fields of an object mean. Nothing is retried here except reads that are told to go on
//! (a watch, a followed log); whether a write may be repeated is the command's question.
//!
//! Invariants: every answer is bounded in bytes; every exchange but a stream is bounded in time; a token never follows a
//! redirect and never shows in a log.

mod log;
mod meridian;
mod status;
mod warning;
mod watch;

pub(crate) use self::log::{LogPiece, LogStream};
pub(crate) use self::meridian::{ApplyResult, Bulk, ClusterAction, JoinRequest, LogQuery};
pub(crate) use self::status::Status;
pub(crate) use self::watch::{Change, ChangeKind, Watch};

use crate::kubeconfig::{self, Access};
use meridian_objects::Kind;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, Url};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Time for a connection to come about. A manager is near or gone; ten seconds also cover a slow handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a whole exchange that is not a stream; the manager itself answers 503 long before.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(60);
/// How often an idle stream's connection is checked, so that a watch notices a manager that is gone without a word.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// Largest answer in bytes that is no stream: a page of [`PAGE_ITEMS`] objects of the largest size that Kubernetes takes
/// would be more, but such a page is not a real one.
const ANSWER_BYTES_MAX: usize = 128 << 20;
/// Largest line of a stream in bytes: one object of at most 1.5 MiB, with its envelope, several times over.
const LINE_BYTES_MAX: usize = 16 << 20;
/// Objects per page of a list; the size that `kubectl` uses.
const PAGE_ITEMS: usize = 500;
/// How often a list is begun again after the manager forgot its first page. More would not end under a flood of writes.
const LIST_TRIES: usize = 3;

/// Why the manager could not be asked, or what it said instead of the answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The client could not be made from the kubeconfig.
    #[error("can't use the kubeconfig: {0}")]
    Setup(String),
    /// Nobody there, or the connection broke.
    #[error("can't reach the manager at `{server}`: {why}")]
    Unreachable {
        /// Where.
        server: String,
        /// The chain of causes.
        why: String,
        /// Whether the request can't have reached the manager.
        unsent: bool,
    },
    /// The manager says no.
    #[error(transparent)]
    Status(Box<Status>),
    /// The answer makes no sense.
    #[error("the manager's answer to {what} can't be read: {why}")]
    Malformed {
        /// The request.
        what: String,
        /// What is wrong.
        why: String,
    },
    /// A watch that could not be kept up.
    #[error("the watch broke {tries} times in a row: {source}")]
    WatchLost {
        /// How often it was tried.
        tries: u32,
        /// The last error.
        #[source]
        source: Box<Error>,
    },
    /// A log that stopped before its end.
    #[error(
        "the log broke off before its end, because the manager or the cluster's agent went away: ask for it again"
    )]
    LogBroken,
    /// A followed log that could not be kept up.
    #[error("the log broke off, and {tries} tries in a row to go on brought nothing: {why}")]
    LogLost {
        /// How often it was tried.
        tries: u32,
        /// The last time.
        why: String,
    },
}

impl Error {
    /// The manager's words, when it was the manager who spoke.
    pub(crate) fn status(&self) -> Option<&Status> {
        match self {
            Self::Status(status) => Some(status),
            _ => None,
        }
    }

    /// Whether the object asked for is not there.
    pub(crate) fn is_not_found(&self) -> bool {
        self.status().is_some_and(|status| status.code == 404)
    }

    /// Whether the object to be made is there already.
    pub(crate) fn is_already_exists(&self) -> bool {
        self.status().is_some_and(|status| status.reason == "AlreadyExists")
    }

    /// Whether the version asked for is forgotten, so that a list has to be begun anew.
    fn is_gone(&self) -> bool {
        self.status().is_some_and(|status| status.code == 410)
    }

    /// Whether the same request may succeed a little later.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Status(status) => matches!(status.code, 429 | 502..=504),
            _ => false,
        }
    }
}

/// Which objects of a kind are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    /// The kind.
    pub(crate) kind: Kind,
    /// The namespace; all of them when there is none.
    pub(crate) namespace: Option<String>,
    /// Label selector; empty selects all.
    pub(crate) labels: String,
    /// One name only.
    pub(crate) name: Option<String>,
}

/// A complete list as of one version.
#[derive(Clone, Debug, Default)]
pub(crate) struct List {
    /// The objects, each with `apiVersion` and `kind`.
    pub(crate) items: Vec<Value>,
    /// The version that a watch goes on from.
    pub(crate) version: String,
}

/// An object that was made.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Made {
    /// As it is there.
    pub(crate) object: Value,
    /// What the manager remarks on it.
    pub(crate) warnings: Vec<String>,
}

/// A connection to one manager as one person.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: Url,
    /// The worker cluster whose own caps and settings are meant, instead of everybody's objects.
    cluster: Option<String>,
}

impl Client {
    /// A client for `access`. Nothing is sent yet.
    pub(crate) fn new(access: &Access) -> Result<Self, Error> {
        // the HTTP client wants one provider of cryptography per process; an error only says that there is one already
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let setup = |why: &dyn std::fmt::Display| Error::Setup(why.to_string());
        let base: Url = access
            .server
            .parse()
            .map_err(|error| Error::Setup(format!("`{}` is not a URL: {error}", access.server)))?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(token) = &access.token {
            let mut value = HeaderValue::try_from(format!("Bearer {}", token.reveal()))
                .map_err(|_| setup(&"the token has characters that no header may have"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("meridian/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .http2_keep_alive_timeout(KEEP_ALIVE);
        if kubeconfig::is_loopback(&access.server) {
            // a proxy of the environment is for the way out, not for this machine
            builder = builder.no_proxy();
        }
        if let Some(pem) = &access.authorities {
            let certificates =
                reqwest::Certificate::from_pem_bundle(pem).map_err(|error| setup(&chain(&error)))?;
            if certificates.is_empty() {
                return Err(setup(&"its certificate authority holds no PEM certificate"));
            }
            builder = builder.tls_certs_only(certificates);
        }
        if let Some(identity) = &access.identity {
            let identity = reqwest::Identity::from_pem(identity.reveal().as_bytes())
                .map_err(|error| setup(&chain(&error)))?;
            builder = builder.identity(identity);
        }
        Ok(Self { http: builder.build().map_err(|error| setup(&chain(&error)))?, base, cluster: None })
    }

    /// The same for a worker cluster's own caps and provider settings, where one is named.
    pub(crate) fn of_cluster(self, cluster: Option<String>) -> Self {
        Self { cluster, ..self }
    }

    /// One object, in the storage version.
    pub(crate) async fn get(&self, kind: Kind, namespace: Option<&str>, name: &str) -> Result<Value, Error> {
        let url = self.object_url(kind, kind.storage_version(), namespace, Some(name));
        Ok(with_type(self.answer(self.request(Method::GET, url)).await?, kind))
    }

    /// All selected objects, in pages, in the storage version.
    pub(crate) async fn list(&self, selection: &Selection) -> Result<List, Error> {
        let mut tries = 1;
        loop {
            match self.list_once(selection).await {
                Err(error) if error.is_gone() && tries < LIST_TRIES => tries += 1,
                other => return other,
            }
        }
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
            let what = url.path().to_owned();
            let mut page = self.answer(self.request(Method::GET, url)).await?;
            let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) else {
                return Err(Error::Malformed { what, why: "it has no `items`".to_owned() });
            };
            list.items.extend(items.into_iter().map(|item| with_type(item, selection.kind)));
            list.version = text_at(&page, "/metadata/resourceVersion");
            next = text_at(&page, "/metadata/continue");
            if next.is_empty() {
                // a manager that does not know `fieldSelector` answers with every name
                list.items.retain(|item| {
                    selection.name.as_ref().is_none_or(|name| text_at(item, "/metadata/name") == *name)
                });
                return Ok(list);
            }
        }
    }

    /// Makes an object; its name may be left to the manager by `generateName`.
    pub(crate) async fn create(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        object: &Value,
    ) -> Result<Made, Error> {
        let version = written_version(kind, object);
        let url = self.object_url(kind, version, namespace, None);
        let response =
            self.send(self.request(Method::POST, url).json(object).timeout(EXCHANGE_TIMEOUT)).await?;
        let warnings = warning::all(response.headers());
        Ok(Made { object: with_type(self.json(response).await?, kind), warnings })
    }

    /// Changes some fields of an object, as a JSON merge patch.
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
        Ok(with_type(self.answer(request).await?, kind))
    }

    /// Asks for an object to go away; it may stay for a while until its gang has stopped.
    pub(crate) async fn delete(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Value, Error> {
        let url = self.object_url(kind, kind.storage_version(), namespace, Some(name));
        self.answer(self.request(Method::DELETE, url)).await
    }

    /// The selected objects as they are and, from there on, every change to them.
    pub(crate) async fn watch(&self, selection: Selection) -> Result<(Vec<Value>, Watch), Error> {
        Watch::start(self.clone(), selection).await
    }

    fn object_url(&self, kind: Kind, version: &str, namespace: Option<&str>, name: Option<&str>) -> Url {
        let root =
            if kind.group().is_empty() { vec!["api", version] } else { vec!["apis", kind.group(), version] };
        let place = namespace.filter(|_| kind.namespaced()).map(|namespace| ["namespaces", namespace]);
        let mut url =
            self.url(root.into_iter().chain(place.into_iter().flatten()).chain([kind.plural()]).chain(name));
        if let Some(cluster) = &self.cluster {
            url.query_pairs_mut().append_pair("cluster", cluster);
        }
        url
    }

    fn selection_url(&self, selection: &Selection) -> Url {
        let mut url = self.object_url(
            selection.kind,
            selection.kind.storage_version(),
            selection.namespace.as_deref(),
            None,
        );
        if !selection.labels.is_empty() {
            url.query_pairs_mut().append_pair("labelSelector", &selection.labels);
        }
        if let Some(name) = &selection.name {
            url.query_pairs_mut().append_pair("fieldSelector", &format!("metadata.name={name}"));
        }
        url
    }

    /// The URL of these path segments, each escaped.
    fn url<'s>(&self, segments: impl IntoIterator<Item = &'s str>) -> Url {
        let mut url = self.base.clone();
        url.path_segments_mut().expect("http and https URLs have paths").pop_if_empty().extend(segments);
        url
    }

    fn request(&self, method: Method, url: Url) -> RequestBuilder {
        self.http.request(method, url)
    }

    /// Sends a request and reads the whole JSON answer.
    async fn answer(&self, request: RequestBuilder) -> Result<Value, Error> {
        let response = self.send(request.timeout(EXCHANGE_TIMEOUT)).await?;
        self.json(response).await
    }

    async fn json(&self, response: Response) -> Result<Value, Error> {
        let what = response.url().path().to_owned();
        let body = self.body(response).await?;
        serde_json::from_slice(&body).map_err(|error| Error::Malformed { what, why: error.to_string() })
    }

    /// Sends a request; an answer that is no success becomes an error.
    async fn send(&self, request: RequestBuilder) -> Result<Response, Error> {
        let started = Instant::now();
        let (client, request) = request.build_split();
        let request = request.map_err(|error| Error::Setup(chain(&error)))?;
        let (method, path) = (request.method().clone(), request.url().path().to_owned());
        let response = client.execute(request).await.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        tracing::debug!(%method, path, status = status.as_u16(), elapsed_ms = started.elapsed().as_millis(), "asked the manager");
        if status.is_success() {
            return Ok(response);
        }
        let body = self.body(response).await?;
        Err(Error::Status(Box::new(Status::read(status.as_u16(), &body))))
    }

    async fn body(&self, mut response: Response) -> Result<Vec<u8>, Error> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unreachable(&error))? {
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                let why = format!("it has more than {ANSWER_BYTES_MAX} bytes");
                return Err(Error::Malformed { what: response.url().path().to_owned(), why });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    fn unreachable(&self, error: &reqwest::Error) -> Error {
        Error::Unreachable {
            server: self.base.as_str().trim_end_matches('/').to_owned(),
            why: chain(error),
            unsent: error.is_connect(),
        }
    }
}

/// Lines of an answer that goes on and on.
#[derive(Debug)]
pub(crate) struct Lines {
    response: Response,
    buffer: Vec<u8>,
    /// How much of the buffer is known to hold no line feed.
    scanned: usize,
}

impl Lines {
    fn new(response: Response) -> Self {
        Self { response, buffer: Vec::new(), scanned: 0 }
    }

    /// The next line without its end; `None` when the manager ended the stream. An unfinished last line is left over
    /// for [`Lines::finish`] to tell.
    pub(crate) async fn next(&mut self, client: &Client) -> Result<Option<Vec<u8>>, Error> {
        loop {
            if let Some(at) = self.buffer[self.scanned..].iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(self.scanned + at + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                self.scanned = 0;
                line.pop();
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(Some(line));
            }
            self.scanned = self.buffer.len();
            if self.buffer.len() > LINE_BYTES_MAX {
                let why = format!("a line has more than {LINE_BYTES_MAX} bytes");
                return Err(Error::Malformed { what: self.response.url().path().to_owned(), why });
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.buffer.extend_from_slice(&chunk),
                Ok(None) => return Ok(None),
                Err(error) => return Err(client.unreachable(&error)),
            }
        }
    }
}

impl Lines {
    /// Fails if the stream ended in the middle of a line, so that an end that is none is not taken for one.
    pub(crate) fn finish(self) -> Result<(), Error> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        Err(Error::Malformed {
            what: self.response.url().path().to_owned(),
            why: "it ends in the middle of a line".to_owned(),
        })
    }
}

/// Text at a JSON pointer; empty when there is none.
fn text_at(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Objects of a list carry no type of their own; for people and files they need one.
fn with_type(mut object: Value, kind: Kind) -> Value {
    if let Value::Object(fields) = &mut object
        && !fields.contains_key("kind")
    {
        fields.insert("apiVersion".to_owned(), kind.api_version(kind.storage_version()).into());
        fields.insert("kind".to_owned(), kind.name().into());
    }
    object
}

/// The version that an object is written in; the storage version if it says none that is served.
fn written_version(kind: Kind, object: &Value) -> &'static str {
    let written = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let version = written.rsplit('/').next().unwrap_or_default();
    kind.served(version).unwrap_or_else(|| kind.storage_version())
}

/// An error and its causes, each once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut words = vec![error.to_string()];
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !words.iter().any(|word| word.contains(&text)) {
            words.push(text);
        }
        next = cause.source();
    }
    // the URL is named by who asks, and its query is noise
    if words.len() > 1 && words[0].starts_with("error sending request") {
        words.remove(0);
    }
    words.join(": ")
}

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;
