//! Worker machines, and the gangs that really run on them. Every promise is checked against them.
//!
//! A machine outlives the agents on it. It knows nothing of managers.

mod checks;
pub(crate) mod events;
mod guards;
mod node_failures;
