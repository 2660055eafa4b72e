//! Namespaces and pod priority classes.

use crate::fields::Fields;
use std::collections::BTreeMap;

/// Largest priority of a user's class; Kubernetes reserves larger ones.
const MAX_USER_PRIORITY: i64 = 1_000_000_000;

/// The label that Kubernetes adds to every namespace: its name. Selectors that pick one namespace rely on it.
pub const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// A namespace; only its labels matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceSpec {
    /// Labels for the selectors of queues and residency policies, including [`NAMESPACE_NAME_LABEL`].
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PriorityClassSpec {
    /// Higher values go first.
    pub value: i32,
    /// Whether this is the class of pods that name no class.
    pub global_default: bool,
    /// `false` for `preemptionPolicy: Never`.
    pub preempts: bool,
}

pub(crate) fn read_namespace(root: &Fields<'_>, labels: &BTreeMap<String, String>) -> NamespaceSpec {
    root.known(&["spec"]);
    let metadata = root.fields("metadata");
    let name = metadata.as_ref().and_then(|metadata| metadata.text("name")).unwrap_or_default();
    NamespaceSpec { labels: namespace_labels(labels.clone(), name) }
}

/// The labels of the namespace `name`, with the label that Kubernetes adds. A namespace that isn't declared
/// has only that.
pub fn namespace_labels(mut labels: BTreeMap<String, String>, name: &str) -> BTreeMap<String, String> {
    labels.insert(NAMESPACE_NAME_LABEL.to_owned(), name.to_owned());
    labels
}

pub(crate) fn read_priority_class(root: &Fields<'_>) -> PriorityClassSpec {
    root.known(&["description"]);
    let value = root.require("value").and_then(|item| item.int(i64::from(i32::MIN), MAX_USER_PRIORITY));
    let never = root
        .get("preemptionPolicy")
        .and_then(|item| item.word(&[("Never", false), ("PreemptLowerPriority", true)]));
    PriorityClassSpec {
        value: value.and_then(|value| i32::try_from(value).ok()).unwrap_or_default(),
        global_default: root.flag("globalDefault"),
        preempts: never.unwrap_or(true),
    }
}
