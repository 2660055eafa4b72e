//! Sets of faults that are searched together, with their bounds.

use crate::action::Action;
use crate::model::{ProtocolModel, planted};
use crate::setup::CLUSTERS;
use crate::state::Budget;
use meridian_shared::planted::Bug;
use std::sync::Arc;

/// The size of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Small enough for every change: about a million states in all configurations together.
    Short,
    /// Up to the bounds of an hour's search.
    Long,
}

/// The names of all configurations.
pub const NAMES: [&str; 7] = ["crash", "partition", "network", "restore", "ledger", "takeover", "twin"];

const A: Action = Action::Exchange { host: 0, manager: 0 };
const CALM: Action = Action::Step { disconnected: [false; CLUSTERS] };
const FIRST: [bool; CLUSTERS] = [true, false];
const BOTH: [bool; CLUSTERS] = [true, true];

/// Actions after which the job runs at the first cluster and its manager knows: offer, hold and grant, report
/// of the start.
pub(crate) fn running() -> Vec<Action> {
    vec![Action::Submit, A, A, A]
}

/// One configuration, with a bug planted in both cores or none.
pub fn named(name: &str, depth: Depth, bug: Option<Bug>) -> Option<ProtocolModel> {
    let name = *NAMES.iter().find(|n| **n == name)?;
    let (before, free, budget) = long(name);
    let (least, free, budget) = match depth {
        Depth::Short => short(name),
        Depth::Long => (LONG_LEAST, free, budget),
    };
    Some(ProtocolModel {
        name,
        budget,
        least,
        race: matches!(name, "partition" | "network"),
        free,
        before,
        planted: planted(bug),
        covered: Arc::default(),
    })
}

/// Least number of states of a long search, which finds that many within seconds. With fewer, the search is
/// broken.
const LONG_LEAST: usize = 20_000;

/// The least number of states, the clusters that act freely, and the bounds of a short search. It reaches all
/// states within the bounds; the number is nine tenths of them.
fn short(name: &str) -> (usize, [bool; CLUSTERS], Budget) {
    let none = Budget::default();
    match name {
        "crash" => (
            100_000,
            FIRST,
            Budget {
                steps: 2,
                disconnections: 4,
                agent_crashes: 1,
                manager_crashes: 1,
                short_cuts: 1,
                successes: 1,
                ..none
            },
        ),
        // Long enough for a lapse and a grant elsewhere.
        "partition" => (125_000, BOTH, Budget { steps: 5, disconnections: 5, ..none }),
        "network" => {
            (135_000, FIRST, Budget { steps: 1, disconnections: 1, lingering: 2, repeats: 1, ..none })
        }
        "restore" => (
            60_000,
            BOTH,
            Budget { steps: 2, disconnections: 2, manager_crashes: 1, restores: 1, successes: 1, ..none },
        ),
        "ledger" => (95_000, FIRST, Budget { steps: 6, disconnections: 5, lost_ledgers: 1, ..none }),
        "takeover" => {
            (160_000, FIRST, Budget { steps: 5, disconnections: 5, takeovers: 1, short_cuts: 1, ..none })
        }
        _ => (75_000, FIRST, Budget { steps: 2, disconnections: 2, ..none }),
    }
}

/// What happens before the search, clusters that act freely, and the bound.
type Scene = (Vec<Action>, [bool; CLUSTERS], Budget);

fn long(name: &str) -> Scene {
    let none = Budget { steps: 7, disconnections: 8, ..Budget::default() };
    match name {
        "crash" => {
            let budget = Budget {
                lingering: 1,
                agent_crashes: 1,
                manager_crashes: 1,
                short_cuts: 1,
                successes: 1,
                deletions: 1,
                ..none
            };
            (vec![Action::Submit], BOTH, budget)
        }
        "partition" => (vec![Action::Submit], BOTH, Budget { lingering: 1, successes: 1, ..none }),
        "network" => (vec![Action::Submit], BOTH, Budget { lingering: 3, repeats: 1, ..none }),
        "restore" => {
            // The copy is from before the grant.
            let budget = Budget {
                lingering: 1,
                manager_crashes: 1,
                restores: 1,
                confirmations: 1,
                successes: 1,
                agent_crashes: 1,
                ..none
            };
            (vec![Action::Submit, Action::Backup, A, A, A], BOTH, budget)
        }
        "ledger" => {
            (vec![Action::Submit], BOTH, Budget { lingering: 1, lost_ledgers: 1, manager_crashes: 1, ..none })
        }
        "takeover" => (running(), BOTH, Budget { lingering: 1, takeovers: 1, short_cuts: 1, ..none }),
        _ => {
            // A manager leads a copy of the journal while the original still leads.
            let mut before = running();
            before.extend([Action::Backup, Action::Twin, CALM, Action::Leads { manager: 1 }]);
            (before, BOTH, Budget { manager_crashes: 1, ..none })
        }
    }
}
