//! Answers questions about a future cycle on a copy of the state: which head comes first, and which obstacles
//! a workload would meet.
//!
//! Nothing is decided or changed. Every queue contributes its first workload, active or parked, because freed
//! quota would requeue it. In the copy no workload holds quota, so nothing is preempted; a [`Trial`] is the
//! exception.

mod competition;
mod limits;
mod preview;
mod remedies;
mod trial;

pub use competition::{CompetingWorkloads, FirstEntry};
pub use limits::{Limit, QuotaScope};
pub use trial::{ForbiddenBorrowing, Trial, TrialCapacity, TrialChanges};
