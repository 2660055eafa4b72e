//! Fields that have no effect in the objects of one worker cluster.

use super::Ignored;
use crate::any_job;
use crate::fields::{FieldPath, Warning};
use crate::kind::Kind;
use crate::object::Object;
use crate::spec::multikueue::PROVISIONING_CONTROLLER;
use crate::spec::{ClusterQueueSpec, FlavorFungibility, Preemption, PreemptionPolicy, ResourceGroup, Spec};

/// The fields without effect if the object is applied to one worker cluster, as limits or provider settings.
pub fn fields_ignored_by_cluster(object: &Object) -> Vec<Warning> {
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
        Kind::ProvisioningRequestConfig
        | Kind::Cohort
        | Kind::WorkloadPriorityClass
        | Kind::MultiKueueConfig
        | Kind::MultiKueueCluster
        | Kind::Workload
        | any_job!()
        | Kind::PriorityClass
        | Kind::Cluster
        | Kind::ResidencyPolicy
        | Kind::DispatchPolicy
        | Kind::Topology
        | Kind::LimitRange
        | Kind::RuntimeClass
        | Kind::Role
        | Kind::ClusterRole
        | Kind::RoleBinding
        | Kind::ClusterRoleBinding => {}
    }
    all.warnings
}

/// Whether objects of a kind can be applied to one worker cluster. Other kinds apply to all clusters.
pub fn applies_to_clusters(kind: Kind) -> bool {
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
        | any_job!()
        | Kind::PriorityClass
        | Kind::Cluster
        | Kind::ResidencyPolicy
        | Kind::DispatchPolicy
        | Kind::Topology
        | Kind::LimitRange
        | Kind::RuntimeClass
        | Kind::Role
        | Kind::ClusterRole
        | Kind::RoleBinding
        | Kind::ClusterRoleBinding => false,
    }
}

const AT_MANAGER: &str = "a worker's queue only limits the cluster; sharing is configured at the manager";

/// Fields of a worker's queue without effect: the queue only limits the cluster; sharing is configured at the
/// manager.
fn ignored_by_worker(queue: &ClusterQueueSpec, all: &mut Ignored) {
    all.when(queue.cohort.is_some(), "spec.cohortName", AT_MANAGER);
    ignored_limits(&queue.resource_groups, all);
    let Preemption {
        reclaim_within_cohort: reclaim,
        borrow_within_cohort: borrow,
        within_cluster_queue: within,
        reclaim_is_unset: _,
    } = &queue.preemption;
    all.when(*reclaim != PreemptionPolicy::Never, "spec.preemption.reclaimWithinCohort", AT_MANAGER);
    all.when(
        borrow.policy != PreemptionPolicy::Never,
        "spec.preemption.borrowWithinCohort.policy",
        AT_MANAGER,
    );
    all.when(*within != PreemptionPolicy::Never, "spec.preemption.withinClusterQueue", AT_MANAGER);
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
