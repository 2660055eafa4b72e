//! What the API says instead of an answer. This file alone turns errors into HTTP: codes, reasons and `Status` objects.
//!
//! Codes and reasons are those of the Kubernetes API conventions, so that `kubectl` and client libraries act on them.

use super::body::SHOWN_CHARS_MAX;
use axum::Json;
use axum::http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use meridian_manager_core::facts::outcome::{Rejection, RejectionReason};
use meridian_objects::{FieldError, Kind};
use meridian_shared::ids::RecordNumber;
use serde_json::{Value, json};

/// Most causes in one answer; the message says how many there are.
const CAUSES_MAX: usize = 200;
/// When to come back after a passing trouble, in seconds: an election or a journal's reload takes about that long.
const RETRY_SECONDS: u32 = 2;

/// Which object an error is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    /// Its kind.
    pub(crate) kind: Kind,
    /// Its name; empty while it has none.
    pub(crate) name: String,
}

/// One problem with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    /// A word for programs.
    pub(crate) reason: &'static str,
    /// The field; in a request of many objects it begins with `objects[N]`.
    pub(crate) field: String,
    /// What is wrong and what to do.
    pub(crate) message: String,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// Nobody whom we know asks.
    #[error("the request has no bearer token that is known here: use the kubeconfig that this manager wrote")]
    Unauthorized,
    /// The asker may not.
    #[error("{0}")]
    Forbidden(String),
    /// There is nothing at this path.
    #[error("there is nothing at `{0}`: `/api` and `/apis` list what is served")]
    NoSuchPath(String),
    /// There is no such object.
    #[error("{} \"{}\" not found", resource(.0.kind), .0.name)]
    NotFound(Subject),
    /// Something that is not an object of the table isn't there.
    #[error("{0}")]
    Missing(String),
    /// The path is there, but not for this method.
    #[error("`{method}` is not for `{path}`: it takes {}", .allowed.join(", "))]
    Method {
        /// What was asked.
        method: String,
        /// Of what.
        path: String,
        /// What may be asked.
        allowed: Vec<&'static str>,
    },
    /// The version asked for is forgotten.
    #[error("{0}: list anew and go on from there")]
    Expired(String),
    /// A version was asked for that isn't there yet.
    #[error("Too large resource version: {asked}, current: {current}")]
    FutureVersion {
        /// The version.
        asked: u64,
        /// The newest.
        current: RecordNumber,
    },
    /// The request makes no sense.
    #[error("{0}")]
    BadRequest(String),
    /// None of the wanted forms is spoken here.
    #[error("only `application/json` is spoken here, as it is or with `as=Table;v=v1;g=meta.k8s.io`")]
    NotAcceptable,
    /// The body is in a form that is not read here.
    #[error("{0}")]
    MediaType(String),
    /// The body is too large.
    #[error("the body has more than {0} bytes: send less at once")]
    TooLarge(usize),
    /// The body didn't come.
    #[error("the body did not arrive within {0} s")]
    Slow(u64),
    /// One object has wrong fields.
    #[error("{} \"{}\" is invalid: {}", invalid_kind(.0.kind), .0.name, in_words(.1))]
    Invalid(Subject, Vec<Cause>),
    /// Several objects have problems; nothing was done.
    #[error("{}", many_words(.causes, *.objects))]
    Many {
        /// How many objects there were.
        objects: usize,
        /// The most fitting reason for all.
        reason: RejectionReason,
        /// One or more per object.
        causes: Vec<Cause>,
    },
    /// It is there already.
    #[error("{} \"{}\" already exists", resource(.0.kind), .0.name)]
    AlreadyExists(Subject),
    /// What the request takes for granted is not so.
    #[error("{0}")]
    Conflict(String),
    /// One object's change is refused.
    #[error("{1}")]
    Refused(Subject, String),
    /// Too much at once.
    #[error("{0}: try again in a moment")]
    Busy(String),
    /// The manager can't answer now.
    #[error("{0}")]
    Unavailable(String),
    /// Our own bug.
    #[error("{0}")]
    Internal(String),
}

/// `jobs.batch`, or `namespaces` for the core group.
fn resource(kind: Kind) -> String {
    dotted(kind.plural(), kind)
}

fn invalid_kind(kind: Kind) -> String {
    dotted(kind.name(), kind)
}

