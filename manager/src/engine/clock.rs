//! The only clocks of the engine: boot time, which every lease and claim uses, and wall time for people.

use meridian_shared::time::{Millis, Mono, Now, Wall};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::fmt::Debug;
use std::io;
use std::time::Duration;

/// Differences between the two clocks up to this are rounding and slewing between two looks.
const SLEW_MAX: Millis = Millis(20);

/// Reads both clocks.
pub trait Clock: Debug + Send + Sync {
    /// Both, now.
    fn now(&self) -> Now;

    /// How long a thread must sleep for `span` to pass on this clock.
    fn real(&self, span: Millis) -> Duration {
        Duration::from_millis(span.0)
    }
}

/// The machine's clocks: `CLOCK_BOOTTIME`, which runs through suspend, and `CLOCK_REALTIME`.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Now {
        let millis = |t: Timespec| t.tv_sec.saturating_mul(1_000).saturating_add(t.tv_nsec / 1_000_000);
        let mono = u64::try_from(millis(clock_gettime(ClockId::Boottime))).unwrap_or(0);
        Now { mono: Mono(mono), wall: Wall(millis(clock_gettime(ClockId::Realtime))) }
    }
}

/// This boot's identity, as the kernel states it.
pub fn boot_id() -> io::Result<crate::journal::mark::BootId> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let parsed = uuid::Uuid::parse_str(text.trim()).map_err(io::Error::other)?;
    Ok(crate::journal::mark::BootId(parsed.as_u128()))
}

/// Finds out when wall time ran ahead of boot time, as after a pause of a virtual machine. What is ahead counts as elapsed
/// for a claim, and for nothing that the manager waits for; the reverse counts for nothing at all.
#[derive(Debug)]
pub(super) struct Jumps(Now);

impl Jumps {
    pub(super) fn since(now: Now) -> Self {
        Self(now)
    }

    /// By how much wall time ran ahead since the last look.
    pub(super) fn look(&mut self, now: Now) -> Millis {
        let ahead = now.wall.since(self.0.wall).saturating_sub(now.mono.since(self.0.mono));
        self.0 = now;
        if ahead > SLEW_MAX { ahead } else { Millis(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_wall_time_that_ran_ahead_counts() {
        let at = |mono, wall| Now { mono: Mono(mono), wall: Wall(wall) };
        let mut jumps = Jumps::since(at(1_000, 50_000));
        assert_eq!(jumps.look(at(2_000, 51_000)), Millis(0));
        assert_eq!(jumps.look(at(3_000, 52_020)), Millis(0), "slewing");
        assert_eq!(jumps.look(at(4_000, 62_020)), Millis(9_000));
        assert_eq!(jumps.look(at(5_000, 2_000)), Millis(0), "a wall clock set back proves nothing");
        assert_eq!(jumps.look(at(6_000, 3_000)), Millis(0));
    }

    #[test]
    fn the_machines_clocks_are_in_milliseconds() {
        let first = BootClock.now();
        let second = BootClock.now();
        assert!(second.mono.since(first.mono) < Millis::mins(1) && second.mono >= first.mono);
        assert!(first.wall > Wall(1_700_000_000_000));
        assert_ne!(boot_id().unwrap().0, 0);
    }
}
