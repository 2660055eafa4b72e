//! Resource flavors, topologies and priority classes.

use crate::cel::{rule, rule_at};
use crate::kinds::parts::{LabelKey, Name, NodeTaint, PodToleration, Strings, labels};
use schemars::{JsonSchema, Schema};
use serde_json::json;

/// A kind of machine, and how its nodes are recognised.
#[derive(JsonSchema)]
pub(crate) struct ResourceFlavorObject {
    /// Labels and taints of the flavor's nodes.
    spec: Option<FlavorFields>,
}

/// Labels and taints of a flavor's nodes.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rule_at(
    ".nodeLabels", "!has(self.topologyName) || (has(self.nodeLabels) && size(self.nodeLabels) > 0)",
    "needs at least one label with `topologyName`; add the label that its nodes have",
)]))]
pub(crate) struct FlavorFields {
    /// Labels of the flavor's nodes. Pods of its workloads run only there.
    #[schemars(transform = labels, transform = few)]
    node_labels: Option<Strings>,
    /// Taints of the flavor's nodes, which workloads must tolerate.
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "atomic"))]
    node_taints: Option<Vec<NodeTaint>>,
    /// Tolerations that pods of its workloads get.
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "atomic"))]
    tolerations: Option<Vec<PodToleration>>,
    /// Topology of the flavor's nodes.
    topology_name: Option<Name>,
}

fn few(schema: &mut Schema) {
    schema.insert("maxProperties".to_owned(), json!(8));
}

/// Levels of a node topology.
#[derive(JsonSchema)]
pub(crate) struct TopologyObject {
    /// Levels, the widest first.
    spec: TopologyFields,
}

/// Levels of a node topology.
#[derive(JsonSchema)]
pub(crate) struct TopologyFields {
    /// Levels by node labels, the widest first, such as a block, a rack and a host.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    #[schemars(extend("x-kubernetes-validations" = [
        rule("self.all(l, self.exists_one(x, x.nodeLabel == l.nodeLabel))", "a label appears twice; remove \
            one of them"),
        rule(
            "!self.exists(l, l.nodeLabel == 'kubernetes.io/hostname') \
                || self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname'",
            "`kubernetes.io/hostname` can only be the last level; list the wider levels before it",
        ),
    ]))]
    levels: Vec<LevelFields>,
}

/// One level of a topology.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LevelFields {
    /// Label whose value names a node's domain.
    node_label: LabelKey,
}

/// A workload priority by name.
#[derive(JsonSchema)]
pub(crate) struct PriorityClassObject {
    /// The priority; higher values go first. A change counts for pending workloads at once.
    value: i32,
    /// What the class is for.
    #[schemars(length(max = 2048))]
    description: Option<String>,
}
