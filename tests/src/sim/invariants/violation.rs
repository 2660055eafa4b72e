//! A broken promise, and the result of a check.

use std::fmt;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The promise, such as `P2`, or the rule of the protocol.
    pub promise: &'static str,
    /// What was seen.
    pub details: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} broken: {}", self.promise, self.details)
    }
}

/// The result of a check.
pub(crate) type Verdict = Result<(), Violation>;

/// A verdict that `promise` is broken.
pub(crate) fn violation(promise: &'static str, details: impl Into<String>) -> Verdict {
    Err(Violation { promise, details: details.into() })
}
