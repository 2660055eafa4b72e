//! One run as the supervisor sees it: its connection to the guard, and orders that are not yet handed over.
//!
//! Moves and sizes are written to the run's directory before the guard gets them, so that they survive the
//! guard. A guard that does not understand an order would close the connection, so each guard first reports
//! what it understands.

use crate::guard::clock;
use crate::guard::lease::{self, Deadline};
use crate::guard::processes;
use crate::guard::rundir::{Movement, Resize, RunDir, VERSION};
use crate::guard::wire::{self, GuardPhase, Line, Status};
use meridian_agent_core::runtime::{PodPlacement, RunnerEvent, Start};
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::protocol::{EndResult, Size};
use meridian_shared::time::{Millis, Mono, Now};
use std::collections::VecDeque;
use std::path::Path;

/// Pause before a failed write of a file is tried again.
const WRITE_AGAIN: Millis = Millis(1_000);
/// How much longer than the stop budget a guard may take for a stop before it is killed.
const GUARD_PATIENCE: Millis = Millis(2_000);

pub(super) type Key = (Uid, Fence);

/// A move or scale-up that the guard has not reported done.
#[derive(Debug)]
enum PendingMove {
    /// Must still be written to disk.
    Unwritten(Movement, Mono),
    /// On disk; sent in every connection.
    Written { number: u32, is_scale_up: bool },
}

impl PendingMove {
    fn number(&self) -> u32 {
        match self {
            Self::Unwritten(movement, _) => movement.number,
            Self::Written { number, .. } => *number,
        }
    }
}

/// A smaller size.
#[derive(Clone, Copy, Debug)]
enum PendingSize {
    /// Must still be written to disk.
    Unwritten(Size, Mono),
    /// On disk; sent in every connection.
    Written,
}

#[derive(Debug)]
pub(super) struct SupervisedRun {
    pub(super) dir: RunDir,
    line: Option<Line>,
    /// The latest renewal, for a guard that is not connected yet.
    renewal: Option<Deadline>,
    deadline: Option<Deadline>,
    stop_budget: Millis,
    pending_move: Option<PendingMove>,
    /// The last finished move that the guard reported in this connection.
    guard_moved: Option<u32>,
    pending_size: Option<PendingSize>,
    /// Whether the guard understands sizes, if it reported that in this connection.
    guard_scales_down: Option<bool>,
    stopping_since: Option<Mono>,
    /// When the tombstone of a stop is to be written, while it isn't.
    tombstone_due: Option<Mono>,
    running_reported: bool,
    failures_reported: u32,
    reclaimable_reported: u32,
    completed_reported: u32,
    /// The result, if this agent knows more than the files of the dead guard.
    pub(super) known_result: Option<EndResult>,
    pub(super) resolve_at: Mono,
}

impl SupervisedRun {
    pub(super) fn new(dir: RunDir) -> Self {
        Self {
            dir,
            line: None,
            renewal: None,
            deadline: None,
            stop_budget: Millis::default(),
            pending_move: None,
            guard_moved: None,
            pending_size: None,
            guard_scales_down: None,
            stopping_since: None,
            tombstone_due: None,
            running_reported: false,
            failures_reported: 0,
            reclaimable_reported: 0,
            completed_reported: 0,
            known_result: None,
            resolve_at: Mono(0),
        }
    }

    /// A run that is about to start.
    pub(super) fn of_start(dir: RunDir, start: &Start, given: Now) -> Self {
        Self {
            stop_budget: start.stop_budget,
            deadline: Some(Deadline::new(start.lapses(), start.stop_budget, given)),
            failures_reported: start.pod_failures,
            ..Self::new(dir)
        }
    }

    /// A run that an earlier agent started, and reported as running.
    pub(super) fn adopted(dir: RunDir) -> Self {
        let mut run = Self { running_reported: true, ..Self::new(dir) };
        if let Ok(Some(plan)) = run.dir.plan() {
            run.stop_budget = plan.start.stop_budget;
        }
        if let Ok(Some(_)) = run.dir.resize() {
            // The guard may not have got it.
            run.pending_size = Some(PendingSize::Written);
        }
        run
    }

    pub(super) fn line(&self) -> Option<&Line> {
        self.line.as_ref()
    }

    /// Whether its stop should have begun.
    pub(super) fn must_have_stopped(&self, now: Now) -> bool {
        self.deadline.is_some_and(|deadline| now.mono >= deadline.stop_at(now))
    }

    /// Notes pauses of the machine.
    pub(super) fn observe_clocks(&mut self, now: Now) {
        for deadline in [&mut self.deadline, &mut self.renewal].into_iter().flatten() {
            deadline.look(now);
        }
    }

