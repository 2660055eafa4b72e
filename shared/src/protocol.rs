//! Messages of a sync between agent and manager. Only data: each side's rules are in its core.
//!
//! ```text
//! agent                                             manager
//!   │ SyncRequest  session, transmission, events ──────▶│  one engine turn: take events, journal,
//!   │              digest, inventory, capacity          │  compose: commands, renewals, acknowledgements
//!   │◀────────── SyncResponse  echo, leadership, …      │
//! ```
//!
//! Everything is delivered at least once and is idempotent. Commands are numbered per (leadership, session),
//! events per session; each side repeats what the other has not acknowledged. A [`Digest`] of live offers and
//! grants, compared when nothing is in flight, finds differences that numbering can't.

mod capacity;
mod command;
mod digest;
mod event;
mod inventory;
mod pods;
mod reference;
mod scale;
mod sync;

pub use capacity::{Capacity, HoldMethod, RunnerKind};
pub use command::{Command, Grant, Offer, OnLoss, StopReason, grant_message};
pub use digest::Digest;
pub use event::{End, EndResult, Event, GrantRefusal, Proof, RefuseReason};
pub use inventory::{Inventory, Run};
pub use pods::PodReport;
pub use reference::{Reference, ReferenceKind};
pub use scale::{ScaleUp, Size};
pub use sync::{Lane, Receipt, SyncAnswer, SyncRefusal, SyncRequest, SyncResponse};

use std::ops::RangeInclusive;

/// The version that this agent speaks.
pub const VERSION: u32 = 2;
/// The versions that this manager speaks: the current version and, if there is one, the previous. Managers
/// are upgraded first and answer each agent in the agent's version.
pub const VERSIONS: RangeInclusive<u32> = VERSION..=VERSION;
/// Most events in one request; a backlog is sent in parts.
pub const EVENTS_MAX: usize = 1_024;
/// Most bytes of events in one request (but at least one event); a backlog is sent in parts.
pub const EVENTS_BYTES_MAX: usize = 5 * 256 * 1024;
/// Most bytes of placements in one inventory; further runs are reported without placement.
pub const PLACEMENTS_BYTES_MAX: usize = 256 * 1024;
/// Most commands in one answer; a backlog is sent in parts.
pub const COMMANDS_MAX: usize = 512;
/// Most gangs that one cluster holds and runs. Bounded, because an inventory lists each run. Further gangs
/// are refused as overload; the remedy is a second cluster.
pub const RUNS_MAX: usize = 8_192;
/// Most bytes of job names in one inventory; further runs are reported without name.
pub const JOB_NAMES_BYTES_MAX: usize = 32 * 1024;
/// Most ends in one inventory; the rest comes with the next one.
pub const ENDS_MAX: usize = 1_024;
/// Longest text of one end or refusal, in bytes.
pub const TEXT_BYTES_MAX: usize = 512;
/// Most leases renewed in one answer; leases with the oldest renewal come first. 16 answers within the
/// shortest term renew the leases of a quarter of a million gangs.
pub const RENEWALS_MAX: usize = 16_384;
/// Most bytes of commands in one answer (but at least one command); a backlog is sent in parts.
pub const COMMANDS_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most pod reports in one request; the rest comes with the next one.
pub const POD_REPORTS_MAX: usize = 512;
/// Most bytes of nodes and pools in one request; a more diverse cluster reports less detail.
pub const CAPACITY_BYTES_MAX: usize = 3 * 256 * 1024;
/// Most bytes of receipts in one inventory (but at least one receipt); the oldest leaderships are left out.
pub const RECEIPTS_BYTES_MAX: usize = 256 * 1024;
/// Most bytes in one body, in both directions. A grant has a spec of at most 3 MiB, which at most doubles as
/// a string within JSON.
pub const BODY_BYTES_MAX: usize = 10 * 1024 * 1024;

/// Cleans text from an agent or a job, for sending and storing: bounded, without control characters.
pub fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len().min(TEXT_BYTES_MAX));
    for c in text.chars().map(|c| if c.is_control() { ' ' } else { c }) {
        if cleaned.len() + c.len_utf8() > TEXT_BYTES_MAX {
            break;
        }
        cleaned.push(c);
    }
    cleaned
}

#[cfg(test)]
mod tests;
