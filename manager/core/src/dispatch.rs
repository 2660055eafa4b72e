//! Scheduling: chooses what runs where, and gives and withdraws the right to run.
//!
//! [`pass`] runs the steps: [`align`] brings the queue state in line with the world, the queue state's cycles
//! decide with the help of [`capacity_model`], and the other modules act on the results.

pub mod align;
pub mod candidates;
pub mod capacity_model;
pub mod grants;
pub mod manifests;
pub mod offers;
pub mod pass;
pub mod priority;
pub mod residency;
pub mod scale_up;
pub mod sizes;
pub mod starts;
pub mod starvation_guard;
pub mod stops;
pub mod usage;
pub mod why_not;
