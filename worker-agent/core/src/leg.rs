//! The agent's state machine of one attempt.
//!
//! | phase \ event | Grant | Started | Over | Stop | Lapse | Stranded |
//! |---|---|---|---|---|---|---|
//! | Absent   | start   | ignore  | ignore | end     | ignore  | ignore |
//! | Starting | repeat  | Running | end     | Stopping | Stopping | Stopping |
//! | Running  | repeat  | repeat  | end     | Stopping | Stopping | Stopping |
//! | Stopping | repeat  | ignore  | end     | ignore  | ignore  | ignore |
//! | Ended    | repeat  | ignore  | ignore | repeat  | ignore  | ignore |
//!
//! *End* writes the tombstone. *Repeat* answers with the state of the attempt, so that a repeated message is
//! answered and never refused. An attempt is named by (uid, fence). Whether a new grant is valid is checked
//! after this machine.

use serde::{Deserialize, Serialize};

/// State of one attempt at the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// The agent doesn't know the attempt.
    Absent,
    /// Durable, and the runner was asked to start it.
    Starting,
    /// All pods have started.
    Running,
    /// The runner was asked to stop the gang, whose allocation stays until all its processes were seen ended.
    Stopping,
    /// The leg is over, and a tombstone exists.
    Ended,
}

/// An event of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LegEvent {
    /// A valid grant arrived; for a known attempt, the same grant again.
    Grant,
    /// The runner reports that all pods have started.
    Started,
    /// The runner reports that everything of the attempt was seen ended.
    Over,
    /// The manager requests a stop.
    Stop,
    /// The lease reached the moment at which the stop must begin.
    Lapse,
    /// A node of the attempt is lost, and no other node has capacity for its pods.
    Stranded,
}

/// The action that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Make the attempt durable, then start it.
    Start,
    /// Report that it runs.
    Run,
    Stop,
    /// Write the tombstone and report the end.
    End,
    /// Report its state again.
    Repeat,
    /// A late message, which is normal: do nothing.
    Ignore,
}

/// The action for an event in a phase.
pub fn step(phase: Phase, event: LegEvent) -> Step {
    use LegEvent::{Grant, Lapse, Over, Started, Stop, Stranded};
    use Phase::{Absent, Ended, Running, Starting, Stopping};
    match (phase, event) {
        (Absent, Grant) => Step::Start,
        (Absent, Stop) => Step::End,
        (Absent, Started | Over | Lapse | Stranded) => Step::Ignore,

        (Starting, Started) => Step::Run,
        (Starting, Grant) => Step::Repeat,
        (Starting, Over) => Step::End,
        (Starting, Stop | Lapse | Stranded) => Step::Stop,

        (Running, Grant | Started) => Step::Repeat,
        (Running, Over) => Step::End,
        (Running, Stop | Lapse | Stranded) => Step::Stop,

        (Stopping, Grant) => Step::Repeat,
        (Stopping, Over) => Step::End,
        (Stopping, Started | Stop | Lapse | Stranded) => Step::Ignore,

        (Ended, Grant | Stop) => Step::Repeat,
        (Ended, Started | Over | Lapse | Stranded) => Step::Ignore,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASES: [Phase; 5] =
        [Phase::Absent, Phase::Starting, Phase::Running, Phase::Stopping, Phase::Ended];
    const EVENTS: [LegEvent; 6] = [
        LegEvent::Grant,
        LegEvent::Started,
        LegEvent::Over,
        LegEvent::Stop,
        LegEvent::Lapse,
        LegEvent::Stranded,
    ];

    #[test]
    fn table_matches_the_machine() {
        let source = include_str!("leg.rs");
        let rows: Vec<Vec<&str>> = source
            .lines()
            .filter_map(|l| l.strip_prefix("//! | "))
            .filter(|l| !l.starts_with("phase"))
            .map(|l| l.split('|').map(str::trim).filter(|c| !c.is_empty()).collect())
            .collect();
        assert_eq!(rows.len(), PHASES.len());
        for (row, phase) in rows.iter().zip(PHASES) {
            assert_eq!(row[0], format!("{phase:?}"));
            for (cell, event) in row[1..].iter().zip(EVENTS) {
                let expected = match step(phase, event) {
                    Step::Start => "start",
                    Step::Run => "Running",
                    Step::Stop => "Stopping",
                    Step::End => "end",
                    Step::Repeat => "repeat",
                    Step::Ignore => "ignore",
                };
                assert_eq!(*cell, expected, "{phase:?} × {event:?}");
            }
        }
    }

    #[test]
    fn an_ended_attempt_stays_ended_and_none_starts_twice() {
        for event in EVENTS {
            assert!(matches!(step(Phase::Ended, event), Step::Repeat | Step::Ignore));
            for phase in PHASES.into_iter().filter(|p| *p != Phase::Absent) {
                assert_ne!(step(phase, event), Step::Start);
            }
        }
    }
}
