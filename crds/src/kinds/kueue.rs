//! Kueue's kinds, in both of its versions.
//!
//! One type holds the fields of both versions; [`crate::schema`] makes one schema per version from it.

mod flavors;
mod multikueue;
mod queues;
mod quotas;
mod workload;
mod workload_status;

pub(crate) use flavors::{PriorityClassObject, ResourceFlavorObject, TopologyObject};
pub(crate) use multikueue::{
    AdmissionCheckObject, MultiKueueClusterObject, MultiKueueConfigObject, ProvisioningConfigObject,
};
pub(crate) use queues::{ClusterQueueObject, CohortObject, LocalQueueObject};
pub(crate) use workload::WorkloadObjectSchema;
