//! Tests that need more than one crate: the seeded simulation, model checking, and tests with real processes.

#![allow(
    clippy::wrong_self_convention,
    clippy::collapsible_if,
    clippy::collapsible_match,
    reason = "`to_agent` names a direction, and nested conditions name steps of a fault"
)]

pub mod sim;

use tikv_jemallocator::Jemalloc;

/// A quarter of a simulation's time goes into memory.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;
