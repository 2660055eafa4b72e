//! Errors of the API. This module alone turns errors into HTTP: codes, reasons and `Status` objects.
//!
//! Codes, reasons and wording follow the Kubernetes API conventions, so that `kubectl` and client libraries
//! act on them.

use axum::Json;
use axum::http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use meridian_manager_core::facts::outcome::{Rejection, RejectionReason, Reply};
use meridian_objects::{FieldError, Kind};
use meridian_shared::counted::counted;
use meridian_shared::ids::RecordNumber;
use meridian_views::asker::Asker;
use meridian_views::rejections;
use serde_json::{Value, json};

/// Most characters of a client's text that are repeated in an answer.
const ECHO_CHARS_MAX: usize = 300;
/// Most causes in one answer; the message has the total number.
const CAUSES_MAX: usize = 200;
/// When to retry after a temporary failure, in seconds: an election or a reload of the journal takes about
/// that long.
const RETRY_SECONDS: u32 = 2;

/// The object that an error is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) kind: Kind,
    /// Empty if the object has no name yet.
    pub(crate) name: String,
}

/// One problem with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    /// A reason of the Kubernetes conventions, for programs.
    pub(crate) reason: &'static str,
    /// In a request of many objects it begins with `objects[N]`.
    pub(crate) field: String,
    /// The error and its remedy.
    pub(crate) message: String,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("Unauthorized: no valid bearer token; use the kubeconfig that this manager wrote")]
    Unauthorized,
    #[error("{0}")]
    Forbidden(String),
    /// No kind and no endpoint is served at this path.
    #[error(
        "the server could not find the requested resource `{0}`: see `/api` and `/apis` for what is served"
    )]
    NoSuchPath(String),
    #[error("{} \"{}\" not found", resource(.0.kind), .0.name)]
    NotFound(Subject),
    /// Something that doesn't exist and is not an object of the table of kinds.
    #[error("{0}")]
    Missing(String),
    #[error("the server does not allow `{method}` on `{path}`: use {}", .allowed.join(", "))]
    Method { method: String, path: String, allowed: Vec<&'static str> },
    /// The requested version is no longer available.
    #[error("{0}: list again and continue from the list's version")]
    Expired(String),
    /// The requested part of the audit log was removed.
    #[error("{0}")]
    Removed(String),
    /// The requested version doesn't exist yet.
    #[error("Too large resource version: {asked}, current: {current}")]
    FutureVersion { asked: u64, current: RecordNumber },
    #[error("{0}")]
    BadRequest(String),
    #[error(
        "only the following media types are accepted: `application/json`, plain or with \
         `as=Table;v=v1;g=meta.k8s.io`"
    )]
    NotAcceptable,
    #[error("{0}")]
    MediaType(String),
    #[error("the body has more than {0} bytes: split the request")]
    TooLarge(usize),
    #[error("the body did not arrive within {0} s")]
    Slow(u64),
    /// One object has invalid fields.
    #[error("{} \"{}\" is invalid: {}", invalid_kind(.0.kind), .0.name, causes_message(.1))]
    Invalid(Subject, Vec<Cause>),
    /// Several objects have problems. Nothing was changed.
    #[error("{}", many_message(.causes, *.objects))]
    Many {
        /// Number of objects in the request.
        objects: usize,
        /// The reason that fits all rejections best.
        reason: RejectionReason,
        causes: Vec<Cause>,
    },
    #[error("{} \"{}\" already exists", resource(.0.kind), .0.name)]
    AlreadyExists(Subject),
    /// A precondition of the request doesn't hold.
    #[error("{0}")]
    Conflict(String),
    /// The core refused the change of one object.
    #[error("{1}")]
    Refused(Subject, String),
    #[error("{0}: try again in a moment")]
    Busy(String),
    /// The manager can't answer at the moment.
    #[error("{0}")]
    Unavailable(String),
    /// A bug of this program.
    #[error("{0}")]
    Internal(String),
}

/// The answer to a method that a path doesn't serve. `OPTIONS` gets the list of methods instead of an error.
pub(crate) async fn method_not_allowed(
    method: Method,
    uri: Uri,
    allowed: impl Into<Vec<&'static str>>,
) -> Response {
    let mut allowed = allowed.into();
    if allowed.contains(&"GET") {
        allowed.push("HEAD");
    }
    allowed.push("OPTIONS");
    if method == Method::OPTIONS {
        let value = HeaderValue::try_from(allowed.join(", ")).expect("methods are header text");
        return (StatusCode::NO_CONTENT, [(ALLOW, value)]).into_response();
    }
    Error::Method { method: method.to_string(), path: echoed_path(&uri), allowed }.into_response()
}

