//! Search for victims: as few as possible, whole workloads only. The search removes the usage of candidates
//! until the workload fits, then restores those that aren't needed. Afterwards the state is unchanged.

mod classical;
mod fair;
mod oracle;
mod policy;
mod search;
mod targets;

pub use crate::model::{PreemptionReason, Target};
pub use fair::{FairOrder, Visit};
pub(crate) use oracle::{NoCandidatesOracle, StateOracle};
pub use policy::{candidate_order, may_preempt, sort_candidates};
pub(crate) use search::SearchRecord;
pub(crate) use targets::find_targets;
pub use targets::victims;
