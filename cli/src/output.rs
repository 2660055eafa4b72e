//! Everything that shapes text for standard output and standard error: safe text, tables, ages, columns per
//! kind.
//!
//! Knows how Kubernetes objects look as JSON, and nothing about the manager, files or commands.

pub(crate) mod columns;
pub(crate) mod printable;
pub(crate) mod progress;
pub(crate) mod references;
pub(crate) mod streams;
pub(crate) mod table;
pub(crate) mod template;
pub(crate) mod wrap;
