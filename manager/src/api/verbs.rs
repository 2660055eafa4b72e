//! The verbs of the Kubernetes API: reads and watches of committed state, and writes as transactions of the
//! core.

pub(crate) mod naming;
pub(crate) mod read;
pub(crate) mod watch;
mod workload_active;
pub(crate) mod write;
