//! The interfaces to runners, providers and inventory sources, and the vocabulary that the core shares with
//! them.
//!
//! Each type is defined here once; the shells pass these values on and translate nothing. The traits do no
//! I/O, so that an implementation in any crate can depend on this one alone.
//!
//! ```text
//! InventorySource ── NodeSpec, NodePool ──▶ core ── Start, PodPlacement ──▶ Runner
//! Provider ── ProviderEvent ──────────────▶      ◀── RunnerEvent, Found ───
//! Holds ── HoldEvent ─────────────────────▶
//! ```

mod error;
mod hold;
mod inventory;
mod logs;
mod node;
mod provider;
mod runner;
mod runner_interface;
mod simulated_pool;

pub use error::{Answer, Error};
pub use hold::{HoldEvent, HoldOrder, Holds, ReferenceCheck};
pub use inventory::{Inventory, InventorySource};
pub use logs::{CHUNK_BYTES_MAX, LogChunk, LogSource};
pub use node::{NodePool, NodeSpec, PodPlacement, placement_summary};
pub use provider::{NodeRequest, Provider, ProviderEvent};
pub use runner::{Found, FoundState, NEVER, RunnerEvent, Start};
pub use runner_interface::{Enforcement, Runner, can_be_guarded};
pub use simulated_pool::{SimulatedPool, StockOut};
