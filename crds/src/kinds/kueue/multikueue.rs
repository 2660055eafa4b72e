//! Admission checks, lists of worker clusters, and provisioning requests of workers.

use crate::cel::{rule_at, says_at};
use crate::kinds::parts::{ConditionsOnly, LabelKey, Name, ResourceName, Strings};
use crate::schema::{only_new, only_old};
use schemars::{JsonSchema, Schema};
use serde_json::json;

/// A condition for admission that a controller decides.
#[derive(JsonSchema)]
pub(crate) struct AdmissionCheckObject {
    /// The controller and its parameters.
    spec: AdmissionCheckFields,
    /// Whether the check is active; written by Meridian.
    status: Option<ConditionsOnly>,
}

/// The controller of a check, and its parameters.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule_at(
        ".parameters", "self.controllerName != 'kueue.x-k8s.io/multikueue' || has(self.parameters)",
        "is missing; name the MultiKueueConfig of this check",
    ),
    says_at(
        ".parameters",
        "self.controllerName != 'kueue.x-k8s.io/multikueue' || !has(self.parameters) \
            || self.parameters.kind == 'MultiKueueConfig'",
        "'`' + self.parameters.kind + '` cannot configure this controller; write `MultiKueueConfig`'",
    ),
]))]
pub(crate) struct AdmissionCheckFields {
    /// Controller that decides. `kueue.x-k8s.io/multikueue` hands workloads to worker clusters.
    #[schemars(length(min = 1, max = 153))]
    controller_name: String,
    /// Object that configures the controller.
    parameters: Option<CheckParameters>,
    /// Without effect, in objects that were written in v1beta1.
    retry_delay_minutes: Option<i64>,
}

/// Object that configures a check's controller.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CheckParameters {
    /// API group of the object, such as `kueue.x-k8s.io`.
    #[schemars(length(min = 1, max = 253))]
    api_group: String,
    /// Kind of the object, such as `MultiKueueConfig`.
    #[schemars(length(min = 1, max = 63))]
    kind: String,
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    name: String,
}

/// The worker clusters of a queue.
#[derive(JsonSchema)]
pub(crate) struct MultiKueueConfigObject {
    /// Clusters that the queue may use.
    spec: MultiKueueConfigFields,
}

/// The worker clusters of a queue.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MultiKueueConfigFields {
    /// Names of MultiKueueClusters. Where the dispatch policy prefers none, the first ones are tried first.
    #[schemars(length(min = 1, max = 20), extend("x-kubernetes-list-type" = "set"))]
    clusters: Vec<Name>,
    /// Accepted without effect: the queue's own quota applies.
    quota_management: Option<QuotaManagement>,
}

#[derive(JsonSchema)]
pub(crate) enum QuotaManagement {
    Manual,
    Automated,
}

/// A worker cluster as MultiKueue names it.
#[derive(JsonSchema)]
pub(crate) struct MultiKueueClusterObject {
    /// How the cluster is reached.
    spec: MultiKueueClusterFields,
    /// Whether the cluster is connected; written by Meridian.
    status: Option<ConditionsOnly>,
}

/// How a worker cluster is reached.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule_at(
        ".clusterSource", "has(self.clusterSource) || has(self.kubeConfig) || has(self.clusterProfileRef)",
        "is missing; add `clusterSource`",
    ),
    rule_at(
        ".clusterProfileRef", "!has(self.clusterProfileRef) || !has(self.kubeConfig)",
        "cannot be used together with `kubeConfig`; keep one of them",
    ),
]))]
pub(crate) struct MultiKueueClusterFields {
    /// Where the credentials of the cluster are.
    #[schemars(transform = source_is_new)]
    cluster_source: Option<ClusterSourceFields>,
    /// The kubeconfig of the cluster. An agent that joined under the cluster's name needs none.
    #[schemars(transform = config_is_old)]
    kube_config: Option<KubeConfigFields>,
    /// The ClusterProfile with the cluster's credentials.
    #[schemars(transform = profile_is_old)]
    cluster_profile_ref: Option<ProfileFields>,
}

