//! Rules of the tree that no compiler checks, run as tests: what pure cores may depend on, which way modules
//! depend on each other, which words are used, what the documentation must mention.
//!
//! This crate reads text only. No crate of the workspace is a dependency, so a crate that doesn't compile
//! can't hide a broken rule. A rule is a function from a [`Tree`] to its [`Violations`]. `tests/tidy.rs` runs
//! each rule on the real tree; a unit test next to each rule runs it on a small made-up tree in which it must
//! find something.

#![warn(missing_docs)]

pub mod charts;
pub mod circles;
pub mod comments;
pub mod documents;
pub mod layout;
pub mod lints;
pub mod manifest;
pub mod orphans;
pub mod purity;
pub mod rust;
pub mod scripts;
pub mod source;
pub mod tree;
pub mod types;
pub mod vocabulary;

mod modules;

pub use tree::{File, Tree};

/// Places where a rule is broken, each with a message that says what to do. Empty means that the rule holds.
pub type Violations = Vec<String>;

/// Folders and files that the rules of style apply to, as prefixes of paths; `""` is the whole tree.
pub const STYLED: &[&str] = &[""];
