//! The agent's half of the protocol: gang admission on the nodes of one cluster, leases, fences and
//! tombstones.
//!
//! Owns what the cluster has promised ([`ledger`], placed by [`placing`]), what runs there, and what must be
//! remembered ([`durable`]). Knows no clock, file, process or network: the shell reads clocks, stores, runs
//! and sends.
//!
//! ```text
//!  uplink ──Input::Answer──▶ ┌─────────┐ ──writes─────────▶ durable first
//!  runner ──Input::Runner──▶ │  Agent  │ ──effects────────▶ then start / renew / stop / send
//!  timer  ──Input::Tick────▶ └─────────┘
//! ```
//!
//! Invariants, checked by [`Agent::check`]: no node gives more than it has; a gang has resources for all its
//! pods or for none; at most one attempt of a workload is live; no fence is above the largest known one of
//! its workload. A grant is in `Outcome::store` no later than its start is in `Outcome::effects`.

mod agent;
mod config;
pub mod durable;
mod elapsed;
pub mod ledger;
pub mod leg;
mod link;
mod offers;
mod placement_report;
pub mod placing;
mod runs;
pub mod runtime;
mod turn;

pub use agent::{Agent, MOVES_MAX};
pub use config::{Config, HoldSettings};
pub use durable::{TOMBSTONE_KEPT, TOMBSTONES_MAX};
pub use link::VERSIONS;
pub use offers::{OFFERS_MAX, WITHDRAWN_MAX};
pub use runtime::{Found, FoundState, HoldEvent, NodeSpec, PodPlacement, ProviderEvent, RunnerEvent, Start};
pub use turn::{Effect, Input, Outcome};
