//! The cluster's pods from two watches: pods with the mark of an agent, and other pods that use a node.
//!
//! Each watch begins anew at its own times, so each has its own part of the view. A pod that gains or loses
//! the mark leaves one part and enters the other, in either order; in between it may be in both parts or in
//! none.

use super::{Change, Touched, View};
use crate::facts::PodFacts;
use crate::labels::RunKey;
use meridian_shared::gang::{Amounts, add_scaled};
use std::collections::{BTreeMap, BTreeSet};

/// The resource of which every pod uses one unit.
const PODS: &str = "pods";

/// A watch of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodWatch {
    /// All pods with the mark of an agent, also ended ones. Every pod of a gang or a hold has the mark.
    Marked,
    /// Pods without the mark that were bound to a node and haven't ended.
    Others,
}

impl View {
    /// Applies an event of one watch to its part. Only marked pods are pods of gangs and holds, so events of
    /// the other watch never add or remove one of these.
    pub(crate) fn apply_pod(&mut self, watch: PodWatch, change: Change<PodFacts>) -> BTreeSet<Touched> {
        let part = match watch {
            PodWatch::Marked => &mut self.pods,
            PodWatch::Others => &mut self.other_pods,
        };
        let mut touched = BTreeSet::new();
        for (before, after) in part.apply(change, pod_key) {
            let foreign_use = |pod: &Option<PodFacts>| {
                pod.as_ref().filter(|pod| is_foreign(pod)).map(|pod| (pod.node.clone(), pod.requests.clone()))
            };
            if foreign_use(&before) != foreign_use(&after) {
                touched.insert(Touched::Inventory);
            }
            if watch == PodWatch::Marked {
                self.note_marked(before.as_ref(), after.as_ref(), &mut touched);
            }
        }
        touched
    }

    fn note_marked(
        &mut self,
        before: Option<&PodFacts>,
        after: Option<&PodFacts>,
        touched: &mut BTreeSet<Touched>,
    ) {
        for (pod, is_there) in [(before, false), (after, true)] {
            let Some(pod) = pod else { continue };
            if self.other_pods.items.contains_key(&pod_key(pod)) {
                // The pod got or lost the mark, so it may have become, or no longer be, a pod of others.
                touched.insert(Touched::Inventory);
            }
            touched.extend(self.note_placeholder(pod, pod_key(pod), is_there));
            let Some(key) = pod.run else { continue };
            let names = self.pods_of.entry(key).or_default();
            if is_there {
                names.insert(pod_key(pod))
            } else {
                names.remove(&pod_key(pod))
            };
            if names.is_empty() {
                self.pods_of.remove(&key);
            }
            touched.insert(Touched::Run(key));
        }
    }

    /// The pods of an attempt.
    pub(crate) fn pods_of(&self, key: RunKey) -> Vec<PodFacts> {
        let names = self.pods_of.get(&key).into_iter().flatten();
        names.filter_map(|name| self.pods.items.get(name)).cloned().collect()
    }

    /// What pods of other workloads use, by node. A pod in both parts counts once, as a marked pod.
    pub(super) fn foreign_use(&self) -> BTreeMap<&str, Amounts> {
        let is_marked = |(key, pod): &(&String, &PodFacts)| {
            self.pods.items.get(*key).is_some_and(|marked| marked.uid == pod.uid)
        };
        let others = self.other_pods.items.iter().filter(|entry| !is_marked(entry)).map(|(_, pod)| pod);
        let mut foreign: BTreeMap<&str, Amounts> = BTreeMap::new();
        for pod in self.pods.items.values().chain(others).filter(|pod| is_foreign(pod)) {
            let Some(node) = &pod.node else { continue };
            let used = foreign.entry(node).or_default();
            add_scaled(used, &pod.requests, 1);
            *used.entry(PODS.to_owned()).or_insert(0) += 1;
        }
        foreign
    }
}

fn pod_key(pod: &PodFacts) -> String {
    format!("{}/{}", pod.namespace, pod.name)
}

/// Whether the pod uses capacity that the ledger counts neither for a gang nor for a hold.
fn is_foreign(pod: &PodFacts) -> bool {
    pod.run.is_none() && pod.holds.is_none() && pod.node.is_some() && !pod.is_terminal()
}

#[cfg(test)]
mod tests;
