//! Flavor assignment: per group of pod sets and resource group, the first flavor in the order of the queue
//! that satisfies `flavorFungibility`.

mod assigner;
mod attempts;
mod flavor_fit;
mod granular_mode;
mod oracle;
mod resource_group;
pub(crate) mod topology;

pub use crate::model::{
    Assignment, FlavorAssignment, FlavorAttempt, FlavorScan, Mode, PodSetAssignment, PreemptionPossibility,
};
pub(crate) use assigner::FlavorAssigner;
pub use assigner::assign_flavors;
pub(crate) use flavor_fit::flavor_mismatch;
pub use granular_mode::GranularMode;
pub use oracle::PreemptionOracle;
pub(crate) use topology::TopologyRequests;
