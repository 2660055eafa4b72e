//! The leg's machine at the manager: one workload on one cluster.
//!
//! `Offered → Waiting ⇄ Held → Granted → Running → Ended`, or `Refused`, `Withdrawn`, `Expired`. A message for a leg that
//! is over is normal, and has a defined [`Answer`]; it never changes the leg. Every pair is listed.

use serde::{Deserialize, Serialize};

/// Where a leg stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum State {
    /// The question is out.
    Offered,
    /// A provider works on it.
    Waiting,
    /// The agent has the whole gang's room.
    Held,
    /// The agent has, or will have, the right to run.
    Granted,
    /// It runs there.
    Running,
    /// The attempt is over.
    Ended,
    /// The agent said no.
    Refused,
    /// The manager took the question back.
    Withdrawn,
    /// The hold ran out.
    Expired,
}

/// What an agent says of a leg, or the manager does to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// The agent waits for a provider.
    Waiting,
    /// The agent holds the room.
    Held,
    /// The agent said no.
    Refused,
    /// The agent's hold ran out.
    Expired,
    /// The manager takes the question back.
    Withdraw,
    /// The manager grants.
    Grant,
    /// It runs.
    Running,
    /// The attempt is over: ended, refused as a grant, or lapsed.
    Over,
}

/// What follows from an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Answer {
    /// The leg moves.
    To(State),
    /// Nothing: a repetition, or news that is no news.
    Nothing,
    /// The leg is over but the agent still has room for it: withdraw.
    Withdraw,
    /// It can't happen unless one side has a bug or lies.
    Illegal,
}

impl State {
    /// Every state.
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

    /// Whether the leg could still come to hold.
    pub const fn open(self) -> bool {
        matches!(self, Self::Offered | Self::Waiting | Self::Held)
    }

    /// Whether the cluster may have the right to run.
    pub const fn granted(self) -> bool {
        matches!(self, Self::Granted | Self::Running)
    }
}

/// The whole machine.
pub const fn step(state: State, event: Event) -> Answer {
    use Answer::{Illegal, Nothing, To, Withdraw as TakeBack};
    use State::{Ended, Expired, Granted, Held, Offered, Refused, Running, Waiting, Withdrawn};
    match (state, event) {
        (Offered | Waiting, Event::Waiting) => To(Waiting),
        (Offered | Waiting, Event::Held) => To(Held),
        // The provider lost it before the grant: back to waiting.
        (Held, Event::Waiting) => To(Waiting),
        (Held, Event::Held) => Nothing,
        (Offered | Waiting | Held, Event::Refused) => To(Refused),
        (Offered | Waiting | Held, Event::Expired) => To(Expired),
        (Offered | Waiting | Held, Event::Withdraw) => To(Withdrawn),
        (Held, Event::Grant) => To(Granted),
        (Offered | Waiting, Event::Grant) => Illegal,
        (Offered | Waiting | Held, Event::Running | Event::Over) => Illegal,

        (Granted, Event::Running) => To(Running),
        (Granted | Running, Event::Over) => To(Ended),
        (Running, Event::Running) => Nothing,
        // What was said of the offer before its grant may arrive after it.
        (Granted | Running, Event::Waiting | Event::Held | Event::Refused | Event::Expired) => Nothing,
        (Granted | Running, Event::Withdraw | Event::Grant) => Illegal,

        (
            Ended,
            Event::Waiting | Event::Held | Event::Refused | Event::Expired | Event::Running | Event::Over,
        ) => Nothing,
        (Refused | Withdrawn | Expired, Event::Held | Event::Waiting) => TakeBack,
        (Refused | Withdrawn | Expired, Event::Refused | Event::Expired | Event::Withdraw) => Nothing,
        (Refused | Withdrawn | Expired, Event::Running | Event::Over) => Illegal,
        (Ended | Refused | Withdrawn | Expired, Event::Grant) => Illegal,
        (Ended, Event::Withdraw) => Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [Event; 8] = [
        Event::Waiting,
        Event::Held,
        Event::Refused,
        Event::Expired,
        Event::Withdraw,
        Event::Grant,
        Event::Running,
        Event::Over,
    ];

    #[test]
    fn the_full_matrix() {
        let letter = |a| match a {
            Answer::To(State::Running) => 'U',
            Answer::To(State::Withdrawn) => 'T',
            Answer::To(s) => format!("{s:?}").chars().next().unwrap_or('?'),
            Answer::Nothing => '-',
            Answer::Withdraw => '<',
            Answer::Illegal => '.',
        };
        let rows: Vec<String> =
            State::ALL.iter().map(|s| EVENTS.iter().map(|e| letter(step(*s, *e))).collect()).collect();
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
    fn what_is_over_stays_over() {
        for state in State::ALL.into_iter().filter(|s| !s.open() && !s.granted()) {
            for event in EVENTS {
                assert!(!matches!(step(state, event), Answer::To(_)), "{state:?} {event:?}");
            }
        }
    }
}
