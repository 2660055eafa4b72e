//! The selector of a job with `manualSelector: true`, which must select the job's own pods.

use crate::fields::Fields;
use serde_json::Value;

/// Like the API server, checks that a selector is written and that the labels of the pod template match it.
pub(super) fn check(spec: &Fields<'_>) {
    let written = |name: &str| spec.written().get(name).filter(|value| !value.is_null());
    if written("manualSelector") != Some(&Value::Bool(true)) {
        return;
    }
    let Some(selector) = written("selector") else {
        return spec.error(
            "selector",
            "is missing, and `manualSelector` is `true`",
            "write the labels of the template, or remove `manualSelector`",
        );
    };
    let labels = written("template").and_then(|template| template.pointer("/metadata/labels"));
    if !matches(selector, labels.unwrap_or(&Value::Null)) {
        spec.error(
            "selector",
            "doesn't match the labels of `template`",
            "write labels of the template, or remove `manualSelector` and `selector`",
        );
    }
}

fn matches(selector: &Value, labels: &Value) -> bool {
    let equal = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let expressions = selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
    equal.into_iter().all(|(key, value)| labels.get(key) == Some(value))
        && expressions.into_iter().all(|expression| meets(expression, labels))
}

/// Whether the labels meet an expression. An unreadable expression is reported elsewhere.
fn meets(expression: &Value, labels: &Value) -> bool {
    let label = expression.get("key").and_then(Value::as_str).and_then(|key| labels.get(key));
    let values = expression.get("values").and_then(Value::as_array);
    let is_listed = label.is_some_and(|label| values.is_some_and(|values| values.contains(label)));
    match expression.get("operator").and_then(Value::as_str) {
        Some("In") => is_listed,
        Some("NotIn") => !is_listed,
        Some("Exists") => label.is_some(),
        Some("DoesNotExist") => label.is_none(),
        _ => true,
    }
}
