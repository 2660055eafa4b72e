//! A group of pods without a controller, which Kueue describes by labels of the pods, as one object.

use super::kind::{JobKind, Switch};
use super::pod_set_paths::{PodSetName, PodSetPaths, resolve};
use super::pod_shapes;
use super::regular;
use super::status::{StateRules, StateSign};
use crate::fields::schema::{Shape, Type};
use crate::fields::{Fields, Item, names};
use crate::kind::Kind;
use serde_json::Value;
use std::collections::BTreeSet;

const PODS: &str = "/spec/pods/*";

pub(super) static POD_GROUP: JobKind = JobKind {
    kind: Kind::PodGroup,
    pod_sets: &[PodSetPaths {
        at: PODS,
        name: PodSetName::At("/metadata/name"),
        template: "",
        counts: &[],
        completions: None,
    }],
    find: Some(pod_shapes::pod_sets),
    size: None,
    suspend: Switch::Gates { pods: PODS },
    managed_by: "",
    managers: &[],
    // The longest label value, because its pods have a label with the name.
    name_chars_max: names::MAX_LABEL_CHARS,
    ttl: "",
    deadline: None,
    spec: &SPEC,
    check,
    complete: |_| {},
    ignored: &[],
    states: StateRules {
        succeeded: StateSign::Condition("Succeeded"),
        failed: StateSign::Condition("Failed"),
        active: "",
    },
    read: regular::read,
    write_progress: regular::write_progress,
};

static SPEC: Shape = Shape::of(&[("pods", Type::Any)]);

fn check(root: &Fields<'_>) {
    let manifest = Value::Object(root.written().clone());
    let read: BTreeSet<String> =
        pod_shapes::pod_sets(&manifest).into_iter().map(|set| set.template).collect();
    let mut names: BTreeSet<String> = BTreeSet::new();
    for at in resolve(&manifest, PODS) {
        root.at_pointer(&at, &mut |item: &Item<'_>| {
            check_pod(item, &mut names);
            if !read.contains(&at) {
                regular::check_template(item);
            }
        });
    }
}

/// Checks fields that a pod has but a pod template doesn't have.
fn check_pod(item: &Item<'_>, names: &mut BTreeSet<String>) {
    let text = |pointer: &str| item.value().pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let at = |map: &str, field: &str| item.path().key(map).key(field);
    let Some(pod) = item.value().is_object().then(|| item.fields()).flatten() else { return };
    let findings = pod.findings();
    let name = text("/metadata/name");
    if name.is_empty() {
        let remedy = "give the pod a name: it has the same one in the cluster that runs it";
        findings.error(at("metadata", "name"), "is missing", remedy);
    } else if !names::is_dns_subdomain(name) || name.len() > names::MAX_LABEL_CHARS {
        findings.error(
            at("metadata", "name"),
            format!("`{name}` is not a valid name of a pod"),
            "use at most 63 lower-case letters, digits, `-` and `.`",
        );
    } else if !names.insert(name.to_owned()) {
        findings.error(
            at("metadata", "name"),
            format!("`{name}` appears twice"),
            "give every pod of the group its own name",
        );
    }
    if !text("/spec/nodeName").is_empty() {
        findings.error(
            at("spec", "nodeName"),
            "would bind the pod before it is admitted",
            "remove it, or write `nodeSelector`",
        );
    }
}
