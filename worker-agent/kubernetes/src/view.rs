//! State that the watches have shown so far: one copy of the cluster's nodes, pods and jobs.

use crate::facts::{JobFacts, NodeFacts, PodFacts, RequestFacts, WorkloadFacts};
use crate::labels::RunKey;
use meridian_agent_core::runtime::{Inventory, NodeSpec};
use meridian_objects::Kind;
use meridian_objects::job::JobKind;
use meridian_shared::ids::{OfferId, Region};
use meridian_shared::time::{Millis, Wall};
use std::collections::{BTreeMap, BTreeSet};

mod holds;
mod losses;
mod pods;

pub(crate) use pods::PodWatch;

/// The label of a node's region.
const REGION_LABEL: &str = "topology.kubernetes.io/region";

/// One event of a watch, without the object's unused fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change<T> {
    /// A complete list begins.
    ListBegins,
    Listed(T),
    /// The list is complete: an object that it lacks is gone.
    ListEnds,
    Applied(T),
    Deleted(T),
    /// An event of an object that can't be read.
    Nothing,
}

/// All objects of one kind, as a watch shows them.
#[derive(Debug)]
pub(crate) struct Listing<T> {
    items: BTreeMap<String, T>,
    /// A list that is being read.
    relist: Option<BTreeMap<String, T>>,
    complete: bool,
}

impl<T> Default for Listing<T> {
    fn default() -> Self {
        Self { items: BTreeMap::new(), relist: None, complete: false }
    }
}

impl<T: Clone + PartialEq> Listing<T> {
    /// Applies an event, and returns what changed: the old and the new state of each object.
    fn apply(&mut self, change: Change<T>, key: impl Fn(&T) -> String) -> Vec<(Option<T>, Option<T>)> {
        match change {
            Change::Nothing => Vec::new(),
            Change::ListBegins => {
                self.relist = Some(BTreeMap::new());
                Vec::new()
            }
            Change::Listed(item) => {
                self.relist.get_or_insert_default().insert(key(&item), item);
                Vec::new()
            }
            Change::ListEnds => {
                self.complete = true;
                let new = self.relist.take().unwrap_or_default();
                let mut old = std::mem::replace(&mut self.items, new);
                let mut changed = Vec::new();
                for (key, item) in &self.items {
                    let before = old.remove(key);
                    if before.as_ref() != Some(item) {
                        changed.push((before, Some(item.clone())));
                    }
                }
                changed.extend(old.into_values().map(|gone| (Some(gone), None)));
                changed
            }
            Change::Applied(item) => {
                let before = self.items.insert(key(&item), item.clone());
                if before.as_ref() == Some(&item) { Vec::new() } else { vec![(before, Some(item))] }
            }
            Change::Deleted(item) => vec![(self.items.remove(&key(&item)), None)],
        }
    }
}

/// Which nodes are this agent's, and when one counts as lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSettings {
    /// Labels that a node must have; without any, all nodes count.
    pub selector: BTreeMap<String, String>,
    /// How long a node may be not ready before its pods need another one. Kubernetes' own default is five
    /// minutes.
    pub unready_after: Millis,
    /// Labels of the pools that a provider grows. Their nodes belong to the request that they were made for,
    /// and not to the inventory.
    pub pools: Vec<BTreeMap<String, String>>,
}

impl Default for NodeSettings {
    fn default() -> Self {
        Self { selector: BTreeMap::new(), unready_after: Millis::mins(5), pools: Vec::new() }
    }
}

/// A node of a pool that a provider grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolNode {
    pub(crate) spec: NodeSpec,
    pub(crate) created: Option<Wall>,
    /// Whether pods of a gang are on it.
    pub(crate) occupied: bool,
}

/// A changed object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Touched {
    /// The nodes, or the usage of other workloads, have changed.
    Inventory,
    Run(RunKey),
    ProvisioningRequest,
    /// An object that holds the capacity of an offer.
    Hold,
}

#[derive(Debug, Default)]
pub(crate) struct View {
    settings: NodeSettings,
    nodes: Listing<NodeFacts>,
    /// Pods with the mark of an agent.
    pods: Listing<PodFacts>,
    /// Pods without that mark that use a node.
    other_pods: Listing<PodFacts>,
    /// Jobs of each kind that the cluster is known to have or to lack; `None` for a kind that it lacks.
    jobs: BTreeMap<Kind, Option<Listing<JobFacts>>>,
    requests: Listing<RequestFacts>,
    /// Names of the pods of each attempt.
    pods_of: BTreeMap<RunKey, BTreeSet<String>>,
    /// Names of the placeholder pods of each offer.
    placeholders: BTreeMap<OfferId, BTreeSet<String>>,
    workloads: Listing<WorkloadFacts>,
}

