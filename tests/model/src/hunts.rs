//! For each planted bug that this model can find, the search that must find it.
//!
//! A hunt begins where the broken rule first matters and allows few faults, so that a few thousand states are
//! enough. The simulator hunts the other bugs: `AgentTakesTwinLeadership` is caught by a second rule, by
//! which a manager that gets a report of another manager's records returns to recovery, and the rest break
//! promises that one workload can't show.

use crate::action::Action;
use crate::configs::running;
use crate::model::{ProtocolModel, planted};
use crate::state::Budget;
use meridian_shared::planted::Bug;
use std::sync::Arc;

const A: Action = Action::Exchange { host: 0, manager: 0 };
const B: Action = Action::Exchange { host: 1, manager: 0 };
const CALM: Action = Action::Step { disconnected: [false, false] };
const WITHOUT_A: Action = Action::Step { disconnected: [true, false] };
const WITHOUT_B: Action = Action::Step { disconnected: [false, true] };
const SEND_A: Action = Action::Send { host: 0 };
const TAKE_A_AGAIN: Action = Action::Take { host: 0, answer: 0, again: true };
const SEND_B: Action = Action::Send { host: 1 };
const DELIVER_B: Action = Action::Deliver { host: 1, request: 0, manager: 0, again: false };
const A_TWIN: Action = Action::Exchange { host: 0, manager: 1 };
const B_TWIN: Action = Action::Exchange { host: 1, manager: 1 };
const TWIN_LEADS: Action = Action::Leads { manager: 1 };
const DELIVER_A: Action = Action::Deliver { host: 0, request: 0, manager: 0, again: false };

/// The bugs that are hunted here.
pub const HUNTED: [Bug; 20] = [
    Bug::RepeatedGrantRefused,
    Bug::MissingFrees,
    Bug::UnknownStopForgotten,
    Bug::DeadlineMovesBack,
    Bug::RecoveryResends,
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
    Bug::ReportedRunIgnored,
    Bug::ConfirmationAnswersForClusters,
];

/// A hunt of fewer states proves nothing; the smallest hunt has slightly more.
const LEAST: usize = 40;

/// The search for a bug. With `plant` false it is the same search without the bug, which must find nothing.
pub fn hunt(bug: Bug, plant: bool) -> Option<ProtocolModel> {
    let (before, budget, free) = scene(bug)?;
    // A hunt that finds its bug has searched enough.
    let least = if plant { 0 } else { LEAST };
    Some(ProtocolModel {
        name: "hunt",
        budget,
        least,
        race: false,
        free,
        before,
        planted: planted(plant.then_some(bug)),
        covered: Arc::default(),
    })
}

/// Actions after which the first cluster holds the offer and the grant is on its way there.
fn granting() -> Vec<Action> {
    vec![Action::Submit, A, SEND_A, DELIVER_A]
}

/// Actions after which the second of two requests was answered with a renewal, and the answer is late.
fn late_renewal() -> Vec<Action> {
    let mut before = running();
    let deliver_second = Action::Deliver { host: 0, request: 1, manager: 0, again: false };
    before.extend([CALM, SEND_A, SEND_A, deliver_second, WITHOUT_A, SEND_A]);
    before
}

/// Actions after which two managers lead, one of them on a copy. The other one has lost A, and its answer is
/// late at B.
fn two_leaders() -> Vec<Action> {
    let mut before = running();
    before.extend([SEND_B, DELIVER_B, Action::Backup, Action::Twin, CALM, TWIN_LEADS]);
    before.extend([A_TWIN, B_TWIN, A_TWIN, B_TWIN]);
    before.extend([WITHOUT_B; 3]);
    before
}

/// What happens before the search for a bug, its bound, and the clusters that act freely.
fn scene(bug: Bug) -> Option<(Vec<Action>, Budget, [bool; 2])> {
    let none = Budget::default();
    // A is cut off for so long that its lease lapses.
    let disconnected = Budget { steps: 6, disconnections: 6, ..none };
    let (only_a, only_b, both) = ([true, false], [false, true], [true, true]);
    Some(match bug {
        Bug::NoDriftBound | Bug::ManagerCountsFromAcknowledgement | Bug::FenceReused => {
            (running(), Budget { steps: 7, ..disconnected }, both)
        }
        Bug::AgentCountsFromArrival => (granting(), disconnected, only_a),
        Bug::TransmissionReused => (late_renewal(), Budget { steps: 5, disconnections: 5, ..none }, only_a),
        Bug::NewLedgerFrees => (running(), Budget { lost_ledgers: 1, ..none }, both),
        Bug::StartBeforeDurable => (vec![Action::Submit, A], Budget { agent_crashes: 1, ..none }, both),
        Bug::EndForgotten => (running(), Budget { agent_crashes: 1, successes: 1, steps: 1, ..none }, both),
        Bug::RestartForgetsLeases => (
            running(),
            Budget { manager_crashes: 1, short_cuts: 1, steps: 2, disconnections: 2, ..none },
            both,
        ),
        Bug::AnyFenceFrees => {
            // A's lease has lapsed, and B runs.
            let mut before = running();
            before.extend([WITHOUT_A; 6]);
            before.extend([B, B, B]);
            (before, Budget { steps: 1, ..none }, both)
        }
        Bug::AnswersWithoutClaim => {
            let mut before = running();
            before.push(Action::TakeOver);
            (before, Budget { steps: 8, disconnections: 8, ..none }, only_a)
        }
        Bug::RecoveryDispatches | Bug::ReportedRunIgnored => {
            // The copy is from before the grant.
            let before = vec![Action::Submit, Action::Backup, A, A, A];
            (before, Budget { manager_crashes: 1, restores: 1, steps: 2, disconnections: 2, ..none }, both)
        }
        Bug::ConfirmationAnswersForClusters => {
            // The copy is from before the grant, and the cluster that runs the job isn't connected.
            let mut before = vec![Action::Submit, Action::Backup, A, A, A];
            before.extend([Action::ManagerDies { manager: 0 }, Action::Restore, CALM]);
            before.extend([Action::Leads { manager: 0 }, B, B]);
            (before, Budget { confirmations: 1, steps: 6, disconnections: 6, ..none }, only_b)
        }
        Bug::RepeatedGrantRefused => {
            // The answer with the grant arrives twice.
            let mut before = granting();
            before.push(TAKE_A_AGAIN);
            (before, Budget { steps: 1, ..none }, both)
        }
        Bug::DeadlineMovesBack => (running(), Budget { steps: 6, ..none }, only_a),
        // The grant is still under way when its manager dies.
        Bug::RecoveryResends | Bug::MissingFrees | Bug::UnknownStopForgotten => {
            (granting(), Budget { manager_crashes: 1, steps: 2, disconnections: 2, ..none }, both)
        }
        Bug::AgentTakesOlderEpoch => (two_leaders(), Budget { steps: 2, disconnections: 2, ..none }, only_b),
        Bug::AgentTakesTwinLeadership
        | Bug::StaleInventoryCounts
        | Bug::ReplyBeforeCommit
        | Bug::HalfGangHeld
        | Bug::QuotaNotCharged
        | Bug::CapsIgnored
        | Bug::VictimQuotaGivenAway
        | Bug::LendingLimitIgnored
        | Bug::VictimSpared
        | Bug::ResidencyCheckedOnce
        | Bug::ReasonForgotten
        | Bug::SlowClusterAwaited => return None,
    })
}
