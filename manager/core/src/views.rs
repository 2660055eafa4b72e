pub mod explain;
pub mod format;
pub mod metrics;
pub mod objects;
pub mod pending_reasons;
pub mod pod_placement;
pub mod statuses;
pub mod workloads;
