//! Typed specs of all kinds, fully parsed.
//!
//! A spec is plain data in a fixed order, so it can be hashed and compared. Reading always returns a spec and
//! collects every problem; the caller drops the spec when there were errors.

pub mod core;
pub mod kueue;
pub mod limits;
pub mod meta;
pub mod multikueue;
pub mod node;
pub mod policy;
pub mod rbac;
pub(crate) mod rules;
pub mod workload;

use crate::any_job;
use crate::fields::Fields;
use crate::job::JobWorkload;
use crate::kind::Kind;
use std::collections::BTreeMap;

pub use self::core::{NamespaceSpec, PriorityClassSpec};
pub use self::kueue::{
    BorrowWithinCohort, CheckRule, ClusterQueueSpec, CohortSpec, ConcurrentAdmission, FairSharing,
    FlavorFungibility, FlavorQuotas, Fungibility, LocalQueueSpec, Migration, Preemption, PreemptionPolicy,
    QueueingStrategy, Quota, ResourceFlavorSpec, ResourceGroup, StopPolicy, TopologySpec,
    WorkloadPriorityClassSpec,
};
pub use self::limits::{Limit, LimitRangeSpec, LimitType, RuntimeClassSpec};
pub use self::multikueue::{
    AdmissionCheckSpec, ClusterSource, LocationType, MergePolicy, MultiKueueClusterSpec,
    MultiKueueConfigSpec, Parameters, ProvisioningRequestConfigSpec, RetryStrategy,
};
pub use self::node::{NodeObject, PodObject, PodPhase};
pub use self::policy::{
    Applies, CapacityClass, ClusterLossMode, ClusterSpec, DispatchMode, DispatchPolicySpec, Locations,
    OnChange, OnClusterLoss, Preference, Provider, ProviderKind, Provisionable, QuotaWhileWaiting, Refusal,
    ResidencyPolicySpec, Staged, Supervision,
};

pub use self::meta::{Meta, Owner};
pub use self::rbac::{PolicyRule, RoleBindingSpec, RoleRef, RoleSpec, Subject};
pub use self::workload::{
    Admission, AdmissionCheckState, CheckState, Condition, ConditionStatus, DelayedTopology, Eviction,
    GateState, PodSetAssignment, PodSetRequest, PodSetUpdate, PriorityClassRef, ReclaimablePods,
    RequeueState, WorkloadObject, WorkloadPodSet, WorkloadSliceLayer, WorkloadSpec, WorkloadStatus,
    WorkloadTopologyRequest,
};

/// The typed content of an object, one variant per kind that a file may hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Spec {
    ResourceFlavor(ResourceFlavorSpec),
    ClusterQueue(Box<ClusterQueueSpec>),
    Cohort(CohortSpec),
    LocalQueue(LocalQueueSpec),
    WorkloadPriorityClass(WorkloadPriorityClassSpec),
    AdmissionCheck(AdmissionCheckSpec),
    MultiKueueConfig(MultiKueueConfigSpec),
    MultiKueueCluster(MultiKueueClusterSpec),
    ProvisioningRequestConfig(Box<ProvisioningRequestConfigSpec>),
    Job(Box<JobWorkload>),
    Namespace(NamespaceSpec),
    PriorityClass(PriorityClassSpec),
    Cluster(Box<ClusterSpec>),
    ResidencyPolicy(Box<ResidencyPolicySpec>),
    DispatchPolicy(Box<DispatchPolicySpec>),
    Topology(TopologySpec),
    LimitRange(LimitRangeSpec),
    RuntimeClass(RuntimeClassSpec),
    Role(RoleSpec),
    ClusterRole(RoleSpec),
    RoleBinding(RoleBindingSpec),
    ClusterRoleBinding(RoleBindingSpec),
}

/// Reads the content of an object in the storage version. `None` for a kind that no file may hold.
pub(crate) fn read(
    kind: Kind,
    root: &Fields<'_>,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) -> Option<Spec> {
    Some(match kind {
        Kind::ResourceFlavor => Spec::ResourceFlavor(kueue::read_flavor(root)),
        Kind::ClusterQueue => Spec::ClusterQueue(Box::new(kueue::read_cluster_queue(root))),
        Kind::Cohort => Spec::Cohort(kueue::read_cohort(root)),
        Kind::LocalQueue => Spec::LocalQueue(kueue::read_local_queue(root)),
        Kind::WorkloadPriorityClass => Spec::WorkloadPriorityClass(kueue::read_priority_class(root)),
        Kind::AdmissionCheck => Spec::AdmissionCheck(multikueue::read_check(root)),
        Kind::MultiKueueConfig => Spec::MultiKueueConfig(multikueue::read_config(root)),
        Kind::MultiKueueCluster => Spec::MultiKueueCluster(multikueue::read_cluster(root)),
        Kind::ProvisioningRequestConfig => {
            Spec::ProvisioningRequestConfig(Box::new(multikueue::read_provisioning(root)))
        }
        any_job!() => Spec::Job(Box::new(kind.job()?.read(root, labels, annotations))),
        Kind::Namespace => Spec::Namespace(core::read_namespace(root, labels)),
        Kind::PriorityClass => Spec::PriorityClass(core::read_priority_class(root)),
        Kind::Cluster => Spec::Cluster(Box::new(policy::read_cluster(root))),
        Kind::ResidencyPolicy => Spec::ResidencyPolicy(Box::new(policy::read_residency(root))),
        Kind::DispatchPolicy => Spec::DispatchPolicy(Box::new(policy::read_dispatch(root))),
        Kind::Topology => Spec::Topology(kueue::read_topology(root)),
        Kind::LimitRange => Spec::LimitRange(limits::read_limit_range(root)),
        Kind::RuntimeClass => Spec::RuntimeClass(limits::read_runtime_class(root)),
        Kind::Role => Spec::Role(rbac::read_role(root, false)),
        Kind::ClusterRole => Spec::ClusterRole(rbac::read_role(root, true)),
        Kind::RoleBinding => Spec::RoleBinding(rbac::read_binding(root, false)),
        Kind::ClusterRoleBinding => Spec::ClusterRoleBinding(rbac::read_binding(root, true)),
        Kind::Workload => return None,
    })
}
