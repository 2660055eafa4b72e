//! Rules of the tree that no compiler checks, as tests: what pure cores may depend on, where names may stand, what the
//! documentation must mention.
//!
//! It reads text and nothing else: no crate of the workspace is a dependency, so a broken crate can't hide a broken rule.
//! A rule is a function from a [`Tree`] to the list of places where it is broken, in words that say what to do; it is run
//! on the real tree and on a small made-up one in which it must find something.

#![warn(missing_docs)]

pub mod documents;
pub mod manifest;
pub mod names;
pub mod purity;
pub mod rust;
pub mod tree;

pub use tree::{File, Tree};

/// Places where a rule is broken. Empty is good.
pub type Broken = Vec<String>;
