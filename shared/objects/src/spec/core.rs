//! Namespaces and pod priority classes: the two Kubernetes kinds whose content is little more than their metadata.

use crate::field::Fields;
use std::collections::BTreeMap;

/// Largest priority that a user's class may have; Kubernetes keeps the ones above for itself.
const MAX_USER_PRIORITY: i64 = 1_000_000_000;

/// The label that Kubernetes gives every namespace: its own name. Selectors that pick one namespace rely on it.
pub const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// A namespace; what counts about it are its labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceSpec {
    /// The labels that selectors of queues and residency policies look at, with [`NAMESPACE_NAME_LABEL`].
    pub labels: BTreeMap<String, String>,
}

/// A pod priority class.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PriorityClassSpec {
    /// The priority; higher goes first.
    pub value: i32,
    /// Whether it is the class of pods that name none.
    pub global_default: bool,
    /// `false` for `preemptionPolicy: Never`.
    pub preempts: bool,
}

pub(crate) fn read_namespace(root: &Fields<'_>, labels: &BTreeMap<String, String>) -> NamespaceSpec {
    root.known(&["spec"]);
    let metadata = root.fields("metadata");
    let name = metadata.as_ref().and_then(|metadata| metadata.text("name")).unwrap_or_default();
    NamespaceSpec { labels: with_name(labels.clone(), name) }
}

/// The labels of the namespace `name`, as Kubernetes would show them. A namespace that nobody declared has these alone.
pub fn with_name(mut labels: BTreeMap<String, String>, name: &str) -> BTreeMap<String, String> {
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
