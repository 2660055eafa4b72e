//! Commands on objects of any kind, as in `kubectl`.

pub(super) mod apply;
pub(super) mod create;
pub(super) mod delete;
pub(super) mod describe;
pub(super) mod edit;
pub(super) mod get;
pub(super) mod namespace;
mod warnings;
