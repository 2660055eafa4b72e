//! Forms of an answer: objects in the requested version, tables, warnings and errors.

pub(crate) mod error;
pub(crate) mod rendered;
pub(crate) mod table;
pub(crate) mod warning;

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;

/// An answer that is encoded as JSON already.
pub(crate) fn json_bytes(bytes: impl Into<Body>) -> Response {
    let mut response = Response::new(bytes.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
