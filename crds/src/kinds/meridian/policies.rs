//! Residency and dispatch policies.

use crate::cel::{self, rule, says};
use crate::kinds::parts::{ConditionsOnly, Duration, ObjectSelector, Place};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::json;
use std::borrow::Cow;

/// Where workloads may and must not go.
#[derive(JsonSchema)]
pub(crate) struct ResidencyPolicyObject {
    /// The workloads, and the places that are allowed and denied.
    spec: ResidencyFields,
    /// Whether the policy is in force; written by Meridian.
    status: Option<ConditionsOnly>,
}

/// Where workloads may and must not go.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule(
        "has(self.allow) || (has(self.deny) && ((has(self.deny.jurisdictions) && \
            size(self.deny.jurisdictions) > 0) \
            || (has(self.deny.regions) && size(self.deny.regions) > 0) \
            || (has(self.deny.clusters) && size(self.deny.clusters) > 0)))",
        "neither allows nor denies a place; add `allow` or `deny`",
    ),
]))]
pub(crate) struct ResidencyFields {
    /// Workloads that the policy applies to. A workload that matches any criterion is one. Without a
    /// criterion, all are.
    applies: Option<AppliesFields>,
    /// The only places where they may go. Without it, every place that isn't denied. An empty list allows no
    /// place.
    // API servers drop null where it isn't allowed, which would turn "only there" into "anywhere". An
    // admission policy refuses it, and so does the manager's reader.
    #[schemars(transform = crate::schema::nullable)]
    allow: Option<LocationFields>,
    /// Places where they must not go. It beats `allow`.
    deny: Option<LocationFields>,
    /// What happens to workloads that run where a changed policy forbids them. `Evict` is the default; `Flag`
    /// only reports them.
    on_change: Option<ChangeWord>,
}

#[derive(JsonSchema)]
pub(crate) enum ChangeWord {
    Evict,
    Flag,
}

/// Workloads that a policy applies to.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AppliesFields {
    /// Workloads of these namespaces.
    #[schemars(length(max = 1000), extend("x-kubernetes-list-type" = "set"))]
    namespaces: Option<Vec<WrittenName>>,
    /// Workloads of namespaces with these labels. An empty selector is unused.
    namespace_selector: Option<ObjectSelector>,
    /// Workloads of these local or cluster queues.
    #[schemars(length(max = 1000), extend("x-kubernetes-list-type" = "set"))]
    queues: Option<Vec<WrittenName>>,
    /// Workloads with these labels. An empty selector is unused.
    workload_selector: Option<ObjectSelector>,
}

/// Places. A cluster is one of them if its name, its region or its jurisdiction is listed.
#[derive(JsonSchema)]
pub(crate) struct LocationFields {
    /// Legal areas, such as `EU`.
    #[schemars(length(max = 1000), extend("x-kubernetes-list-type" = "set"))]
    jurisdictions: Option<Vec<Place>>,
    /// Regions, such as `europe-west4`.
    #[schemars(length(max = 1000), extend("x-kubernetes-list-type" = "set"))]
    regions: Option<Vec<Place>>,
    /// Clusters by name.
    #[schemars(length(max = 1000), extend("x-kubernetes-list-type" = "set"))]
    clusters: Option<Vec<WorkerName>>,
}

/// A name that is written, and not empty.
pub(crate) struct WrittenName;

impl JsonSchema for WrittenName {
    fn schema_name() -> Cow<'static, str> {
        "WrittenName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let schema = json!({
            "type": "string", "maxLength": 253,
            "x-kubernetes-validations": [rule("self != ''", "is empty; write a name or remove the entry")],
        });
        Schema::try_from(schema).expect("a mapping is a schema")
    }
}

/// The name of a worker cluster.
pub(crate) struct WorkerName;

impl JsonSchema for WorkerName {
    fn schema_name() -> Cow<'static, str> {
        "WorkerName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let schema = json!({
            "type": "string", "maxLength": 253,
            "x-kubernetes-validations":
                [cel::is(cel::NAME, "a cluster's name", "use lower-case letters, digits, `-` and `.`")],
        });
        Schema::try_from(schema).expect("a mapping is a schema")
    }
}

