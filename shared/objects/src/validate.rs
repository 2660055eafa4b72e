//! Rules that look at more than one field of an object, and the list of what is accepted but has no effect yet.
//!
//! Rules about a single field live with its reader. Whether a named object exists is not asked here.

use crate::field::{FieldPath, Findings, Warning};
use crate::job::topology;
use crate::kind::Kind;
use crate::object::Object;
use crate::spec::kueue::{self, MAX_IN_ALL_GROUPS};
use crate::spec::multikueue::{MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER};
use crate::spec::{
    BorrowWithinCohort, ClusterQueueSpec, DispatchMode, FlavorFungibility, Fungibility, Preemption,
    PreemptionPolicy, QuotaWhileWaiting, ResidencyPolicySpec, ResourceGroup, Spec,
};
use serde_json::Value;
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
        | Spec::RuntimeClass(_) => {}
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
                format!("`{flavor}` is no flavor of this queue"),
                "name a flavor of its resource groups",
            );
        }
    }
}

/// Kueue's rules for resource groups. `shares` says whether there is a cohort to borrow from.
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
                    format!("the flavor `{}` is there twice", flavor.name),
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
                format!("have {count} {what} together"),
                format!("the most is {MAX_IN_ALL_GROUPS}"),
            );
        }
    }
}

fn check_flavor(
    group: &ResourceGroup,
    flavor: &kueue::FlavorQuotas,
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
            format!("`{cluster}` is allowed too, and denied all the same"),
            "keep one of them",
        );
    }
    for region in allow.regions.intersection(&policy.deny.regions) {
        findings.warn(
            FieldPath::of("spec.deny.regions"),
            format!("`{region}` is allowed too, and denied all the same"),
            "keep one of them",
        );
    }
    for jurisdiction in allow.jurisdictions.intersection(&policy.deny.jurisdictions) {
        let message = format!("`{jurisdiction}` is allowed too, and denied all the same");
        findings.warn(FieldPath::of("spec.deny.jurisdictions"), message, "keep one of them");
    }
}

/// What a manager accepts in this object and does not act on yet, each naming its field (in the storage version).
pub fn not_honoured(object: &Object) -> Vec<Warning> {
    let mut all = Ignored::default();
    match &object.spec {
        Spec::ClusterQueue(queue) => ignored_in_queue(queue, &mut all),
        Spec::AdmissionCheck(check) if check.controller_name == PROVISIONING_CONTROLLER => {
            all.add(
                "spec.controllerName",
                "provisioning checks belong to a worker cluster; this one is not asked here",
                FOR_CLUSTER,
            );
        }
        Spec::AdmissionCheck(check) => {
            all.when(
                check.controller_name != MULTIKUEUE_CONTROLLER,
                "spec.controllerName",
                "nobody answers for this controller: a cluster queue that names the check admits nothing",
            );
        }
        Spec::MultiKueueConfig(config) => {
            all.when(
                config.automated_quota,
                "spec.quotaManagement",
                "quota is not taken from the workers; it is as the queue says",
            );
        }
        Spec::ProvisioningRequestConfig(_) => all.add("spec", "a manager asks no provider", FOR_CLUSTER),
        Spec::PriorityClass(class) => {
            all.when(
                !class.preempts,
                "preemptionPolicy",
                "whom a workload may displace is said by its cluster queue, as in Kueue",
            );
        }
        Spec::DispatchPolicy(policy) => {
            all.when(
                policy.mode == DispatchMode::Staged,
                "spec.mode",
                "`Staged` is not built yet; it is dispatched as `Direct`",
            );
            all.when(
                !policy.capacity_classes.is_empty(),
                "spec.capacityClasses",
                "capacity classes are not tried in order yet",
            );
            all.when(
                policy.quota_while_waiting != QuotaWhileWaiting::Keep,
                "spec.quotaWhileWaiting",
                "quota is kept while a provider is waited for",
            );
        }
        Spec::LimitRange(range) => {
            let ratio = range.limits.iter().any(|limit| !limit.max_limit_request_ratio_milli.is_empty());
            all.when(ratio, "spec.limits", "the ratio of limit to request is left to the worker cluster");
        }
        Spec::Job(_) => ignored_in_job(object, &mut all),
        Spec::Cohort(_)
        | Spec::LocalQueue(_)
        | Spec::RuntimeClass(_)
        | Spec::ResourceFlavor(_)
        | Spec::Topology(_)
        | Spec::MultiKueueCluster(_)
        | Spec::WorkloadPriorityClass(_)
        | Spec::Namespace(_)
        | Spec::Cluster(_)
        | Spec::ResidencyPolicy(_) => {}
    }
    all.warnings
}

