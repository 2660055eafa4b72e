//! The engine's only clocks: boot time, which every lease and claim uses, and wall time for users.

use meridian_shared::time::{Millis, Mono, Now, Wall};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::fmt::Debug;
use std::io;
use std::time::Duration;

/// Reads both clocks.
pub trait Clock: Debug + Send + Sync {
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

/// The id of this boot, as the kernel reports it. Fails if the kernel reports none.
pub fn boot_id() -> io::Result<crate::journal::mark::BootId> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let parsed = uuid::Uuid::parse_str(text.trim()).map_err(io::Error::other)?;
    Ok(crate::journal::mark::BootId(parsed.as_u128()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_clocks_are_in_milliseconds() {
        let first = BootClock.now();
        let second = BootClock.now();
        assert!(second.mono.since(first.mono) < Millis::mins(1) && second.mono >= first.mono);
        assert!(first.wall > Wall(1_700_000_000_000));
        assert_ne!(boot_id().unwrap().0, 0);
    }
}
