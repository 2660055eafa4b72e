//! Nodes and pods of a cluster, as `kubectl get -o yaml` shows them: read for plans, never stored.

use super::meta::{self, Meta};
use super::scheduling::{MAX_RULES, amounts, taint};
use super::workload::{Condition, ConditionStatus};
use crate::field::Fields;
use crate::pod::{self, PodTemplate};
use meridian_shared::gang::{Amounts, Taint};

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeObject {
    /// Its metadata; the labels say where it is in a topology.
    pub meta: Meta,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// What pods may use of it.
    pub allocatable: Amounts,
    /// Its conditions.
    pub conditions: Vec<Condition>,
}

impl NodeObject {
    /// The condition `Ready`, where it is there.
    pub fn ready(&self) -> Option<ConditionStatus> {
        self.conditions.iter().find(|condition| condition.kind == "Ready").map(|condition| condition.status)
    }
}

/// How far a pod is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodPhase {
    /// Not all its containers have started.
    #[default]
    Pending,
    /// It runs.
    Running,
    /// It ended well, and needs nothing any more.
    Succeeded,
    /// It ended badly, and needs nothing any more.
    Failed,
    /// Its node is not heard of.
    Unknown,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodObject {
    /// Its metadata; its owners say whether somebody would make it again.
    pub meta: Meta,
    /// What it is; [`PodTemplate::requests`] is what it asks for, [`PodTemplate::node_name`] where it is.
    pub template: PodTemplate,
    /// How far it is.
    pub phase: PodPhase,
    /// Its conditions.
    pub conditions: Vec<Condition>,
}

impl PodObject {
    /// Whether it has ended.
    pub fn is_terminal(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }
}

/// Reads a node.
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

/// Reads a pod.
pub(crate) fn read_pod(root: &Fields<'_>) -> PodObject {
    root.known(&["apiVersion", "kind"]);
    let mut read = PodObject { meta: meta::read(root, true), ..PodObject::default() };
    if let Some(spec) = root.require("spec").and_then(|item| item.fields()) {
        read.template = pod::read_spec(&spec);
        spec.known(&["restartPolicy", "terminationGracePeriodSeconds"]);
        spec.finish();
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
