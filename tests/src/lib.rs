//! Tests that need more than one crate: the seeded simulation, model checking, and tests with real processes.

pub mod sim;
