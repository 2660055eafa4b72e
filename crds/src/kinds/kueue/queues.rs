//! Cluster queues, cohorts and local queues.

use super::quotas::{
    FairShare, FlavorUse, QuotaGroup, ShareStatus, Stop, cohort_limits, groups, queue_limits,
};
use crate::cel::rule_at;
use crate::kinds::parts::{Amounts, Moment, Name, NameOrNone, ObjectSelector, PlainName, StatusConditions};
use crate::schema::{old_words, only_new, only_old};
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

/// Quotas for workloads, and the policies of their use.
#[derive(JsonSchema)]
pub(crate) struct ClusterQueueObject {
    /// Quotas and policies.
    spec: Option<ClusterQueueFields>,
    /// Usage and counts; written by Meridian.
    status: Option<ClusterQueueState>,
}

/// Quotas and policies of a cluster queue.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = queue_rules()))]
pub(crate) struct ClusterQueueFields {
    /// Resources with their quotas by flavor. A resource and a flavor can be in one group only.
    #[schemars(transform = groups)]
    resource_groups: Option<Vec<QuotaGroup>>,
    /// Cohort whose queues lend each other unused quota. Without one, the queue neither borrows nor lends.
    #[schemars(transform = cohort_name_is_new)]
    cohort_name: Option<NameOrNone>,
    /// Cohort whose queues lend each other unused quota. Without one, the queue neither borrows nor lends.
    #[schemars(transform = cohort_is_old)]
    cohort: Option<NameOrNone>,
    /// Order of pending workloads of one priority. With `StrictFIFO`, a workload that does not fit blocks
    /// those after it; with `BestEffortFIFO` it lets them start.
    #[schemars(extend("default" = "BestEffortFIFO"))]
    queueing_strategy: Option<Strategy>,
    /// Namespaces whose workloads the queue accepts, by their labels. Without it, none; with `{}`, all.
    namespace_selector: Option<ObjectSelector>,
    /// Whether the next flavor is tried before borrowing or preempting in this one.
    flavor_fungibility: Option<FungibilityFields>,
    /// Which workloads a pending workload may preempt.
    preemption: Option<PreemptionFields>,
    /// Admission checks, by name.
    #[schemars(transform = checks_are_old)]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "set"))]
    admission_checks: Option<Vec<PlainName>>,
    /// Admission checks, each for some flavors or for all.
    admission_checks_strategy: Option<ChecksStrategy>,
    /// Whether the queue admits workloads. `Hold` lets running ones end; `HoldAndDrain` evicts them.
    #[schemars(extend("default" = "None"))]
    stop_policy: Option<Stop>,
    /// Weight in fair sharing.
    fair_sharing: Option<FairShare>,
    /// Whether past usage of local queues decides on their order.
    admission_scope: Option<AdmissionScopeFields>,
    /// Accepted without effect: flavors are not tried at the same time.
    concurrent_admission_policy: Option<ConcurrentAdmissionFields>,
}

fn cohort_name_is_new(schema: &mut Schema) {
    only_new(schema, "spec.cohort");
}

fn cohort_is_old(schema: &mut Schema) {
    only_old(schema, "spec.cohortName");
}

fn checks_are_old(schema: &mut Schema) {
    only_old(schema, "admissionChecksStrategy.admissionChecks[].name");
}

fn queue_rules() -> Value {
    let mut rules = queue_limits();
    rules.push(rule_at(
        ".admissionChecks",
        "!has(self.admissionChecks) || !has(self.admissionChecksStrategy)",
        "cannot be used together with `admissionChecksStrategy`; keep one of them",
    ));
    rules.push(rule_at(
        ".admissionChecksStrategy",
        "!has(self.admissionChecksStrategy) || !has(self.admissionChecksStrategy.admissionChecks) || \
            [has(self.resourceGroups) \
            ? self.resourceGroups.map(g, g.flavors.map(f, f.name)) : []].all(names, \
            self.admissionChecksStrategy.admissionChecks.all(c, !has(c.onFlavors) \
                || c.onFlavors.all(on, names.exists(n, on in n))))",
        "a flavor of a check is not a flavor of this queue; name a flavor of its resource groups",
    ));
    rules.push(rule_at(
        ".resourceGroups",
        "!has(self.resourceGroups) || self.resourceGroups.all(g, g.flavors.all(f, f.resources.all(r, \
            !has(r.lendingLimit) \
            || quantity(string(r.lendingLimit)).compareTo(quantity(string(r.nominalQuota))) <= 0)))",
        "`lendingLimit` is more than `nominalQuota`; write at most the nominal quota",
    ));
    json!(rules)
}