    /// Times of the next timed actions.
    pub(super) fn due(&self) -> impl Iterator<Item = Mono> {
        let resolve = self.line.is_none().then_some(self.resolve_at);
        let moves = match self.pending_move {
            Some(PendingMove::Unwritten(_, due)) => Some(due),
            Some(PendingMove::Written { .. }) | None => None,
        };
        let size = match self.pending_size {
            Some(PendingSize::Unwritten(_, due)) => Some(due),
            Some(PendingSize::Written) | None => None,
        };
        [resolve, self.tombstone_due, moves, size].into_iter().flatten()
    }

    /// Whether the state of the run must be looked up now, because no connected guard reports it.
    pub(super) fn is_resolvable(&mut self, now: Mono) -> bool {
        if let Some(due) = self.tombstone_due.filter(|_| !self.dir.path().is_dir()) {
            // Nothing runs, but the name is not occupied yet: the run could still be started.
            self.resolve_at = due;
            return false;
        }
        self.line.is_none() && now >= self.resolve_at
    }

    fn send(&mut self, order: &wire::Order) {
        if let Some(line) = &mut self.line
            && line.send(order).is_err()
        {
            self.line = None;
            self.resolve_at = Mono(0);
        }
    }

    /// Reports of the guard since the last call. The connection ends with the run.
    pub(super) fn receive(&mut self, now: Now) -> Vec<Status> {
        let mut statuses: Vec<Status> = Vec::new();
        let Some(line) = &mut self.line else { return statuses };
        let broken = line.receive(&mut statuses).is_err();
        if broken || statuses.iter().any(|status| status.phase == GuardPhase::Ended) {
            self.line = None;
            self.resolve_at = now.mono;
        }
        statuses
    }

    /// Applies one report of the guard.
    pub(super) fn take_status(
        &mut self,
        key: Key,
        status: Status,
        now: Now,
        outbox: &mut VecDeque<RunnerEvent>,
    ) {
        let (uid, fence) = key;
        if status.phase == GuardPhase::Running && !std::mem::replace(&mut self.running_reported, true) {
            outbox.push_back(RunnerEvent::Running { uid, fence });
        }
        if status.pod_failures > self.failures_reported {
            self.failures_reported = status.pod_failures;
            outbox.push_back(RunnerEvent::PodsFailed { uid, fence, failures: status.pod_failures });
        }
        // If both are pending, the size was ordered before the scale-up.
        self.take_scales_down(key, status.scales_down);
        self.take_moved(key, status.moved, outbox);
        if status.reclaimable > self.reclaimable_reported {
            self.reclaimable_reported = status.reclaimable;
            outbox.extend(self.reclaimable(key));
        }
        if status.completed > self.completed_reported {
            self.completed_reported = status.completed;
            outbox.extend(self.completed(key));
        }
        let deadline = self.deadline.get_or_insert(Deadline::new(status.lapses, self.stop_budget, now));
        // The report may be older than a renewal that waited for this connection.
        if let Some(renewal) = self.renewal {
            deadline.renew(renewal.lapses_from(now), now, now);
        }
    }

    pub(super) fn renew(&mut self, lapses: Mono, given: Now) {
        let now = clock::now();
        if let Some(deadline) = &mut self.deadline {
            deadline.look(now);
            deadline.renew(lapses, given, now);
        }
        self.renewal = Some(Deadline::new(lapses, self.stop_budget, given));
        self.send_renewal(now);
    }

    /// Sends the latest renewal, computed for the present clocks: the guard may not have seen all pauses
    /// since then.
    fn send_renewal(&mut self, now: Now) {
        if let Some(renewal) = self.renewal {
            self.send(&wire::Order::Renew { deadline: renewal.lapses_from(now), given: now });
        }
    }

    /// Connects to the guard and sends what it may have missed.
    pub(super) fn connect(&mut self) {
        // Refused while the guard exits or is not there yet: the next resolution decides.
        self.line = Line::connect(self.dir.path()).ok();
        (self.guard_moved, self.guard_scales_down) = (None, None);
        self.send_renewal(clock::now());
        if self.stopping_since.is_some() {
            self.send(&wire::Order::Stop);
        }
    }

    /// Reports the state of the run again, because its start was ordered again.
    pub(super) fn report_again(&mut self) {
        self.running_reported = false;
        (self.reclaimable_reported, self.completed_reported) = (0, 0);
        self.connect();
    }

    /// Writes pending orders to disk, then sends them to the guard.
    pub(super) fn hand_over(&mut self, key: Key, runs: &Path, now: Mono) {
        self.write_tombstone(key, runs, now);
        self.write_size(key, now);
        self.write_move(key, now);
    }

