//! Numbers in users' notation: quantities, durations, ages.

pub mod age;
pub mod duration;
pub(crate) mod json;
pub mod quantity;