impl View {
    pub(crate) fn new(settings: NodeSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Whether nodes, pods and the jobs of all kinds were listed once.
    pub(crate) fn is_complete(&self) -> bool {
        let is_known = |kind: &JobKind| {
            self.jobs.get(&kind.kind()).is_some_and(|jobs| jobs.as_ref().is_none_or(|jobs| jobs.complete))
        };
        let pods_are_known = self.pods.complete && self.other_pods.complete;
        self.nodes.complete && pods_are_known && JobKind::all().all(is_known)
    }

    /// Notes whether the cluster serves a kind of jobs.
    pub(crate) fn set_served(&mut self, kind: Kind, is_served: bool) {
        let jobs = self.jobs.entry(kind).or_default();
        match (&jobs, is_served) {
            (None, true) => *jobs = Some(Listing::default()),
            (Some(_), false) => *jobs = None,
            _ => {}
        }
    }

    /// The kinds of jobs that the cluster has.
    pub(crate) fn served_kinds(&self) -> Vec<&'static JobKind> {
        JobKind::all().filter(|kind| matches!(self.jobs.get(&kind.kind()), Some(Some(_)))).collect()
    }

    pub(crate) fn apply_node(&mut self, change: Change<NodeFacts>) -> BTreeSet<Touched> {
        let changed = self.nodes.apply(change, |node| node.spec.name.clone());
        changed.iter().map(|_| Touched::Inventory).collect()
    }

    pub(crate) fn apply_job(&mut self, kind: Kind, change: Change<JobFacts>) -> BTreeSet<Touched> {
        let jobs = self.jobs.entry(kind).or_default().get_or_insert_default();
        let changed = jobs.apply(change, |job| format!("{}/{}", job.namespace, job.name));
        changed
            .iter()
            .flat_map(|(a, b)| [a, b])
            .flatten()
            .filter_map(|job| job.run.map(Touched::Run))
            .collect()
    }

    pub(crate) fn apply_request(&mut self, change: Change<RequestFacts>) -> BTreeSet<Touched> {
        let changed =
            self.requests.apply(change, |request| format!("{}/{}", request.namespace, request.name));
        changed.iter().map(|_| Touched::ProvisioningRequest).collect()
    }

    /// Provisioning requests that agents made; `None` before they were listed.
    pub(crate) fn requests(&self) -> Option<impl Iterator<Item = &RequestFacts>> {
        self.requests.complete.then(|| self.requests.items.values())
    }

    /// The job of a name, if it was seen.
    pub(crate) fn job(&self, kind: Kind, namespace: &str, name: &str) -> Option<&JobFacts> {
        self.jobs.get(&kind)?.as_ref()?.items.get(&format!("{namespace}/{name}"))
    }

    /// Jobs that agents made.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = &JobFacts> {
        self.jobs.values().flatten().flat_map(|jobs| jobs.items.values())
    }

    /// Whether a pod that the node doesn't report has certainly ended: the node answers, an operator declared
    /// its machine off, or its object was deleted, which also means that the machine is off.
    pub(crate) fn answers_for_its_pods(&self, node: &str) -> bool {
        self.nodes.items.get(node).is_none_or(|node| node.unready_since.is_none() || node.out_of_service)
    }

    /// The nodes of this agent at `now`, with what pods of other workloads use of them.
    pub(crate) fn inventory(&self, now: Wall) -> Inventory {
        let mut foreign = self.foreign_use();
        let nodes: Vec<NodeSpec> = self
            .own_nodes()
            .map(|node| {
                let lost = |since: Wall| now.since(since) >= self.settings.unready_after;
                NodeSpec {
                    foreign_use: foreign.remove(node.spec.name.as_str()).unwrap_or_default(),
                    unready: node.out_of_service || node.unready_since.is_some_and(lost),
                    unschedulable: node.spec.unschedulable || node.unready_since.is_some(),
                    ..node.spec.clone()
                }
            })
            .collect();
        let regions: BTreeSet<&String> =
            nodes.iter().filter_map(|node| node.labels.get(REGION_LABEL)).collect();
        let region = match (regions.first(), regions.len()) {
            (Some(region), 1) => Some(Region::new((*region).clone())),
            _ => None,
        };
        Inventory { nodes, pools: Vec::new(), region }
    }

    /// The next time at which the inventory changes without an event.
    pub(crate) fn next_loss(&self, now: Wall) -> Option<Millis> {
        let unready = self.own_nodes().filter_map(|node| node.unready_since);
        unready
            .map(|since| self.settings.unready_after.saturating_sub(now.since(since)))
            .filter(|left| left.0 > 0)
            .min()
    }

    /// Number of nodes of each pool.
    pub(crate) fn pool_sizes(&self) -> Vec<u32> {
        let pools = self.settings.pools.iter();
        let size = |pool| self.nodes.items.values().filter(|node| has_labels(node, pool)).count();
        pools.map(|pool| u32::try_from(size(pool)).unwrap_or(u32::MAX)).collect()
    }

    /// The nodes of the pools that take new pods, each with what others use of it.
    pub(crate) fn pool_nodes(&self) -> Vec<PoolNode> {
        let mut foreign = self.foreign_use();
        let occupied: BTreeSet<&String> = self
            .pods
            .items
            .values()
            .filter(|pod| pod.run.is_some() && !pod.is_terminal())
            .filter_map(|pod| pod.node.as_ref())
            .collect();
        let nodes = self.nodes.items.values().filter(|node| self.is_in_pool(node));
        nodes
            .map(|node| PoolNode {
                spec: NodeSpec {
                    foreign_use: foreign.remove(node.spec.name.as_str()).unwrap_or_default(),
                    unschedulable: node.spec.unschedulable || node.unready_since.is_some(),
                    ..node.spec.clone()
                },
                created: node.created,
                occupied: occupied.contains(&node.spec.name),
            })
            .collect()
    }

    fn is_in_pool(&self, node: &NodeFacts) -> bool {
        self.settings.pools.iter().any(|pool| has_labels(node, pool))
    }

    fn own_nodes(&self) -> impl Iterator<Item = &NodeFacts> {
        let is_own = |node: &&NodeFacts| has_labels(node, &self.settings.selector) && !self.is_in_pool(node);
        self.nodes.items.values().filter(is_own)
    }
}

