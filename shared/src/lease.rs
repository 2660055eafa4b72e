//! Lease arithmetic of both sides (docs/protocol.md, Leases). All computation of lease deadlines is in this
//! file.
//!
//! The agent counts a term from the moment it *sent* the transmission that an answer echoes; the manager from
//! the moment it *composed* the last answer that granted, re-sent or renewed, plus the drift bound. The
//! request was sent before the answer was composed, and the drift bound covers two clocks that differ by up
//! to 0.1 %. So the agent's count always ends first: when the manager finds a lease *lapsed*, nothing runs
//! any more.

mod claim;

pub use claim::{CLAIM_MAX, Claim, ClaimWrite, claim};

use crate::time::{Millis, Mono};

use serde::{Deserialize, Serialize};

/// Term of leases if no policy sets one.
pub const TERM_DEFAULT: Millis = Millis::mins(15);

/// Default of the shortest term that a manager accepts.
pub const TERM_MIN_DEFAULT: Millis = Millis::mins(1);

/// Longest term that a policy may set. Recovery waits this long if it knows nothing about earlier leases.
pub const TERM_MAX: Millis = Millis::mins(24 * 60);

/// Fixed part of the drift bound, for delays of scheduling and of reading clocks.
pub const DRIFT_FIXED: Millis = Millis::secs(1);

/// Time for a restart of an agent, as counted by [`fits`].
pub const RESTART_ALLOWANCE: Millis = Millis(500);

/// How far two clocks may drift apart over `term`: 0.1 % of it plus one second.
pub const fn drift(term: Millis) -> Millis {
    Millis(term.0.div_ceil(1_000) + DRIFT_FIXED.0)
}

/// Grace period plus kill margin: a quarter of the term, at most 30 seconds.
pub const fn stop_budget(term: Millis) -> Millis {
    let quarter = term.0 / 4;
    Millis(if quarter < 30_000 { quarter } else { 30_000 })
}

/// How long a poll may stay parked for a cluster with the shortest term `term`.
pub const fn poll(term: Millis) -> Millis {
    Millis(term.0 / 8)
}

/// Time without an acknowledged answer after which a cluster gets no renewals.
pub const fn disconnect_after(term: Millis) -> Millis {
    Millis(term.0 / 2)
}

/// Checks that a term is long enough: 2 polls + claim + drift + a restart ≤ term − stop budget. Fails with a
/// message for the operator if the term is too short.
pub fn fits(term: Millis, term_min: Millis) -> Result<(), String> {
    if term < term_min {
        return Err(format!(
            "lease term {term} is shorter than the manager's bound of {term_min}: raise the term or start \
                the manager with a smaller `--term-min`"
        ));
    }
    let needs = Millis(2 * poll(term).0) + claim(term_min) + drift(term) + RESTART_ALLOWANCE;
    let has = term.saturating_sub(stop_budget(term));
    if needs > has {
        return Err(format!(
            "lease term {term} is too short: two polls of {}, a claim of {}, drift of {} and a restart of \
                {RESTART_ALLOWANCE} need {needs}, but only {has} are left before the stop begins; choose a \
                longer term",
            poll(term),
            claim(term_min),
            drift(term)
        ));
    }
    Ok(())
}

/// The agent's side of a lease, by the agent's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AgentLease {
    pub term: Millis,
    /// Nothing may run at or after this moment.
    pub lapses: Mono,
}

impl AgentLease {
    /// A lease that counts from the moment when the echoed transmission was sent.
    pub fn from_sent(sent: Mono, term: Millis) -> Self {
        Self { term, lapses: sent + term }
    }

    /// When the stop must begin so that nothing runs at the lapse.
    pub fn stop_at(&self) -> Mono {
        self.lapses - stop_budget(self.term)
    }

    /// Applies a renewal by the answer to a transmission that was sent at `sent`. Returns whether it was
    /// applied: a lapsed lease, or a lease whose stop must have begun, is never renewed.
    pub fn renew(&mut self, sent: Mono, now: Mono) -> bool {
        if now >= self.stop_at() {
            return false;
        }
        self.lapses = self.lapses.max(sent + self.term);
        true
    }
}

/// The manager's side of a lease, by the manager's clock: the time until which the agent may hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ManagerLease {
    pub term: Millis,
    /// The latest deadline of all answers. Never moves back.
    pub deadline: Mono,
}

