//! Commands on jobs and their workloads.

pub(super) mod activation;
mod attempts;
mod by_name;
pub(super) mod explanation;
mod log_lines;
pub(super) mod logs;
pub(super) mod submit;
pub(super) mod why;
