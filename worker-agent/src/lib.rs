//! The worker agent's shells: everything that touches the network, the disk, processes or the clock around the pure core.
//!
//! Nothing here decides anything about gangs, holds or leases: that is `meridian-agent-core`'s.

#![warn(missing_docs)]

pub mod capacity;
pub mod guard;
pub mod identity;
pub mod runner;
