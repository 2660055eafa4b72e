//! Events counted since the process started, for metrics.

/// Kind of a counted event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Count {
    /// Grants of the right to run.
    Grants,
    /// Leases that lapsed.
    Lapses,
    /// Holds that arrived for a leg that was over.
    LateHolds,
    /// Grants that were stopped instead of sent again, because a residency rule changed.
    ResidencyStops,
    /// Starved heads of queues for which capacity was reserved.
    Starved,
    /// How often finished pods released quota while their gang continued to run.
    Reclaimed,
    /// Runs taken over from inventories.
    Adoptions,
    /// Orphans found in inventories.
    Orphans,
    /// Digests of an agent that differed from the manager's.
    DigestMismatches,
    /// Lease renewals composed.
    Renewals,
    /// Residency verdicts that denied.
    Denials,
    /// Messages that break the protocol.
    Illegal,
    /// Events and sessions that were delayed because the cluster had used up its budget of journal writes.
    PutOff,
    /// Scheduling cycles that admitted a workload.
    AttemptsFruitful,
    /// Scheduling cycles that admitted no workload.
    AttemptsFruitless,
    /// Turns that reached their limit before every decision was made.
    CutShort,
}

/// Number of variants of [`Count`].
const COUNTS: usize = Count::CutShort as usize + 1;

/// Events counted since the process started. No count ever falls, and no decision depends on one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counts([u64; COUNTS]);

impl Counts {
    pub const fn of(&self, what: Count) -> u64 {
        self.0[what as usize]
    }

    pub(crate) fn add(&mut self, what: Count, number: u64) {
        self.0[what as usize] += number;
    }

    pub(crate) fn add_one(&mut self, what: Count) {
        self.add(what, 1);
    }
}
