//! The worker agent's shells: network, disk, processes and clocks around the pure core.
//!
//! ```text
//! manager ◀── uplink, logs, identity ── server (the loop) ──▶ store
//!                                          │ Agent (meridian-agent-core)
//!                                runner ◀──┴──▶ provider        inventory: what the cluster has
//! ```
//!
//! Decisions about gangs, holds and leases belong to `meridian-agent-core`. Runners, providers and inventory
//! sources implement the interfaces of `meridian_agent_core::runtime`.

mod entry;
pub mod guard;
pub mod identity;
pub mod inventory;
pub mod job_run;
pub mod logs;
pub mod metrics;
pub mod provider;
pub mod runner;
pub mod server;
mod settings;
pub mod store;
pub mod uplink;

pub use entry::{AgentCommand, guard_if_asked, join, run};
#[cfg(feature = "kubernetes")]
pub use entry::{HostedAgent, run_hosted};
pub use meridian_telemetry::with_causes;
pub use settings::{AgentArgs, HoldArgs, HoldChoice, JoinArgs, RunnerChoice, SPEED_MAX};

/// Makes aws-lc-rs the provider of cryptography of this process. Repeated calls change nothing.
pub fn install_crypto() {
    // It fails only if a provider is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