/// The path of a request, cut to a length that may be repeated in an answer.
pub(crate) fn echoed_path(uri: &Uri) -> String {
    uri.path().chars().take(ECHO_CHARS_MAX).collect()
}

/// The reason that fits several rejections best: the common reason if they agree.
pub(crate) fn common_reason(reasons: impl IntoIterator<Item = RejectionReason>) -> RejectionReason {
    let mut reasons = reasons.into_iter();
    let first = reasons.next().unwrap_or(RejectionReason::Invalid);
    if reasons.all(|reason| reason == first) { first } else { RejectionReason::Invalid }
}

/// The resource as kubectl writes it: `jobs.batch`, or `namespaces` for the core group.
fn resource(kind: Kind) -> String {
    dotted(kind.plural(), kind)
}

fn invalid_kind(kind: Kind) -> String {
    dotted(kind.name(), kind)
}

fn dotted(name: &str, kind: Kind) -> String {
    if kind.group().is_empty() { name.to_owned() } else { format!("{name}.{}", kind.group()) }
}

fn causes_message(causes: &[Cause]) -> String {
    let message = |cause: &Cause| {
        if cause.field.is_empty() {
            cause.message.clone()
        } else {
            format!("{}: {}", cause.field, cause.message)
        }
    };
    match causes {
        [one] => message(one),
        many => format!("[{}]", many.iter().take(CAUSES_MAX).map(message).collect::<Vec<_>>().join(", ")),
    }
}

fn many_message(causes: &[Cause], objects: usize) -> String {
    let (count, objects) = (counted(causes.len(), "problem"), counted(objects, "object"));
    let shown =
        if causes.len() > CAUSES_MAX { format!(", the first {CAUSES_MAX} are shown") } else { String::new() };
    let first =
        causes.first().map(|cause| format!(": {}: {}", cause.field, cause.message)).unwrap_or_default();
    format!("{count} in {objects}{shown}; nothing was changed{first}")
}

impl Subject {
    pub(crate) fn new(kind: Kind, name: &str) -> Self {
        Self { kind, name: name.chars().take(ECHO_CHARS_MAX).collect() }
    }
}

impl Cause {
    /// The cause of an invalid field. `prefix` names the object among several.
    pub(crate) fn of_field(prefix: &str, error: &FieldError) -> Self {
        let field = error.field.to_string();
        let dot = if prefix.is_empty() || field.is_empty() || field.starts_with('[') { "" } else { "." };
        let remedy = if error.remedy.is_empty() { String::new() } else { format!("; {}", error.remedy) };
        Self {
            reason: "FieldValueInvalid",
            field: format!("{prefix}{dot}{field}"),
            message: format!("{}{remedy}", error.message),
        }
    }

    /// The cause of a change that the core refused.
    pub(crate) fn of_rejection(prefix: &str, rejection: &Rejection, asker: &Asker) -> Self {
        let field = rejection.field.clone().unwrap_or_default();
        let dot = if prefix.is_empty() || field.is_empty() { "" } else { "." };
        let reason = match rejection.reason {
            RejectionReason::AlreadyExists => "AlreadyExists",
            RejectionReason::NotFound => "NotFound",
            RejectionReason::Conflict => "Conflict",
            RejectionReason::Invalid => "FieldValueInvalid",
            RejectionReason::Forbidden => "FieldValueForbidden",
        };
        Self {
            reason,
            field: format!("{prefix}{dot}{field}"),
            message: rejections::message(rejection, asker),
        }
    }
}

impl Error {
    /// The core answered a request with a reply that doesn't belong to it.
    pub(crate) fn unexpected(request: &str, reply: &Reply) -> Self {
        tracing::error!(request, ?reply, "the core gave an unexpected reply");
        Self::Internal(format!(
            "the manager's core gave an unexpected reply to {request}: this is a bug, report it with the \
             manager's log"
        ))
    }

    /// The error for the core's rejections of a request with one change.
    pub(crate) fn rejected(subject: Subject, all: &[Rejection], asker: &Asker) -> Self {
        let Some(first) = all.first() else {
            return Self::Internal("a change was refused without a reason".to_owned());
        };
        match first.reason {
            RejectionReason::AlreadyExists => Self::AlreadyExists(subject),
            RejectionReason::NotFound => Self::NotFound(subject),
            RejectionReason::Conflict => Self::Conflict(rejections::message(first, asker)),
            RejectionReason::Forbidden => Self::Refused(subject, rejections::message(first, asker)),
            RejectionReason::Invalid => Self::Invalid(
                subject,
                all.iter().map(|rejection| Cause::of_rejection("", rejection, asker)).collect(),
            ),
        }
    }

