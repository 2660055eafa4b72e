//! Planted bugs: each is switched on alone, and seeds that are weighted towards its rule must find it.

use super::plan::Plan;
use super::trace::Keep;
use super::{Report, run};
use meridian_shared::planted::Bug;

/// Seeds that are tried for one bug at most.
pub const SEEDS_MAX: u64 = 400;

/// Looks for one bug; the report of the first seed that breaks something with it and nothing without it, and how many seeds
/// it took.
pub fn hunt(bug: Bug, first: u64, most: u64) -> Option<(u64, Report)> {
    let found = |report: &Report| {
        report.broken.is_some() && run(Plan::towards(report.seed, bug), Keep::Nothing).broken.is_none()
    };
    (first..first + most)
        .map(|seed| (seed + 1 - first, run(Plan::hunting(seed, bug), Keep::Nothing)))
        .find(|(_, report)| found(report))
}
