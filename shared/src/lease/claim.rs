//! A leader's claim: how long a manager may act as the leader without a further durable write (the protocol's
//! sections 4 and 6).
//!
//! A manager that takes over the journal waits until every earlier claim must have expired. A leader answers
//! syncs only while its claim is valid, so a leader that lost its disk or its database stops answering before
//! another manager leads.
//!
//! ```text
//! begin_write(now) ──▶ write is durable ──▶ renew(write)    valid until begin + X, X = min(5 s, T_min/8)
//! observe(now)     wall time ran ahead of boot time: the claim ends earlier by as much
//! ```

use super::drift;
use crate::jumps::ClockJumps;
use crate::time::{Millis, Mono, Now};

/// Longest validity of a claim.
pub const CLAIM_MAX: Millis = Millis::secs(5);
/// Heartbeats that an idle leader writes per validity of a claim.
const HEARTBEATS: u64 = 3;

/// How long a claim is valid after the last successful write began: X of the protocol.
pub const fn claim(term_min: Millis) -> Millis {
    let eighth = term_min.0 / 8;
    Millis(if eighth < CLAIM_MAX.0 { eighth } else { CLAIM_MAX.0 })
}

/// One leader's claim. All times are from this machine's clocks.
///
/// Invariants: the end never moves back, except after a pause of the machine. A write that began before a
/// pause renews the claim for its validity less the pause.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    validity: Millis,
    valid_until: Mono,
    jumps: ClockJumps,
    /// Sum of the pauses so far.
    paused: Millis,
}

/// The start of a write that will renew a claim once it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a write that nobody renews by doesn't count"]
pub struct ClaimWrite {
    begun: Mono,
    /// Sum of the pauses when the write began.
    paused: Millis,
}

impl ClaimWrite {
    pub const fn begun(self) -> Mono {
        self.begun
    }
}

impl Claim {
    /// A claim that isn't valid yet, because nothing was written.
    pub fn expired(term_min: Millis, now: Now) -> Self {
        Self {
            validity: claim(term_min),
            valid_until: Mono(0),
            jumps: ClockJumps::since(now),
            paused: Millis(0),
        }
    }

    /// How long the claim is valid after a write began.
    pub const fn validity(&self) -> Millis {
        self.validity
    }

    /// Time from which the claim is no longer valid, by the clock readings so far.
    pub const fn valid_until(&self) -> Mono {
        self.valid_until
    }

    /// Takes a reading of both clocks. Returns how far wall time ran ahead of boot time since the last call;
    /// the claim ends earlier by that amount. Call this with every reading of the clocks.
    pub fn observe(&mut self, now: Now) -> Millis {
        let ahead = self.jumps.observe(now);
        self.valid_until = self.valid_until - ahead;
        self.paused = self.paused + ahead;
        ahead
    }

    /// Whether this process may still act as the leader.
    pub fn is_valid(&mut self, now: Now) -> bool {
        self.observe(now);
        now.mono < self.valid_until
    }

    /// Notes that a write begins.
    pub fn begin_write(&mut self, now: Now) -> ClaimWrite {
        self.observe(now);
        ClaimWrite { begun: now.mono, paused: self.paused }
    }

    /// Renews the claim after a write is durable. Its validity counts from when the write began.
    pub fn renew(&mut self, write: ClaimWrite) {
        let paused_since = self.paused.saturating_sub(write.paused);
        self.valid_until = self.valid_until.max(write.begun + self.validity - paused_since);
    }

    /// When the next heartbeat is due after a write that was begun at `begun`.
    pub fn next_heartbeat(&self, begun: Mono) -> Mono {
        begun + Millis(self.validity.0 / HEARTBEATS)
    }

    /// How long a new leader waits until every claim of an earlier leader must have expired: X plus the drift
    /// of clocks.
    pub fn takeover_wait(term_min: Millis) -> Millis {
        let validity = claim(term_min);
        validity + drift(validity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Wall;

    const TERM_MIN: Millis = Millis::mins(1);

    /// Boot and wall time at `mono`, with `ahead` milliseconds that only wall time counted.
    fn at(mono: u64, ahead: u64) -> Now {
        Now { mono: Mono(mono), wall: Wall(i64::try_from(1_000_000 + mono + ahead).unwrap()) }
    }

    fn claimed(begun: u64) -> Claim {
        let mut claim = Claim::expired(TERM_MIN, at(0, 0));
        let write = claim.begin_write(at(begun, 0));
        claim.renew(write);
        claim
    }

    #[test]
    fn validity_is_an_eighth_of_the_shortest_term_and_at_most_five_seconds() {
        for (term_min, expect) in [(8_000, 1_000), (40_000, 5_000), (60_000, 5_000), (0, 0)] {
            assert_eq!(claim(Millis(term_min)), Millis(expect));
        }
        assert_eq!(Claim::takeover_wait(Millis::secs(8)), Millis(1_000 + 1 + 1_000));
    }

    #[test]
    fn a_claim_counts_from_the_begin_of_the_write() {
        let mut claim = Claim::expired(TERM_MIN, at(0, 0));
        assert!(!claim.is_valid(at(0, 0)), "nothing was written");
        let write = claim.begin_write(at(1_000, 0));
        assert!(!claim.is_valid(at(3_000, 0)), "the write is under way");
        claim.renew(write);
        assert!(claim.is_valid(at(5_999, 0)) && !claim.is_valid(at(6_000, 0)));
        assert_eq!((claim.valid_until(), claim.next_heartbeat(write.begun())), (Mono(6_000), Mono(2_666)));
    }

    #[test]
    fn an_earlier_write_that_ends_late_does_not_shorten_the_claim() {
        let mut claim = Claim::expired(TERM_MIN, at(0, 0));
        let (first, second) = (claim.begin_write(at(1_000, 0)), claim.begin_write(at(2_000, 0)));
        claim.renew(second);
        claim.renew(first);
        assert_eq!(claim.valid_until(), Mono(7_000));
    }

    #[test]
    fn a_pause_that_only_wall_time_shows_counts_as_elapsed() {
        let mut claim = claimed(1_000);
        assert_eq!(claim.observe(at(2_000, 3_000)), Millis(3_000));
        assert_eq!(claim.valid_until(), Mono(3_000));
        assert_eq!(claim.observe(at(2_500, 3_000)), Millis(0), "it is counted once");
        assert!(claim.is_valid(at(2_999, 3_000)) && !claim.is_valid(at(3_000, 3_000)));
    }

    #[test]
    fn a_pause_during_a_write_counts_against_the_renewal() {
        for observed_before_renewal in [true, false] {
            let mut claim = claimed(0);
            let write = claim.begin_write(at(1_000, 0));
            if observed_before_renewal {
                claim.observe(at(2_000, 4_000));
            }
            claim.renew(write);
            claim.observe(at(2_000, 4_000));
            assert_eq!(claim.valid_until(), Mono(2_000), "{observed_before_renewal}");
        }
    }

    #[test]
    fn a_wall_clock_that_was_set_back_never_prolongs_a_claim() {
        let mut claim = claimed(1_000_000);
        let back = Now { mono: Mono(1_001_000), wall: Wall(0) };
        assert_eq!(claim.observe(back), Millis(0));
        assert_eq!(claim.valid_until(), Mono(1_005_000));
    }
}
