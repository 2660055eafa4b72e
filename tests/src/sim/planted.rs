//! Hunts for planted bugs: each bug is switched on alone, and seeds that are weighted towards its rule must
//! find it.

use crate::sim::context::Report;
use crate::sim::context::trace::Keep;
use crate::sim::run;
use crate::sim::scenario::Scenario;
use meridian_shared::planted::Bug;

/// Most seeds that are tried for one bug.
pub const SEEDS_MAX: u64 = 400;

/// The bugs that seeds must find. A leader without a claim does harm only with a stall, a takeover and a cut
/// link in one term: the model's search finds that.
pub fn found_by_seeds() -> impl Iterator<Item = Bug> {
    Bug::ALL.iter().copied().filter(|bug| *bug != Bug::AnswersWithoutClaim)
}

/// Hunts one bug. Returns the number of seeds that it took, and the report of the first seed that breaks a
/// promise with the bug and none without it.
pub fn hunt(bug: Bug, first: u64, most: u64) -> Option<(u64, Report)> {
    let found = |report: &Report| {
        report.failure.is_some() && run(Scenario::towards(report.seed, bug), Keep::Nothing).failure.is_none()
    };
    (first..first + most)
        .map(|seed| (seed + 1 - first, run(Scenario::hunting(seed, bug), Keep::Nothing)))
        .find(|(_, report)| found(report))
}
