//! The manager's shells: everything that touches the network, the disk or the clock around the pure core.

pub mod agents;
pub mod api;
pub mod auth;
pub mod engine;
pub mod journal;
pub mod metrics;
pub mod server;
pub mod tls;

pub use meridian_telemetry::with_causes;
