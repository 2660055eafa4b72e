//! Timers that also fire when a suspended machine wakes up or its wall clock is set.
//!
//! A plain poll timeout stops during suspend, so a gang would run beyond its deadline for the time of the
//! suspend.

use meridian_shared::time::Mono;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

#[derive(Debug)]
pub(super) struct Wake {
    boot: OwnedFd,
    wall: OwnedFd,
}

impl Wake {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let wake = Self {
            boot: timerfd_create(TimerfdClockId::Boottime, flags)?,
            wall: timerfd_create(TimerfdClockId::Realtime, flags)?,
        };
        // This timer never expires. When the wall clock is set, the kernel cancels the timer, which makes it
        // readable.
        let never = Timespec { tv_sec: i64::from(u32::MAX), tv_nsec: 0 };
        settime(&wake.wall, TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET, never)?;
        Ok(wake)
    }

    /// Sets the timer to `moment`; it fires at once if that is past. Fails if the kernel refuses it.
    pub(super) fn arm(&self, moment: Mono) -> io::Result<()> {
        // Zero would disarm it.
        let millis = moment.0.clamp(1, u64::from(u32::MAX) * 1_000);
        let spec = Timespec {
            tv_sec: i64::try_from(millis / 1_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(millis % 1_000 * 1_000_000).unwrap_or(0),
        };
        settime(&self.boot, TimerfdTimerFlags::ABSTIME, spec)
    }

    /// Both timers, for polling.
    pub(super) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.boot.as_fd(), self.wall.as_fd()]
    }

    /// Makes fired timers unreadable again.
    pub(super) fn clear(&self) {
        let mut count = [0_u8; 8];
        for fd in self.fds() {
            // It doesn't matter whether the timer expired, was cancelled or did not fire: the caller reads
            // the clocks.
            let _ = io::read(fd, &mut count);
        }
    }
}

fn settime(fd: &OwnedFd, flags: TimerfdTimerFlags, value: Timespec) -> io::Result<()> {
    let once = Timespec { tv_sec: 0, tv_nsec: 0 };
    timerfd_settime(fd, flags, &Itimerspec { it_interval: once, it_value: value }).map(|_| ())
}
