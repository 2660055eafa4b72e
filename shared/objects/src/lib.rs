//! The objects that users write, read and watch: Kubernetes-shaped manifests turned into typed specs, and
//! back.
//!
//! Input is text and values, output objects and problems. The crate must not know a file system, a clock, a
//! network, or which objects exist: the engine checks whether a named queue exists.
//!
//! Each module uses only modules above it:
//!
//! | module | holds |
//! |---|---|
//! | `units` | quantities, durations and ages as text |
//! | `fields` | a reader of JSON fields that collects every problem; names and label keys; "did you mean" |
//! | `text` | YAML and JSON with the line and column of every value |
//! | [`kind`] | the table of kinds: group, versions, plural, short names |
//! | [`selector`] | label and field selectors as text |
//! | [`pod`] | pod templates and what one pod requests |
//! | [`job`] | the table of job kinds; how a manifest becomes a gang |
//! | [`spec`] | typed specs of all kinds |
//! | [`requests`] | effects of limit ranges, runtime classes and resource rules on requests |
//! | [`object`] | one object; the two versions of Kueue's API; three-way apply |
//! | [`rbac`] | permissions by roles and bindings |
//! | `ignored` | fields that are accepted and have no effect |
//! | `files` | files of objects, with positions of problems |
//! | [`settings`] | files of settings |
//! | [`plan`] | everything that a plan reads, with workloads, nodes and pods |
//!
//! Invariants:
//! - [`Object::stored`](object::Object::stored) is the only truth about an object: reading `stored` again
//!   gives exactly its typed [`spec::Spec`].
//! - `stored` is in the storage version and keeps unknown fields.
//! - All errors of an object are collected. Each names its field in the version that the user wrote.
//! - Every collection iterates in a fixed order.

pub mod columns;
mod fields;
mod files;
mod ignored;
pub mod job;
pub mod kind;
pub mod object;
pub mod plan;
pub mod pod;
pub mod rbac;
pub mod requests;
pub mod selector;
pub mod settings;
pub mod spec;
mod text;
mod units;

pub use fields::{FieldError, FieldPath, FieldValidation, Segment, Warning, suggest};
pub use files::{
    FilePosition, Located, MAX_FILE_BYTES, MAX_PROBLEMS, MAX_SET_BYTES, Parsed, Problem, SourceText,
    Strictness, parse, parse_set, parse_set_with,
};
pub use ignored::{applies_to_clusters, fields_ignored_by_cluster, ignored_fields};
pub use job::JobWorkload;
pub use kind::Kind;
pub use object::{Object, conversion, job_to_workload, last_applied};
pub use plan::{ParsedForPlan, PlanObject, PlannedObject, plan_set};
pub use pod::PodTemplate;
pub use requests::{
    ResourceRules, Transformation, effective_requests, limit_range_violations, limit_violations, transform,
    without_prefixes,
};
pub use spec::Spec;
pub use units::{age, duration, quantity};
