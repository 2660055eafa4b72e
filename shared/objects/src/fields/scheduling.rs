//! Readers of parts that several kinds share: taints, tolerations, selectors, labels, references by name.

use crate::fields::names;
use crate::fields::{Fields, Item};
use meridian_shared::gang::{Amounts, LabelSelector, Operator, Requirement, Taint, TaintEffect, Toleration};
use std::collections::BTreeMap;

/// Most tolerations of a pod, taints of a node or requirements of a selector.
pub(crate) const MAX_RULES: usize = 100;
/// Largest sum of the keys and values of an object's annotations, in bytes, as in Kubernetes.
pub(crate) const MAX_ANNOTATIONS_BYTES: usize = 256 * 1024;
/// Most values of one requirement.
const MAX_VALUES: usize = 500;

const EFFECTS: &[(&str, TaintEffect)] = &[
    ("NoSchedule", TaintEffect::NoSchedule),
    ("PreferNoSchedule", TaintEffect::PreferNoSchedule),
    ("NoExecute", TaintEffect::NoExecute),
];

const SELECTOR_OPERATORS: &[(&str, Operator)] = &[
    ("In", Operator::In),
    ("NotIn", Operator::NotIn),
    ("Exists", Operator::Exists),
    ("DoesNotExist", Operator::DoesNotExist),
];

const NODE_OPERATORS: &[(&str, Operator)] = &[
    ("In", Operator::In),
    ("NotIn", Operator::NotIn),
    ("Exists", Operator::Exists),
    ("DoesNotExist", Operator::DoesNotExist),
    ("Gt", Operator::Gt),
    ("Lt", Operator::Lt),
];

/// Labels or a node selector, with keys and values checked.
pub(crate) fn labels(fields: &Fields<'_>, name: &'static str) -> BTreeMap<String, String> {
    let all = fields.strings(name);
    for (key, value) in &all {
        let at = fields.path().key(name).key(key);
        if !names::is_label_key(key) {
            fields.findings().error(
                at,
                format!("`{key}` is not a label key"),
                "use letters, digits, `-`, `_` and `.`, with at most one `/`",
            );
        } else if !names::is_label_value(value) {
            let remedy = "use at most 63 letters, digits, `-`, `_` and `.`, beginning and ending with a \
                letter or digit";
            fields.findings().error(at, format!("`{value}` is not a label value"), remedy);
        }
    }
    all
}

/// Annotations, with keys and size checked.
pub(crate) fn annotations(metadata: &Fields<'_>) -> BTreeMap<String, String> {
    let all = metadata.strings("annotations");
    for key in all.keys().filter(|key| !names::is_label_key(&key.to_lowercase())) {
        let at = metadata.path().key("annotations").key(key);
        metadata.findings().error(
            at,
            format!("`{key}` is not an annotation key"),
            "use letters, digits, `-`, `_` and `.`, with at most one `/`",
        );
    }
    let bytes: usize = all.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > MAX_ANNOTATIONS_BYTES {
        metadata.error(
            "annotations",
            format!("are {bytes} bytes together"),
            format!("the maximum is {MAX_ANNOTATIONS_BYTES}"),
        );
    }
    all
}

pub(crate) fn taint(item: &Item<'_>) -> Option<Taint> {
    let fields = item.fields()?;
    fields.known(&["timeAdded"]);
    let key = fields.demand("key").and_then(|item| item.text()).map(str::to_owned);
    if key.as_deref() == Some("") {
        fields.error("key", "is empty", "give `key` a value");
    }
    let value = fields.text("value").unwrap_or_default().to_owned();
    let effect = fields.demand("effect").and_then(|item| item.word(EFFECTS));
    fields.finish();
    Some(Taint { key: key?, value, effect: effect? })
}

