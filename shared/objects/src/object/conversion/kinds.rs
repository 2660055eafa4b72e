//! Differences between the versions of each kind, apart from names.

use super::RETRY_DELAY_ANNOTATION;
use super::tree::{drop_if_empty, put, take};
use crate::fields::{FieldPath, Findings};
use meridian_topology::compressed::Compressed;
use meridian_topology::{Assignment, DomainCount};
use serde_json::{Value, json};

/// The classes behind a v1beta1 Workload's `priorityClassSource`: (source, group, kind).
const PRIORITY_SOURCES: &[(&str, &str, &str)] = &[
    ("kueue.x-k8s.io/workloadpriorityclass", "kueue.x-k8s.io", "WorkloadPriorityClass"),
    ("scheduling.k8s.io/priorityclass", "scheduling.k8s.io", "PriorityClass"),
];

pub(super) fn upgrade_cluster_queue(object: &mut Value, findings: &Findings) {
    if let Some(names) = take(object, "spec.admissionChecks") {
        upgrade_checks(object, names, findings);
    }
    for (field, old) in [("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")] {
        let word = object.pointer_mut(&format!("/spec/flavorFungibility/{field}"));
        if let Some(word) = word.filter(|word| **word == *old) {
            *word = json!("MayStopSearch");
        }
    }
}

fn upgrade_checks(object: &mut Value, names: Value, findings: &Findings) {
    let Value::Array(names) = names else {
        if !names.is_null() {
            findings.unreadable(
                FieldPath::of("spec.admissionChecks"),
                "must be a list of names",
                "write a list here",
            );
        }
        return;
    };
    if !names.is_empty() {
        let rules: Vec<Value> = names.into_iter().map(|name| json!({"name": name})).collect();
        put(object, "spec", "admissionChecksStrategy", json!({"admissionChecks": rules}));
    }
}

pub(super) fn downgrade_cluster_queue(object: &mut Value) {
    let strategy = object.pointer("/spec/admissionChecksStrategy").and_then(Value::as_object);
    let rules =
        strategy.filter(|strategy| strategy.len() == 1).and_then(|strategy| strategy.get("admissionChecks"));
    let rules = rules.and_then(Value::as_array);
    let plain = rules.and_then(|rules| rules.iter().map(plain_check_name).collect::<Option<Vec<Value>>>());
    if let Some(names) = plain.filter(|names| !names.is_empty()) {
        take(object, "spec.admissionChecksStrategy");
        put(object, "spec", "admissionChecks", Value::Array(names));
    }
}

/// The name of a rule that has no other field.
fn plain_check_name(rule: &Value) -> Option<Value> {
    let rule = rule.as_object()?;
    let name = rule.get("name")?;
    (rule.len() == 1).then(|| name.clone())
}

pub(super) fn upgrade_admission_check(object: &mut Value, findings: &Findings) {
    let Some(delay) = take(object, "spec.retryDelayMinutes").filter(|delay| !delay.is_null()) else { return };
    let field = FieldPath::of("spec.retryDelayMinutes");
    let Some(minutes) = delay.as_i64() else {
        return findings.error(field, "must be a whole number", "write the minutes, or leave the field out");
    };
    findings.warn(field, "has no effect since v1beta2", "leave it out");
    put(object, "metadata.annotations", RETRY_DELAY_ANNOTATION, json!(minutes.to_string()));
}

pub(super) fn downgrade_admission_check(object: &mut Value) {
    let annotations = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    let kept = annotations.and_then(|all| all.remove(RETRY_DELAY_ANNOTATION));
    let minutes = kept.as_ref().and_then(Value::as_str).and_then(|text| text.parse::<i64>().ok());
    if let Some(minutes) = minutes {
        put(object, "spec", "retryDelayMinutes", json!(minutes));
        drop_if_empty(object, "metadata.annotations");
    }
}

pub(super) fn upgrade_workload(object: &mut Value, findings: &Findings) {
    each_topology(object, topology_as_slices);
    let source = take(object, "spec.priorityClassSource");
    let name = take(object, "spec.priorityClassName");
    let row =
        PRIORITY_SOURCES.iter().find(|(known, ..)| source.as_ref().is_some_and(|source| source == known));
    let written = source.as_ref().filter(|source| !source.is_null() && *source != "");
    if let (None, Some(source)) = (row, written) {
        let choices: Vec<String> = PRIORITY_SOURCES.iter().map(|(known, ..)| format!("`{known}`")).collect();
        findings.error(
            FieldPath::of("spec.priorityClassSource"),
            format!("`{}` is not a choice", source.as_str().unwrap_or("this")),
            format!("the choices are {}", choices.join(", ")),
        );
    }
    if let (Some((_, group, kind)), Some(name)) = (row, name) {
        put(object, "spec", "priorityClassRef", json!({"group": group, "kind": kind, "name": name}));
    }
}

pub(super) fn downgrade_workload(object: &mut Value) {
    each_topology(object, topology_as_domains);
    let Some(class) = take(object, "spec.priorityClassRef") else { return };
    let row =
        PRIORITY_SOURCES.iter().find(|(_, group, kind)| class["group"] == *group && class["kind"] == *kind);
    if let Some((source, ..)) = row {
        put(object, "spec", "priorityClassSource", json!(source));
        put(object, "spec", "priorityClassName", class["name"].clone());
    }
}

/// Converts the topology assignment of every pod set. Unreadable assignments aren't changed.
fn each_topology(object: &mut Value, form: impl Fn(&Value) -> Option<Value>) {
    let assignments = object.pointer_mut("/status/admission/podSetAssignments").and_then(Value::as_array_mut);
    for topology in
        assignments.into_iter().flatten().filter_map(|assignment| assignment.get_mut("topologyAssignment"))
    {
        if let Some(formed) = form(topology) {
            *topology = formed;
        }
    }
}

/// A v1beta1 topology assignment in the form of v1beta2; `None` if it can't be read.
fn topology_as_slices(written: &Value) -> Option<Value> {
    let domain = |domain: &Value| {
        let values = domain["values"].as_array()?.iter().map(|value| value.as_str().map(ToOwned::to_owned));
        let values = values.collect::<Option<Vec<_>>>()?;
        Some(DomainCount { values, count: u32::try_from(domain["count"].as_u64()?).ok()? })
    };
    let levels: Vec<String> = serde_json::from_value(written["levels"].clone()).ok()?;
    let domains = written["domains"].as_array()?.iter().map(domain).collect::<Option<Vec<_>>>()?;
    serde_json::to_value(Compressed::from(&Assignment { levels, domains })).ok()
}

/// A v1beta2 topology assignment in the form of v1beta1; `None` if it can't be read.
fn topology_as_domains(stored: &Value) -> Option<Value> {
    let compressed = serde_json::from_value::<Compressed>(stored.clone()).ok()?;
    let Assignment { levels, domains } = Assignment::try_from(&compressed).ok()?;
    let domains: Vec<Value> =
        domains.iter().map(|domain| json!({"values": domain.values, "count": domain.count})).collect();
    Some(json!({"levels": levels, "domains": domains}))
}