    pub(super) fn order_move(
        &mut self,
        key: Key,
        number: u32,
        placement: Vec<PodPlacement>,
        scale_up_to: Option<Size>,
    ) {
        let movement = Movement { version: VERSION, number, placement, scale_up_to };
        self.pending_move = Some(PendingMove::Unwritten(movement, Mono(0)));
        self.write_move(key, clock::now().mono);
    }

    fn write_move(&mut self, key: Key, now: Mono) {
        let Some(PendingMove::Unwritten(movement, due)) = &self.pending_move else { return };
        if now < *due {
            return;
        }
        let (number, is_scale_up) = (movement.number, movement.scale_up_to.is_some());
        if is_scale_up && matches!(self.pending_size, Some(PendingSize::Unwritten(..))) {
            return; // The size was ordered before.
        }
        match self.dir.write_movement(movement) {
            Ok(()) => {
                self.pending_move = Some(PendingMove::Written { number, is_scale_up });
                self.send_move();
            }
            Err(error) => {
                tracing::error!(
                    uid = %key.0, fence = %key.1, %error,
                    "a move of pods could not be handed over, it will be tried again"
                );
                self.pending_move = Some(PendingMove::Unwritten(movement.clone(), now + WRITE_AGAIN));
            }
        }
    }

    fn send_move(&mut self) {
        if let (Some(PendingMove::Written { number, .. }), Some(_)) = (&self.pending_move, self.guard_moved) {
            let order = wire::Order::Move { number: *number };
            self.send(&order);
        }
    }

    /// Records the guard's last finished move.
    fn take_moved(&mut self, (uid, fence): Key, moved: Option<u32>, outbox: &mut VecDeque<RunnerEvent>) {
        let first = self.guard_moved.is_none() && moved.is_some();
        self.guard_moved = moved;
        let Some(number) = self.pending_move.as_ref().map(PendingMove::number) else { return };
        match moved {
            Some(done) if done >= number => {
                if let Some(PendingMove::Written { is_scale_up: true, .. }) = self.pending_move.take() {
                    // The guard has dropped the smaller size that was ordered before.
                    self.pending_size = None;
                }
                outbox.push_back(RunnerEvent::Moved { uid, fence, number });
            }
            Some(_) if first => self.send_move(),
            Some(_) => {}
            None => tracing::warn!(
                %uid, %fence,
                "the guard of this gang is of an older binary and can't move its pods: they stay where they \
                 are"
            ),
        }
    }

    /// Notes a smaller size. Until the run is scaled up, a larger size that arrives late is ignored.
    pub(super) fn order_scale_down(&mut self, key: Key, size: Size) {
        let known = match self.pending_size {
            Some(PendingSize::Unwritten(known, _)) => Some(known),
            // A file that can't be read is written anew.
            Some(PendingSize::Written) | None => self.dir.resize().ok().flatten().map(|resize| resize.size),
        };
        let size = known.map_or(size, |known| Size {
            parallelism: size.parallelism.min(known.parallelism),
            completions: size.completions.into_iter().chain(known.completions).min(),
        });
        self.pending_size = Some(PendingSize::Unwritten(size, Mono(0)));
        self.write_size(key, clock::now().mono);
    }

    fn write_size(&mut self, key: Key, now: Mono) {
        let Some(PendingSize::Unwritten(size, due)) = self.pending_size else { return };
        if now < due {
            return;
        }
        match self.dir.write_resize(&Resize { version: VERSION, size }) {
            Ok(()) => {
                self.pending_size = Some(PendingSize::Written);
                self.send_size();
            }
            Err(error) => {
                tracing::error!(
                    uid = %key.0, fence = %key.1, %error,
                    "a smaller size of a gang could not be handed over, it will be tried again"
                );
                self.pending_size = Some(PendingSize::Unwritten(size, now + WRITE_AGAIN));
            }
        }
    }

    fn send_size(&mut self) {
        if let (Some(PendingSize::Written), Some(true)) = (self.pending_size, self.guard_scales_down) {
            self.send(&wire::Order::ScaleDown);
        }
    }

    /// Records whether the guard understands sizes, and sends one that it hasn't received in this connection.
    fn take_scales_down(&mut self, key: Key, scales_down: bool) {
        let first = self.guard_scales_down.replace(scales_down).is_none();
        if first && scales_down {
            self.send_size();
        } else if first && self.pending_size.is_some() {
            tracing::warn!(
                uid = %key.0, fence = %key.1,
                "the guard of this gang is of an older binary and can't scale it down: it keeps its pods"
            );
        }
    }