/// How workloads find their clusters.
#[derive(JsonSchema)]
pub(crate) struct DispatchPolicyObject {
    /// The queues, and how their workloads are dispatched.
    spec: DispatchFields,
    /// Whether the policy is in force; written by Meridian.
    status: Option<ConditionsOnly>,
}

/// How workloads find their clusters.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DispatchFields {
    /// Cluster queues that the policy applies to. Without it, all.
    applies: Option<AppliesToQueues>,
    /// `Direct`, the default, offers to the best cluster that reports capacity for the whole gang. `Race`
    /// offers to all allowed clusters, and the first hold wins. `Staged` is dispatched as `Direct`.
    mode: Option<ModeWord>,
    /// Steps of `mode: Staged`; without effect.
    staged: Option<StagedFields>,
    /// Accepted without effect.
    #[schemars(length(max = 4), extend("x-kubernetes-list-type" = "atomic"))]
    #[schemars(extend("x-kubernetes-validations" = [rule(
        "self.all(c, self.exists_one(x, x == c))", "lists a class twice; list every class once",
    )]))]
    capacity_classes: Option<Vec<super::cluster::BoughtAs>>,
    /// What decides between clusters, most important first, before their order in the MultiKueueConfig.
    #[schemars(length(max = 3), extend("x-kubernetes-list-type" = "atomic"))]
    prefer: Option<Vec<PreferenceWord>>,
    /// What happens to a workload when its cluster is lost.
    on_cluster_loss: Option<LossFields>,
    /// Accepted without effect: `Keep`, or `{ReleaseAfter: 15m}`.
    quota_while_waiting: Option<KeepOrRelease>,
    /// Longest time from the grant until the gang runs. Without it, the manager's `--start-timeout`.
    start_timeout: Option<Duration>,
}

/// A word or a mapping, which a structural schema can't tell apart.
pub(crate) struct KeepOrRelease;

impl JsonSchema for KeepOrRelease {
    fn schema_name() -> Cow<'static, str> {
        "KeepOrRelease".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let schema = json!({"x-kubernetes-preserve-unknown-fields": true});
        Schema::try_from(schema).expect("a mapping is a schema")
    }
}

/// Cluster queues that a policy applies to.
#[derive(JsonSchema)]
pub(crate) struct AppliesToQueues {
    /// Names of cluster queues; `*` is all.
    #[schemars(length(max = 1000), extend("x-kubernetes-list-type" = "set"))]
    queues: Option<Vec<WrittenName>>,
}

#[derive(JsonSchema)]
pub(crate) enum ModeWord {
    Direct,
    Race,
    Staged,
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum PreferenceWord {
    StartsNow,
    LowestCost,
    Emptiest,
}

/// Steps of a staged dispatch.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StagedFields {
    /// Clusters that get offers together.
    #[schemars(range(min = 1, max = 65535))]
    clusters_at_once: Option<i32>,
    /// Wait before the next clusters get offers.
    interval: Option<Duration>,
}

/// What happens to a workload when its cluster is lost.
#[derive(JsonSchema)]
pub(crate) struct LossFields {
    /// `Fence`, the default, starts the workload elsewhere once its lease has lapsed. `Wait` waits for the
    /// cluster.
    mode: Option<LossWord>,
    /// Term of the lease; at least 4s. Without it, the manager's `--term`.
    #[schemars(extend("x-kubernetes-validations" = [says(
        format!("!{} || duration(self) >= duration('4s')", cel::matches("self", cel::DURATION)),
        "'`' + self + '` is too short; the least is 4s'",
    )]))]
    term: Option<Duration>,
    /// `Guarded` accepts only clusters with a guard process for every gang; `Supervised` is the default.
    requires: Option<SupervisionWord>,
}

#[derive(JsonSchema)]
pub(crate) enum LossWord {
    Fence,
    Wait,
}

#[derive(JsonSchema)]
pub(crate) enum SupervisionWord {
    Supervised,
    Guarded,
}
