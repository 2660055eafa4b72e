//! Text into trees that remember where everything stood.
//!
//! YAML and JSON become the same [`Node`](node::Node)s. Hostile input is bounded here: size, depth, documents, nodes
//! and what aliases may repeat.

pub(crate) mod json;
pub(crate) mod node;
pub(crate) mod yaml;
