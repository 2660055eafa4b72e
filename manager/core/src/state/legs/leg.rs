//! The manager's state machine of a leg: one workload on one cluster.
//!
//! `Offered → Waiting ⇄ Held → Granted → Running → Ended`, or `Refused`, `Withdrawn`, `Expired`. A message
//! for a leg that is over is normal: it has a defined [`LegAnswer`] and never changes the leg. [`step`] lists
//! every pair of state and event.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LegState {
    /// The cluster was asked to hold capacity, and hasn't answered.
    Offered,
    /// The cluster waits for its provider to provide nodes.
    Waiting,
    /// The agent holds capacity for the whole gang.
    Held,
    /// The agent has, or will have, the right to run.
    Granted,
    /// All pods have started.
    Running,
    Ended,
    /// The agent refused the offer.
    Refused,
    /// The manager withdrew the offer.
    Withdrawn,
    /// The hold expired.
    Expired,
}

/// An agent's message about a leg, or an action of the manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LegEvent {
    /// The agent waits for its provider.
    Waiting,
    /// The agent holds capacity.
    Held,
    /// The agent refused the offer.
    Refused,
    /// The agent's hold expired.
    Expired,
    /// The manager withdraws the offer.
    Withdraw,
    /// The manager grants the right to run.
    Grant,
    /// The agent reports that all pods have started.
    Running,
    /// The attempt is over: it ended, the agent refused the grant, or the lease lapsed.
    Over,
}

/// How the manager reacts to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LegAnswer {
    /// The leg moves to this state.
    To(LegState),
    /// The event is repeated or late. The leg stays as it is.
    Nothing,
    /// The leg is over, but the agent still holds or waits for capacity: send a withdraw.
    Withdraw,
    /// Impossible, unless one side has a bug or lies.
    Illegal,
}

impl LegState {
    pub const ALL: [Self; 9] = [
        Self::Offered,
        Self::Waiting,
        Self::Held,
        Self::Granted,
        Self::Running,
        Self::Ended,
        Self::Refused,
        Self::Withdrawn,
        Self::Expired,
    ];

    /// The state as metrics name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Offered => "Offered",
            Self::Waiting => "Waiting",
            Self::Held => "Held",
            Self::Granted => "Granted",
            Self::Running => "Running",
            Self::Ended => "Ended",
            Self::Refused => "Refused",
            Self::Withdrawn => "Withdrawn",
            Self::Expired => "Expired",
        }
    }

    /// Whether the leg isn't granted yet and could still be.
    pub const fn open(self) -> bool {
        matches!(self, Self::Offered | Self::Waiting | Self::Held)
    }

    /// Whether the cluster may have the right to run.
    pub const fn granted(self) -> bool {
        matches!(self, Self::Granted | Self::Running)
    }
}

/// Reaction to `event` in `state`.
pub const fn step(state: LegState, event: LegEvent) -> LegAnswer {
    use LegAnswer::{Illegal, Nothing, To, Withdraw as SendWithdraw};
    use LegState::{Ended, Expired, Granted, Held, Offered, Refused, Running, Waiting, Withdrawn};
    match (state, event) {
        (Offered | Waiting, LegEvent::Waiting) => To(Waiting),
        (Offered | Waiting, LegEvent::Held) => To(Held),
        // The provider lost the capacity before the grant.
        (Held, LegEvent::Waiting) => To(Waiting),
        (Held, LegEvent::Held) => Nothing,
        (Offered | Waiting | Held, LegEvent::Refused) => To(Refused),
        (Offered | Waiting | Held, LegEvent::Expired) => To(Expired),
        (Offered | Waiting | Held, LegEvent::Withdraw) => To(Withdrawn),
        (Held, LegEvent::Grant) => To(Granted),
        (Offered | Waiting, LegEvent::Grant) => Illegal,
        (Offered | Waiting | Held, LegEvent::Running | LegEvent::Over) => Illegal,

        (Granted, LegEvent::Running) => To(Running),
        (Granted | Running, LegEvent::Over) => To(Ended),
        (Running, LegEvent::Running) => Nothing,
        // Messages about the offer may arrive after its grant.
        (Granted | Running, LegEvent::Waiting | LegEvent::Held | LegEvent::Refused | LegEvent::Expired) => {
            Nothing
        }
        (Granted | Running, LegEvent::Withdraw | LegEvent::Grant) => Illegal,

        (
            Ended,
            LegEvent::Waiting
            | LegEvent::Held
            | LegEvent::Refused
            | LegEvent::Expired
            | LegEvent::Running
            | LegEvent::Over,
        ) => Nothing,
        (Refused | Withdrawn | Expired, LegEvent::Held | LegEvent::Waiting) => SendWithdraw,
        (Refused | Withdrawn | Expired, LegEvent::Refused | LegEvent::Expired | LegEvent::Withdraw) => {
            Nothing
        }
        (Refused | Withdrawn | Expired, LegEvent::Running | LegEvent::Over) => Illegal,
        (Ended | Refused | Withdrawn | Expired, LegEvent::Grant) => Illegal,
        (Ended, LegEvent::Withdraw) => Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [LegEvent; 8] = [
        LegEvent::Waiting,
        LegEvent::Held,
        LegEvent::Refused,
        LegEvent::Expired,
        LegEvent::Withdraw,
        LegEvent::Grant,
        LegEvent::Running,
        LegEvent::Over,
    ];

    #[test]
    fn full_matrix_of_states_and_events() {
        let letter = |a| match a {
            LegAnswer::To(LegState::Running) => 'U',
            LegAnswer::To(LegState::Withdrawn) => 'T',
            LegAnswer::To(state) => state.name().chars().next().unwrap_or('?'),
            LegAnswer::Nothing => '-',
            LegAnswer::Withdraw => '<',
            LegAnswer::Illegal => '.',
        };
        let rows: Vec<String> =
            LegState::ALL.iter().map(|s| EVENTS.iter().map(|e| letter(step(*s, *e))).collect()).collect();
        // columns: Waiting Held Refused Expired Withdraw Grant Running Over
        assert_eq!(
            rows,
            [
                "WHRET...", "WHRET...", "W-RETG..", "----..UE", "----..-E", "-----.--", "<<---...",
                "<<---...", "<<---..."
            ],
        );
    }

    #[test]
    fn a_leg_that_is_over_never_changes() {
        for state in LegState::ALL.into_iter().filter(|s| !s.open() && !s.granted()) {
            for event in EVENTS {
                assert!(!matches!(step(state, event), LegAnswer::To(_)), "{state:?} {event:?}");
            }
        }
    }
}
