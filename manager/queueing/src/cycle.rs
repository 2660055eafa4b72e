//! One scheduling cycle: every queue nominates its head, all heads are evaluated against the same state, then
//! they are processed in a fair order, each against the state that the previous heads left.

mod capacity_preemption;
mod entry;
mod nominate;
mod order;
mod partial_admission;
mod process;
mod quota_use;
mod refresh;
mod report;
mod requeue;
mod run;
mod scratch;
mod skipped;
mod starved;

pub use entry::{CycleEntry, EntryOutcome, Requeued};
pub(crate) use nominate::Nominee;
pub(crate) use order::EntryOrder;
pub use order::{EntryKey, Precedence, classical_order};
pub use report::{CycleReport, Eviction, Recomputed};
pub use run::{run, run_once, run_once_with_heads};
pub(crate) use scratch::Cycle;
pub use skipped::{SkippedHead, unchanged_shortage};

/// Maximum number of flavors of a resource group in Kueue.
pub(crate) const FLAVORS_MAX: usize = 64;
