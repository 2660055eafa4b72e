//! Changes by users and operators.

pub mod activity;
mod deletion;
pub mod jobs;
pub mod judge;
pub mod operator;
pub mod rejection;
pub mod resize;
mod user_tokens;
pub mod write;