/// What is accepted and not acted on when the object is applied as one worker cluster's caps and provider settings.
pub fn not_honoured_by_cluster(object: &Object) -> Vec<Warning> {
    let mut all = Ignored::default();
    match object.kind {
        Kind::ResourceFlavor | Kind::LocalQueue | Kind::Namespace => {}
        Kind::ClusterQueue => {
            if let Spec::ClusterQueue(queue) = &object.spec {
                ignored_by_worker(queue, &mut all);
            }
        }
        Kind::AdmissionCheck => {
            if let Spec::AdmissionCheck(check) = &object.spec {
                all.when(
                    check.controller_name != PROVISIONING_CONTROLLER,
                    "spec.controllerName",
                    "a worker cluster does not ask this controller",
                );
            }
        }
        Kind::ProvisioningRequestConfig => {
            if let Spec::ProvisioningRequestConfig(config) = &object.spec {
                all.when(
                    config.merge_by_requirements.is_some(),
                    "spec.podSetMergePolicy",
                    "a job has one pod set, so nothing is merged",
                );
            }
        }
        Kind::Cohort
        | Kind::WorkloadPriorityClass
        | Kind::MultiKueueConfig
        | Kind::MultiKueueCluster
        | Kind::Workload
        | Kind::Job
        | Kind::PriorityClass
        | Kind::Cluster
        | Kind::ResidencyPolicy
        | Kind::DispatchPolicy
        | Kind::Topology
        | Kind::LimitRange
        | Kind::RuntimeClass => {}
    }
    all.warnings
}

/// Whether a kind says anything to one worker cluster: the others hold for all of them, and are refused there.
pub fn is_for_clusters(kind: Kind) -> bool {
    match kind {
        Kind::ResourceFlavor
        | Kind::LocalQueue
        | Kind::Namespace
        | Kind::ClusterQueue
        | Kind::AdmissionCheck
        | Kind::ProvisioningRequestConfig => true,
        Kind::Cohort
        | Kind::WorkloadPriorityClass
        | Kind::MultiKueueConfig
        | Kind::MultiKueueCluster
        | Kind::Workload
        | Kind::Job
        | Kind::PriorityClass
        | Kind::Cluster
        | Kind::ResidencyPolicy
        | Kind::DispatchPolicy
        | Kind::Topology
        | Kind::LimitRange
        | Kind::RuntimeClass => false,
    }
}

const AT_MANAGER: &str = "a worker's queue is a cap; sharing is said at the manager";
const FOR_CLUSTER: &str = "apply it to the worker with `apply --cluster NAME -f FILE`";

#[derive(Default)]
struct Ignored {
    warnings: Vec<Warning>,
}

impl Ignored {
    fn add(&mut self, field: &str, message: &str, remedy: &str) {
        self.at(FieldPath::of(field), message, remedy);
    }

    fn at(&mut self, field: FieldPath, message: &str, remedy: &str) {
        self.warnings.push(Warning::new(field, message, remedy));
    }

    fn when(&mut self, written: bool, field: &str, message: &str) {
        if written {
            self.add(field, message, "");
        }
    }
}

fn ignored_in_queue(queue: &ClusterQueueSpec, all: &mut Ignored) {
    for (index, rule) in
        queue.admission_checks.iter().enumerate().filter(|(_, rule)| !rule.on_flavors.is_empty())
    {
        let at = FieldPath::of("spec.admissionChecksStrategy.admissionChecks").index(index).key("onFlavors");
        all.at(at, &format!("the check `{}` is asked for every flavor", rule.name), "");
    }
    all.when(
        queue.concurrent_admission.is_some(),
        "spec.concurrentAdmissionPolicy",
        "flavors are not tried at the same time",
    );
}

/// A worker's queue is a cap: who shares with whom is said at the manager.
fn ignored_by_worker(queue: &ClusterQueueSpec, all: &mut Ignored) {
    all.when(queue.cohort.is_some(), "spec.cohortName", AT_MANAGER);
    ignored_limits(&queue.resource_groups, all);
    let Preemption { reclaim_within_cohort, borrow_within_cohort, within_cluster_queue, reclaim_is_unset: _ } =
        &queue.preemption;
    all.when(
        *reclaim_within_cohort != PreemptionPolicy::Never,
        "spec.preemption.reclaimWithinCohort",
        AT_MANAGER,
    );
    all.when(
        borrow_within_cohort.policy != PreemptionPolicy::Never,
        "spec.preemption.borrowWithinCohort.policy",
        AT_MANAGER,
    );
    all.when(
        *within_cluster_queue != PreemptionPolicy::Never,
        "spec.preemption.withinClusterQueue",
        AT_MANAGER,
    );
    let FlavorFungibility { when_can_borrow, when_can_preempt, prefers_preemption } =
        &queue.flavor_fungibility;
    let (usual, text) = (FlavorFungibility::default(), AT_MANAGER);
    all.when(*when_can_borrow != usual.when_can_borrow, "spec.flavorFungibility.whenCanBorrow", text);
    all.when(*when_can_preempt != usual.when_can_preempt, "spec.flavorFungibility.whenCanPreempt", text);
    all.when(prefers_preemption.is_some(), "spec.flavorFungibility.preference", text);
    all.when(queue.fair_sharing.is_some(), "spec.fairSharing", AT_MANAGER);
    all.when(queue.usage_based_admission, "spec.admissionScope.admissionMode", AT_MANAGER);
}

