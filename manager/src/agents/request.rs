//! Requests of agents: the body, and the answer in case of a failure.

use crate::bounded_body::{self, BodyError, Rest};
use crate::engine::Unavailable;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use serde_json::json;
use std::time::Duration;

/// Longest time for the body of a request to arrive. Bodies with logs have no limit.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time for the body of a join to arrive. It is small.
const JOIN_BODY_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn no_certificate() -> Failure {
    Failure::new(StatusCode::UNAUTHORIZED, "the connection has no agent certificate: join first".into())
}

/// Reads the whole body of an agent's request. Fails if it is longer than `bytes_max`, late or broken off.
pub(super) async fn read(body: Body, bytes_max: usize) -> Result<Bytes, Failure> {
    read_within(body, bytes_max, BODY_TIMEOUT, Rest::Discarded).await
}

/// Reads the whole body of a request to join. Like [`read`], but with a shorter limit, because the sender is
/// unknown.
pub(super) async fn read_join(body: Body, bytes_max: usize) -> Result<Bytes, Failure> {
    read_within(body, bytes_max, JOIN_BODY_TIMEOUT, Rest::Unread).await
}

async fn read_within(body: Body, bytes_max: usize, limit: Duration, rest: Rest) -> Result<Bytes, Failure> {
    let failure = match tokio::time::timeout(limit, bounded_body::read(body, bytes_max, rest)).await {
        Ok(Ok(bytes)) => return Ok(bytes),
        Ok(Err(BodyError::TooLarge)) => {
            (StatusCode::PAYLOAD_TOO_LARGE, format!("the body is longer than {bytes_max} bytes"))
        }
        Ok(Err(BodyError::Broken(error))) => {
            (StatusCode::BAD_REQUEST, format!("the body ended early: {error}"))
        }
        Err(_) => (StatusCode::REQUEST_TIMEOUT, format!("the body took longer than {} s", limit.as_secs())),
    };
    Err(Failure::new(failure.0, failure.1))
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

    pub(super) fn message(&self) -> &str {
        &self.message
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
