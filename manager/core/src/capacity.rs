pub mod caps;
pub mod readiness;
pub mod reserved;
pub mod simulated_eviction;
pub mod topology;
