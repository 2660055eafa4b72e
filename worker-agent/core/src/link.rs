//! The agent's side of the sync: sent, acknowledged and pending messages.
//!
//! Each part owns its numbers: [`Transmissions`] the sending times from which leases count, [`EventQueue`]
//! the unacknowledged events, [`CommandQueue`] the order of the manager's commands, [`CapacityReports`] the
//! versions of the capacity report, and [`UsageReports`] the usage of runs that the manager may not know.

mod capacity;
mod commands;
mod events;
mod rounding;
mod transmissions;
mod usage;

pub use capacity::VERSIONS;
pub(crate) use capacity::{CapacityReports, ReportedCapacity};
pub(crate) use commands::{CommandQueue, QueuedCommand};
pub(crate) use events::EventQueue;
pub(crate) use transmissions::Transmissions;
pub(crate) use usage::UsageReports;
