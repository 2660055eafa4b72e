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

pub use competition::{CompetingWorkloads, FirstEntry, competing_workloads, served_before};
pub use limits::{Limit, QuotaScope, limits};
pub use preview::{preview, preview_in, would_fit};
pub use remedies::{blocking_holder, needed};
pub use trial::{
    ForbiddenBorrowing, Trial, TrialCapacity, TrialChanges, forbidden_borrowing, try_changes, try_in,
};