fn source_is_new(schema: &mut Schema) {
    only_new(schema, "spec.kubeConfig");
}

fn config_is_old(schema: &mut Schema) {
    only_old(schema, "spec.clusterSource.kubeConfig");
}

fn profile_is_old(schema: &mut Schema) {
    only_old(schema, "spec.clusterSource.clusterProfileRef");
}

/// Where the credentials of a worker cluster are.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule_at(
        ".kubeConfig", "has(self.kubeConfig) || has(self.clusterProfileRef)",
        "is missing; name the Secret of the cluster's kubeconfig (an agent that joins needs no Secret)",
    ),
    rule_at(
        ".clusterProfileRef", "!has(self.kubeConfig) || !has(self.clusterProfileRef)",
        "cannot be used together with `kubeConfig`; keep one of them",
    ),
]))]
pub(crate) struct ClusterSourceFields {
    /// The kubeconfig of the cluster. An agent that joined under the cluster's name needs none.
    kube_config: Option<KubeConfigFields>,
    /// The ClusterProfile with the cluster's credentials.
    cluster_profile_ref: Option<ProfileFields>,
}

/// Where a kubeconfig is.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KubeConfigFields {
    /// Name of the Secret, or path of the file.
    #[schemars(length(min = 1, max = 256))]
    location: String,
    /// What `location` is.
    #[schemars(extend("default" = "Secret"))]
    location_type: Option<Location>,
}

#[derive(JsonSchema)]
pub(crate) enum Location {
    Secret,
    Path,
}

/// A ClusterProfile by name.
#[derive(JsonSchema)]
pub(crate) struct ProfileFields {
    /// Name of the ClusterProfile.
    #[schemars(length(min = 1, max = 253))]
    name: String,
}

/// How a worker cluster asks its provider for machines.
#[derive(JsonSchema)]
pub(crate) struct ProvisioningConfigObject {
    /// Class, parameters and retries of the requests.
    spec: ProvisioningConfigFields,
}

/// Class, parameters and retries of provisioning requests.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProvisioningConfigFields {
    /// Class of the requests, such as `queued-provisioning.gke.io`.
    provisioning_class_name: Name,
    /// Parameters of every request.
    #[schemars(transform = parameters)]
    parameters: Option<Strings>,
    /// Resources that need a request: pod sets without any of them run on nodes that exist. Empty is all.
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "set"))]
    managed_resources: Option<Vec<ResourceName>>,
    /// Retries of a failed request.
    retry_strategy: Option<RetryFields>,
    /// Node selectors that pods get from the answer to a request.
    pod_set_updates: Option<UpdatesFields>,
    /// Which pod sets of a workload share an entry of its request. Without it, none.
    pod_set_merge_policy: Option<MergePolicy>,
}

fn parameters(schema: &mut Schema) {
    schema.insert("maxProperties".to_owned(), json!(100));
    schema.insert("additionalProperties".to_owned(), json!({"type": "string", "maxLength": 255}));
}

#[derive(JsonSchema)]
pub(crate) enum MergePolicy {
    IdenticalPodTemplates,
    IdenticalWorkloadSchedulingRequirements,
}

/// Retries of a failed provisioning request.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RetryFields {
    /// Attempts after the first. Without it, 3.
    #[schemars(range(min = 0))]
    backoff_limit_count: Option<i32>,
    /// Wait before the first retry. Without it, 60.
    #[schemars(range(min = 0))]
    backoff_base_seconds: Option<i32>,
    /// Longest wait before a retry. Without it, 1800.
    #[schemars(range(min = 0))]
    backoff_max_seconds: Option<i32>,
}

/// Changes of pods by the answer to a provisioning request.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UpdatesFields {
    /// Entries of the node selector.
    #[schemars(length(max = 8))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key"]))]
    node_selector: Option<Vec<SelectorFromDetail>>,
}

/// An entry of a node selector, with its value from the provider.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SelectorFromDetail {
    /// Label of the nodes.
    key: LabelKey,
    /// Name of the provider's detail with the value.
    #[schemars(length(min = 1, max = 253))]
    value_from_provisioning_class_detail: String,
}
