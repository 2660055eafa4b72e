//! Validation rules in CEL, with the messages of Meridian's reader.
//!
//! A message is the reader's message and remedy, joined as the reader joins them. `tests/refusals.rs`
//! compares both.

use serde_json::{Value, json};

/// A DNS subdomain: the name of most objects.
pub(crate) const NAME: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// A DNS label: the name of a pod set.
pub(crate) const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// The key of a label, and the name of a resource.
pub(crate) const LABEL_KEY: &str = concat!(
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?",
    "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
);
/// The value of a label; may be empty.
pub(crate) const LABEL_VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$";
/// A region or jurisdiction: one word without commas.
pub(crate) const PLACE: &str = r"^[^\s\p{Z}\p{Cc},]{1,63}$";
/// A positive duration, as Go writes it.
pub(crate) const DURATION: &str = r"^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$";
/// A quantity of Kubernetes.
pub(crate) const QUANTITY: &str =
    r"^[+-]?([0-9]+|[0-9]+\.[0-9]*|\.[0-9]+)(([KMGTPE]i)|[numkMGTPE]|([eE][+-]?[0-9]+))?$";

/// A rule that fails with a fixed message.
pub(crate) fn rule(rule: impl Into<String>, message: &str) -> Value {
    json!({"rule": rule.into(), "message": message})
}

/// A rule whose message is about a field below the value.
pub(crate) fn rule_at(path: &str, of: impl Into<String>, message: &str) -> Value {
    json!({"rule": of.into(), "message": message, "fieldPath": path})
}

/// A rule whose message is an expression, because it names what was written.
pub(crate) fn says(rule: impl Into<String>, message: impl Into<String>) -> Value {
    json!({"rule": rule.into(), "messageExpression": message.into()})
}

/// As [`says`], about a field below the value.
pub(crate) fn says_at(path: &str, rule: impl Into<String>, message: impl Into<String>) -> Value {
    json!({"rule": rule.into(), "messageExpression": message.into(), "fieldPath": path})
}

/// A string of CEL.
pub(crate) fn text(of: &str) -> String {
    format!("'{}'", of.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// Whether the string `subject` matches a pattern.
pub(crate) fn matches(subject: &str, pattern: &str) -> String {
    format!("{subject}.matches(r'{pattern}')")
}

/// A rule for a string that must match a pattern; `what` and `remedy` are the reader's words.
pub(crate) fn is(pattern: &str, what: &str, remedy: &str) -> Value {
    says(matches("self", pattern), format!("'`' + self + {}", text(&format!("` is not {what}; {remedy}"))))
}
