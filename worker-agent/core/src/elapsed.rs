//! Elapsed time: boot time plus what a paused machine missed. The only time by which an agent counts.
//!
//! It never goes back, whatever people do to the wall clock. What is stored is told in plain boot time, beside how far wall
//! time was ahead then: so the next session counts what was missed while nobody looked. A wall clock that is set back makes
//! what was stored look younger than it is, and is therefore a reason to store it again.

use meridian_shared::jumps::{Jumps, SLEW_MAX};
use meridian_shared::time::{Millis, Mono, Now, Wall};

/// How the clocks stood when something was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// How far wall time was ahead of boot time.
    pub(crate) lead: i64,
    /// How far the calendar of the session was.
    pub(crate) calendar: i64,
}

/// What one session saw of its machine's clocks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Elapsed {
    jumps: Jumps,
    /// How far wall time was ahead when the session began.
    first: i64,
    /// What pauses took since.
    skipped: Millis,
    /// By how much the wall clock was set back, as far as what is stored knows.
    stored_back: i64,
}

impl Elapsed {
    pub(crate) fn since(now: Now) -> Self {
        let jumps = Jumps::since(now);
        Self { jumps, first: jumps.lead(), skipped: Millis(0), stored_back: 0 }
    }

    /// Looks at the clocks: never less than boot time.
    pub(crate) fn look(&mut self, now: Now) -> Mono {
        self.skipped = self.skipped + self.jumps.look(now);
        now.mono + self.skipped
    }

    /// What pauses took since the session began.
    pub(crate) fn skipped(&self) -> Millis {
        self.skipped
    }

    /// A moment of elapsed time as a moment of plain boot time.
    pub(crate) fn boot_time(&self, at: Mono) -> Mono {
        at - self.skipped
    }

    /// A moment of elapsed time as a calendar moment that a later session can compare with its own: it never goes back within
    /// a session.
    pub(crate) fn calendar(&self, at: Mono) -> Wall {
        Wall(self.first.saturating_add(i64::try_from(at.0).unwrap_or(i64::MAX)))
    }

    /// The reverse.
    pub(crate) fn moment(&self, at: Wall) -> Mono {
        Mono(u64::try_from(at.0.saturating_sub(self.first)).unwrap_or(0))
    }

    pub(crate) fn stamp(&self) -> Stamp {
        let calendar = self.first.saturating_add(i64::try_from(self.skipped.0).unwrap_or(i64::MAX));
        Stamp { lead: self.jumps.lead(), calendar }
    }

    /// Whether what is stored has to be stored again: the wall clock was set back since.
    pub(crate) fn outdates_store(&mut self) -> bool {
        let Stamp { lead, calendar } = self.stamp();
        let back = calendar.saturating_sub(lead);
        let outdated = is_set_back(self.stored_back, back);
        if outdated {
            self.stored_back = back;
        }
        outdated
    }

    /// Whether the wall clock was set back since an earlier session left `stamp`.
    pub(crate) fn outdates(&self, stamp: Stamp) -> bool {
        is_set_back(self.jumps.lead(), stamp.lead)
    }

    /// How much more of an earlier session's lease is gone than boot time says.
    pub(crate) fn missed_since(&self, stamp: Stamp) -> Millis {
        Millis(u64::try_from(self.jumps.lead().saturating_sub(stamp.lead)).unwrap_or(0))
    }

    /// A calendar moment of an earlier session on this boot, by the calendar of this one: what was missed since counts as waited.
    pub(crate) fn translate(&self, at: Wall, stamp: Stamp) -> Wall {
        let back = stamp.calendar.saturating_sub(self.jumps.lead().min(stamp.lead));
        Wall(at.0.saturating_sub(back.max(0)))
    }
}

/// Whether `after` is further along than readings of the clocks may differ.
fn is_set_back(before: i64, after: i64) -> bool {
    u64::try_from(after.saturating_sub(before)).is_ok_and(|by| by > SLEW_MAX.0)
}
