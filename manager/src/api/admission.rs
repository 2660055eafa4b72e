//! The validating webhook of a management cluster: the API server asks before it stores a job.
//!
//! The answer is that of a dry run of the same submission, so users see the manager's own messages. API
//! servers present no certificate and no token, so the path contains a secret that only they get.

use super::internal::InternalApi;
use super::request::body::{self, OBJECT_BYTES_MAX};
use crate::tls::ConnectionClass;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use meridian_manager_kubernetes::Review;
use meridian_objects::Kind;
use meridian_objects::job::QUEUE_LABEL;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tower::Service as _;

/// Path of the webhook, before its secret.
pub const ADMISSION_PATH: &str = "/admission/v1/";
/// Most reviews in progress. Further ones are answered with 429, and the API server stores the job without an
/// answer.
const REVIEWS_MAX: usize = 16;
/// Largest review in bytes: it has the object twice, and little else.
const REVIEW_BYTES_MAX: usize = 2 * OBJECT_BYTES_MAX + (64 << 10);

#[derive(Clone)]
struct Webhook {
    api: InternalApi,
    secret: Arc<str>,
    permits: Arc<Semaphore>,
}

/// Serves the webhook under a secret path. Merge it with the router of the users' API, `api`.
pub fn admission_router(api: Router, secret: &str) -> Router {
    let webhook = Webhook {
        api: InternalApi::new(api),
        secret: secret.into(),
        permits: Arc::new(Semaphore::new(REVIEWS_MAX)),
    };
    Router::new().route(&format!("{ADMISSION_PATH}{{secret}}"), post(review)).with_state(webhook)
}

async fn review(
    State(webhook): State<Webhook>,
    Path(secret): Path<String>,
    class: Option<Extension<ConnectionClass>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    if !bool::from(subtle::ConstantTimeEq::ct_eq(secret.as_bytes(), webhook.secret.as_bytes())) {
        return StatusCode::NOT_FOUND.into_response();
    }
    // Count the API server's connection as a user's, because an unauthenticated connection may be cut with
    // reviews in progress. If the users' share is used up, the review is answered on the connection as it is.
    if let Some(Extension(class)) = class {
        class.authenticate();
    }
    let Ok(_permit) = webhook.permits.try_acquire() else {
        return (StatusCode::TOO_MANY_REQUESTS, "too many reviews are in progress").into_response();
    };
    let bytes = match body::read(&headers, body, REVIEW_BYTES_MAX).await {
        Ok(bytes) => bytes,
        Err(error) => return error.into_response(),
    };
    let asked = serde_json::from_slice(&bytes).ok().as_ref().and_then(Review::read);
    let Some(asked) = asked else {
        let message = "the body is not an AdmissionReview of admission.k8s.io/v1 about a job";
        return (StatusCode::BAD_REQUEST, message).into_response();
    };
    let Some((kind, name, manifest)) = &asked.write else {
        return Json(asked.answer(None, &[])).into_response();
    };
    match webhook.try_write(*kind, name, manifest, asked.is_update).await {
        DryRunVerdict::Allowed(warnings) => Json(asked.answer(None, &warnings)).into_response(),
        DryRunVerdict::Refused(message) => Json(asked.answer(Some(&message), &[])).into_response(),
        // the failure policy of the webhook then decides
        DryRunVerdict::Unknown(status) => status.into_response(),
    }
}

/// Result of a dry run of a submission.
enum DryRunVerdict {
    Allowed(Vec<String>),
    Refused(String),
    /// The manager couldn't check it now.
    Unknown(StatusCode),
}

impl Webhook {
    async fn try_write(&self, kind: Kind, name: &str, manifest: &Value, is_update: bool) -> DryRunVerdict {
        if is_update {
            let changed = self.dry_run(Method::PUT, kind, Some(name), manifest).await;
            // a job that the manager doesn't have yet is checked like a new one
            if !matches!(changed, DryRunVerdict::Unknown(StatusCode::NOT_FOUND)) {
                return changed;
            }
        }
        match self.dry_run(Method::POST, kind, None, manifest).await {
            // the manager is still deleting an earlier job of that name
            DryRunVerdict::Unknown(StatusCode::CONFLICT) => DryRunVerdict::Allowed(Vec::new()),
            verdict => verdict,
        }
    }

    async fn dry_run(
        &self,
        method: Method,
        kind: Kind,
        name: Option<&str>,
        manifest: &Value,
    ) -> DryRunVerdict {
        let text = |at: &str| manifest.pointer(at).and_then(Value::as_str).unwrap_or_default();
        let (api_version, namespace) = (text("/apiVersion"), text("/metadata/namespace"));
        let name = name.map(|name| format!("/{name}")).unwrap_or_default();
        let plural = kind.plural();
        let path = format!("/apis/{api_version}/namespaces/{namespace}/{plural}{name}");
        let mut manifest = manifest.clone();
        if let Some(metadata) = manifest["metadata"].as_object_mut().filter(|_| method == Method::PUT) {
            metadata.remove("uid");
        }
        let request = Request::builder()
            .method(method)
            .uri(format!("{path}?dryRun=All&fieldValidation=Ignore"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(manifest.to_string()));
        let Ok(request) = request else { return DryRunVerdict::Unknown(StatusCode::BAD_REQUEST) };
        let Ok(response) = self.api.clone().call(request).await;
        let (parts, body) = response.into_parts();
        if parts.status.is_success() {
            let warnings = parts.headers.get_all(header::WARNING).iter();
            return DryRunVerdict::Allowed(
                warnings.filter_map(|text| warning(&String::from_utf8_lossy(text.as_bytes()))).collect(),
            );
        }
        match parts.status {
            StatusCode::BAD_REQUEST | StatusCode::FORBIDDEN | StatusCode::UNPROCESSABLE_ENTITY => {
                let bytes = axum::body::to_bytes(body, REVIEW_BYTES_MAX).await.unwrap_or_default();
                let status: Value = serde_json::from_slice(&bytes).unwrap_or_default();
                let message = status["message"].as_str().unwrap_or("the manager refuses this job").to_owned();
                // as with Kueue, a queue may be created after its jobs
                if is_about_queue(&status) {
                    DryRunVerdict::Allowed(vec![message])
                } else {
                    DryRunVerdict::Refused(message)
                }
            }
            other => DryRunVerdict::Unknown(other),
        }
    }
}

/// Whether a refusal names the queue of the job and nothing else.
fn is_about_queue(status: &Value) -> bool {
    let field = format!("metadata.labels[{QUEUE_LABEL}]");
    let causes = status.pointer("/details/causes").and_then(Value::as_array);
    causes.is_some_and(|causes| !causes.is_empty() && causes.iter().all(|cause| cause["field"] == field))
}

/// The text of a `Warning` header: `299 - "text"`, with quotes and backslashes escaped (RFC 7234, section
/// 5.5).
fn warning(header: &str) -> Option<String> {
    let quoted = header.split_once('"')?.1.strip_suffix('"')?;
    Some(quoted.replace("\\\"", "\"").replace("\\\\", "\\"))
}
