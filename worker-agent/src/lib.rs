//! The shells of a worker agent: what really runs gangs, and what finds out what a machine has.
//!
//! Everything here does I/O and decides nothing about gangs, holds or leases: that is `meridian-agent-core`'s.

#![warn(missing_docs)]

pub mod capacity;
pub mod guard;
pub mod runner;