#[derive(JsonSchema)]
pub(crate) enum Strategy {
    #[serde(rename = "StrictFIFO")]
    StrictFifo,
    #[serde(rename = "BestEffortFIFO")]
    BestEffortFifo,
}

/// Whether the next flavor is tried before borrowing or preempting in this one.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rule_at(
    ".preference",
    "!has(self.preference) || (has(self.whenCanBorrow) && self.whenCanBorrow == 'TryNextFlavor' \
        && has(self.whenCanPreempt) && self.whenCanPreempt == 'TryNextFlavor')",
    "needs `whenCanBorrow` and `whenCanPreempt` to be `TryNextFlavor`; set both, or remove it",
)]))]
pub(crate) struct FungibilityFields {
    /// What happens where the workload would have to borrow: stay with this flavor (`MayStopSearch`, the
    /// default), or try the next one.
    #[schemars(transform = borrow_is_old)]
    when_can_borrow: Option<NextFlavor>,
    /// What happens where the workload would have to preempt: stay with this flavor, or try the next one
    /// (`TryNextFlavor`, the default).
    #[schemars(transform = preempt_is_old)]
    when_can_preempt: Option<NextFlavor>,
    /// What is preferred where every flavor needs borrowing or preemption.
    preference: Option<Preferred>,
}

fn borrow_is_old(schema: &mut Schema) {
    old_words(schema, &["Borrow"]);
}

fn preempt_is_old(schema: &mut Schema) {
    old_words(schema, &["Preempt"]);
}

#[derive(JsonSchema)]
pub(crate) enum NextFlavor {
    MayStopSearch,
    TryNextFlavor,
}

#[derive(JsonSchema)]
pub(crate) enum Preferred {
    BorrowingOverPreemption,
    PreemptionOverBorrowing,
}

/// Which workloads a pending workload may preempt.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule_at(
        ".borrowWithinCohort",
        "!has(self.borrowWithinCohort) || !has(self.borrowWithinCohort.policy) \
            || self.borrowWithinCohort.policy == 'Never' \
            || (has(self.reclaimWithinCohort) && self.reclaimWithinCohort != 'Never')",
        "needs `reclaimWithinCohort` other than `Never`; set `reclaimWithinCohort`, or write `Never`",
    ),
]))]
pub(crate) struct PreemptionFields {
    /// Workloads of other queues that use more than their own quota, for a workload within its queue's own
    /// quota. `Never` is the default.
    reclaim_within_cohort: Option<Reclaim>,
    /// Workloads of other queues, for a workload that has to borrow.
    borrow_within_cohort: Option<BorrowFields>,
    /// Workloads of the same queue. `Never` is the default.
    within_cluster_queue: Option<WithinQueue>,
}

/// Preemption of other queues' workloads by a workload that has to borrow.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rule_at(
    ".maxPriorityThreshold",
    "!has(self.maxPriorityThreshold) || (has(self.policy) && self.policy != 'Never')",
    "needs a `policy` other than `Never`; write `policy: LowerPriority`, or remove it",
)]))]
pub(crate) struct BorrowFields {
    /// Workloads that may be preempted. `Never` is the default.
    policy: Option<Borrowing>,
    /// Only workloads up to this priority are preempted.
    max_priority_threshold: Option<i32>,
}

#[derive(JsonSchema)]
pub(crate) enum Reclaim {
    Never,
    LowerPriority,
    Any,
}

#[derive(JsonSchema)]
pub(crate) enum Borrowing {
    Never,
    LowerPriority,
}

#[derive(JsonSchema)]
pub(crate) enum WithinQueue {
    Never,
    LowerPriority,
    LowerOrNewerEqualPriority,
}

/// Admission checks of a queue.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChecksStrategy {
    /// The checks, each once.
    #[schemars(length(max = 64))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    admission_checks: Option<Vec<CheckFields>>,
}

/// One admission check.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CheckFields {
    /// Name of the AdmissionCheck.
    name: Name,
    /// Flavors whose workloads need the check. Empty is all.
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "set"))]
    on_flavors: Option<Vec<PlainName>>,
}

/// Whether past usage of local queues decides on their order.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AdmissionScopeFields {
    /// `UsageBasedAdmissionFairSharing` turns it on.
    admission_mode: UsageBased,
}

#[derive(JsonSchema)]
pub(crate) enum UsageBased {
    UsageBasedAdmissionFairSharing,
    NoAdmissionFairSharing,
}

/// Trying several flavors at the same time.
#[derive(JsonSchema)]
pub(crate) struct ConcurrentAdmissionFields {
    /// Whether a running workload moves to a preferred flavor.
    migration: MigrationFields,
}

