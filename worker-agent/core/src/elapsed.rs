//! Elapsed time: boot time plus the pauses of the machine. The agent counts leases, holds and waits only by
//! elapsed time.
//!
//! Elapsed time never goes back, whatever is done to the wall clock. Stored moments are in plain boot time,
//! together with how far the wall clock was ahead then, so that the next session counts a pause that no agent
//! saw. A wall clock that is set back makes stored moments look younger than they are, so everything is
//! stored again then.

use meridian_shared::jumps::{ClockJumps, SLEW_MAX};
use meridian_shared::time::{Millis, Mono, Now, Wall};
use serde::{Deserialize, Serialize};

/// The clocks when something was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Stamp {
    /// How far wall time was ahead of boot time, in milliseconds.
    lead: i64,
    /// How far the session's own calendar was ahead of boot time. It exceeds `lead` after the wall clock was
    /// set back.
    calendar: i64,
}

/// The clocks of the machine, as one session saw them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Elapsed {
    jumps: ClockJumps,
    /// How far wall time was ahead at the start of the session.
    first: i64,
    /// Sum of all pauses since then.
    skipped: Millis,
    /// By how much the wall clock was set back when the runs were last stored.
    stored_back: i64,
}

impl Elapsed {
    pub(crate) fn since(now: Now) -> Self {
        let jumps = ClockJumps::since(now);
        Self { jumps, first: jumps.lead(), skipped: Millis(0), stored_back: 0 }
    }

    /// Reads the clocks. The result is never less than boot time.
    pub(crate) fn observe(&mut self, now: Now) -> Mono {
        self.skipped = self.skipped + self.jumps.observe(now);
        now.mono + self.skipped
    }

    /// Sum of all pauses since the session began.
    pub(crate) fn skipped(&self) -> Millis {
        self.skipped
    }

    /// Converts elapsed time to plain boot time.
    pub(crate) fn boot_time(&self, at: Mono) -> Mono {
        at - self.skipped
    }

    /// Converts elapsed time to a calendar moment that a later session can compare with its own. It never
    /// goes back within a session.
    pub(crate) fn calendar(&self, at: Mono) -> Wall {
        Wall(self.first.saturating_add(i64::try_from(at.0).unwrap_or(i64::MAX)))
    }

    /// The reverse of [`Self::calendar`].
    pub(crate) fn moment(&self, at: Wall) -> Mono {
        Mono(u64::try_from(at.0.saturating_sub(self.first)).unwrap_or(0))
    }

    pub(crate) fn stamp(&self) -> Stamp {
        let calendar = self.first.saturating_add(i64::try_from(self.skipped.0).unwrap_or(i64::MAX));
        Stamp { lead: self.jumps.lead(), calendar }
    }

    /// Whether the wall clock was set back since the runs were stored, so that they must be stored again.
    pub(crate) fn outdates_store(&mut self) -> bool {
        let Stamp { lead, calendar } = self.stamp();
        let back = calendar.saturating_sub(lead);
        let outdated = is_set_back(self.stored_back, back);
        if outdated {
            self.stored_back = back;
        }
        outdated
    }

    /// Whether the wall clock was set back since an earlier session wrote `stamp`.
    pub(crate) fn outdates(&self, stamp: Stamp) -> bool {
        is_set_back(self.jumps.lead(), stamp.lead)
    }

    /// The pauses since an earlier session wrote `stamp`: its leases are shorter by that time than boot time
    /// shows.
    pub(crate) fn missed_since(&self, stamp: Stamp) -> Millis {
        Millis(u64::try_from(self.jumps.lead().saturating_sub(stamp.lead)).unwrap_or(0))
    }

    /// Converts a calendar moment of an earlier session on this boot to the calendar of this one. Pauses
    /// since then count as waited.
    pub(crate) fn translate(&self, at: Wall, stamp: Stamp) -> Wall {
        let back = stamp.calendar.saturating_sub(self.jumps.lead().min(stamp.lead));
        Wall(at.0.saturating_sub(back.max(0)))
    }
}

/// Whether the difference exceeds the inaccuracy of clock readings.
fn is_set_back(before: i64, after: i64) -> bool {
    u64::try_from(after.saturating_sub(before)).is_ok_and(|by| by > SLEW_MAX.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(mono: u64, wall: i64) -> Now {
        Now { mono: Mono(mono), wall: Wall(wall) }
    }

    /// A session that began when wall time was ahead by `lead`.
    fn session(lead: i64) -> Elapsed {
        Elapsed::since(at(1_000, lead + 1_000))
    }

    /// A session that began with a lead of 100 s, after a pause of 5 s.
    fn paused() -> Elapsed {
        let mut elapsed = session(100_000);
        assert_eq!(elapsed.observe(at(2_000, 107_000)), Mono(7_000));
        elapsed
    }

    #[test]
    fn a_pause_counts_as_elapsed() {
        let elapsed = paused();
        assert_eq!(elapsed.skipped(), Millis(5_000));
        assert_eq!(elapsed.boot_time(Mono(7_000)), Mono(2_000));
        assert_eq!(elapsed.calendar(Mono(7_000)), Wall(107_000));
        assert_eq!(elapsed.moment(Wall(107_000)), Mono(7_000));
        assert_eq!(elapsed.moment(Wall(99_999)), Mono(0), "it was before the machine started");
        assert_eq!(elapsed.stamp(), Stamp { lead: 105_000, calendar: 105_000 });
    }

    #[test]
    fn a_wall_clock_that_is_set_back_outdates_the_store_once() {
        let mut elapsed = paused();
        assert!(!elapsed.outdates_store());
        elapsed.observe(at(3_000, 58_000));
        assert_eq!(elapsed.stamp(), Stamp { lead: 55_000, calendar: 105_000 });
        assert_eq!([elapsed.outdates_store(), elapsed.outdates_store()], [true, false]);
        elapsed.observe(at(4_000, 59_000 - 20));
        assert!(!elapsed.outdates_store(), "that may be the inaccuracy of two readings");
        elapsed.observe(at(5_000, 60_000 - 21));
        assert!(elapsed.outdates_store());
    }

    #[test]
    fn a_later_session_knows_by_how_much_the_clock_was_changed() {
        let stamp = paused().stamp();
        let seen = |lead: i64| (session(lead).outdates(stamp), session(lead).missed_since(stamp).0);
        assert_eq!(seen(105_000), (false, 0));
        assert_eq!(seen(115_000), (false, 10_000), "a pause that no session saw");
        assert_eq!(seen(104_980), (false, 0));
        assert_eq!(seen(104_979), (true, 0), "it was set back");
    }

    #[test]
    fn moments_of_an_earlier_session_are_translated() {
        let mut elapsed = paused();
        elapsed.observe(at(3_000, 58_000));
        let (stored, stamp) = (elapsed.calendar(Mono(8_000)), elapsed.stamp());
        assert_eq!(stored, Wall(108_000));
        let translated = |lead: i64| session(lead).translate(stored, stamp).0;
        assert_eq!(translated(55_000), 58_000);
        assert_eq!(translated(65_000), 58_000, "a pause since then counts as waited");
        assert_eq!(translated(40_000), 43_000, "the clock was set back again");
        let early = Stamp { lead: 55_000, calendar: 50_000 };
        assert_eq!(session(55_000).translate(stored, early), stored, "it never becomes later");
    }
}
