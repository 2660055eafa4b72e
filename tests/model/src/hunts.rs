//! For each planted bug that this model can meet, the search that must find it.
//!
//! A hunt begins where its rule begins to matter and allows few faults, so that a few thousand states are enough. Bugs that
//! are not here can't do harm in these cores as far as this model looks, because a second rule stands behind the first, or
//! belong to promises that one workload can't show; the simulator hunts them.

use crate::configs::running;
use crate::model::{Action, Meridian, planted};
use crate::state::Budget;
use meridian_shared::planted::Bug;
use std::sync::Arc;

const A: Action = Action::Exchange { host: 0, manager: 0 };
const B: Action = Action::Exchange { host: 1, manager: 0 };
const CALM: Action = Action::Step { silent: [false, false] };
const WITHOUT_A: Action = Action::Step { silent: [true, false] };
const SEND_A: Action = Action::Send { host: 0 };
const DELIVER_A: Action = Action::Deliver { host: 0, request: 0, manager: 0, again: false };

/// Which bugs are hunted.
pub const HUNTED: [Bug; 15] = [
    Bug::AgentTakesOlderEpoch,
    Bug::NewLedgerFrees,
    Bug::TransmissionReused,
    Bug::FenceReused,
    Bug::StartBeforeDurable,
    Bug::AnyFenceFrees,
    Bug::EndForgotten,
    Bug::AgentCountsFromArrival,
    Bug::ManagerCountsFromAcknowledgement,
    Bug::NoDriftBound,
    Bug::RestartForgetsLeases,
    Bug::AnswersWithoutClaim,
    Bug::RecoveryDispatches,
    Bug::StaleInventoryCounts,
    Bug::ReportedRunIgnored,
];

/// The search for a bug; with `plant` false the same search without it, which must find nothing.
pub fn hunt(bug: Bug, plant: bool) -> Option<Meridian> {
    let (before, budget, free) = scene(bug)?;
    Some(Meridian { name: "hunt", budget, race: false, free, before, planted: planted(plant.then_some(bug)), seen: Arc::default() })
}

fn scene(bug: Bug) -> Option<(Vec<Action>, Budget, [bool; 2])> {
    let none = Budget::default();
    // A loses touch for long enough that its lease lapses.
    let silence = Budget { steps: 6, silences: 6, ..none };
    let (only_a, both) = ([true, false], [true, true]);
    Some(match bug {
        Bug::NoDriftBound | Bug::ManagerCountsFromAcknowledgement | Bug::FenceReused => (running(), Budget { steps: 7, ..silence }, both),
        Bug::AgentCountsFromArrival => (vec![Action::Submit, A, SEND_A, DELIVER_A], silence, only_a),
        Bug::TransmissionReused => {
            let mut before = running();
            // The second of two requests is answered with a renewal; the answer is late.
            before.extend([CALM, SEND_A, SEND_A, Action::Deliver { host: 0, request: 1, manager: 0, again: false }, WITHOUT_A, SEND_A]);
            (before, Budget { steps: 5, silences: 5, ..none }, only_a)
        }
        Bug::NewLedgerFrees => (running(), Budget { lost_ledgers: 1, ..none }, both),
        Bug::StartBeforeDurable => (vec![Action::Submit, A], Budget { agent_crashes: 1, ..none }, both),
        Bug::EndForgotten => (running(), Budget { agent_crashes: 1, successes: 1, steps: 1, ..none }, both),
        Bug::RestartForgetsLeases => (running(), Budget { manager_crashes: 1, short_cuts: 1, steps: 2, silences: 2, ..none }, both),
        Bug::AnyFenceFrees => {
            // A's lease has lapsed, and B runs.
            let mut before = running();
            before.extend([WITHOUT_A; 6]);
            before.extend([B, B, B]);
            (before, Budget { steps: 1, ..none }, both)
        }
        Bug::AnswersWithoutClaim => (running(), Budget { takeovers: 1, steps: 8, silences: 8, ..none }, only_a),
        Bug::RecoveryDispatches | Bug::ReportedRunIgnored => {
            // The copy is from before the grant.
            let before = vec![Action::Submit, Action::Backup, A, A, A];
            (before, Budget { manager_crashes: 1, restores: 1, steps: 2, silences: 2, ..none }, both)
        }
        Bug::StaleInventoryCounts => {
            // An inventory from before the grant is still under way, and so old is the copy.
            let before = vec![Action::Submit, Action::AgentRestarts { host: 0 }, SEND_A, Action::Backup, A, A, A, A, A];
            (before, Budget { manager_crashes: 1, restores: 1, steps: 2, silences: 2, ..none }, both)
        }
        Bug::AgentTakesOlderEpoch => {
            // Offer and grant of the old leadership are still under way, the offer for the second time; a manager leads an older copy.
            let take_again = Action::Take { host: 0, answer: 0, again: true };
            let mut before = vec![Action::Submit, Action::Backup, SEND_A, DELIVER_A, take_again, SEND_A, DELIVER_A];
            before.extend([Action::ManagerDies { manager: 0 }, Action::Restore, CALM, Action::Leads { manager: 0 }, A, A, A]);
            (before, Budget { lingering: 1, ..none }, both)
        }
        Bug::AgentTakesTwinLeadership
        | Bug::RepeatedGrantRefused
        | Bug::MissingFrees
        | Bug::UnknownStopForgotten
        | Bug::DeadlineMovesBack
        | Bug::RecoveryResends
        | Bug::ReplyBeforeCommit
        | Bug::HalfGangHeld
        | Bug::QuotaNotCharged
        | Bug::ResidencyJudgedOnce => return None,
    })
}
