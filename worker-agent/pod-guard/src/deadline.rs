//! When the command of a guarded container must end.
//!
//! The agent counts a lease on its own clock and writes the remaining time. The guard reads that text after
//! an unknown delay: kubelets refresh files after a second or after two minutes, and after a network failure
//! much later. If the guard counted the remaining time from its own reading, the lease would be too long by
//! the delay. So two limits apply, and the earlier one counts:
//!
//! 1. **Boot clocks.** Each text names the moment on the agent's clock at which it was written. A guard reads
//!    it later, so *its clock at reading − that moment* is the difference of the two clocks plus the delay of
//!    this text. The smallest such number of all texts is kept. So a text that comes ten minutes late is
//!    counted with the smallest delay, and never lengthens a lease by its own. The remaining error is the
//!    smallest delay that this guard has seen, and the drift of two clocks over one term.
//! 2. **Wall clocks.** The text names the end by the agent's wall clock too. If wall clocks differ by at most
//!    the skew that the guard was started with, the lease has not ended before *end − skew* on this node's
//!    clock. This limit also bounds the first text, which can't be compared with an earlier one, and it
//!    counts a pause of the virtual machine, in which boot clocks stand still.
//!
//! Each limit alone suffices where its assumption holds, so the command outlives the lease only if the wall
//! clocks differ by more than the skew *and* every text came late. A wrong clock can end the command too
//! early.
//!
//! Invariants: a text that was written earlier than a known one changes nothing; once the command was told to
//! stop, no text revives the lease.

use crate::lease::{End, Lease};

/// How long before the end of the lease the remaining processes are killed, in milliseconds.
pub const KILL_MARGIN: i64 = 1_000;

/// One moment by both clocks of a node, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since boot; the time of a suspend counts.
    pub boot: i64,
    /// Milliseconds since 1970, by this machine's wall clock.
    pub wall: i64,
}

/// Decision about the guarded command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The command runs. Without a renewal it must be told to stop after these milliseconds; `None` for
    /// never.
    Run(Option<i64>),
    /// The command was told to stop, and is killed after these milliseconds.
    Stop(i64),
    /// The command is killed at once.
    Kill,
}

/// The leases that were seen, and the deadline that they give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// Bound on the difference between the wall clocks of the agent and of this node, in milliseconds.
    skew: i64,
    lease: Lease,
    /// This node's boot clock minus the agent's: the smallest difference seen. Delays only make it larger.
    offset: i64,
    stopping: bool,
}

impl Deadline {
    /// The deadline by a first lease.
    pub fn new(skew: i64, lease: Lease, now: Now) -> Self {
        let offset = now.boot.saturating_sub(lease.sent);
        Self { skew, lease, offset, stopping: false }
    }

    /// Takes a lease that was read into account.
    pub fn observe(&mut self, lease: Lease, now: Now) {
        let is_same_clock = lease.clock == self.lease.clock;
        if self.stopping || is_same_clock && lease.sent <= self.lease.sent {
            return;
        }
        let offset = now.boot.saturating_sub(lease.sent);
        self.offset = if is_same_clock { self.offset.min(offset) } else { offset };
        self.lease = lease;
    }