fn ignored_limits(groups: &[ResourceGroup], all: &mut Ignored) {
    for (g, group) in groups.iter().enumerate() {
        for (f, flavor) in group.flavors.iter().enumerate() {
            for (resource, quota) in &flavor.resources {
                for (limit, name) in
                    [(quota.borrowing_limit, "borrowingLimit"), (quota.lending_limit, "lendingLimit")]
                {
                    if limit.is_some() {
                        let at = FieldPath::of("spec.resourceGroups")
                            .index(g)
                            .key("flavors")
                            .index(f)
                            .key("resources");
                        all.at(at, &format!("`{name}` of `{resource}`: {AT_MANAGER}"), "");
                    }
                }
            }
        }
    }
}

/// Annotations of a Job, and what Kueue would do for them.
const IGNORED_JOB_ANNOTATIONS: &[(&str, &str)] = &[
    ("kueue.x-k8s.io/priority-boost", "the priority is that of its class"),
    ("kueue.x-k8s.io/workload-allowed-resource-flavors", "every flavor of the queue is tried"),
];

/// Job fields that no runner acts on yet.
const IGNORED_JOB_FIELDS: &[(&str, &str)] = &[
    (
        "spec.podFailurePolicy",
        "every failed pod counts against `backoffLimit`, and the process runner refuses the job",
    ),
    ("spec.successPolicy", "the job succeeds when all completions have, and the process runner refuses it"),
    (
        "spec.backoffLimitPerIndex",
        "failures are counted for the whole job, against `backoffLimit`, and the process runner refuses it",
    ),
    ("spec.maxFailedIndexes", "failures are counted for the whole job, against `backoffLimit`"),
    ("spec.podReplacementPolicy", "a failed pod is replaced when it has ended"),
    ("spec.template.spec.nodeName", "the cluster's agent chooses the nodes"),
    ("spec.template.spec.schedulingGates", "pods start without waiting for anybody to remove them"),
    ("spec.template.spec.securityContext", "pods run with the rights of the agent's user"),
    ("spec.template.spec.resourceClaims", "resource claims are not counted"),
    ("spec.template.spec.affinity.podAffinity", "pods are placed without regard to other pods"),
    ("spec.template.spec.affinity.podAntiAffinity", "pods are placed without regard to other pods"),
    ("spec.template.spec.topologySpreadConstraints", "pods are placed without regard to other pods"),
    (
        "spec.template.spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution",
        "preferred nodes are not preferred",
    ),
];

/// Container fields of the same sort.
const IGNORED_CONTAINER_FIELDS: &[(&str, &str)] = &[
    ("securityContext", "pods run with the rights of the agent's user"),
    ("lifecycle", "nothing is run after a container's start or before its stop"),
    ("livenessProbe", "a container that hangs is not started again"),
];

fn ignored_in_job(object: &Object, all: &mut Ignored) {
    for (key, message) in
        IGNORED_JOB_ANNOTATIONS.iter().filter(|(key, _)| object.annotations.contains_key(*key))
    {
        all.at(FieldPath::of("metadata.annotations").key(*key), message, "");
    }
    if let Spec::Job(job) = &object.spec
        && job.gang.pod_sets.iter().any(|set| set.group.is_some())
    {
        let at = FieldPath::of("spec.template.metadata.annotations").key(topology::GROUP);
        all.at(at, "a Job has one pod set, so there is nobody to be grouped with", "");
    }
    let containers = object.stored.pointer("/spec/template/spec/containers").and_then(Value::as_array);
    for (at, container) in containers.into_iter().flatten().enumerate() {
        for (field, message) in IGNORED_CONTAINER_FIELDS
            .iter()
            .filter(|(field, _)| container.get(*field).is_some_and(|value| !value.is_null()))
        {
            all.at(FieldPath::of("spec.template.spec.containers").index(at).key(*field), message, "");
        }
    }
    for (field, message) in IGNORED_JOB_FIELDS {
        let written = field.split('.').try_fold(&object.stored, |value, name| value.get(name));
        let counts =
            |value: &&Value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty());
        all.when(written.filter(counts).is_some(), field, message);
    }
}
