//! Planted bugs: a switch for each promise, and for each rule that the protocol marks †, which breaks exactly
//! that rule.
//!
//! The simulator and the model checker turn them on one at a time and must find the broken promise. A bug
//! that they miss is a gap in the tests. Without the cargo feature `planted`, which only the test crate sets,
//! [`Planted::has`] is constant `false` and the switches compile to nothing.

use serde::{Deserialize, Serialize};

macro_rules! bugs {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// One rule that can be broken on purpose.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Bug { $($(#[$doc])* $name),+ }

        impl Bug {
            pub const ALL: &'static [Self] = &[$(Self::$name),+];
        }
    };
}

bugs! {
    /// The agent takes answers of older epochs.
    AgentTakesOlderEpoch,
    /// The agent takes an answer of an equal epoch with another leadership id.
    AgentTakesTwinLeadership,
    /// A session with another ledger id frees what the old ledger held.
    NewLedgerFrees,
    /// A repeated request has its first transmission number, so the term counts from the repetition.
    TransmissionReused,
    /// A re-grant repeats the workload's old fence.
    FenceReused,
    /// The agent starts a gang before the grant is durable.
    StartBeforeDurable,
    /// A grant that was already accepted is refused when it arrives again.
    RepeatedGrantRefused,
    /// An end frees the workload whatever fence it names.
    AnyFenceFrees,
    /// A run that is missing from an inventory counts as ended.
    MissingFrees,
    /// A stop for an unknown fence is confirmed without a tombstone.
    UnknownStopForgotten,
    /// The agent forgets an end once it was reported.
    EndForgotten,
    /// The agent counts the term from when the answer arrived.
    AgentCountsFromArrival,
    /// The manager counts the term from the last answer that was acknowledged.
    ManagerCountsFromAcknowledgement,
    /// The manager leaves the drift bound out.
    NoDriftBound,
    /// The manager's deadline follows the last answer even when that moves it back.
    DeadlineMovesBack,
    /// After a restart the manager counts leases from the times that it remembers, not in full.
    RestartForgetsLeases,
    /// A leader answers syncs after its claim expired.
    AnswersWithoutClaim,
    /// Recovery doesn't hold older workloads back.
    RecoveryDispatches,
    /// A grant is sent again while recovery is open.
    RecoveryResends,
    /// An inventory for another leadership closes recovery.
    StaleInventoryCounts,
    /// A run reported in recovery isn't adopted.
    ReportedRunIgnored,
    /// A confirmation that no other copy of the journal runs also counts as the report of clusters that
    /// haven't reported.
    ConfirmationAnswersForClusters,
    /// A reply is given before the records are durable (P1).
    ReplyBeforeCommit,
    /// The agent holds the part of a gang that fits (P3).
    HalfGangHeld,
    /// Quota isn't charged when it is reserved (P4).
    QuotaNotCharged,
    /// A victim's quota is given away before its stop is confirmed (P4).
    VictimQuotaGivenAway,
    /// Quota beyond the lending limit is lent (P4).
    LendingLimitIgnored,
    /// Reported capacity counts even beyond the declared limits (P4).
    CapsIgnored,
    /// One of several victims isn't stopped (P7).
    VictimSpared,
    /// Residency is checked at the offer only (P5).
    ResidencyCheckedOnce,
    /// Missing quota isn't stored as the reason of a pending workload (P6).
    ReasonForgotten,
    /// No offers are made while one cluster hasn't answered (P8).
    SlowClusterAwaited,
}

/// The bug that is planted in one core, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Planted(Option<Bug>);

impl Planted {
    /// No bug: every shell uses it.
    pub const NONE: Self = Self(None);

    /// Plants `bug`. Without the feature this plants nothing.
    pub const fn with(bug: Bug) -> Self {
        Self(Some(bug))
    }

    #[inline]
    pub fn has(self, bug: Bug) -> bool {
        cfg!(feature = "planted") && self.0 == Some(bug)
    }
}
