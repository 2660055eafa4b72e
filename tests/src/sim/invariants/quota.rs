//! P3, P4 and P7: quota as the records of a manager move it, and the preemptions among them.

mod preemption_rights;
pub(crate) mod replay;
pub(crate) mod snapshot;
mod state;
