//! Definitions on which manager and agent must agree: names and numbers, time, leases, gangs and their
//! packing, and the wire protocol.
//!
//! This crate has only types and pure functions. It must not know a clock, a file, a thread, a network or
//! Kubernetes: time and randomness are arguments, and every collection iterates in a fixed order. So the same
//! input gives the same bytes on both sides, in the simulator and in the model checker.

pub mod backoff;
pub mod cluster_objects;
pub mod copies;
pub mod counted;
pub mod gang;
pub mod identity;
pub mod ids;
pub mod indexes;
pub mod jumps;
pub mod lease;
pub mod logs;
pub mod mac;
pub mod managed;
pub mod packing;
pub mod placement;
pub mod planted;
pub mod protocol;
pub mod provider_reason;
pub mod quantity;
pub mod time;
pub mod timestamp;
pub mod topology;
