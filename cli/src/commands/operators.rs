//! Commands of operators: clusters, orphaned runs, the audit log, the journal, users' tokens.

pub(super) mod access;
pub(super) mod audit;
pub(super) mod cluster;
pub(super) mod journal;
pub(super) mod orphan;
