//! The objects that hold the capacity of offers: placeholder pods, and Workloads of the cluster's own Kueue.

use super::{Change, Touched, View};
use crate::facts::{PodFacts, WorkloadFacts};
use meridian_shared::ids::OfferId;
use std::collections::{BTreeMap, BTreeSet};

impl View {
    /// Placeholder pods that agents made.
    pub(crate) fn placeholders(&self) -> impl Iterator<Item = &PodFacts> {
        self.placeholders.values().flatten().filter_map(|name| self.pods.items.get(name))
    }

    /// The placeholder pods of an offer.
    pub(crate) fn placeholders_of(&self, offer: OfferId) -> Vec<PodFacts> {
        let names = self.placeholders.get(&offer).into_iter().flatten();
        names.filter_map(|name| self.pods.items.get(name)).cloned().collect()
    }

    pub(super) fn note_placeholder(
        &mut self,
        pod: &PodFacts,
        key: String,
        is_there: bool,
    ) -> Option<Touched> {
        let offer = pod.holds?;
        let names = self.placeholders.entry(offer).or_default();
        if is_there {
            names.insert(key);
        } else {
            names.remove(&key);
        }
        if names.is_empty() {
            self.placeholders.remove(&offer);
        }
        Some(Touched::Hold)
    }

    pub(crate) fn apply_workload(&mut self, change: Change<WorkloadFacts>) -> BTreeSet<Touched> {
        let key = |workload: &WorkloadFacts| format!("{}/{}", workload.namespace, workload.name);
        self.workloads.apply(change, key).iter().map(|_| Touched::Hold).collect()
    }

    /// Whether Workloads were listed once.
    pub(crate) fn workloads_are_listed(&self) -> bool {
        self.workloads.complete
    }

    /// Workloads that agents made.
    pub(crate) fn workloads(&self) -> impl Iterator<Item = &WorkloadFacts> {
        self.workloads.items.values()
    }

    pub(crate) fn workload(&self, namespace: &str, name: &str) -> Option<&WorkloadFacts> {
        self.workloads.items.get(&format!("{namespace}/{name}"))
    }

    /// Namespace and offer of each Workload that agents made.
    pub(crate) fn workload_offers(&self) -> Vec<(String, OfferId)> {
        let of = |workload: &WorkloadFacts| Some((workload.namespace.clone(), workload.offer?));
        self.workloads().filter_map(of).collect()
    }

    /// Labels of these nodes.
    pub(crate) fn node_labels<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
    ) -> BTreeMap<String, BTreeMap<String, String>> {
        let labels = |name: &str| Some((name.to_owned(), self.nodes.items.get(name)?.spec.labels.clone()));
        names.filter_map(labels).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::NodeFacts;
    use crate::view::PodWatch;
    use meridian_shared::time::Wall;
    use serde_json::{Value, json};

    const OFFER: OfferId = OfferId { epoch: 2, leadership: 7, counter: 1 };

    fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn pod(labels: Value) -> PodFacts {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "meridian-system", "uid": "u", "labels": labels},
            "spec": {"nodeName": "n1", "containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"nvidia.com/gpu": "1"}}},
            ]},
            "status": {"phase": "Running"},
        });
        PodFacts::read(&object(pod)).unwrap()
    }

    /// What pods of other workloads use of the only node.
    fn foreign(view: &View) -> usize {
        view.inventory(Wall(0)).nodes[0].foreign_use.len()
    }

    #[test]
    fn a_placeholder_is_found_by_its_offer_and_is_no_pod_of_others() {
        let mut view = View::default();
        let node = json!({"metadata": {"name": "n1"}, "status": {"allocatable": {"nvidia.com/gpu": "4"}}});
        view.apply_node(Change::Applied(NodeFacts::read(&object(node), Wall(0)).unwrap()));
        let placeholder = pod(json!({
            "app.kubernetes.io/managed-by": "meridian", "meridian.dev/hold": "placeholder",
            "meridian.dev/offer": "2-7-1",
        }));
        let touched = view.apply_pod(PodWatch::Marked, Change::Applied(placeholder.clone()));
        assert_eq!(touched, BTreeSet::from([Touched::Hold]));
        assert_eq!((foreign(&view), view.placeholders_of(OFFER).len()), (0, 1), "the ledger counts its room");
        assert_eq!(view.placeholders().count(), 1);
        view.apply_pod(PodWatch::Marked, Change::Deleted(placeholder));
        assert!(view.placeholders_of(OFFER).is_empty());
        // The label alone, without the mark of an agent, makes no placeholder.
        let unmarked = json!({"meridian.dev/hold": "placeholder", "meridian.dev/offer": "2-7-1"});
        view.apply_pod(PodWatch::Others, Change::Applied(pod(unmarked)));
        assert!(foreign(&view) > 0 && view.placeholders_of(OFFER).is_empty());
    }
}
