//! The objects that people write, read and watch: Kubernetes-shaped manifests turned into typed specs, and back.
//!
//! This crate owns the table of kinds ([`Kind`]), the reading of untidy files ([`mod@parse`]), quantities, the two served
//! versions of Kueue's objects, field validation, the derivation of a gang from a Job ([`job`]), what pods ask for
//! ([`pod`], [`requests`]), and everything else that a decision on queues looks at ([`plan`]). It must not know a file
//! system, a clock, a network, the engine, or which objects exist: text and values come in, objects and problems go
//! out. Whether a named queue exists is the engine's question.
//!
//! Invariants:
//! - [`Object::stored`](object::Object::stored) is the only truth about an object; its typed [`spec::Spec`] is always
//!   exactly what reading `stored` again gives.
//! - `stored` is in the storage version and keeps every field that we do not know.
//! - All errors of an object are collected, and each names its field in the version that the user wrote.
//! - Every collection iterates in a fixed order.

#![warn(missing_docs)]

pub mod applied;
pub mod conversion;
pub mod duration;
pub mod field;
pub mod job;
pub mod kind;
mod names;
pub mod object;
pub mod parse;
pub mod plan;
pub mod pod;
pub mod quantity;
pub mod requests;
pub mod settings;
pub mod spec;
pub mod suggest;
mod text;
pub mod validate;

pub use field::{FieldError, FieldPath, Warning};
pub use job::{JobWorkload, job_to_workload};
pub use kind::Kind;
pub use object::Object;
pub use parse::{Located, Parsed, Place, Problem, Source, parse, parse_set};
pub use plan::{ParsedForPlan, PlanObject, PlannedObject, plan_set};
pub use pod::PodTemplate;
pub use requests::{
    ResourceRules, Transformation, effective_requests, limit_range_violations, limit_violations, transform,
    without_prefixes,
};
pub use spec::Spec;
pub use validate::{is_for_clusters, not_honoured, not_honoured_by_cluster};
