//! Decisions on given objects, without a running manager: the engine of `meridian plan`.
//!
//! ```text
//!   objects ──► load ──► decide ──► report ──► what_if
//!               queue    cycles     one plan    two plans,
//!               state                           compared
//! ```
//!
//! Pure: the crate reads no file, clock or network. The cycles are those of `meridian-queueing`, which the
//! manager runs too; nothing is decided here.

pub mod decide;
#[cfg(test)]
mod fixtures;
pub mod load;
pub mod report;
pub mod what_if;

pub use decide::{CycleLimits, Decisions, decide};
pub use report::PlanReport;
pub use what_if::WhatIf;
