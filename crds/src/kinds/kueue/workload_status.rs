//! The status of a workload: its quota, its checks, its cluster, its history.

use crate::kinds::parts::{
    Amounts, Anything, Moment, PlainName, PodSetName, PodToleration, StatusConditions, Strings,
};
use crate::schema::nullable;
use schemars::JsonSchema;
use std::collections::BTreeMap;

/// Quota, checks, cluster and history of a workload.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WorkloadState {
    /// Facts about the workload, such as `QuotaReserved`, `Admitted` and `Finished`.
    conditions: Option<StatusConditions>,
    /// The quota that the workload has.
    #[schemars(transform = nullable)]
    admission: Option<AdmissionFields>,
    /// The admission checks of its cluster queue. The message of a ready one names the cluster.
    #[schemars(length(max = 64))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    admission_checks: Option<Vec<CheckStatus>>,
    /// The worker cluster that runs it.
    #[schemars(length(max = 256), transform = nullable)]
    cluster_name: Option<String>,
    /// Worker clusters that have an offer.
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "set"))]
    nominated_cluster_names: Option<Vec<PlainName>>,
    /// How it is requeued after an eviction.
    requeue_state: Option<RequeueFields>,
    /// Pods that use no resources any more.
    #[schemars(length(max = 18))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    reclaimable_pods: Option<Vec<ReclaimableFields>>,
    /// Requests at the last evaluation, while it has no quota.
    #[schemars(length(max = 18))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    resource_requests: Option<Vec<RequestFields>>,
    /// Run time before its evictions.
    #[schemars(range(min = 0))]
    accumulated_past_execution_time_seconds: Option<i32>,
    /// The v1beta1 name of `accumulatedPastExecutionTimeSeconds`.
    #[schemars(range(min = 0))]
    accumulated_past_exexcution_time_seconds: Option<i32>,
    /// Numbers about its scheduling.
    scheduling_stats: Option<StatsFields>,
    /// Nodes that failed under it.
    #[schemars(length(max = 64))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    unhealthy_nodes: Option<Vec<NodeName>>,
    /// States of its preemption gates.
    #[schemars(length(max = 8))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    preemption_gates: Option<Vec<GateStatus>>,
    /// What only Meridian knows: state, legs, attempts with their fences, placement.
    meridian: Option<Anything>,
}

/// Quota of a workload.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AdmissionFields {
    /// The queue that admitted it.
    cluster_queue: PlainName,
    /// Quota of each pod set.
    #[schemars(length(max = 18))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pod_set_assignments: Option<Vec<AssignmentFields>>,
}

/// Quota of one pod set.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AssignmentFields {
    /// Name of the pod set.
    #[schemars(extend("default" = "main"))]
    name: Option<PodSetName>,
    /// Flavor per resource.
    flavors: Option<BTreeMap<String, PlainName>>,
    /// Requests of all its pods together.
    resource_usage: Option<Amounts>,
    /// Pods that are counted.
    #[schemars(range(min = 0))]
    count: Option<i32>,
    /// Where its pods are: slices of domains in v1beta2, domains in v1beta1.
    topology_assignment: Option<Anything>,
    /// Whether the topology assignment is decided in a second pass.
    delayed_topology_request: Option<SecondPass>,
}

#[derive(JsonSchema)]
pub(crate) enum SecondPass {
    Pending,
    Ready,
}

/// State of an admission check.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CheckStatus {
    /// Name of the check.
    name: PlainName,
    /// Whether the check lets the workload start.
    state: CheckWord,
    /// What the check says, such as the cluster's name.
    #[schemars(length(max = 32768))]
    message: Option<String>,
    /// Since when the state is as it is.
    last_transition_time: Option<Moment>,
    /// Shortest wait after a `Retry`.
    #[schemars(range(min = 0))]
    requeue_after_seconds: Option<i32>,
    /// Number of `Retry` answers.
    #[schemars(range(min = 0))]
    retry_count: Option<i32>,
    /// Changes that the check makes to pods.
    #[schemars(length(max = 18), extend("x-kubernetes-list-type" = "atomic"))]
    pod_set_updates: Option<Vec<UpdateFields>>,
}

#[derive(JsonSchema)]
pub(crate) enum CheckWord {
    Pending,
    Ready,
    Retry,
    Rejected,
}

/// Changes that a check makes to the pods of a set.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UpdateFields {
    /// Name of the pod set.
    name: PodSetName,
    /// Labels that pods get.
    labels: Option<Strings>,
    /// Annotations that pods get.
    annotations: Option<Strings>,
    /// Node selector that pods get.
    node_selector: Option<Strings>,
    /// Tolerations that pods get.
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "atomic"))]
    tolerations: Option<Vec<PodToleration>>,
}

/// How a workload is requeued after an eviction.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequeueFields {
    /// Number of requeues so far.
    #[schemars(range(min = 0))]
    count: Option<i32>,
    /// When it is requeued.
    requeue_at: Option<Moment>,
}

/// Pods of a set that use no resources any more.
#[derive(JsonSchema)]
pub(crate) struct ReclaimableFields {
    /// Name of the pod set.
    name: PodSetName,
    /// Number of such pods.
    #[schemars(range(min = 0))]
    count: i32,
}

/// Requests of a pod set.
#[derive(JsonSchema)]
pub(crate) struct RequestFields {
    /// Name of the pod set.
    name: PodSetName,
    /// Requests of all its pods together.
    resources: Option<Amounts>,
}

/// Numbers about a workload's scheduling.
#[derive(JsonSchema)]
pub(crate) struct StatsFields {
    /// Evictions by reason.
    #[schemars(length(max = 256))]
    #[schemars(extend("x-kubernetes-list-type" = "map"))]
    #[schemars(extend("x-kubernetes-list-map-keys" = ["reason", "underlyingCause"]))]
    evictions: Option<Vec<EvictionFields>>,
}

/// Evictions for one reason.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EvictionFields {
    /// The reason, such as `Preempted`.
    #[schemars(length(max = 316))]
    reason: String,
    /// Cause of the reason; may be empty.
    #[schemars(length(max = 316))]
    underlying_cause: String,
    /// Number of such evictions.
    #[schemars(range(min = 0))]
    count: i32,
}

/// A node by name.
#[derive(JsonSchema)]
pub(crate) struct NodeName {
    /// Name of the node.
    #[schemars(length(min = 1, max = 253))]
    name: String,
}

/// State of a preemption gate.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GateStatus {
    /// Name of the gate.
    #[schemars(length(min = 1, max = 253))]
    name: String,
    /// Whether the gate lets the workload preempt.
    position: GatePosition,
    /// Since when the gate is as it is.
    last_transition_time: Option<Moment>,
}

#[derive(JsonSchema)]
pub(crate) enum GatePosition {
    Open,
    Closed,
}
