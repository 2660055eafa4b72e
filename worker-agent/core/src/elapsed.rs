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
