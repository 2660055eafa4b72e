//! Fields that are accepted and have no effect, as warnings for users.

mod cluster;
mod job;

pub use cluster::{applies_to_clusters, fields_ignored_by_cluster};

use crate::fields::{FieldPath, Warning};
use crate::object::Object;
use crate::spec::multikueue::{MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER};
use crate::spec::{ClusterQueueSpec, DispatchMode, DispatchPolicySpec, QuotaWhileWaiting, Spec};
use job::ignored_in_job;

const FOR_CLUSTER: &str = "apply it to the worker with `apply --cluster NAME -f FILE`";

/// The fields of an object on which a manager doesn't act, each named as in the storage version.
pub fn ignored_fields(object: &Object) -> Vec<Warning> {
    let mut all = Ignored::default();
    match &object.spec {
        Spec::ClusterQueue(queue) => ignored_in_queue(queue, &mut all),
        Spec::AdmissionCheck(check) if check.controller_name == PROVISIONING_CONTROLLER => {
            all.add(
                "spec.controllerName",
                "provisioning checks belong to a worker cluster; the manager ignores this one",
                FOR_CLUSTER,
            );
        }
        Spec::AdmissionCheck(check) => {
            all.when(
                check.controller_name != MULTIKUEUE_CONTROLLER,
                "spec.controllerName",
                "no controller of this name is running: a cluster queue with this check admits nothing",
            );
        }
        Spec::MultiKueueConfig(config) => {
            all.when(
                config.automated_quota,
                "spec.quotaManagement",
                "quota is not taken from the workers; the queue's own quota applies",
            );
        }
        Spec::ProvisioningRequestConfig(_) => {
            all.add("spec", "only worker clusters ask providers", FOR_CLUSTER)
        }
        Spec::PriorityClass(class) => {
            all.when(
                !class.preempts,
                "preemptionPolicy",
                "the cluster queue's `preemption` decides which workloads are preempted, as in Kueue",
            );
        }
        Spec::DispatchPolicy(policy) => ignored_in_dispatch(policy, &mut all),
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
        | Spec::ResidencyPolicy(_)
        | Spec::Role(_)
        | Spec::ClusterRole(_)
        | Spec::RoleBinding(_)
        | Spec::ClusterRoleBinding(_) => {}
    }
    all.warnings
}

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

fn ignored_in_dispatch(policy: &DispatchPolicySpec, all: &mut Ignored) {
    all.when(
        policy.mode == DispatchMode::Staged,
        "spec.mode",
        "`Staged` is not supported yet; workloads are dispatched as with `Direct`",
    );
    all.when(
        policy.quota_while_waiting != QuotaWhileWaiting::Keep,
        "spec.quotaWhileWaiting",
        "quota is kept while a workload waits for a provider",
    );
}

fn ignored_in_queue(queue: &ClusterQueueSpec, all: &mut Ignored) {
    if queue.namespace_selector.is_none() {
        all.add(
            "spec.namespaceSelector",
            "is missing: the queue selects no namespace and admits nothing",
            "write `namespaceSelector: {}` to select all namespaces",
        );
    }
    for (index, rule) in
        queue.admission_checks.iter().enumerate().filter(|(_, rule)| !rule.on_flavors.is_empty())
    {
        let at = FieldPath::of("spec.admissionChecksStrategy.admissionChecks").index(index).key("onFlavors");
        all.at(at, &format!("the check `{}` applies to every flavor", rule.name), "");
    }
    all.when(
        queue.concurrent_admission.is_some(),
        "spec.concurrentAdmissionPolicy",
        "flavors are not tried at the same time",
    );
}
