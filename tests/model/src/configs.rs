//! Which faults are searched together, to which bound.

use crate::model::{Action, Meridian, planted};
use crate::state::Budget;
use meridian_shared::planted::Bug;
use std::sync::Arc;

/// How far a search goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Small enough to be done with every change.
    Short,
    /// For an hour.
    Long,
}

/// Names of all configurations.
pub const NAMES: [&str; 6] = ["crash", "partition", "restore", "ledger", "takeover", "twin"];

fn configuration(name: &'static str, budget: Budget, race: bool, before: Vec<Action>, bug: Option<Bug>) -> Meridian {
    Meridian { name, budget, race, free: [true; 2], before, planted: planted(bug), seen: Arc::default() }
}

/// Before the search: the job runs at the first cluster, and its manager knows.
pub(crate) fn running() -> Vec<Action> {
    let exchange = Action::Exchange { host: 0, manager: 0 };
    // Offer, hold and grant, start.
    vec![Action::Submit, exchange, exchange, exchange]
}

/// One configuration, with a bug planted in both cores or none.
pub fn named(name: &str, depth: Depth, bug: Option<Bug>) -> Option<Meridian> {
    let short = depth == Depth::Short;
    let of = |short_value: u8, long_value: u8| if short { short_value } else { long_value };
    Some(match name {
        "crash" => {
            let budget = Budget {
                steps: of(6, 8),
                silences: of(6, 8),
                lingering: of(0, 1),
                agent_crashes: 1,
                manager_crashes: 1,
                short_cuts: 1,
                successes: 1,
                deletions: of(0, 1),
                ..Budget::default()
            };
            configuration("crash", budget, false, vec![Action::Submit], bug)
        }
        "partition" => {
            let budget = Budget { steps: of(6, 8), silences: of(6, 8), lingering: of(2, 3), repeats: of(0, 1), successes: of(0, 1), ..Budget::default() };
            configuration("partition", budget, true, vec![Action::Submit], bug)
        }
        "restore" => {
            let budget = Budget {
                steps: of(7, 9),
                silences: of(6, 8),
                lingering: of(0, 1),
                manager_crashes: 1,
                backups: 1,
                restores: 1,
                successes: 1,
                agent_crashes: of(0, 1),
                ..Budget::default()
            };
            // The copy is from before the grant.
            let first = Action::Exchange { host: 0, manager: 0 };
            configuration("restore", budget, false, vec![Action::Submit, Action::Backup, first, first, first], bug)
        }
        "ledger" => {
            let budget = Budget { steps: of(6, 8), silences: of(6, 8), lingering: of(1, 2), lost_ledgers: 1, manager_crashes: of(0, 1), ..Budget::default() };
            configuration("ledger", budget, false, vec![Action::Submit], bug)
        }
        "takeover" => {
            let budget = Budget { steps: of(7, 9), silences: of(6, 8), lingering: of(1, 2), takeovers: 1, short_cuts: 1, ..Budget::default() };
            configuration("takeover", budget, false, running(), bug)
        }
        "twin" => {
            let budget =
                Budget { steps: of(7, 9), silences: of(6, 8), lingering: of(0, 1), backups: 1, twins: 1, manager_crashes: of(1, 2), ..Budget::default() };
            let mut before = running();
            before.extend([Action::Backup, Action::Twin, Action::Step { silent: [false, false] }, Action::Leads { manager: 1 }]);
            configuration("twin", budget, false, before, bug)
        }
        _ => return None,
    })
}
