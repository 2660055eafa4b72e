//! The manager's shells: everything around the pure core that touches the network, the disk or the clock.

pub mod agents;
pub mod api;
pub mod audit;
pub mod auth;
mod bounded_body;
pub mod engine;
mod held_body;
pub mod host;
pub mod journal;
mod locks;
mod log_limit;
pub mod metrics;
mod pool;
mod random;
pub mod server;
pub mod tls;

pub use meridian_telemetry::with_causes;
