//! A reader of JSON fields that collects every problem of an object, each at its path and with a remedy.
//!
//! [`Fields`] reads one JSON mapping field by field: it checks types, remembers which fields were read, and
//! at [`Fields::finish`] reports the others as unknown. It doesn't stop at the first error. Paths are linked
//! values on the call stack, which become a [`FieldPath`] only if there is something to report.

mod findings;
mod item;
mod mapping;
pub(crate) mod names;
mod path;
pub(crate) mod scheduling;
pub(crate) mod schema;
pub mod suggest;

pub(crate) use findings::Findings;
#[cfg(test)]
pub(crate) use findings::MAX_ISSUES_PER_OBJECT;
pub use findings::{FieldError, FieldValidation, Warning};
pub(crate) use item::Item;
pub(crate) use mapping::Fields;
pub use path::{FieldPath, Segment};

#[cfg(test)]
mod tests;
