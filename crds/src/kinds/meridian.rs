//! Meridian's own kinds.

mod cluster;
mod policies;

pub(crate) use cluster::ClusterObject;
pub(crate) use policies::{DispatchPolicyObject, ResidencyPolicyObject};
