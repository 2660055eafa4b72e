//! Reads the clocks and the boot id; nothing else in this crate does.

use meridian_shared::time::{Mono, Now, Wall};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Both clocks, read one after the other.
pub fn now() -> Now {
    Now {
        mono: Mono(to_millis(clock_gettime(ClockId::Boottime)).unsigned_abs()),
        wall: Wall(to_millis(clock_gettime(ClockId::Realtime))),
    }
}

fn to_millis(time: Timespec) -> i64 {
    time.tv_sec.saturating_mul(1_000).saturating_add(time.tv_nsec / 1_000_000)
}

/// Identity of this boot: [`Mono`] values of another boot mean nothing. Fails if `/proc` can't be read.
pub fn boot_id() -> std::io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}
