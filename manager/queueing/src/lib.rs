//! Decisions on queues: which workloads are admitted with which flavors, which are preempted, and which stay
//! pending, with reasons.
//!
//! The semantics are Kueue's, over a forest of cohorts and cluster queues. `meridian plan` and the engine
//! call the same functions. The crate must not know clusters, offers or records, and reads no clock: its
//! input is pending workloads and quota holders, its output decisions. It asks for the capacity of real
//! clusters through [`capacity_model::CapacityModel`].
//!
//! Modules, each of which knows only those above it:
//!
//! - [`amount`], [`names`], [`settings`]: numbers, names as numbers, feature gates.
//! - [`quota`]: the forest with quota, borrowing, lending, usage and shares.
//! - [`model`]: flavors, cluster queues, workloads, assignments and reasons, as plain data.
//! - [`pending`]: the pending workloads of a queue, in order and by class.
//! - [`queue_state`]: the state that decisions read, and its changes; [`declare`] converts Kueue's objects
//!   for it.
//! - [`capacity_model`]: the interface to the capacity of real clusters.
//! - [`flavors`]: which flavors a workload gets.
//! - [`preemption`]: which workloads are preempted; [`preemption_cycles`] ensures that preemption ends.
//! - [`cycle`]: one scheduling cycle over the heads of all queues; [`pod_set_reducer`] is for partial
//!   admission.
//! - [`explain`]: what-if questions, answered on a copy of the state.

pub mod amount;
pub mod capacity_model;
pub mod cycle;
pub mod declare;
pub mod explain;
pub mod flavors;
pub mod model;
pub mod names;
pub mod pending;
pub mod pod_set_reducer;
pub mod preemption;
pub mod preemption_cycles;
pub mod queue_state;
pub mod quota;
pub mod settings;

pub use amount::Amount;
pub use queue_state::{
    LocalQueueUsage, NANOS_PER_UNIT, NanoUsage, NewWorkload, QueueState, alpha, decayed, to_nanos,
};
