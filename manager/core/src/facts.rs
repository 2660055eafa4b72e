//! Types of the core's inputs and outputs: inputs, records, reasons, audit lines and replies.

pub mod actor;
pub mod audit;
pub(crate) mod container_needs;
pub mod end;
pub mod flavors;
pub mod input;
pub mod key;
pub mod lifecycle;
pub mod names;
pub mod outcome;
pub mod read_job;
pub mod reason;
pub mod record;
pub mod submission;
pub mod workload_fact;
