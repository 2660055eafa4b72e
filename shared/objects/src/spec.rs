//! Typed specs: what schedulers, policies and runners read, fully parsed.
//!
//! A spec is plain data with a fixed order, so that it can live in a world that is hashed and compared. Reading collects
//! every problem in the findings and always returns a spec; the caller throws it away when there were errors.

pub mod core;
pub mod kueue;
pub mod limits;
pub mod meta;
pub mod multikueue;
pub mod node;
pub mod policy;
pub(crate) mod scheduling;
pub mod workload;

use crate::field::Fields;
use crate::job::{self, JobWorkload};
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
    AdmissionCheckSpec, ClusterSource, LocationType, MultiKueueClusterSpec, MultiKueueConfigSpec, Parameters,
    ProvisioningRequestConfigSpec, RetryStrategy,
};
pub use self::node::{NodeObject, PodObject, PodPhase};
pub use self::policy::{
    Applies, CapacityClass, ClusterLossMode, ClusterSpec, DispatchMode, DispatchPolicySpec, OnChange,
    OnClusterLoss, Places, Preference, Provider, ProviderKind, Provisionable, QuotaWhileWaiting, Refusal,
    ResidencyPolicySpec, Staged, Supervision,
};

pub use self::meta::{Meta, Owner};
pub use self::workload::{
    Admission, AdmissionCheckState, CheckState, Condition, ConditionStatus, DelayedTopology, Eviction,
    GateState, PodSetAssignment, PodSetRequest, PodSetUpdate, PriorityClassRef, ReclaimablePods,
    RequeueState, SliceLayer, TopologyRequest, WorkloadObject, WorkloadPodSet, WorkloadSpec, WorkloadStatus,
};

/// The typed content of an object, one variant per kind that a file may hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Spec {
    /// See [`ResourceFlavorSpec`].
    ResourceFlavor(ResourceFlavorSpec),
    /// See [`ClusterQueueSpec`].
    ClusterQueue(Box<ClusterQueueSpec>),
    /// See [`CohortSpec`].
    Cohort(CohortSpec),
    /// See [`LocalQueueSpec`].
    LocalQueue(LocalQueueSpec),
    /// See [`WorkloadPriorityClassSpec`].
    WorkloadPriorityClass(WorkloadPriorityClassSpec),
    /// See [`AdmissionCheckSpec`].
    AdmissionCheck(AdmissionCheckSpec),
    /// See [`MultiKueueConfigSpec`].
    MultiKueueConfig(MultiKueueConfigSpec),
    /// See [`MultiKueueClusterSpec`].
    MultiKueueCluster(MultiKueueClusterSpec),
    /// See [`ProvisioningRequestConfigSpec`].
    ProvisioningRequestConfig(Box<ProvisioningRequestConfigSpec>),
    /// See [`JobWorkload`].
    Job(Box<JobWorkload>),
    /// See [`NamespaceSpec`].
    Namespace(NamespaceSpec),
    /// See [`PriorityClassSpec`].
    PriorityClass(PriorityClassSpec),
    /// See [`ClusterSpec`].
    Cluster(Box<ClusterSpec>),
    /// See [`ResidencyPolicySpec`].
    ResidencyPolicy(Box<ResidencyPolicySpec>),
    /// See [`DispatchPolicySpec`].
    DispatchPolicy(Box<DispatchPolicySpec>),
    /// See [`TopologySpec`].
    Topology(TopologySpec),
    /// See [`LimitRangeSpec`].
    LimitRange(LimitRangeSpec),
    /// See [`RuntimeClassSpec`].
    RuntimeClass(RuntimeClassSpec),
}

impl Spec {
    /// The kind that this is the content of.
    pub fn kind(&self) -> Kind {
        match self {
            Self::ResourceFlavor(_) => Kind::ResourceFlavor,
            Self::ClusterQueue(_) => Kind::ClusterQueue,
            Self::Cohort(_) => Kind::Cohort,
            Self::LocalQueue(_) => Kind::LocalQueue,
            Self::WorkloadPriorityClass(_) => Kind::WorkloadPriorityClass,
            Self::AdmissionCheck(_) => Kind::AdmissionCheck,
            Self::MultiKueueConfig(_) => Kind::MultiKueueConfig,
            Self::MultiKueueCluster(_) => Kind::MultiKueueCluster,
            Self::ProvisioningRequestConfig(_) => Kind::ProvisioningRequestConfig,
            Self::Job(_) => Kind::Job,
            Self::Namespace(_) => Kind::Namespace,
            Self::PriorityClass(_) => Kind::PriorityClass,
            Self::Cluster(_) => Kind::Cluster,
            Self::ResidencyPolicy(_) => Kind::ResidencyPolicy,
            Self::DispatchPolicy(_) => Kind::DispatchPolicy,
            Self::Topology(_) => Kind::Topology,
            Self::LimitRange(_) => Kind::LimitRange,
            Self::RuntimeClass(_) => Kind::RuntimeClass,
        }
    }
}

/// Reads the content of an object in storage version. `None` for a kind that no file may hold.
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
        Kind::Job => Spec::Job(Box::new(job::read(root, labels, annotations))),
        Kind::Namespace => Spec::Namespace(core::read_namespace(root, labels)),
        Kind::PriorityClass => Spec::PriorityClass(core::read_priority_class(root)),
        Kind::Cluster => Spec::Cluster(Box::new(policy::read_cluster(root))),
        Kind::ResidencyPolicy => Spec::ResidencyPolicy(Box::new(policy::read_residency(root))),
        Kind::DispatchPolicy => Spec::DispatchPolicy(Box::new(policy::read_dispatch(root))),
        Kind::Topology => Spec::Topology(kueue::read_topology(root)),
        Kind::LimitRange => Spec::LimitRange(limits::read_limit_range(root)),
        Kind::RuntimeClass => Spec::RuntimeClass(limits::read_runtime_class(root)),
        Kind::Workload => return None,
    })
}
