//! Effective requests of pods, and the part of them that counts against quota.
//!
//! The order is that of Kueue and Kubernetes: the runtime class's overhead, unless the pod states one; the
//! defaults of the namespace's limit ranges for each container (and for the whole pod, if it states resources
//! as a whole); limits in place of missing requests; then the sum of
//! [`PodTemplate::requests`](crate::PodTemplate::requests). For quota, excluded resources are removed from
//! that sum ([`without_prefixes`]) and others rewritten ([`transform`]).
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
