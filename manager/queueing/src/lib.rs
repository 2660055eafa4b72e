//! Decisions on queues: who is admitted with which flavors, who gives way, who waits and why.
//!
//! Kueue's semantics over one forest of cohorts and cluster queues. `meridian plan` and the engine call the same functions. It
//! must not know clusters, offers or records, nor read a clock: what is pending and what holds quota come in, decisions go
//! out. Where gangs could really run is asked through [`places::Places`].
//!
//! - [`tree`]: quota, lending, borrowing, use, shares.
//! - [`flavors`]: which flavors a workload gets.
//! - [`preempt`]: who gives way.
//! - [`turns`]: who doesn't displace whom, as it gave way before.
//! - [`pending`]: who waits, by class.
//! - [`cycle`]: all of it, for the heads of all queues.

#![warn(missing_docs)]

pub mod amount;
pub mod brain;
pub mod cycle;
pub mod declare;
pub mod flavors;
mod local;
pub mod model;
pub mod names;
pub mod pending;
pub mod places;
pub mod preempt;
pub mod reason;
pub mod reduce;
pub mod remedy;
pub mod settings;
pub mod share;
mod starving;
mod topology;
pub mod tree;
pub mod turns;
mod variants;

pub use amount::Amount;
pub use brain::{Brain, LocalUsage, NewWorkload};
pub use local::{PARTS, Parts, alpha, decayed, parts};
