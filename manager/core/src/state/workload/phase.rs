//! The manager's state machine of a workload.
//!
//! ```text
//! Pending ─Reserve▶ Reserved ─Offer▶ Dispatching ─Grant▶ Granted ─Start▶ Running ─Finish▶ Finished
//!    ▲                 │ Release         │ Release          │ Stop         │ Stop
//!    └─────────────────┴─────────────────┘                  ▼              ▼
//!    ▲                                                   Stopping ◀────────┘
//!    └──────────────────────── Free ────────────────────────┘
//! ```
//!
//! Only `Free` moves a workload that a cluster may run back to the queue: on a confirmed stop, a refusal of
//! the grant, or a lapse of the lease. A `Stopping` workload keeps its capacity, its quota and its object.
//! [`next`] lists every pair of phase and transition; an illegal one is a bug in the manager, and is rejected
//! before a record is made.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// In the queue, without quota.
    Pending,
    /// Quota is charged; there is no leg yet.
    Reserved,
    /// Quota is charged, and there are open legs.
    Dispatching,
    /// One cluster has the right to run it.
    Granted,
    /// All its pods have started on that cluster.
    Running,
    /// A stop was ordered and isn't confirmed yet.
    Stopping,
    /// The job ended for good, or was deleted.
    Finished,
}

/// Events that change a workload's phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Transition {
    /// Quota was reserved.
    Reserve,
    /// An offer was made to a cluster.
    Offer,
    /// No open leg is left, and quota is no longer charged.
    Release,
    /// One cluster got the right to run the workload.
    Grant,
    /// All pods have started.
    Start,
    /// A stop was ordered.
    Stop,
    /// The right to run is over: the grant was refused, the stop confirmed, or the lease lapsed.
    Free,
    /// The job ended for good, or was deleted.
    Finish,
    /// A run that an agent reported became the workload's leg.
    Adopt,
}

impl Phase {
    pub const ALL: [Self; 7] = [
        Self::Pending,
        Self::Reserved,
        Self::Dispatching,
        Self::Granted,
        Self::Running,
        Self::Stopping,
        Self::Finished,
    ];

    /// The phase as users see it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Reserved => "Reserved",
            Self::Dispatching => "Dispatching",
            Self::Granted => "Granted",
            Self::Running => "Running",
            Self::Stopping => "Stopping",
            Self::Finished => "Finished",
        }
    }

    /// Whether quota is charged.
    pub const fn charged(self) -> bool {
        matches!(self, Self::Reserved | Self::Dispatching | Self::Granted | Self::Running | Self::Stopping)
    }

    /// Whether a cluster may hold the right to run.
    pub const fn granted(self) -> bool {
        matches!(self, Self::Granted | Self::Running | Self::Stopping)
    }
}

/// The next phase; `None` if the transition is illegal in this phase.
pub const fn next(phase: Phase, transition: Transition) -> Option<Phase> {
    use Phase::{Dispatching, Finished, Granted, Pending, Reserved, Running, Stopping};
    use Transition::{Adopt, Finish, Free, Grant, Offer, Release, Reserve, Start, Stop};
    match (phase, transition) {
        (Pending, Reserve) => Some(Reserved),
        (Reserved | Dispatching, Offer) => Some(Dispatching),
        (Reserved | Dispatching, Release) => Some(Pending),
        (Dispatching, Grant) => Some(Granted),
        (Granted, Start) => Some(Running),
        // A start may be reported after the stop was ordered.
        (Stopping, Start | Stop) => Some(Stopping),
        (Running, Start) => Some(Running),
        (Granted | Running, Stop) => Some(Stopping),
        (Granted | Running | Stopping, Free) => Some(Pending),
        // The job ended, or was deleted without a right to run, so that no stop has to be confirmed.
        (Pending | Reserved | Dispatching | Granted | Running | Stopping, Finish) => Some(Finished),
        // A reported run with a larger fence is newer than anything in this journal, which may be an old
        // copy.
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

    /// One row per phase, one letter per transition: the first letter of the next phase, `T` for stopping,
    /// `.` for illegal.
    #[test]
    fn full_matrix_of_phases_and_transitions() {
        let rows: Vec<String> = Phase::ALL
            .iter()
            .map(|p| {
                TRANSITIONS
                    .iter()
                    .map(|transition| match next(*p, *transition) {
                        None => '.',
                        Some(Phase::Stopping) => 'T',
                        Some(other) => format!("{other:?}").chars().next().unwrap_or('?'),
                    })
                    .map(|c| if c == 'R' { 'R' } else { c })
                    .collect()
            })
            .collect();
        // columns: Reserve Offer Release Grant Start Stop Free Finish Adopt; R is Reserved or Running, as
        // asserted below
        assert_eq!(
            rows,
            ["R......FG", ".DP....FG", ".DPG...FG", "....RTPFG", "....RTPFG", "....TTPFG", "........."]
        );
        assert_eq!(next(Phase::Pending, Transition::Reserve), Some(Phase::Reserved));
        assert_eq!(next(Phase::Granted, Transition::Start), Some(Phase::Running));
    }

    #[test]
    fn a_right_to_run_ends_only_by_free_or_finish() {
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
