//! Nodes and pods of a cluster, in the form of `kubectl get -o yaml`. Read for plans, never stored.

use super::meta::{self, Meta};
use super::workload::{Condition, ConditionStatus};
use crate::fields::Fields;
use crate::fields::scheduling::{MAX_RULES, amounts, taint};
use crate::pod::{self, PodTemplate};
use meridian_shared::gang::{Amounts, Taint};

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeObject {
    /// Metadata. Its labels place the node in a topology.
    pub meta: Meta,
    pub taints: Vec<Taint>,
    /// Whether the node is cordoned.
    pub unschedulable: bool,
    /// Amounts for pods.
    pub allocatable: Amounts,
    pub conditions: Vec<Condition>,
}

impl NodeObject {
    pub fn ready(&self) -> Option<ConditionStatus> {
        self.conditions.iter().find(|condition| condition.kind == "Ready").map(|condition| condition.status)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodPhase {
    /// Not all containers have started.
    #[default]
    Pending,
    Running,
    /// The pod ended successfully, and uses no resources any more.
    Succeeded,
    /// The pod ended with a failure, and uses no resources any more.
    Failed,
    /// The node is not responding.
    Unknown,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodObject {
    /// Metadata. Its owners show whether the pod would be created again.
    pub meta: Meta,
    /// Requests ([`PodTemplate::requests`]) and node ([`PodTemplate::node_name`]) of the pod.
    pub template: PodTemplate,
    pub phase: PodPhase,
    pub conditions: Vec<Condition>,
}

impl PodObject {
    pub fn is_terminal(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }
}

pub(crate) fn read_node(root: &Fields<'_>) -> NodeObject {
    root.known(&["apiVersion", "kind"]);
    let mut node = NodeObject { meta: meta::read(root, false), ..NodeObject::default() };
    if let Some(spec) = root.fields("spec") {
        spec.known(&["podCIDR", "podCIDRs", "providerID", "configSource", "externalID"]);
        node.taints = spec.list("taints", MAX_RULES, |item| taint(&item));
        node.unschedulable = spec.flag("unschedulable");
        spec.finish();
    }
    if let Some(status) = root.fields("status") {
        node.allocatable =
            amounts(&status, if status.is_written("allocatable") { "allocatable" } else { "capacity" });
        node.conditions = super::workload::conditions(&status);
    }
    node
}

pub(crate) fn read_pod(root: &Fields<'_>) -> PodObject {
    root.known(&["apiVersion", "kind"]);
    let mut read = PodObject { meta: meta::read(root, true), ..PodObject::default() };
    if let Some(spec) = root.require("spec").and_then(|item| item.fields()) {
        read.template = pod::read_spec(&spec);
    }
    read.template.labels = read.meta.labels.clone();
    read.template.annotations = read.meta.annotations.clone();
    if let Some(status) = root.fields("status") {
        let words = [
            ("Pending", PodPhase::Pending),
            ("Running", PodPhase::Running),
            ("Succeeded", PodPhase::Succeeded),
            ("Failed", PodPhase::Failed),
            ("Unknown", PodPhase::Unknown),
        ];
        read.phase = status.get("phase").and_then(|item| item.word(&words)).unwrap_or_default();
        read.conditions = super::workload::conditions(&status);
    }
    read
}