pub(crate) fn toleration(item: &Item<'_>) -> Option<Toleration> {
    let fields = item.fields()?;
    let key = fields.text("key").filter(|key| !key.is_empty()).map(str::to_owned);
    let exists = fields
        .get("operator")
        .and_then(|item| item.word(&[("Exists", true), ("Equal", false), ("", false)]))
        .unwrap_or(false);
    let value = fields.text("value").unwrap_or_default().to_owned();
    let effect = fields.get("effect").filter(|item| item.value() != "").and_then(|item| item.word(EFFECTS));
    let seconds = fields.int("tolerationSeconds", i64::MIN, i64::MAX);
    if let Some(key) = key.as_deref().filter(|key| !names::is_label_key(key)) {
        fields.error("key", format!("`{key}` is not a taint key"), "use a valid label key");
    }
    if !names::is_label_value(&value) {
        fields.error("value", format!("`{value}` is not a taint value"), "use a valid label value");
    }
    if key.is_none() && !exists {
        fields.error(
            "operator",
            "must be `Exists` when there is no key",
            "write `operator: Exists`, or name a key",
        );
    }
    if exists && !value.is_empty() {
        fields.error(
            "value",
            "must be empty with `operator: Exists`",
            "remove the value, or write `operator: Equal`",
        );
    }
    if seconds.is_some() && effect != Some(TaintEffect::NoExecute) {
        fields.error(
            "effect",
            "must be `NoExecute` with `tolerationSeconds`",
            "write `effect: NoExecute`, or remove `tolerationSeconds`",
        );
    }
    fields.finish();
    Some(Toleration { key, exists, value, effect, seconds })
}

/// One requirement of a label selector or, with `node`, of a node affinity.
pub(crate) fn requirement(item: &Item<'_>, node: bool) -> Option<Requirement> {
    let fields = item.fields()?;
    let key = fields.demand("key").and_then(|item| item.text()).map(str::to_owned);
    if key.as_deref() == Some("") {
        fields.error("key", "is empty", "give `key` a value");
    }
    let operator = fields
        .demand("operator")
        .and_then(|item| item.word(if node { NODE_OPERATORS } else { SELECTOR_OPERATORS }));
    let values: Vec<String> = fields.list("values", MAX_VALUES, |item| item.text().map(str::to_owned));
    let problem = match operator {
        Some(Operator::In | Operator::NotIn) if values.is_empty() => Some("needs at least one value"),
        Some(Operator::Exists | Operator::DoesNotExist) if !values.is_empty() => {
            Some("must be empty with this operator")
        }
        Some(Operator::Gt | Operator::Lt) if values.len() != 1 || values[0].parse::<i64>().is_err() => {
            Some("needs exactly one value, a whole number in quotes")
        }
        _ => None,
    };
    if let Some(key) = key.as_deref().filter(|key| !key.is_empty() && !names::is_label_key(key)) {
        fields.error("key", format!("`{key}` is not a label key"), "write the key of a label");
    }
    let compares = matches!(operator, Some(Operator::In | Operator::NotIn));
    for value in values.iter().filter(|value| compares && !names::is_label_value(value)) {
        fields.error("values", format!("`{value}` is not a label value"), "no object can have this value");
    }
    if let Some(problem) = problem {
        fields.error("values", problem, "correct the values or the operator");
    }
    fields.finish();
    Some(Requirement { key: key?, operator: operator?, values })
}

pub(crate) fn selector(item: &Item<'_>) -> Option<LabelSelector> {
    let fields = item.fields()?;
    let match_labels = labels(&fields, "matchLabels");
    let match_expressions = fields.list("matchExpressions", MAX_RULES, |item| requirement(&item, false));
    fields.finish();
    Some(LabelSelector { match_labels, match_expressions })
}

/// The name of another object, a DNS subdomain. An invalid name is reported and still returned.
pub(crate) fn reference(item: &Item<'_>) -> Option<String> {
    let text = item.text()?;
    if !names::is_dns_subdomain(text) {
        item.error(format!("`{text}` is not a name"), "use lower-case letters, digits, `-` and `.`");
    }
    Some(text.to_owned())
}

/// The name of a resource. An invalid name is reported and still returned.
pub(crate) fn resource_name(item: &Item<'_>) -> Option<String> {
    let text = item.text()?;
    if !names::is_label_key(text) {
        item.error(
            format!("`{text}` is not a resource name"),
            "write for example `cpu`, `memory` or `nvidia.com/gpu`",
        );
    }
    Some(text.to_owned())
}

/// Amounts per resource, with the names checked.
pub(crate) fn amounts(fields: &Fields<'_>, name: &'static str) -> Amounts {
    let all = fields.amounts(name);
    for resource in all.keys().filter(|resource| !names::is_label_key(resource)) {
        let at = fields.path().key(name).key(resource);
        fields.findings().error(
            at,
            format!("`{resource}` is not a resource name"),
            "write for example `cpu`, `memory` or `nvidia.com/gpu`",
        );
    }
    all
}
