//! Rules between several fields of a spec. Rules for a single field are with its reader.

use super::kueue::{FlavorQuotas, MAX_IN_ALL_GROUPS};
use super::{
    BorrowWithinCohort, ClusterQueueSpec, FlavorFungibility, Fungibility, PreemptionPolicy,
    ResidencyPolicySpec, ResourceGroup, Spec,
};
use crate::fields::{FieldPath, Findings};
use std::collections::BTreeSet;

/// Checks a spec that was read without errors.
pub(crate) fn check(spec: &Spec, findings: &Findings) {
    match spec {
        Spec::ClusterQueue(queue) => check_cluster_queue(queue, findings),
        Spec::Cohort(cohort) => check_groups(&cohort.resource_groups, cohort.parent.is_some(), findings),
        Spec::ResidencyPolicy(policy) => check_residency(policy, findings),
        Spec::ResourceFlavor(_)
        | Spec::LocalQueue(_)
        | Spec::WorkloadPriorityClass(_)
        | Spec::AdmissionCheck(_)
        | Spec::MultiKueueConfig(_)
        | Spec::MultiKueueCluster(_)
        | Spec::ProvisioningRequestConfig(_)
        | Spec::Job(_)
        | Spec::Namespace(_)
        | Spec::PriorityClass(_)
        | Spec::Cluster(_)
        | Spec::DispatchPolicy(_)
        | Spec::Topology(_)
        | Spec::LimitRange(_)
        | Spec::RuntimeClass(_)
        | Spec::Role(_)
        | Spec::ClusterRole(_)
        | Spec::RoleBinding(_)
        | Spec::ClusterRoleBinding(_) => {}
    }
}

fn check_cluster_queue(queue: &ClusterQueueSpec, findings: &Findings) {
    check_groups(&queue.resource_groups, queue.cohort.is_some(), findings);
    let BorrowWithinCohort { policy, max_priority_threshold } = &queue.preemption.borrow_within_cohort;
    let at = FieldPath::of("spec.preemption.borrowWithinCohort");
    if queue.preemption.reclaim_within_cohort == PreemptionPolicy::Never && *policy != PreemptionPolicy::Never
    {
        findings.error(
            at.clone().key("policy"),
            "needs `reclaimWithinCohort` other than `Never`",
            "set `reclaimWithinCohort`, or write `Never`",
        );
    }
    if *policy == PreemptionPolicy::Never && max_priority_threshold.is_some() {
        findings.error(
            at.key("maxPriorityThreshold"),
            "needs a `policy` other than `Never`",
            "write `policy: LowerPriority`, or remove it",
        );
    }
    let FlavorFungibility { when_can_borrow, when_can_preempt, prefers_preemption } =
        &queue.flavor_fungibility;
    let both_next =
        *when_can_borrow == Fungibility::TryNextFlavor && *when_can_preempt == Fungibility::TryNextFlavor;
    if prefers_preemption.is_some() && !both_next {
        let message = "needs `whenCanBorrow` and `whenCanPreempt` to be `TryNextFlavor`";
        findings.error(FieldPath::of("spec.flavorFungibility.preference"), message, "set both, or remove it");
    }
    let flavors: BTreeSet<&str> = queue
        .resource_groups
        .iter()
        .flat_map(|group| &group.flavors)
        .map(|flavor| flavor.name.as_str())
        .collect();
    for (index, rule) in queue.admission_checks.iter().enumerate() {
        for flavor in rule.on_flavors.iter().filter(|flavor| !flavors.contains(flavor.as_str())) {
            let at =
                FieldPath::of("spec.admissionChecksStrategy.admissionChecks").index(index).key("onFlavors");
            findings.error(
                at,
                format!("`{flavor}` is not a flavor of this queue"),
                "name a flavor of its resource groups",
            );
        }
    }
}

