//! Changes by users and operators.

pub mod activity;
mod deletion;
pub mod jobs;
pub mod judge;
pub mod operator;
pub mod rejection;
pub mod resize;
pub mod write;
