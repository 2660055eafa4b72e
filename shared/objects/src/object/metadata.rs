//! Name, namespace, labels and annotations of an object.

use crate::fields::{FieldPath, Fields, Findings, names, scheduling};
use crate::job::JobKind;
use crate::kind::Kind;
use serde_json::Value;
use std::collections::BTreeMap;

/// Longest prefix of a generated name, in characters: five are added, and the name must still be valid as a
/// label.
const MAX_GENERATE_NAME_CHARS: usize = 58;

pub(super) struct Identity {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) generate_name: Option<String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
}

/// Removes fields that a server added to an object, and the namespace of kinds without namespaces.
pub(super) fn tidy_metadata(kind: Kind, stored: &mut Value, findings: &Findings) {
    let Some(metadata) = stored.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    for name in ["managedFields", "selfLink"] {
        metadata.remove(name);
    }
    if metadata.get("creationTimestamp").is_some_and(Value::is_null) {
        metadata.remove("creationTimestamp");
    }
    if !kind.namespaced() && metadata.remove("namespace").is_some_and(|namespace| !namespace.is_null()) {
        findings.warn(
            FieldPath::of("metadata.namespace"),
            format!("is left out: a {kind} has no namespace"),
            "remove it",
        );
    }
}

/// Accepts a whole number as the value of an annotation, which should be a string, because its meaning is
/// clear.
pub(super) fn quote_annotations(stored: &mut Value, findings: &Findings) {
    for place in ["metadata.annotations", "spec.template.metadata.annotations"] {
        let annotations =
            stored.pointer_mut(&format!("/{}", place.replace('.', "/"))).and_then(Value::as_object_mut);
        for (name, value) in
            annotations.into_iter().flatten().filter(|(_, value)| value.is_i64() || value.is_u64())
        {
            let quoted = Value::String(value.to_string());
            findings.warn(
                FieldPath::of(place).key(name),
                format!("must be a string, and is taken as {quoted}"),
                "quote it",
            );
            *value = quoted;
        }
    }
}

/// Checks the names of finalizers, as an API server does.
fn check_finalizers(metadata: &Fields<'_>) {
    if !metadata.findings().is_submission() {
        return;
    }
    let finalizers = metadata.written().get("finalizers").and_then(Value::as_array).into_iter().flatten();
    for (index, finalizer) in finalizers.enumerate() {
        if let Some(name) = finalizer.as_str().filter(|name| !names::is_finalizer(name)) {
            metadata.findings().error(
                metadata.path().key("finalizers").index(index),
                format!("`{}` is not the name of a finalizer", name.escape_default()),
                "write a domain and a name, such as `example.com/cleanup`",
            );
        }
    }
}

pub(super) fn read_metadata(kind: Kind, root: &Fields<'_>) -> Identity {
    let mut identity = Identity {
        name: String::new(),
        namespace: None,
        generate_name: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
    };
    let Some(metadata) = root.require("metadata").and_then(|item| item.fields()) else { return identity };
    metadata.known(&["uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"]);
    metadata.known(&["deletionGracePeriodSeconds", "ownerReferences", "finalizers"]);
    check_finalizers(&metadata);
    identity.name = metadata.text("name").unwrap_or_default().to_owned();
    identity.generate_name =
        metadata.text("generateName").filter(|prefix| !prefix.is_empty()).map(str::to_owned);
    identity.labels = scheduling::labels(&metadata, "labels");
    identity.annotations = scheduling::annotations(&metadata);
    if let Some(namespace) = metadata.text("namespace").filter(|namespace| !namespace.is_empty()) {
        if !names::is_dns_label(namespace) {
            metadata.error(
                "namespace",
                format!("`{namespace}` is not a namespace's name"),
                "use at most 63 lower-case letters, digits and `-`",
            );
        }
        identity.namespace = Some(namespace.to_owned());
    }
    if identity.name.is_empty() && identity.generate_name.is_none() {
        if !metadata.findings().has_errors() {
            metadata.error(
                "name",
                "is missing",
                "add `name`, or `generateName` for an object that is created anew every time",
            );
        }
    } else {
        check_name(kind, &metadata, &identity);
    }
    metadata.finish();
    identity
}

fn check_name(kind: Kind, metadata: &Fields<'_>, identity: &Identity) {
    let (rule, most): (fn(&str) -> bool, usize) = match kind {
        Kind::Namespace | Kind::Cluster => (names::is_dns_label, names::MAX_LABEL_CHARS),
        // as in Kubernetes, whose own roles have colons in their names
        Kind::Role | Kind::ClusterRole | Kind::RoleBinding | Kind::ClusterRoleBinding => {
            (names::is_path_segment, names::MAX_SUBDOMAIN_CHARS)
        }
        _ => {
            let most = kind.job().map_or(names::MAX_SUBDOMAIN_CHARS, JobKind::name_chars_max);
            (names::is_dns_subdomain, most)
        }
    };
    let name = &identity.name;
    if !name.is_empty() && name.chars().count() > most {
        metadata.error("name", format!("`{name}` is too long"), format!("the maximum is {most} characters"));
    } else if !name.is_empty() && !rule(name) {
        let dot = if most == names::MAX_LABEL_CHARS && !kind.is_job() { "" } else { ", `.`" };
        let remedy = match names::closest_name(name) {
            Some(near) if near != *name => {
                format!("use lower-case letters, digits{dot} and `-`, for example `{near}`")
            }
            _ => format!(
                "use lower-case letters, digits{dot} and `-`, beginning and ending with a letter or digit"
            ),
        };
        metadata.error("name", format!("`{name}` is not a name"), remedy);
    }
    let Some(prefix) = identity.generate_name.as_ref().filter(|_| name.is_empty()) else { return };
    if prefix.chars().count() > MAX_GENERATE_NAME_CHARS {
        metadata.error(
            "generateName",
            "is too long",
            format!("the maximum is {MAX_GENERATE_NAME_CHARS} characters"),
        );
    } else if !rule(&format!("{prefix}0")) {
        metadata.error(
            "generateName",
            format!("`{prefix}` cannot begin a name"),
            "use lower-case letters, digits and `-`",
        );
    }
}
