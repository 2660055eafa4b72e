//! Requests of agents: the sender, the body, and the answer in case of a failure.

use crate::engine::Unavailable;
use crate::engine::clock::{BootClock, Clock};
use crate::tls::{AgentIdentity, CertificateStatus, Peer};
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::json;
use std::time::Duration;

/// Longest time for the body of a request to arrive. Logs have no limit.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The agent behind a request. Fails unless its certificate is valid now.
pub(super) fn agent(peer: &Peer) -> Result<&AgentIdentity, Failure> {
    match peer.certificate_status(BootClock.now().wall) {
        CertificateStatus::Valid(agent) => Ok(agent),
        CertificateStatus::RenewalOnly(_) => Err(Failure::new(
            StatusCode::UNAUTHORIZED,
            "the certificate has expired: it is valid for renewal only".into(),
        )),
        CertificateStatus::None => Err(no_certificate()),
    }
}

pub(super) fn no_certificate() -> Failure {
    Failure::new(StatusCode::UNAUTHORIZED, "the connection has no agent certificate: join first".into())
}

/// Reads a whole body. Fails if it is longer than `bytes_max`, late or broken off.
pub(super) async fn read(body: Body, bytes_max: usize) -> Result<bytes::Bytes, Failure> {
    let reading = axum::body::to_bytes(body, bytes_max);
    match tokio::time::timeout(BODY_TIMEOUT, reading).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(Failure::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body ended early or is longer than {bytes_max} bytes"),
        )),
        Err(_) => Err(Failure::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body took longer than {} s", BODY_TIMEOUT.as_secs()),
        )),
    }
}

/// Decodes a JSON body. Fails if it is malformed or has another shape.
pub(super) fn parsed<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(bytes)
        .map_err(|error| Failure::new(StatusCode::BAD_REQUEST, format!("the body can't be read: {error}")))
}

pub(super) fn json_of(value: &impl Serialize) -> Response {
    let body = serde_json::to_vec(value).expect("our own types serialise");
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

/// Why a request failed; sent as a Kubernetes `Status`.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) code: StatusCode,
    message: String,
}

impl Failure {
    pub(super) fn new(code: StatusCode, message: String) -> Self {
        Self { code, message }
    }
}

impl From<Unavailable> for Failure {
    fn from(why: Unavailable) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, why.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let reason = self.code.canonical_reason().unwrap_or_default().replace(' ', "");
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": self.message,
            "reason": reason, "code": self.code.as_u16(),
        });
        let mut response = (self.code, json_of(&status)).into_response();
        if matches!(self.code, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