fn has_labels(node: &NodeFacts, labels: &BTreeMap<String, String>) -> bool {
    labels.iter().all(|(name, value)| node.spec.labels.get(name) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::api::DynamicObject;
    use meridian_shared::gang::Amounts;
    use serde_json::{Value, json};

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    fn node(name: &str, ready: &str) -> NodeFacts {
        let node = json!({
            "metadata": {"name": name, "labels": {REGION_LABEL: "europe-west4", "pool": "training"}},
            "spec": {"taints": [
                {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
                {"key": "meridian.dev/owned", "effect": "NoSchedule"},
                {
                    "key": "node.kubernetes.io/not-ready", "effect": "NoExecute",
                    "timeAdded": "2026-01-01T00:00:00Z",
                },
            ]},
            "status": {
                "allocatable": {
                    "cpu": "7910m", "memory": "29Gi", "nvidia.com/gpu": "4", "pods": "110",
                    "hugepages-1Gi": "0",
                },
                "conditions": [
                    {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"},
                ],
            },
        });
        NodeFacts::read(&object(node), Wall(0)).unwrap()
    }

    fn pod(name: &str, labels: Value, phase: &str) -> PodFacts {
        let pod = json!({
            "metadata": {"name": name, "namespace": "ml", "uid": format!("uid-of-{name}"), "labels": labels},
            "spec": {"nodeName": "n1", "containers": [
                {
                    "name": "c", "image": "i",
                    "resources": {"requests": {"cpu": "500m", "nvidia.com/gpu": "1"}},
                },
                {"name": "d", "image": "i", "resources": {"requests": {"cpu": "1"}}},
            ]},
            "status": {"phase": phase},
        });
        PodFacts::read(&object(pod)).unwrap()
    }

    fn moment(text: &str) -> Wall {
        Wall(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
    }

    #[test]
    fn the_inventory_is_what_nodes_offer_and_what_pods_of_others_take() {
        let mut view = View::new(NodeSettings::default());
        view.apply_node(Change::Applied(node("n1", "True")));
        let others = Change::Applied(pod("others", json!({}), "Running"));
        assert!(view.apply_pod(PodWatch::Others, others).contains(&Touched::Inventory));
        view.apply_pod(PodWatch::Others, Change::Applied(pod("done", json!({}), "Succeeded")));
        let ours = json!({
            "app.kubernetes.io/managed-by": "meridian",
            "meridian.dev/uid": meridian_shared::ids::Uid(7).to_string(),
            "meridian.dev/fence": "1-2-3",
        });
        view.apply_pod(PodWatch::Marked, Change::Applied(pod("ours", ours, "Running")));
        let inventory = view.inventory(moment("2026-01-01T00:01:00Z"));
        let [node] = &inventory.nodes[..] else { panic!("{inventory:?}") };
        assert_eq!(node.capacity.get("cpu"), Some(&7_910));
        assert_eq!(node.capacity.get("memory"), Some(&(29 << 30)));
        assert_eq!(node.capacity.get("hugepages-1Gi"), None);
        assert_eq!(
            node.foreign_use,
            Amounts::from([("cpu".into(), 1_500), ("nvidia.com/gpu".into(), 1), ("pods".into(), 1)])
        );
        assert_eq!(
            node.taints.iter().map(|taint| taint.key.as_str()).collect::<Vec<_>>(),
            ["nvidia.com/gpu"]
        );
        assert_eq!(inventory.region, Some(Region::new("europe-west4")));
    }

    #[test]
    fn a_node_that_is_not_ready_takes_nothing_new_and_is_lost_after_a_while() {
        let mut view = View::new(NodeSettings::default());
        view.apply_node(Change::Applied(node("n1", "Unknown")));
        let at = |text| view.inventory(moment(text)).nodes[0].clone();
        let soon = at("2026-01-01T00:04:59Z");
        assert!(soon.unschedulable && !soon.unready);
        assert_eq!(view.next_loss(moment("2026-01-01T00:04:59Z")), Some(Millis::secs(1)));
        assert!(at("2026-01-01T00:05:00Z").unready);
        assert!(!view.answers_for_its_pods("n1") && view.answers_for_its_pods("deleted"));
    }

    #[test]
    fn a_new_list_replaces_everything_at_its_end_and_not_before() {
        let mut view = View::new(NodeSettings::default());
        for name in ["n1", "n2"] {
            view.apply_node(Change::Applied(node(name, "True")));
        }
        view.apply_node(Change::ListBegins);
        view.apply_node(Change::Listed(node("n2", "True")));
        assert_eq!(
            view.inventory(Wall(0)).nodes.len(),
            2,
            "a list that is not complete says nothing is gone"
        );
        assert!(view.apply_node(Change::ListEnds).contains(&Touched::Inventory));
        assert_eq!(view.inventory(Wall(0)).nodes.len(), 1);
    }

    #[test]
    fn nodes_of_pools_that_grow_are_no_part_of_the_inventory() {
        let pools = vec![BTreeMap::from([("pool".to_owned(), "training".to_owned())])];
        let mut view = View::new(NodeSettings { pools, ..NodeSettings::default() });
        view.apply_node(Change::Applied(node("n1", "True")));
        view.apply_pod(PodWatch::Others, Change::Applied(pod("others", json!({}), "Running")));
        assert!(view.inventory(Wall(0)).nodes.is_empty());
        let [node] = &view.pool_nodes()[..] else { panic!("a node of the pool") };
        assert!(!node.occupied && node.spec.foreign_use.get("cpu") == Some(&1_500), "{node:?}");
        assert_eq!(view.pool_sizes(), [1]);
    }

    #[test]
    fn a_provisioned_node_is_lost_when_it_is_gone_or_has_failed() {
        let pools = vec![BTreeMap::from([("pool".to_owned(), "training".to_owned())])];
        let mut view = View::new(NodeSettings { pools, ..NodeSettings::default() });
        view.apply_node(Change::Applied(node("n1", "Unknown")));
        let loss = |view: &View, text| view.loss_of("n1", moment(text));
        assert_eq!(loss(&view, "2026-01-01T00:04:59Z"), None);
        assert_eq!(loss(&view, "2026-01-01T00:05:00Z").unwrap(), "has not been ready for 5m");
        view.apply_node(Change::Applied(node("n1", "True")));
        assert_eq!(loss(&view, "2026-01-01T00:05:00Z"), None);
        view.apply_node(Change::Deleted(node("n1", "True")));
        assert_eq!(loss(&view, "2026-01-01T00:05:00Z").unwrap(), "is gone");
        let ours = json!({
            "app.kubernetes.io/managed-by": "meridian",
            "meridian.dev/uid": meridian_shared::ids::Uid(7).to_string(),
            "meridian.dev/fence": "1-2-3",
        });
        for (phase, needed) in [("Running", true), ("Succeeded", false)] {
            view.apply_pod(PodWatch::Marked, Change::Applied(pod("ours", ours.clone(), phase)));
            assert_eq!(view.needed_nodes().contains("n1"), needed, "{phase}");
        }
    }

    #[test]
    fn only_nodes_with_the_labels_count() {
        let selector = BTreeMap::from([("pool".to_owned(), "serving".to_owned())]);
        let mut view = View::new(NodeSettings { selector, ..NodeSettings::default() });
        view.apply_node(Change::Applied(node("n1", "True")));
        assert!(view.inventory(Wall(0)).nodes.is_empty());
    }
}