/// Whether a running workload moves to a preferred flavor.
#[derive(JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [rule_at(
    ".constraints",
    "self.mode != 'RetainFirstAdmission' || !has(self.constraints) || \
        !has(self.constraints.lastAcceptableFlavorName)",
    "needs `mode: TryPreferredFlavors`; remove it, or change the mode",
)]))]
pub(crate) struct MigrationFields {
    /// `RetainFirstAdmission` keeps the flavor in which the workload was admitted.
    mode: MigrationMode,
    /// Limits of the moves.
    constraints: Option<MigrationConstraints>,
}

#[derive(JsonSchema)]
pub(crate) enum MigrationMode {
    TryPreferredFlavors,
    RetainFirstAdmission,
}

/// Limits of a workload's moves between flavors.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MigrationConstraints {
    /// The last flavor, in the queue's order, that the workload may move to.
    last_acceptable_flavor_name: Option<Name>,
}

/// Usage and counts of a cluster queue.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClusterQueueState {
    /// Facts about the queue; `Active` says whether it admits workloads.
    conditions: Option<StatusConditions>,
    /// Quota that is reserved, by flavor.
    #[schemars(length(max = 256))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    flavors_reservation: Option<Vec<FlavorUse>>,
    /// Quota of admitted workloads, by flavor.
    #[schemars(length(max = 256))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    flavors_usage: Option<Vec<FlavorUse>>,
    /// Number of workloads that wait.
    pending_workloads: Option<i64>,
    /// Number of workloads with reserved quota.
    reserving_workloads: Option<i64>,
    /// Number of admitted workloads that have not ended.
    admitted_workloads: Option<i64>,
    /// The queue's state in fair sharing, if that is on.
    fair_sharing: Option<ShareStatus>,
}

/// Cluster queues that share quota.
#[derive(JsonSchema)]
pub(crate) struct CohortObject {
    /// Parent, and quotas of the cohort itself.
    spec: Option<CohortFields>,
    /// The cohort's state; written by Meridian.
    status: Option<CohortState>,
}

/// Parent, and quotas of a cohort itself.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = cohort_limits()))]
pub(crate) struct CohortFields {
    /// Cohort that this one shares quota with. Without one, it is a root.
    parent_name: Option<NameOrNone>,
    /// Quotas that all members share, on top of their own.
    #[schemars(transform = groups)]
    resource_groups: Option<Vec<QuotaGroup>>,
    /// Weight in fair sharing.
    fair_sharing: Option<FairShare>,
}

/// State of a cohort.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CohortState {
    /// The cohort's state in fair sharing, if that is on.
    fair_sharing: Option<ShareStatus>,
}

/// A namespace's entry to a cluster queue.
#[derive(JsonSchema)]
pub(crate) struct LocalQueueObject {
    /// The cluster queue, and whether jobs are admitted through this entry.
    spec: LocalQueueFields,
    /// Usage and counts; written by Meridian.
    status: Option<LocalQueueState>,
}

/// The cluster queue of a local queue.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LocalQueueFields {
    /// Cluster queue that jobs of this local queue are charged to.
    cluster_queue: Name,
    /// Whether workloads of this local queue are admitted. `Hold` lets running ones end; `HoldAndDrain`
    /// evicts them.
    #[schemars(extend("default" = "None"))]
    stop_policy: Option<Stop>,
    /// Weight in admission fair sharing.
    fair_sharing: Option<FairShare>,
}

/// Usage and counts of a local queue.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LocalQueueState {
    /// Facts about the queue; `Active` says whether it admits workloads.
    conditions: Option<StatusConditions>,
    /// Quota that is reserved, by flavor.
    #[schemars(length(max = 256))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    flavors_reservation: Option<Vec<FlavorUse>>,
    /// Quota of admitted workloads, by flavor.
    #[schemars(length(max = 256))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    flavors_usage: Option<Vec<FlavorUse>>,
    /// The v1beta1 name of `flavorsUsage`.
    #[schemars(length(max = 256))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    flavor_usage: Option<Vec<FlavorUse>>,
    /// Number of workloads that wait.
    pending_workloads: Option<i64>,
    /// Number of workloads with reserved quota.
    reserving_workloads: Option<i64>,
    /// Number of admitted workloads that have not ended.
    admitted_workloads: Option<i64>,
    /// The queue's past usage, if admission fair sharing is on.
    fair_sharing: Option<LocalShareStatus>,
}

/// Past usage of a local queue.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LocalShareStatus {
    /// As in a cluster queue.
    weighted_share: Option<i64>,
    /// Past usage, of which older usage counts less.
    admission_fair_sharing_status: Option<PastUsage>,
}

/// Past usage by resource.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PastUsage {
    /// Usage per resource.
    consumed_resources: Option<Amounts>,
    /// When it was computed.
    last_update: Option<Moment>,
}
