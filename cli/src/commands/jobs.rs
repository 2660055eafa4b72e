//! Commands on jobs and their workloads.

pub(super) mod activation;
pub(super) mod explanation;
mod log_lines;
pub(super) mod logs;
pub(super) mod submit;
pub(super) mod why;