impl ManagerLease {
    /// A lease for an answer composed at `composed`.
    pub fn from_composed(composed: Mono, term: Millis) -> Self {
        Self { term, deadline: composed + term + drift(term) }
    }

    /// Notes that an answer which grants, re-sends or renews was composed, whether or not it arrives.
    pub fn compose(&mut self, composed: Mono) {
        self.deadline = self.deadline.max(composed + self.term + drift(self.term));
    }

    /// Whether the lease has provably lapsed.
    pub fn lapsed(&self, now: Mono) -> bool {
        now >= self.deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_terms_fit_and_short_ones_are_refused() {
        fits(TERM_DEFAULT, TERM_MIN_DEFAULT).unwrap();
        fits(Millis::secs(8), Millis::secs(8)).unwrap();
        let why = fits(Millis::secs(4), Millis::secs(4)).unwrap_err();
        assert!(why.contains("too short"), "{why}");
        assert!(fits(Millis::secs(30), Millis::mins(1)).unwrap_err().contains("--term-min"));
    }

    #[test]
    fn parts_of_a_term() {
        for (term, parts) in [
            (8_000, [1_008, 2_000, 1_000, 4_000]),
            (8_001, [1_009, 2_000, 1_000, 4_000]),
            (119_996, [1_120, 29_999, 14_999, 59_998]),
            (120_000, [1_120, 30_000, 15_000, 60_000]),
            (900_000, [1_900, 30_000, 112_500, 450_000]),
        ] {
            let term = Millis(term);
            let computed = [drift(term), stop_budget(term), poll(term), disconnect_after(term)];
            assert_eq!(computed, parts.map(Millis), "drift, stop budget, poll and disconnection of {term:?}");
        }
    }

    #[test]
    fn the_longest_term_is_a_day() {
        assert_eq!(TERM_MAX, Millis(86_400_000));
        fits(TERM_MAX, TERM_MIN_DEFAULT).unwrap();
    }

    #[test]
    fn the_shortest_terms_that_fit() {
        let shortest = |term_min: fn(Millis) -> Millis| {
            (1..10_000).map(Millis).find(|term| fits(*term, term_min(*term)).is_ok()).unwrap()
        };
        assert_eq!(shortest(|_| Millis(1)), Millis(3_005), "with a claim of no time");
        assert_eq!(shortest(|term| term), Millis(4_006));
    }

    #[test]
    fn a_stop_begins_and_a_lease_lapses_at_their_time() {
        let agent = AgentLease::from_sent(Mono(0), Millis::secs(8));
        assert_eq!((agent.stop_at(), agent.lapses), (Mono(6_000), Mono(8_000)));
        assert!(agent.clone().renew(Mono(5_000), Mono(5_999)));
        assert!(!agent.clone().renew(Mono(5_000), Mono(6_000)), "its stop begins now");
        let manager = ManagerLease::from_composed(Mono(0), Millis::secs(8));
        assert!(!manager.lapsed(Mono(9_007)) && manager.lapsed(Mono(9_008)));
    }

    #[test]
    fn the_agents_lease_ends_before_the_managers() {
        // The worst case: the agent's clock runs slow by the whole bound, and the answer was composed the
        // moment after the request was sent.
        for term in [Millis::secs(8), Millis::mins(1), TERM_DEFAULT, TERM_MAX] {
            let agent = AgentLease::from_sent(Mono(1_000_000), term);
            let manager = ManagerLease::from_composed(Mono(1_000_000), term);
            let agent_runs_for = agent.lapses.since(Mono(1_000_000)).0;
            let on_the_managers_clock = agent_runs_for + agent_runs_for.div_ceil(1_000);
            assert!(Mono(1_000_000) + Millis(on_the_managers_clock) < manager.deadline);
        }
    }

    #[test]
    fn deadlines_only_grow_and_lapsed_leases_stay_lapsed() {
        let mut manager = ManagerLease::from_composed(Mono(10_000), Millis::secs(8));
        let first = manager.deadline;
        manager.compose(Mono(9_000));
        assert_eq!(manager.deadline, first);
        manager.compose(Mono(12_000));
        assert_eq!(manager.deadline, Mono(12_000 + 8_000 + 1_008));
        let mut agent = AgentLease::from_sent(Mono(0), Millis::secs(8));
        assert!(!agent.renew(Mono(6_500), Mono(6_500)), "its stop has begun");
        assert!(agent.renew(Mono(5_000), Mono(5_500)));
        assert_eq!(agent.lapses, Mono(13_000));
    }
}
