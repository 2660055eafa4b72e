//! Worker clusters.

use crate::cel::{rule, rule_at, says};
use crate::kinds::parts::{Amounts, Anything, Name, NodeTaint, Place, StatusConditions, Strings, labels};
use crate::schema::nullable;
use schemars::{JsonSchema, Schema};
use serde_json::json;
use std::collections::BTreeMap;

/// A worker cluster: where it is, and the most that the manager believes of its capacity.
#[derive(JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [says(
    "size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')",
    "'`' + self.metadata.name + '` is not a name; use lower-case letters, digits and `-`, at most 63'",
)]))]
pub(crate) struct ClusterObject {
    /// Location, limits and provider.
    spec: ClusterFields,
    /// Connection and capacity; written by Meridian.
    status: Option<ClusterState>,
}

/// Location, limits and provider of a worker cluster.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClusterFields {
    /// Region of the cluster, such as `europe-west4`.
    region: Place,
    /// Legal area of the region, such as `EU`. Residency policies name it.
    jurisdiction: Place,
    /// Most capacity that the manager believes, whatever the agent reports. A resource that isn't listed has
    /// no limit.
    #[schemars(transform = few)]
    limits: Option<Amounts>,
    /// Where the machines come from.
    provider: Option<ProviderFields>,
    /// Pools of nodes that can grow from zero.
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    #[schemars(extend("x-kubernetes-validations" = [rule(
        "self.all(p, self.exists_one(x, x.name == p.name))",
        "a name appears twice; give every pool a name of its own",
    )]))]
    provisionable: Option<Vec<PoolFields>>,
    /// Whether no new workload is dispatched there.
    cordoned: Option<bool>,
}

fn few(schema: &mut Schema) {
    schema.insert("maxProperties".to_owned(), json!(64));
}

/// Where a cluster's machines come from.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rule_at(
    ".className", "self.kind != 'ProvisioningRequest' || has(self.className)",
    "is missing; name the provisioning class, such as `queued-provisioning.gke.io`",
)]))]
pub(crate) struct ProviderFields {
    /// `Static`: the machines exist. `ProvisioningRequest`: requests create them. `Simulated`: for demos and
    /// tests.
    kind: ProviderWord,
    /// The provisioning class, for `ProvisioningRequest`.
    class_name: Option<Name>,
}

#[derive(JsonSchema)]
pub(crate) enum ProviderWord {
    Static,
    ProvisioningRequest,
    Simulated,
}

/// A pool of nodes that can grow from zero.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rule_at(
    ".perNode", "has(self.perNode) && size(self.perNode) > 0",
    "is missing; write what one node has, such as `{cpu: \"4\", nvidia.com/gpu: \"1\"}`",
)]))]
pub(crate) struct PoolFields {
    /// Name of the pool, unique within the cluster.
    #[schemars(length(min = 1, max = 63))]
    name: String,
    /// How the capacity is bought.
    capacity_class: BoughtAs,
    /// Labels of its nodes.
    #[schemars(transform = labels)]
    labels: Option<Strings>,
    /// Taints of its nodes.
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    taints: Option<Vec<NodeTaint>>,
    /// Resources of one node.
    #[schemars(transform = few)]
    per_node: Option<Amounts>,
    /// Most nodes of the pool.
    #[schemars(range(min = 1, max = 100_000))]
    max_nodes: i32,
}

#[derive(JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum BoughtAs {
    Reservation,
    FlexStart,
    OnDemand,
    Spot,
}

/// Connection and capacity of a worker cluster.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClusterState {
    /// Facts about the cluster.
    conditions: Option<StatusConditions>,
    /// One word, such as `Connected` or `Disconnected`, with `,Cordoned` if it is.
    #[schemars(length(max = 63))]
    state: Option<String>,
    /// Identity of the agent's store.
    #[schemars(length(max = 63), transform = nullable)]
    ledger: Option<String>,
    /// Number of the agent's session.
    #[schemars(length(max = 63), transform = nullable)]
    session: Option<String>,
    /// The agent's certificates.
    certificates: Option<CertificateCounts>,
    /// Workloads that hold capacity there.
    workloads: Option<i64>,
    /// Capacity per resource, in the resource's base unit.
    // A server-side apply that removes the last entry leaves null, as when a cluster disconnects.
    #[schemars(transform = nullable)]
    resources: Option<BTreeMap<String, CapacityFields>>,
    /// Nodes that the pools can still make.
    #[schemars(length(max = 1000), extend("x-kubernetes-list-type" = "atomic"), transform = nullable)]
    provisionable: Option<Vec<StillProvisionable>>,
    /// How the agent runs gangs: `kubernetes`, `process` or `simulated`.
    #[schemars(length(max = 63), transform = nullable)]
    runner: Option<String>,
    /// What stops a gang when its lease expires.
    #[schemars(length(max = 255), transform = nullable)]
    enforcement: Option<String>,
    /// What keeps the capacity that a gang holds from others.
    #[schemars(length(max = 255), transform = nullable)]
    holds: Option<String>,
    /// Time since the agent was last heard.
    #[schemars(transform = nullable)]
    since_last_sync_ms: Option<i64>,
}

/// An agent's certificates.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CertificateCounts {
    /// Certificates that are valid: those of this cluster object from this number on.
    #[schemars(transform = nullable)]
    valid: Option<Anything>,
    /// Certificates above this number are adopted; empty if none are.
    #[schemars(transform = nullable)]
    adopted_above: Option<i64>,
}

/// Capacity of one resource.
#[derive(JsonSchema)]
pub(crate) struct CapacityFields {
    /// Total of all nodes.
    capacity: i64,
    /// Not used by pods.
    free: i64,
}

/// Nodes that pools can still make.
#[derive(JsonSchema)]
pub(crate) struct StillProvisionable {
    /// Number of nodes.
    nodes: i64,
    /// Resources of one node, in their base units.
    resources: Option<BTreeMap<String, i64>>,
    /// Labels of the nodes.
    labels: Option<Strings>,
}
