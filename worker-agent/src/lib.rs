//! The worker agent's shells: everything that touches the network, the disk, processes or a clock around the pure core.
//!
//! ```text
//! manager ◀── uplink, logs, identity ── server (the loop) ──▶ store
//!                                          │ Agent (meridian-agent-core)
//!                                runner ◀──┴──▶ provider        capacity: what the cluster has
//! ```
//!
//! Nothing here decides anything about gangs, holds or leases: that is `meridian-agent-core`'s.

#![warn(missing_docs)]

pub mod capacity;
mod entry;
pub mod guard;
pub mod identity;
pub mod logs;
pub mod metrics;
pub mod provider;
pub mod runner;
pub mod server;
mod settings;
pub mod store;
pub mod uplink;

pub use entry::{AgentCommand, guard_if_asked, join, run};
pub use meridian_telemetry::with_causes;
pub use settings::{AgentArgs, JoinArgs, RunnerChoice, SPEED_MAX};

/// Makes aws-lc-rs the provider of cryptography; there is no other in this program. Repeated, it changes nothing.
pub fn install_crypto() {
    // It fails only where one is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
