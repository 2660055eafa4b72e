//! Capacity of one cluster as the manager estimates it, and capacity reserved for single workloads.
//!
//! Pure: no I/O, and no knowledge of queues or of the states of workloads.

pub mod cluster_capacity;
pub mod preemption_history;
pub mod reservations;