/// Kueue's rules for resource groups. `shares`: whether there is a cohort to borrow from.
fn check_groups(groups: &[ResourceGroup], shares: bool, findings: &Findings) {
    let root = FieldPath::of("spec.resourceGroups");
    let (mut resources, mut flavors): (BTreeSet<&str>, BTreeSet<&str>) = (BTreeSet::new(), BTreeSet::new());
    for (index, group) in groups.iter().enumerate() {
        let at = root.clone().index(index);
        if group.covered_resources.is_empty() {
            findings.error(at.clone().key("coveredResources"), "is empty", "list the resources of the group");
        }
        if group.flavors.is_empty() {
            findings.error(at.clone().key("flavors"), "is empty", "list at least one flavor with its quotas");
        }
        for (place, resource) in
            group.covered_resources.iter().enumerate().filter(|(_, resource)| !resources.insert(resource))
        {
            let at = at.clone().key("coveredResources").index(place);
            findings.error(
                at,
                format!("`{resource}` is covered twice"),
                "a resource can be in one group only",
            );
        }
        for (place, flavor) in group.flavors.iter().enumerate() {
            let at = at.clone().key("flavors").index(place);
            if !flavors.insert(&flavor.name) {
                findings.error(
                    at.clone().key("name"),
                    format!("the flavor `{}` appears twice", flavor.name),
                    "a flavor can be in one group only",
                );
            }
            check_flavor(group, flavor, &at, shares, findings);
        }
    }
    for (count, what) in [(resources.len(), "resources"), (flavors.len(), "flavors")] {
        if count > MAX_IN_ALL_GROUPS {
            findings.error(
                root.clone(),
                format!("have {count} {what} together, at most {MAX_IN_ALL_GROUPS} are permitted"),
                "split the cluster queue, and put both into one cohort",
            );
        }
    }
}

fn check_flavor(
    group: &ResourceGroup,
    flavor: &FlavorQuotas,
    at: &FieldPath,
    shares: bool,
    findings: &Findings,
) {
    let at = at.clone().key("resources");
    for resource in
        group.covered_resources.iter().filter(|resource| !flavor.resources.contains_key(*resource))
    {
        let message = format!("has no quota for the covered resource `{resource}`");
        findings.error(at.clone(), message, format!("add `{resource}` with its `nominalQuota`"));
    }
    for (resource, quota) in &flavor.resources {
        if !group.covered_resources.contains(resource) {
            let message = format!("`{resource}` is not one of the group's `coveredResources`");
            findings.error(at.clone(), message, "add it there, or remove its quota");
        }
        for (limit, name) in
            [(quota.borrowing_limit, "borrowingLimit"), (quota.lending_limit, "lendingLimit")]
        {
            if limit.is_some() && !shares {
                findings.error(
                    at.clone(),
                    format!("`{name}` of `{resource}` needs a cohort"),
                    "name the cohort, or remove the limit",
                );
            }
        }
    }
}

fn check_residency(policy: &ResidencyPolicySpec, findings: &Findings) {
    let Some(allow) = &policy.allow else {
        if policy.deny.is_empty() {
            findings.error(
                FieldPath::of("spec"),
                "neither allows nor denies a place",
                "add `allow` or `deny`",
            );
        }
        return;
    };
    for cluster in allow.clusters.intersection(&policy.deny.clusters) {
        findings.warn(
            FieldPath::of("spec.deny.clusters"),
            format!("`{cluster}` is both allowed and denied; it is denied"),
            "keep one of them",
        );
    }
    for region in allow.regions.intersection(&policy.deny.regions) {
        findings.warn(
            FieldPath::of("spec.deny.regions"),
            format!("`{region}` is both allowed and denied; it is denied"),
            "keep one of them",
        );
    }
    for jurisdiction in allow.jurisdictions.intersection(&policy.deny.jurisdictions) {
        let message = format!("`{jurisdiction}` is both allowed and denied; it is denied");
        findings.warn(FieldPath::of("spec.deny.jurisdictions"), message, "keep one of them");
    }
}