fn dotted(name: &str, kind: Kind) -> String {
    if kind.group().is_empty() { name.to_owned() } else { format!("{name}.{}", kind.group()) }
}

fn in_words(causes: &[Cause]) -> String {
    let word = |cause: &Cause| {
        if cause.field.is_empty() {
            cause.message.clone()
        } else {
            format!("{}: {}", cause.field, cause.message)
        }
    };
    match causes {
        [one] => word(one),
        many => format!("[{}]", many.iter().take(CAUSES_MAX).map(word).collect::<Vec<_>>().join(", ")),
    }
}

fn many_words(causes: &[Cause], objects: usize) -> String {
    let count = if causes.len() == 1 { "1 problem".to_owned() } else { format!("{} problems", causes.len()) };
    let shown =
        if causes.len() > CAUSES_MAX { format!(", the first {CAUSES_MAX} are shown") } else { String::new() };
    let first =
        causes.first().map(|cause| format!(": {}: {}", cause.field, cause.message)).unwrap_or_default();
    format!("{count} in {objects} objects{shown}; nothing was changed{first}")
}

impl Subject {
    /// A subject.
    pub(crate) fn new(kind: Kind, name: &str) -> Self {
        Self { kind, name: name.chars().take(SHOWN_CHARS_MAX).collect() }
    }
}

impl Cause {
    /// A field that can't be as it is; `prefix` names the object among several.
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

    /// One change that the core refused.
    pub(crate) fn of_rejection(prefix: &str, rejection: &Rejection) -> Self {
        let field = rejection.field.clone().unwrap_or_default();
        let dot = if prefix.is_empty() || field.is_empty() { "" } else { "." };
        let reason = match rejection.reason {
            RejectionReason::AlreadyExists => "AlreadyExists",
            RejectionReason::NotFound => "NotFound",
            RejectionReason::Conflict => "Conflict",
            RejectionReason::Invalid => "FieldValueInvalid",
            RejectionReason::Forbidden => "FieldValueForbidden",
        };
        Self { reason, field: format!("{prefix}{dot}{field}"), message: rejection.message.clone() }
    }
}

impl Error {
    /// What the core said to the only change of a request.
    pub(crate) fn rejected(subject: Subject, rejections: &[Rejection]) -> Self {
        let Some(first) = rejections.first() else {
            return Self::Internal("a change was refused without a reason".to_owned());
        };
        match first.reason {
            RejectionReason::AlreadyExists => Self::AlreadyExists(subject),
            RejectionReason::NotFound => Self::NotFound(subject),
            RejectionReason::Conflict => Self::Conflict(first.message.clone()),
            RejectionReason::Forbidden => Self::Refused(subject, first.message.clone()),
            RejectionReason::Invalid => Self::Invalid(
                subject,
                rejections.iter().map(|rejection| Cause::of_rejection("", rejection)).collect(),
            ),
        }
    }

    /// What the core said to a request without an object.
    pub(crate) fn refused(rejections: &[Rejection]) -> Self {
        let Some(first) = rejections.first() else {
            return Self::Internal("an action was refused without a reason".to_owned());
        };
        let message = first.message.clone();
        match first.reason {
            RejectionReason::NotFound => Self::Missing(message),
            RejectionReason::AlreadyExists | RejectionReason::Conflict => Self::Conflict(message),
            RejectionReason::Forbidden => Self::Forbidden(message),
            RejectionReason::Invalid => Self::BadRequest(message),
        }
    }

    /// HTTP code and Kubernetes reason.
    fn code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "Unauthorized"),
            Self::Forbidden(_) | Self::Refused(..) => (StatusCode::FORBIDDEN, "Forbidden"),
            Self::NoSuchPath(_) | Self::NotFound(_) | Self::Missing(_) => (StatusCode::NOT_FOUND, "NotFound"),
            Self::Method { .. } => (StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
            Self::Expired(_) => (StatusCode::GONE, "Expired"),
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

    /// The `Status` object.
    pub(crate) fn status(&self) -> Value {
        let (code, reason) = self.code();
        let mut details = json!({});
        if let Self::NotFound(subject)
        | Self::AlreadyExists(subject)
        | Self::Invalid(subject, _)
        | Self::Refused(subject, _) = self
        {
            // as Kubernetes has it: the kind where fields are wrong, else the resource
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
