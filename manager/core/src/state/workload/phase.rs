//! The workload's machine at the manager.
//!
//! ```text
//! Pending ─Reserve▶ Reserved ─Offer▶ Dispatching ─Grant▶ Granted ─Start▶ Running ─Finish▶ Finished
//!    ▲                 │ Release         │ Release          │ Stop         │ Stop
//!    └─────────────────┴─────────────────┘                  ▼              ▼
//!    ▲                                                   Stopping ◀────────┘
//!    └──────────────────────── Free ────────────────────────┘
//! ```
//!
//! `Free` is the only way out of a right to run that leads back to the queue, and it is taken only on a confirmed stop, a
//! refusal or a lapse. `Stopping` keeps room, quota and the object itself. Every pair is listed; what is illegal is a bug
//! of ours and is refused before any record is made.

use serde::{Deserialize, Serialize};

/// Where a workload stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// In the queue, without quota.
    Pending,
    /// Has quota, no open leg yet.
    Reserved,
    /// Has quota and open legs.
    Dispatching,
    /// One cluster has the right to run it.
    Granted,
    /// All its pods have started there.
    Running,
    /// Its stop was ordered and isn't confirmed yet.
    Stopping,
    /// Over.
    Finished,
}

/// What can happen to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Transition {
    /// Quota was reserved.
    Reserve,
    /// A cluster was asked.
    Offer,
    /// No leg is left that could hold: quota goes back.
    Release,
    /// One cluster was given the right to run.
    Grant,
    /// It runs.
    Start,
    /// Its stop was ordered.
    Stop,
    /// The right to run is over: refused, confirmed stopped, or lapsed.
    Free,
    /// It ended for good.
    Finish,
    /// A run that exists was taken over as its leg.
    Adopt,
}

impl Phase {
    /// Every phase.
    pub const ALL: [Self; 7] = [
        Self::Pending,
        Self::Reserved,
        Self::Dispatching,
        Self::Granted,
        Self::Running,
        Self::Stopping,
        Self::Finished,
    ];

    /// Whether quota is charged.
    pub const fn charged(self) -> bool {
        matches!(self, Self::Reserved | Self::Dispatching | Self::Granted | Self::Running | Self::Stopping)
    }

    /// Whether a cluster may hold the right to run.
    pub const fn granted(self) -> bool {
        matches!(self, Self::Granted | Self::Running | Self::Stopping)
    }
}

/// The next phase, or `None` where the pair is illegal.
pub const fn next(phase: Phase, transition: Transition) -> Option<Phase> {
    use Phase::{Dispatching, Finished, Granted, Pending, Reserved, Running, Stopping};
    use Transition::{Adopt, Finish, Free, Grant, Offer, Release, Reserve, Start, Stop};
    match (phase, transition) {
        (Pending, Reserve) => Some(Reserved),
        (Reserved | Dispatching, Offer) => Some(Dispatching),
        (Reserved | Dispatching, Release) => Some(Pending),
        (Dispatching, Grant) => Some(Granted),
        (Granted, Start) => Some(Running),
        // A start that is reported after the stop was ordered changes nothing.
        (Stopping, Start | Stop) => Some(Stopping),
        (Running, Start) => Some(Running),
        (Granted | Running, Stop) => Some(Stopping),
        (Granted | Running | Stopping, Free) => Some(Pending),
        // Deleted while it only waits: nothing has to be confirmed.
        (Pending | Reserved | Dispatching | Granted | Running | Stopping, Finish) => Some(Finished),
        // A higher fence that really exists wins over whatever an older journal believed.
        (Pending | Reserved | Dispatching | Granted | Running | Stopping, Adopt) => Some(Granted),

        (Pending, Offer | Release | Grant | Start | Stop | Free)
        | (Reserved, Reserve | Grant | Start | Stop | Free)
        | (Dispatching, Reserve | Start | Stop | Free)
        | (Granted | Running | Stopping, Reserve | Offer | Release | Grant)
        | (Finished, Reserve | Offer | Release | Grant | Start | Stop | Free | Finish | Adopt) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRANSITIONS: [Transition; 9] = [
        Transition::Reserve,
        Transition::Offer,
        Transition::Release,
        Transition::Grant,
        Transition::Start,
        Transition::Stop,
        Transition::Free,
        Transition::Finish,
        Transition::Adopt,
    ];

    /// The whole matrix, one letter a cell: the first letter of the next phase, `T` for stopping, `.` for illegal.
    #[test]
    fn the_full_matrix() {
        let rows: Vec<String> = Phase::ALL
            .iter()
            .map(|p| {
                TRANSITIONS
                    .iter()
                    .map(|h| match next(*p, *h) {
                        None => '.',
                        Some(Phase::Stopping) => 'T',
                        Some(other) => format!("{other:?}").chars().next().unwrap_or('?'),
                    })
                    .map(|c| if c == 'R' { 'R' } else { c })
                    .collect()
            })
            .collect();
        // columns: Reserve Offer Release Grant Start Stop Free Finish Adopt; Reserved and Running both show as R
        assert_eq!(
            rows,
            ["R......FG", ".DP....FG", ".DPG...FG", "....RTPFG", "....RTPFG", "....TTPFG", "........."]
        );
        assert_eq!(next(Phase::Pending, Transition::Reserve), Some(Phase::Reserved));
        assert_eq!(next(Phase::Granted, Transition::Start), Some(Phase::Running));
    }

    #[test]
    fn a_right_to_run_ends_only_by_free_finish_or_adoption() {
        for phase in Phase::ALL.into_iter().filter(|p| p.granted()) {
            for transition in TRANSITIONS {
                if let Some(to) = next(phase, transition)
                    && !to.granted()
                {
                    assert!(
                        matches!(transition, Transition::Free | Transition::Finish),
                        "{phase:?} {transition:?}"
                    );
                }
            }
        }
    }
}
