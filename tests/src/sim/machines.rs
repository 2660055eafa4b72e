//! Worker machines, and the gangs that really run on them. Every promise is checked against them.
//!
//! A machine outlives the agents on it. It knows nothing of managers.

mod checks;
pub(crate) mod events;
pub(crate) mod gang;
mod guards;
pub(crate) mod machine;
mod node_failures;
pub(crate) mod nodes;
pub(crate) mod runner;
