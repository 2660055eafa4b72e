//! The manager's REST API through a plain HTTP client, so that the tests don't depend on the client under
//! test.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// A paused manager blocks a request for this long at most.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// A connection with one user's credentials.
#[derive(Clone, Debug)]
pub(super) struct RestClient {
    http: reqwest::Client,
    server: String,
}

/// Status and body of an answer.
pub(super) type Answer = Result<(u16, Value), String>;

impl RestClient {
    /// From the manager's kubeconfig; `None` until it is written.
    pub(super) fn open(kubeconfig: &Path) -> Option<Self> {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let config: Value = serde_saphyr::from_str(&std::fs::read_to_string(kubeconfig).ok()?).ok()?;
        let cluster = &config["clusters"][0]["cluster"];
        let authority = STANDARD.decode(cluster["certificate-authority-data"].as_str()?).ok()?;
        let mut headers = reqwest::header::HeaderMap::new();
        headers.insert(
            "authorization",
            format!("Bearer {}", config["users"][0]["user"]["token"].as_str()?).parse().ok()?,
        );
        let http = reqwest::Client::builder()
            .default_headers(headers)
            .no_proxy()
            .tls_certs_only(reqwest::Certificate::from_pem_bundle(&authority).ok()?)
            .connect_timeout(CONNECT_WITHIN)
            .timeout(ANSWER_WITHIN)
            .build()
            .ok()?;
        Some(Self { http, server: cluster["server"].as_str()?.to_owned() })
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.send(self.http.get(format!("{}{path}", self.server))).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(self.http.post(format!("{}{path}", self.server)).json(body)).await
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
        let answer = request.send().await.map_err(|e| format!("{e:?}"))?;
        let status = answer.status().as_u16();
        let body = answer.bytes().await.map_err(|e| format!("{e:?}"))?;
        Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
    }

    /// A body that isn't JSON.
    pub(super) async fn text(&self, path: &str) -> Result<String, String> {
        self.text_at(&format!("{}{path}", self.server)).await
    }

    /// A body that isn't JSON, of any server.
    pub(super) async fn text_at(&self, url: &str) -> Result<String, String> {
        let answer = self.http.get(url).send().await.map_err(|e| format!("{e:?}"))?;
        answer.text().await.map_err(|e| format!("{e:?}"))
    }

    /// All objects of a path, over all pages.
    pub(super) async fn list(&self, path: &str) -> Result<Vec<Value>, String> {
        let (mut items, mut next) = (Vec::new(), String::new());
        loop {
            let (status, mut page) = self.get(&format!("{path}?limit=500&continue={next}")).await?;
            let (200, Value::Array(these)) = (status, page["items"].take()) else {
                return Err(format!("{status} for {path}: {page}"));
            };
            items.extend(these);
            match page["metadata"]["continue"].as_str() {
                None | Some("") => return Ok(items),
                Some(more) => next = more.to_owned(),
            }
        }
    }
}