    pub fn decide(&mut self, now: Now) -> Decision {
        let Some(End { left, wall }) = self.lease.end else { return Decision::Run(None) };
        let ends = self.lease.sent.saturating_add(left).saturating_add(self.offset);
        let by_boot = ends.saturating_sub(now.boot);
        let by_wall = wall.saturating_sub(self.skew).saturating_sub(now.wall);
        let left = by_boot.min(by_wall);
        self.stopping |= left <= self.lease.stop;
        match left.saturating_sub(KILL_MARGIN) {
            ..=0 => Decision::Kill,
            until if self.stopping => Decision::Stop(until),
            _ => Decision::Run(Some(left - self.lease.stop)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: i64 = 900_000;
    const STOP: i64 = 30_000;
    const SKEW: i64 = 5_000;
    /// The node booted earlier than the agent's machine by this.
    const APART: i64 = 7_000_000;

    /// A lease that the agent wrote at this moment of its clock, which shows 0 at the wall time 0.
    fn written(sent: i64, left: i64) -> Lease {
        Lease { clock: "a".into(), sent, stop: STOP, end: Some(End { left, wall: sent + left }) }
    }

    /// This moment of the agent's clock on the node, whose wall clock is ahead by `ahead`.
    fn at(agent: i64, ahead: i64) -> Now {
        Now { boot: agent + APART, wall: agent + ahead }
    }

    #[test]
    fn a_command_stops_before_the_lease_ends_and_is_killed_at_its_end() {
        let mut deadline = Deadline::new(SKEW, written(0, TERM), at(0, 0));
        let stop_at = TERM - SKEW - STOP;
        assert_eq!(deadline.decide(at(0, 0)), Decision::Run(Some(stop_at)));
        assert_eq!(deadline.decide(at(stop_at - 1, 0)), Decision::Run(Some(1)));
        assert_eq!(deadline.decide(at(stop_at, 0)), Decision::Stop(STOP - KILL_MARGIN));
        assert_eq!(deadline.decide(at(TERM - SKEW - KILL_MARGIN, 0)), Decision::Kill);
        let mut endless = Deadline::new(SKEW, Lease { end: None, ..written(0, 0) }, at(0, 0));
        assert_eq!(endless.decide(at(100 * TERM, 0)), Decision::Run(None));
    }

    /// Guards look once a second, so one look can find a renewal at the moment of the stop.
    #[test]
    fn a_renewal_that_is_there_at_the_stop_counts() {
        let stop_at = TERM - SKEW - STOP;
        let mut deadline = Deadline::new(SKEW, written(0, TERM), at(0, 0));
        deadline.observe(written(stop_at - 500, TERM), at(stop_at, 0));
        assert!(matches!(deadline.decide(at(stop_at, 0)), Decision::Run(Some(_))));
    }

    #[test]
    fn a_renewal_lengthens_and_nothing_revives() {
        let mut deadline = Deadline::new(SKEW, written(0, TERM), at(0, 0));
        deadline.observe(written(200_000, TERM), at(200_500, 0));
        assert_eq!(deadline.decide(at(TERM, 0)), Decision::Run(Some(200_000 - SKEW - STOP)));
        let before = deadline.clone();
        deadline.observe(written(100_000, 10 * TERM), at(201_000, 0));
        assert_eq!(deadline, before, "an earlier text comes later");
        let stopped = 200_000 + TERM - SKEW - STOP;
        assert!(matches!(deadline.decide(at(stopped, 0)), Decision::Stop(_)));
        deadline.observe(written(stopped - 1_000, TERM), at(stopped, 0));
        assert!(matches!(deadline.decide(at(stopped, 0)), Decision::Stop(_)));
        assert_eq!(deadline.decide(at(stopped + STOP, 0)), Decision::Kill);
    }

    /// The network was broken: a text arrives ten minutes after it was written. The remaining time counted
    /// from the reading would be ten minutes too long.
    #[test]
    fn a_late_text_does_not_lengthen_the_lease_by_its_delay() {
        // The node's wall clock is behind by an hour, so that only the boot clocks can help.
        let behind = -3_600_000;
        let mut deadline = Deadline::new(SKEW, written(0, TERM), at(90_000, behind));
        deadline.observe(written(225_000, TERM), at(227_000, behind));
        deadline.observe(written(450_000, TERM), at(450_000 + 600_000, behind));
        let ends = 450_000 + TERM;
        // The kill is late by the smallest delay, not by that of the last text.
        assert_eq!(deadline.decide(at(ends + 2_000 - KILL_MARGIN, behind)), Decision::Kill);
        assert!(matches!(deadline.decide(at(ends + 2_000 - STOP, behind)), Decision::Stop(_)));
    }

    #[test]
    fn wall_clocks_bound_the_first_text_of_a_clock() {
        // The image took 10 minutes to be pulled, and the node's clock is behind by as much as is allowed.
        let late = at(600_000, -SKEW);
        let mut deadline = Deadline::new(SKEW, written(0, TERM), late);
        assert_eq!(deadline.decide(at(TERM - KILL_MARGIN, -SKEW)), Decision::Kill);
        let mut another = Deadline::new(SKEW, written(0, TERM), at(0, 0));
        another.observe(Lease { clock: "b".into(), ..written(5, TERM) }, at(300_000, 0));
        assert_eq!(another.decide(at(5 + TERM - SKEW - KILL_MARGIN, 0)), Decision::Kill);
    }

    /// A virtual machine was paused: its boot clock stood still, and its wall clock was set again.
    #[test]
    fn a_pause_of_the_machine_counts() {
        let mut deadline = Deadline::new(SKEW, written(0, TERM), at(0, 0));
        let resumed = Now { boot: APART + 10_000, wall: TERM };
        assert_eq!(deadline.decide(resumed), Decision::Kill);
    }

    /// Whatever the delays are: a guard with prompt texts, or with wall clocks within the skew, never runs
    /// its command at the end of the lease.
    #[test]
    fn nothing_runs_at_the_end_of_the_lease() {
        let mut seed = 1_u64;
        let mut roll = |most: i64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as i64 % most
        };
        for _ in 0..2_000 {
            let ahead = roll(2 * SKEW) - SKEW;
            let mut deadline = Deadline::new(SKEW, written(0, TERM), at(roll(600_000), ahead));
            let (mut sent, mut read) = (0, 600_000);
            for _ in 0..roll(8) {
                sent += 1 + roll(300_000);
                read = read.max(sent) + roll(200_000);
                deadline.observe(written(sent, TERM), at(read, ahead));
            }
            assert_eq!(deadline.decide(at(sent + TERM - KILL_MARGIN, ahead)), Decision::Kill, "{deadline:?}");
        }
    }
}
