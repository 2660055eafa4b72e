//! Workloads: what a job requests. Meridian makes them.

use super::workload_status::WorkloadState;
use crate::cel::{rule, rule_at};
use crate::kinds::parts::{Anything, PodSetName};
use crate::schema::{only_new, only_old};
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

/// A job's requests, and its progress. Meridian makes one for each job.
#[derive(JsonSchema)]
pub(crate) struct WorkloadObjectSchema {
    /// What the job requests.
    spec: Option<WorkloadFields>,
    /// Quota, checks, cluster and history; written by Meridian.
    status: Option<WorkloadState>,
}

/// What a job requests.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rule_at(
    ".priority", "!has(self.priorityClassRef) || has(self.priority)",
    "is missing; write the priority that the class has",
)]))]
pub(crate) struct WorkloadFields {
    /// Groups of equal pods, in the order of the job.
    #[schemars(length(min = 1, max = 18))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[schemars(extend("x-kubernetes-validations" = [rule(
        "self.filter(s, has(s.minCount)).size() <= 1", "have more than one `minCount`; keep one of them",
    )]))]
    pod_sets: Option<Vec<PodSetFields>>,
    /// The local queue.
    #[schemars(length(max = 253))]
    queue_name: Option<String>,
    /// The priority; higher values go first.
    priority: Option<i32>,
    /// The class that the priority comes from.
    #[schemars(transform = class_is_new)]
    priority_class_ref: Option<ClassReference>,
    /// Name of the class that the priority comes from.
    #[schemars(length(max = 253), transform = class_name_is_old)]
    priority_class_name: Option<String>,
    /// Kind of the class that the priority comes from.
    #[schemars(transform = class_source_is_old)]
    priority_class_source: Option<ClassSource>,
    /// Whether the workload may be admitted. `false` also evicts it.
    #[schemars(extend("default" = true))]
    active: Option<bool>,
    /// Longest run time after admission, over all attempts.
    #[schemars(range(min = 1))]
    maximum_execution_time_seconds: Option<i32>,
    /// Gates that keep the workload from preempting others until they open.
    #[schemars(length(max = 8))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    preemption_gates: Option<Vec<GateName>>,
}

fn class_is_new(schema: &mut Schema) {
    only_new(schema, "spec.priorityClassName");
}

fn class_name_is_old(schema: &mut Schema) {
    only_old(schema, "spec.priorityClassRef.name");
}

fn class_source_is_old(schema: &mut Schema) {
    only_old(schema, "spec.priorityClassRef");
}

/// The class that a priority comes from.
#[derive(JsonSchema)]
pub(crate) struct ClassReference {
    /// API group of the class.
    group: ClassGroup,
    /// Kind of the class.
    kind: ClassKind,
    /// Name of the class.
    #[schemars(length(min = 1, max = 253))]
    name: String,
}

#[derive(JsonSchema)]
pub(crate) enum ClassGroup {
    #[serde(rename = "kueue.x-k8s.io")]
    Kueue,
    #[serde(rename = "scheduling.k8s.io")]
    Scheduling,
}

#[derive(JsonSchema)]
pub(crate) enum ClassKind {
    WorkloadPriorityClass,
    PriorityClass,
}

#[derive(JsonSchema)]
pub(crate) enum ClassSource {
    #[serde(rename = "kueue.x-k8s.io/workloadpriorityclass")]
    Workload,
    #[serde(rename = "scheduling.k8s.io/priorityclass")]
    Pod,
    #[serde(rename = "")]
    None,
}

/// A gate by name.
#[derive(JsonSchema)]
pub(crate) struct GateName {
    /// Name of the gate.
    #[schemars(length(min = 1, max = 253))]
    name: String,
}

/// A group of equal pods.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rule_at(
    ".minCount", "!has(self.minCount) || self.minCount <= self.count",
    "is more than `count`; write at most the count",
)]))]
pub(crate) struct PodSetFields {
    /// Name of the pod set.
    #[schemars(extend("default" = "main"))]
    name: Option<PodSetName>,
    /// Number of pods.
    #[schemars(range(min = 0), extend("default" = 1))]
    count: Option<i32>,
    /// Fewest pods that the job accepts.
    #[schemars(range(min = 1))]
    min_count: Option<i32>,
    /// The pods, as in a Job.
    template: Anything,
    /// Where the pods must be in a topology.
    topology_request: Option<TopologyRequestFields>,
}

/// Where the pods of a set must be in a topology. A level is a node label.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = topology_rules()))]
pub(crate) struct TopologyRequestFields {
    /// All pods in one domain of this level.
    #[schemars(length(max = 63))]
    required: Option<String>,
    /// All pods in one domain of this level if they fit.
    #[schemars(length(max = 63))]
    preferred: Option<String>,
    /// The pods may be anywhere in the topology.
    unconstrained: Option<bool>,
    /// Label with the number of a pod.
    #[schemars(length(max = 317))]
    pod_index_label: Option<String>,
    /// Label with the number of a pod's group.
    #[schemars(length(max = 317))]
    sub_group_index_label: Option<String>,
    /// Number of groups.
    #[schemars(range(min = 0))]
    sub_group_count: Option<i32>,
    /// Pod sets of one name get one flavor and one domain.
    #[schemars(length(max = 256))]
    pod_set_group_name: Option<String>,
    /// Each slice of pods in one domain of this level.
    #[schemars(length(max = 63))]
    pod_set_slice_required_topology: Option<String>,
    /// Pods of a slice.
    #[schemars(range(min = 1))]
    pod_set_slice_size: Option<i32>,
    /// Slices within slices, the widest level first.
    #[schemars(length(max = 3), extend("x-kubernetes-list-type" = "atomic"))]
    podset_slice_required_topology_constraints: Option<Vec<SliceFields>>,
}

fn topology_rules() -> Value {
    let counted =
        ["required", "preferred"].map(|name| format!("(has(self.{name}) && self.{name} != '' ? 1 : 0)"));
    let free = "(has(self.unconstrained) && self.unconstrained ? 1 : 0)";
    json!([
        rule_at(
            ".required",
            format!("{} + {} + {free} <= 1", counted[0], counted[1]),
            "can't be combined with another topology rule; keep one of `required`, `preferred` and \
                `unconstrained`",
        ),
        rule_at(
            ".podSetSliceSize",
            "has(self.podSetSliceRequiredTopology) == has(self.podSetSliceSize)",
            "goes with `podSetSliceRequiredTopology`; write both or neither",
        ),
        rule_at(
            ".podsetSliceRequiredTopologyConstraints",
            "!has(self.podsetSliceRequiredTopologyConstraints) || \
                size(self.podsetSliceRequiredTopologyConstraints) == 0 \
                || (!has(self.podSetSliceRequiredTopology) && !has(self.podSetSliceSize))",
            "can't be combined with slices of one layer; keep it, or `podSetSliceRequiredTopology` and \
                `podSetSliceSize`",
        ),
    ])
}

/// Slices of one level.
#[derive(JsonSchema)]
pub(crate) struct SliceFields {
    /// Each slice in one domain of this level.
    #[schemars(length(min = 1, max = 63))]
    topology: String,
    /// Pods of a slice.
    #[schemars(range(min = 1))]
    size: i32,
}
