//! Effective requests of pods, and what quota counts of them.
//!
//! The order is Kueue's and Kubernetes' own: the overhead of the runtime class where the pod states none; the
//! defaults of the namespace's limit ranges for each container (and for the pod as a whole, where it states
//! resources as a whole); limits where a request is missing; then the sum of
//! [`PodTemplate::requests`](crate::PodTemplate::requests). From that sum quota leaves out excluded resources
//! ([`without_prefixes`]) and rewrites others ([`transform`]).
//!
//! Amounts are in base units. Nothing here depends on a clock or on other pods.

mod defaults;
mod limits;
mod rules;

pub use defaults::{effective_requests, with_defaults};
pub use limits::{BrokenBound, LimitViolation, ViolationSite, limit_range_violations, limit_violations};
pub use rules::{ResourceRules, Strategy, Transformation, transform, without_prefixes};

#[cfg(test)]
mod tests;
