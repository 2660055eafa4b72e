//! Kubernetes' `Status` object: the manager's refusals, and their text.

use serde::Deserialize;
use std::fmt;

/// Bytes shown of an answer that is no `Status`.
const SHOWN_BYTES_MAX: usize = 300;

/// An answer that is not 2xx.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Status {
    /// The HTTP status code.
    pub(crate) code: u16,
    /// Kubernetes' reason, such as `NotFound`.
    pub(crate) reason: String,
    pub(crate) message: String,
    details: Option<Details>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Details {
    causes: Vec<Cause>,
    retry_after_seconds: Option<u32>,
}

/// One problem of a refused request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Cause {
    /// Such as `spec.queueName`; in an apply it begins with `objects[3].`, the object's index in the request.
    pub(crate) field: String,
    pub(crate) message: String,
}

impl Status {
    /// Reads the body of an answer with the HTTP status `code`.
    pub(super) fn read(code: u16, body: &[u8]) -> Self {
        let mut status = serde_json::from_slice::<Self>(body).unwrap_or_default();
        if status.message.is_empty() && status.reason.is_empty() {
            // Not a `Status`: a proxy answered, or an endpoint that speaks plain text.
            let text = String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES_MAX)]);
            status.message = text.trim().to_owned();
        }
        status.code = code;
        if status.reason.is_empty() {
            status.reason = default_reason(code).to_owned();
        }
        status
    }

    /// Reads a line of a stream, if it is a `Status`.
    pub(super) fn of_line(line: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Document<'a> {
            #[serde(borrow)]
            kind: std::borrow::Cow<'a, str>,
        }
        let document: Document<'_> = serde_json::from_slice(line).ok()?;
        (document.kind == "Status").then(|| serde_json::from_slice(line).unwrap_or_default())
    }

    pub(crate) fn causes(&self) -> &[Cause] {
        self.details.as_ref().map_or(&[], |details| &details.causes)
    }
}

fn default_reason(code: u16) -> &'static str {
    match code {
        300..=399 => "Redirect",
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        409 => "Conflict",
        410 => "Expired",
        413 => "RequestEntityTooLarge",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        500..=599 => "InternalError",
        _ => "Unknown",
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = if self.message.is_empty() { "the manager refused" } else { &self.message };
        write!(f, "{message} ({} {})", self.code, self.reason)?;
        for cause in self.causes() {
            let field = cause.field.as_str();
            if self.message.contains(&cause.message) && self.message.contains(field) {
                continue;
            }
            let colon = if field.is_empty() { "" } else { ": " };
            write!(f, "\n  {field}{colon}{}", cause.message)?;
        }
        match self.code {
            401 => f.write_str("\n  the manager doesn't accept this kubeconfig's credentials: get a new one"),
            300..=399 => f.write_str("\n  redirects are not followed: correct the kubeconfig's `server`"),
            _ => match self.details.as_ref().and_then(|details| details.retry_after_seconds) {
                Some(seconds) => write!(f, "\n  try again in {seconds}s"),
                None => Ok(()),
            },
        }
    }
}

impl std::error::Error for Status {}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn statuses_become_messages() {
        let check = |code: u16, body: &str, expect: &str| {
            assert_eq!(Status::read(code, body.as_bytes()).to_string(), expect)
        };
        let missing = json!({
            "kind": "Status", "status": "Failure", "message": "jobs.batch \"x\" not found",
            "reason": "NotFound", "code": 404,
        });
        check(404, &missing.to_string(), "jobs.batch \"x\" not found (404 NotFound)");
        let invalid = json!({"message": "Job `t` is invalid", "reason": "Invalid", "details": {"causes": [
            {"reason": "FieldValueInvalid", "field": "spec.parallelism", "message": "must be a whole number"},
            {"field": "", "message": "the queue `q` does not exist"},
        ]}});
        check(
            422,
            &invalid.to_string(),
            "Job `t` is invalid (422 Invalid)\n  \
             spec.parallelism: must be a whole number\n  \
             the queue `q` does not exist",
        );
        check(
            503,
            &json!({"message": "the journal is full", "details": {"retryAfterSeconds": 5}}).to_string(),
            "the journal is full (503 ServiceUnavailable)\n  try again in 5s",
        );
        check(502, "<html>Bad Gateway</html>", "<html>Bad Gateway</html> (502 InternalError)");
        check(500, "", "the manager refused (500 InternalError)");
        check(
            401,
            "",
            "the manager refused (401 Unauthorized)\n  \
             the manager doesn't accept this kubeconfig's credentials: get a new one",
        );
    }
}
