//! The runners of this crate: [`process`] and [`simulated`]. Both run a job as `job_run` says.
//!
//! The trait and its rules are `meridian_agent_core::runtime::Runner`.

pub mod logs;
pub mod process;
pub mod simulated;
