//! Finds the pods of the cluster that form a group.

use super::ObjectKey;
use crate::pods;
use meridian_objects::Kind;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The pods of each group, by the key of the PodGroup that the manager gets.
#[derive(Debug, Default)]
pub(super) struct Groups(BTreeMap<ObjectKey, BTreeSet<ObjectKey>>);

impl Groups {
    /// Takes a change of a pod, and returns the groups to compare again. Ignores changes of only the status,
    /// because they are frequent, and comparing a group reads all of its pods.
    pub(super) fn take(
        &mut self,
        pod: &ObjectKey,
        before: Option<&Value>,
        after: Option<&Value>,
    ) -> BTreeSet<ObjectKey> {
        let (left, joined) = (before.and_then(key), after.and_then(key));
        if left == joined && before.map(content) == after.map(content) {
            return BTreeSet::new();
        }
        if let Some(left) = &left
            && let Some(members) = self.0.get_mut(left)
        {
            members.remove(pod);
            if members.is_empty() {
                self.0.remove(left);
            }
        }
        if let Some(joined) = &joined {
            self.0.entry(joined.clone()).or_default().insert(pod.clone());
        }
        left.into_iter().chain(joined).collect()
    }

    pub(super) fn pods(&self, group: &ObjectKey) -> impl Iterator<Item = &ObjectKey> {
        self.0.get(group).into_iter().flatten()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.0.keys()
    }
}

/// The key of the group that a pod belongs to.
pub(super) fn key(pod: &Value) -> Option<ObjectKey> {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    pods::group_of(pod).map(|name| ObjectKey { kind: Kind::PodGroup, namespace, name: name.to_owned() })
}

/// The parts of a pod that matter to its group.
fn content(pod: &Value) -> [&Value; 5] {
    let metadata = &pod["metadata"];
    [
        &metadata["uid"],
        &metadata["labels"],
        &metadata["annotations"],
        &metadata["deletionTimestamp"],
        &pod["spec"],
    ]
}