    pub(super) fn order_stop(&mut self, key: Key, runs: &Path, now: Mono) {
        self.tombstone_due = Some(now);
        self.write_tombstone(key, runs, now);
        self.stopping_since.get_or_insert(now);
        self.send(&wire::Order::Stop);
        self.resolve_at = Mono(0);
    }

    /// Durably forbids the start of a stopped run. While the disk does not take it this is tried again, and a
    /// run without a directory is not confirmed ended.
    fn write_tombstone(&mut self, key: Key, runs: &Path, now: Mono) {
        if self.tombstone_due.is_none_or(|due| now < due) {
            return;
        }
        let written = RunDir::occupy(runs, key.0, key.1).and_then(|_| match self.dir.end() {
            Ok(Some(_)) => Ok(()),
            _ => self.dir.forbid_start(),
        });
        self.tombstone_due = written.err().map(|error| {
            tracing::error!(
                uid = %key.0, fence = %key.1, %error,
                "a stop could not be made durable, it will be tried again"
            );
            now + WRITE_AGAIN
        });
    }

    /// The reclaimable positions that the guard wrote down. If the files can't be read, the next report
    /// includes them.
    fn reclaimable(&self, (uid, fence): Key) -> Option<RunnerEvent> {
        let (state, plan) = (self.dir.state().ok().flatten()?, self.dir.plan().ok().flatten()?);
        let place = |slot: &u32| {
            let pod = plan.start.placement.get(usize::try_from(*slot).ok()?)?;
            Some((pod.pod_set.clone(), pod.index))
        };
        let places = state.reclaimable.iter().filter_map(place).collect();
        Some(RunnerEvent::Reclaimable { uid, fence, places })
    }

    /// The completed indexes that the guard wrote down. If the file can't be read, the next report includes
    /// them.
    fn completed(&self, (uid, fence): Key) -> Option<RunnerEvent> {
        let indexes = self.dir.state().ok().flatten()?.completed;
        Some(RunnerEvent::Completed { uid, fence, indexes })
    }

    /// Whether the guard should have ended the gang by now.
    pub(super) fn is_overdue(&self, now: Now) -> bool {
        let stop =
            self.stopping_since.is_some_and(|since| now.mono >= since + self.stop_budget + GUARD_PATIENCE);
        let lapse = self.deadline.is_some_and(|deadline| {
            let (kill, margin) = (deadline.kill_at(now), lease::kill_margin(self.stop_budget));
            now.mono >= kill + Millis(margin.0 / 2)
        });
        stop || lapse
    }

    pub(super) fn kill_guard(&mut self, key: Key) {
        if let Ok(Some(guard)) = self.dir.identity()
            && processes::lives(guard.pid, guard.started_ticks)
        {
            tracing::error!(
                uid = %key.0, fence = %key.1, guard = guard.pid,
                "a guard is late and is killed, which ends its gang"
            );
            processes::kill_all(&[guard.pid]);
            self.known_result = Some(EndResult::LeaseLapsed).filter(|_| self.stopping_since.is_none());
        }
        self.line = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_size_is_sent_once_per_connection_to_guards_that_understand_it() {
        let data = tempfile::tempdir().unwrap();
        let key = (Uid(7), Fence { epoch: 1, leadership: 2, counter: 3 });
        let mut run = SupervisedRun::new(RunDir::occupy(data.path(), key.0, key.1).unwrap().unwrap());
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut guard = Line::new(theirs).unwrap();
        run.line = Some(Line::new(ours).unwrap());
        let mut sent = move || {
            let mut orders: Vec<wire::Order> = Vec::new();
            guard.receive(&mut orders).unwrap();
            orders
        };
        let size = |parallelism| Size { parallelism, completions: Some(parallelism) };
        run.order_scale_down(key, size(2));
        assert_eq!(sent(), [], "it has not reported what it understands");
        let older: Status = serde_json::from_str(
            r#"{"phase":"running","pod_failures":0,"lapses":9,"moved":1,"reclaimable":0}"#,
        )
        .unwrap();
        run.take_scales_down(key, older.scales_down);
        run.order_scale_down(key, size(2));
        assert_eq!(sent(), [], "it would close the connection");
        run.guard_scales_down = None;
        run.take_scales_down(key, true);
        run.take_scales_down(key, true);
        assert_eq!(sent(), [wire::Order::ScaleDown]);
        run.order_scale_down(key, size(3));
        assert_eq!(
            (sent(), run.dir.resize().unwrap().unwrap().size),
            (vec![wire::Order::ScaleDown], size(2))
        );
        // The next agent sends it without an order.
        let mut next = SupervisedRun::adopted(run.dir.clone());
        next.line = run.line.take();
        next.take_scales_down(key, true);
        assert_eq!(sent(), [wire::Order::ScaleDown]);
    }
}