    /// The error for the core's rejections of a request without an object.
    pub(crate) fn refused(all: &[Rejection], asker: &Asker) -> Self {
        let Some(first) = all.first() else {
            return Self::Internal("an action was refused without a reason".to_owned());
        };
        let message = rejections::message(first, asker);
        match first.reason {
            RejectionReason::NotFound => Self::Missing(message),
            RejectionReason::AlreadyExists | RejectionReason::Conflict => Self::Conflict(message),
            RejectionReason::Forbidden => Self::Forbidden(message),
            RejectionReason::Invalid => Self::BadRequest(message),
        }
    }

    /// The HTTP code and the Kubernetes reason.
    fn code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "Unauthorized"),
            Self::Forbidden(_) | Self::Refused(..) => (StatusCode::FORBIDDEN, "Forbidden"),
            Self::NoSuchPath(_) | Self::NotFound(_) | Self::Missing(_) => (StatusCode::NOT_FOUND, "NotFound"),
            Self::Method { .. } => (StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
            Self::Expired(_) => (StatusCode::GONE, "Expired"),
            Self::Removed(_) => (StatusCode::GONE, "Gone"),
            Self::FutureVersion { .. } => (StatusCode::GATEWAY_TIMEOUT, "Timeout"),
            Self::BadRequest(_) => (StatusCode::BAD_REQUEST, "BadRequest"),
            Self::NotAcceptable => (StatusCode::NOT_ACCEPTABLE, "NotAcceptable"),
            Self::MediaType(_) => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType"),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge"),
            Self::Slow(_) => (StatusCode::REQUEST_TIMEOUT, "Timeout"),
            Self::Invalid(..) => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
            Self::Many { reason, .. } => match reason {
                RejectionReason::AlreadyExists => (StatusCode::CONFLICT, "AlreadyExists"),
                RejectionReason::NotFound => (StatusCode::NOT_FOUND, "NotFound"),
                RejectionReason::Conflict => (StatusCode::CONFLICT, "Conflict"),
                RejectionReason::Invalid => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
                RejectionReason::Forbidden => (StatusCode::FORBIDDEN, "Forbidden"),
            },
            Self::AlreadyExists(_) => (StatusCode::CONFLICT, "AlreadyExists"),
            Self::Conflict(_) => (StatusCode::CONFLICT, "Conflict"),
            Self::Busy(_) => (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"),
            Self::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
            Self::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
        }
    }

    fn retry_seconds(&self) -> Option<u32> {
        let (code, _) = self.code();
        matches!(
            code,
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS | StatusCode::GATEWAY_TIMEOUT
        )
        .then_some(RETRY_SECONDS)
    }

    fn causes(&self) -> Vec<Value> {
        let version_cause = [Cause {
            reason: "ResourceVersionTooLarge",
            field: String::new(),
            message: "Too large resource version".to_owned(),
        }];
        let causes: &[Cause] = match self {
            Self::Invalid(_, causes) | Self::Many { causes, .. } => causes,
            Self::FutureVersion { .. } => &version_cause,
            _ => &[],
        };
        causes
            .iter()
            .take(CAUSES_MAX)
            .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}))
            .collect()
    }

    /// The `Status` object of the Kubernetes API.
    pub(crate) fn status(&self) -> Value {
        let (code, reason) = self.code();
        let mut details = json!({});
        if let Self::NotFound(subject)
        | Self::AlreadyExists(subject)
        | Self::Invalid(subject, _)
        | Self::Refused(subject, _) = self
        {
            // as in Kubernetes: the kind if fields are invalid, else the resource
            let kind =
                if matches!(self, Self::Invalid(..)) { subject.kind.name() } else { subject.kind.plural() };
            details = json!({"name": subject.name, "group": subject.kind.group(), "kind": kind});
        }
        let causes = self.causes();
        if !causes.is_empty() {
            details["causes"] = Value::Array(causes);
        }
        if let Some(seconds) = self.retry_seconds() {
            details["retryAfterSeconds"] = json!(seconds);
        }
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.to_string(), "reason": reason, "details": details, "code": code.as_u16(),
        })
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let (code, reason) = self.code();
        if code.is_server_error() {
            tracing::warn!(code = code.as_u16(), reason, "{self}");
        }
        let mut response = (code, Json(self.status())).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_seconds() {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Self::Method { allowed, .. } = &self {
            headers
                .insert(ALLOW, HeaderValue::try_from(allowed.join(", ")).expect("methods are header text"));
        }
        if self == Self::Unauthorized {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
