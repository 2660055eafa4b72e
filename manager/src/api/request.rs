//! Parts of a request: its path, query, accepted media types and body, each parsed once into types.

pub(crate) mod accept;
pub(crate) mod body;
pub(crate) mod query;
pub(crate) mod resource_path;
pub(crate) mod selector;
