//! Whether a cluster can take a gang: readiness, caps, reservations, topology domains, and simulated
//! evictions.

pub mod caps;
pub mod readiness;
pub mod reserved;
pub mod simulated_eviction;
pub mod topology;
