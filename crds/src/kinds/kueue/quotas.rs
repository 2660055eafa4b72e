//! Resource groups and quotas, and what cluster queues and cohorts have in common.

use crate::cel::{rule, rule_at};
use crate::kinds::parts::{PlainName, Quantity, ResourceName};
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

/// Whether the spec names a cohort, under the name of either version.
const IN_COHORT: &str =
    "(has(self.cohortName) && self.cohortName != '') || (has(self.cohort) && self.cohort != '')";
/// Whether a cohort has a parent.
const HAS_PARENT: &str = "has(self.parentName) && self.parentName != ''";

/// A group of resources that a workload gets from one flavor together.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = group_rules()))]
pub(crate) struct QuotaGroup {
    /// Resources of the group, such as cpu, memory or nvidia.com/gpu. Every flavor has a quota of each.
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    covered_resources: Vec<ResourceName>,
    /// Flavors with their quotas, in the order in which they are tried.
    #[schemars(length(min = 1, max = 64))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    flavors: Vec<FlavorQuota>,
}

/// Quotas of one flavor.
#[derive(JsonSchema)]
pub(crate) struct FlavorQuota {
    /// Name of the ResourceFlavor.
    name: PlainName,
    /// Quota per resource of the group.
    #[schemars(length(min = 1, max = 64))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    resources: Vec<ResourceQuotas>,
}

/// Quota of one resource in one flavor.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResourceQuotas {
    /// Name of the resource.
    name: ResourceName,
    /// The queue's own quota.
    nominal_quota: Quota,
    /// Most that may be borrowed from the cohort. Without it, borrowing has no limit.
    borrowing_limit: Option<Quota>,
    /// Most of the own quota to lend to the cohort. Without it, all may be lent.
    lending_limit: Option<Quota>,
}

/// A quantity that isn't negative.
#[derive(JsonSchema)]
#[schemars(transform = not_negative)]
pub(crate) struct Quota(Quantity);

fn not_negative(schema: &mut Schema) {
    schema.insert("minimum".to_owned(), json!(0));
    if let Some(Value::String(pattern)) = schema.get_mut("pattern") {
        *pattern = pattern.replace("[+-]?(", "[+]?(");
    }
}

/// Weight in fair sharing.
#[derive(JsonSchema)]
pub(crate) struct FairShare {
    /// Share of the quota that others leave, relative to theirs. Without it, 1. With 0, the queue gets
    /// nothing that others want.
    weight: Option<Quota>,
}

#[derive(JsonSchema)]
pub(crate) enum Stop {
    None,
    Hold,
    HoldAndDrain,
}

/// API servers bound the cost of a rule by the longest lists that it may meet. A message that names a found
/// item has no bound, so these messages name none.
fn group_rules() -> Value {
    json!([
        rule_at(
            ".coveredResources",
            "self.coveredResources.all(c, self.coveredResources.exists_one(x, x == c))",
            "a resource is covered twice; a resource can be in one group only",
        ),
        rule_at(
            ".flavors",
            "self.flavors.all(f, size(f.resources) >= size(self.coveredResources))",
            "a flavor has no quota for a covered resource; add it with its `nominalQuota`",
        ),
        rule_at(
            ".flavors",
            "self.flavors.all(f, f.resources.all(r, r.name in self.coveredResources))",
            "a resource is not one of the group's `coveredResources`; add it there, or remove its quota",
        ),
    ])
}

/// Rules for a list of groups.
pub(crate) fn groups(schema: &mut Schema) {
    let rules = json!([
        rule(
            "self.all(g, g.coveredResources.all(c, self.filter(h, c in h.coveredResources).size() == 1))",
            "a resource is covered twice; a resource can be in one group only",
        ),
        rule(
            "[self.map(h, h.flavors.map(x, x.name))].all(names, \
                self.all(g, g.flavors.all(f, names.filter(n, f.name in n).size() == 1)))",
            "a flavor appears twice; a flavor can be in one group only",
        ),
    ]);
    schema.insert("maxItems".to_owned(), json!(16));
    schema.insert("x-kubernetes-list-type".to_owned(), json!("atomic"));
    schema.insert("x-kubernetes-validations".to_owned(), rules);
}

/// Limits of a queue without a cohort would have no effect.
fn limits_need(cohort: &str) -> [Value; 2] {
    ["borrowingLimit", "lendingLimit"].map(|limit| {
        let any = format!("g.flavors.exists(f, f.resources.exists(r, has(r.{limit})))");
        rule_at(
            ".resourceGroups",
            format!("{cohort} || !has(self.resourceGroups) || !self.resourceGroups.exists(g, {any})"),
            &format!("`{limit}` needs a cohort; name the cohort, or remove the limit"),
        )
    })
}

/// Rules of a cluster queue's spec about its groups.
pub(crate) fn queue_limits() -> Vec<Value> {
    let mut rules = limits_need(IN_COHORT).to_vec();
    let most = "self.resourceGroups.map(g, size(g.COUNTED)).sum() <= 256";
    for (counted, what) in [("coveredResources", "resources"), ("flavors", "flavors")] {
        let message = format!(
            "have more than 256 {what} together; split the cluster queue, and put both into one cohort"
        );
        let rule = format!("!has(self.resourceGroups) || {}", most.replace("COUNTED", counted));
        rules.push(rule_at(".resourceGroups", rule, &message));
    }
    rules
}

/// Rules of a cohort's spec about its groups.
pub(crate) fn cohort_limits() -> Vec<Value> {
    limits_need(HAS_PARENT).to_vec()
}

/// Usage of one flavor.
#[derive(JsonSchema)]
pub(crate) struct FlavorUse {
    /// Name of the ResourceFlavor.
    name: PlainName,
    /// Usage per resource.
    #[schemars(length(max = 64))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    resources: Option<Vec<ResourceUse>>,
}

/// Usage of one resource in one flavor.
#[derive(JsonSchema)]
pub(crate) struct ResourceUse {
    /// Name of the resource.
    name: ResourceName,
    /// All usage, borrowed quota included.
    total: Option<Quantity>,
    /// The part that is borrowed from the cohort. Local queues have none.
    borrowed: Option<Quantity>,
}

/// State of a queue or cohort in fair sharing.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ShareStatus {
    /// Borrowed part of the cohort's quota, divided by the weight; 0 for a queue that borrows nothing.
    weighted_share: i64,
}
