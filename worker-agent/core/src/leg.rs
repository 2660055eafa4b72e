//! The agent's machine for one attempt: which message or event moves it where.
//!
//! | phase \ event | Grant | Started | Over | Stop | Lapse | Stranded |
//! |---|---|---|---|---|---|---|
//! | Absent   | start   | ignore  | ignore | bury    | ignore  | ignore |
//! | Starting | repeat  | Running | bury   | Stopping | Stopping | Stopping |
//! | Running  | repeat  | repeat  | bury   | Stopping | Stopping | Stopping |
//! | Stopping | repeat  | ignore  | bury   | ignore  | ignore  | ignore |
//! | Buried   | repeat  | ignore  | ignore | repeat  | ignore  | ignore |
//!
//! *Bury* writes the tombstone; *repeat* answers with the attempt's own state, so that a message that arrives twice is
//! answered and never refused. An attempt is named by (uid, fence); the checks that make a grant valid come before.

use serde::{Deserialize, Serialize};

/// Where one attempt stands at the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Not known here.
    Absent,
    /// Durable, its start was ordered.
    Starting,
    /// All pods have started.
    Running,
    /// Its stop was ordered; it keeps its room until everything is seen ended.
    Stopping,
    /// Over, and remembered.
    Buried,
}

/// What happens to one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Happening {
    /// A valid grant arrived (for a known attempt: the same one again).
    Grant,
    /// The runner says that all pods have started.
    Started,
    /// The runner says that everything of it was seen ended.
    Over,
    /// The manager wants it stopped.
    Stop,
    /// Its lease reached the moment where the stop must begin.
    Lapse,
    /// A node on which its pods are is lost, and there is no other place for them.
    Stranded,
}

/// What the agent does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Make it durable, then order the start.
    Start,
    /// It is running now: say so.
    Run,
    /// Order the stop.
    Stop,
    /// Write its tombstone and say how it ended.
    Bury,
    /// Say again what it is.
    Repeat,
    /// Nothing: normal for something late.
    Ignore,
}

/// The whole machine.
pub fn step(phase: Phase, happening: Happening) -> Step {
    use Happening::{Grant, Lapse, Over, Started, Stop, Stranded};
    use Phase::{Absent, Buried, Running, Starting, Stopping};
    match (phase, happening) {
        (Absent, Grant) => Step::Start,
        (Absent, Stop) => Step::Bury,
        (Absent, Started | Over | Lapse | Stranded) => Step::Ignore,

        (Starting, Started) => Step::Run,
        (Starting, Grant) => Step::Repeat,
        (Starting, Over) => Step::Bury,
        (Starting, Stop | Lapse | Stranded) => Step::Stop,

        (Running, Grant | Started) => Step::Repeat,
        (Running, Over) => Step::Bury,
        (Running, Stop | Lapse | Stranded) => Step::Stop,

        (Stopping, Grant) => Step::Repeat,
        (Stopping, Over) => Step::Bury,
        (Stopping, Started | Stop | Lapse | Stranded) => Step::Ignore,

        (Buried, Grant | Stop) => Step::Repeat,
        (Buried, Started | Over | Lapse | Stranded) => Step::Ignore,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASES: [Phase; 5] =
        [Phase::Absent, Phase::Starting, Phase::Running, Phase::Stopping, Phase::Buried];
    const HAPPENINGS: [Happening; 6] = [
        Happening::Grant,
        Happening::Started,
        Happening::Over,
        Happening::Stop,
        Happening::Lapse,
        Happening::Stranded,
    ];

    /// The table of the module's documentation is the machine, cell by cell.
    #[test]
    fn the_table_is_the_machine() {
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
            for (cell, happening) in row[1..].iter().zip(HAPPENINGS) {
                let word = match step(phase, happening) {
                    Step::Start => "start",
                    Step::Run => "Running",
                    Step::Stop => "Stopping",
                    Step::Bury => "bury",
                    Step::Repeat => "repeat",
                    Step::Ignore => "ignore",
                };
                assert_eq!(*cell, word, "{phase:?} × {happening:?}");
            }
        }
    }

    #[test]
    fn nothing_leaves_the_grave_and_nothing_is_started_twice() {
        for happening in HAPPENINGS {
            assert!(matches!(step(Phase::Buried, happening), Step::Repeat | Step::Ignore));
            for phase in PHASES.into_iter().filter(|p| *p != Phase::Absent) {
                assert_ne!(step(phase, happening), Step::Start);
            }
        }
    }
}
