//! Which head comes first, and what a workload would meet: questions about a future cycle, answered on a copy
//! of the state.
//!
//! Nothing is decided or changed. Every queue contributes its first workload, active or parked, because freed
//! quota would requeue it. The copy has no holders, so nothing is preempted in it.

mod competition;
mod limits;
mod preview;
mod remedies;

pub use competition::{CompetingWorkloads, FirstEntry};
pub use limits::{Limit, QuotaScope};
