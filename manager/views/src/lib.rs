//! Everything that users see of the manager's state: objects, statuses, explanations and metrics.
//!
//! Pure functions of a [`World`](meridian_manager_core::World). The core decides with enums and numbers;
//! this crate turns them into messages.

pub mod asker;
pub mod explain;
pub mod fields;
pub mod fleet;
pub mod metrics;
pub mod objects;
pub mod pod_placement;
pub mod recovery;
pub mod rejections;
pub mod statuses;
pub mod workloads;
