//! Changes by users and operators.

pub mod activity;
mod adopted_orphans;
mod cordon_marks;
mod cordons;
mod deletion;
pub mod file_objects;
mod job_class;
pub mod jobs;
mod joins;
pub mod operator;
pub mod rejection;
pub mod resize;
mod user_tokens;
pub mod validation;
pub mod write;
