//! A connection to a manager as one user.

use super::error::{Error, with_causes};
use super::kubeconfig::{self, Access};
use super::status::Status;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, Url};
use serde_json::Value;
use std::time::{Duration, Instant};

/// A manager that can be reached connects well within this, even with a slow TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit of a whole exchange that is no stream; a busy manager answers 503 long before.
pub(super) const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(60);
/// How often the connection of an idle stream is checked, so that a watch notices a vanished manager.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// Largest answer in bytes that is no stream. A page of objects of the largest size would exceed it, but
/// doesn't occur in practice.
const ANSWER_BYTES_MAX: usize = 128 << 20;

#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: Url,
    /// If set, requests are only about the objects that were applied for this worker cluster.
    cluster: Option<String>,
}

impl Client {
    /// Sends nothing yet. Fails if the kubeconfig's certificates or token are unusable.
    pub(crate) fn new(access: &Access) -> Result<Self, Error> {
        // rustls needs one provider per process; an error only says that one is installed already.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let base: Url = access
            .server
            .parse()
            .map_err(|error| Error::Setup(format!("`{}` is not a URL: {error}", access.server)))?;
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("meridian/", env!("CARGO_PKG_VERSION")))
            .default_headers(default_headers(access)?)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .http2_keep_alive_timeout(KEEP_ALIVE);
        if kubeconfig::is_loopback(&access.server) {
            // The environment's proxy can't reach this machine's own addresses.
            builder = builder.no_proxy();
        }
        let setup = |error: reqwest::Error| Error::Setup(with_causes(&error));
        if let Some(pem) = &access.authorities {
            let certificates = reqwest::Certificate::from_pem_bundle(pem).map_err(setup)?;
            if certificates.is_empty() {
                return Err(Error::Setup("its certificate authority holds no PEM certificate".to_owned()));
            }
            builder = builder.tls_certs_only(certificates);
        }
        if let Some(identity) = &access.identity {
            let identity = reqwest::Identity::from_pem(identity.reveal().as_bytes()).map_err(setup)?;
            builder = builder.identity(identity);
        }
        Ok(Self { http: builder.build().map_err(setup)?, base, cluster: None })
    }

    /// Returns this client for the objects applied for one worker cluster (`--cluster`), if one is named.
    pub(crate) fn of_cluster(self, cluster: Option<String>) -> Self {
        Self { cluster, ..self }
    }

    pub(super) fn cluster(&self) -> Option<&str> {
        self.cluster.as_deref()
    }

    /// The manager's URL, for messages.
    pub(super) fn server(&self) -> String {
        self.base.as_str().trim_end_matches('/').to_owned()
    }

    /// The URL of these path segments, each escaped.
    pub(super) fn url<'s>(&self, segments: impl IntoIterator<Item = &'s str>) -> Url {
        let mut url = self.base.clone();
        url.path_segments_mut().expect("http and https URLs have paths").pop_if_empty().extend(segments);
        url
    }

    pub(super) fn request(&self, method: Method, url: Url) -> RequestBuilder {
        self.http.request(method, url)
    }

    /// Sends a request and reads the whole JSON answer.
    pub(super) async fn exchange(&self, request: RequestBuilder) -> Result<Value, Error> {
        let response = self.send(request.timeout(EXCHANGE_TIMEOUT)).await?;
        self.read_json(response).await
    }

    pub(super) async fn read_json(&self, response: Response) -> Result<Value, Error> {
        let request = response.url().path().to_owned();
        let body = self.read_body(response).await?;
        serde_json::from_slice(&body).map_err(|error| Error::Malformed { request, why: error.to_string() })
    }

    /// Sends a request. Any status but 2xx is an error.
    pub(super) async fn send(&self, request: RequestBuilder) -> Result<Response, Error> {
        let started = Instant::now();
        let (client, request) = request.build_split();
        let request = request.map_err(|error| Error::Setup(with_causes(&error)))?;
        let (method, path) = (request.method().clone(), request.url().path().to_owned());
        let response = client.execute(request).await.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        let elapsed_ms = started.elapsed().as_millis();
        tracing::debug!(%method, path, status = status.as_u16(), elapsed_ms, "request to the manager");
        if status.is_success() {
            return Ok(response);
        }
        let body = self.read_body(response).await?;
        Err(Error::Status(Box::new(Status::read(status.as_u16(), &body))))
    }

    pub(super) async fn read_body(&self, mut response: Response) -> Result<Vec<u8>, Error> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unreachable(&error))? {
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                let why = format!("it is longer than {} MiB", ANSWER_BYTES_MAX >> 20);
                return Err(Error::Malformed { request: response.url().path().to_owned(), why });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    pub(super) fn unreachable(&self, error: &reqwest::Error) -> Error {
        Error::Unreachable { server: self.server(), why: with_causes(error), unsent: error.is_connect() }
    }
}

fn default_headers(access: &Access) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    if let Some(token) = &access.token {
        let mut value = HeaderValue::try_from(format!("Bearer {}", token.reveal())).map_err(|_| {
            Error::Setup("its token has characters that an HTTP header can't have".to_owned())
        })?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

/// Text at a JSON pointer; empty if there is none.
pub(super) fn text_at(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}
