//! The process runner's thread: carries out orders, listens to guards, ends what has lost its guard.
//!
//! Level-triggered: every turn it looks at each run that has no conversation with its guard and finds out where it is
//! ([`resolve`]); a conversation only makes that faster. A guard that doesn't do what it should in time (stopped by a
//! debugger, stuck) is killed, which ends its gang.
//!
//! Invariant: a run leaves the table only with an `Ended` event.

use super::resolve::{self, Resolution};
use super::{Orders, Settings};
use crate::guard::clock;
use crate::guard::lease::Deadline;
use crate::guard::processes;
use crate::guard::rundir::{Movement, Plan, Resize, RunDir, VERSION};
use crate::guard::wire::{self, Line, Phase, Status};
use crate::runner::{End, Error, PodPlacement, RunResult, RunnerEvent, Start};
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::protocol::Size;
use meridian_shared::time::{Millis, Mono, Now};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeMap, VecDeque};
use std::process::{Child, Stdio};
use std::sync::Arc;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

/// The longest sleep: the clocks are compared this often.
const TICK: Millis = Millis(1_000);
/// How soon a run is looked at again whose guard is about to answer, or whose processes are about to end.
const LOOK_AGAIN: Millis = Millis(10);
/// How soon ended processes are looked for again, for collecting them.
const COLLECT_AGAIN: Millis = Millis(100);
/// How soon after its files could not be used.
const LOOK_AGAIN_AFTER_ERROR: Millis = Millis(1_000);
/// How much longer than the stop budget a guard may take for a stop before it is killed.
const GUARD_PATIENCE: Millis = Millis(2_000);

/// What the runner was told.
#[derive(Debug)]
pub(super) enum Order {
    Start { start: Box<Start>, refused: Option<String>, given: Now },
    Renew { uid: Uid, fence: Fence, deadline: Mono, given: Now },
    Move { uid: Uid, fence: Fence, number: u32, placement: Vec<PodPlacement>, grows_to: Option<Size> },
    Shrink { uid: Uid, fence: Fence, size: Size },
    Stop { uid: Uid, fence: Fence },
    Adopt { uid: Uid, fence: Fence },
    Forget { uid: Uid, fence: Fence },
    Quit,
}

type Key = (Uid, Fence);

/// How far a move got on its way to the guard.
#[derive(Debug)]
enum Handover {
    /// It can't be written: tried again at a moment.
    Unwritten(Movement, Mono),
    /// It is on disk; the number is said in every conversation. Whether the run grows by it.
    Written(u32, bool),
}

impl Handover {
    fn number(&self) -> u32 {
        match self {
            Self::Unwritten(movement, _) => movement.number,
            Self::Written(number, _) => *number,
        }
    }
}

/// How far a new size got on its way to the guard.
#[derive(Clone, Copy, Debug)]
enum Shrinking {
    /// It can't be written: tried again at a moment.
    Unwritten(Size, Mono),
    /// It is on disk; it is said in every conversation.
    Written,
}

#[derive(Debug)]
struct Run {
    dir: RunDir,
    line: Option<Line>,
    /// The latest renewal, for a guard that isn't reached yet.
    renewal: Option<Deadline>,
    deadline: Option<Deadline>,
    stop_budget: Millis,
    /// A move of which the guard hasn't said that it is done.
    movement: Option<Handover>,
    /// What the guard said last of moves, in this conversation.
    guard_moves: Option<u32>,
    /// A new size, if there was one.
    shrinking: Option<Shrinking>,
    /// Whether the guard understands sizes, once it said something in this conversation.
    guard_shrinks: Option<bool>,
    stopping_since: Option<Mono>,
    /// When the tombstone of a stop is to be left, while it isn't.
    tombstone_due: Option<Mono>,
    running_told: bool,
    failures_told: u32,
    spare_told: u32,
    /// How it ended, where that is known better here than by a guard that is gone.
    instead: Option<RunResult>,
    look_at: Mono,
}

/// The thread's state.
#[derive(Debug)]
pub(super) struct Supervisor {
    settings: Arc<Settings>,
    orders: Arc<Orders>,
    boot_id: String,
    in_namespaces: bool,
    events: Sender<RunnerEvent>,
    /// Events that the agent has not taken yet: a few per run at most.
    outbox: VecDeque<RunnerEvent>,
    runs: BTreeMap<Key, Run>,
    /// Processes that this agent started, to be collected when they end.
    children: Vec<Child>,
    /// Guards that may have become this process's children, where the agent is a container's first process.
    orphans: Vec<i32>,
}

impl Supervisor {
    pub(super) fn new(
        settings: Arc<Settings>,
        orders: Arc<Orders>,
        boot_id: String,
        in_namespaces: bool,
        events: Sender<RunnerEvent>,
    ) -> Self {
        Self {
            settings,
            orders,
            boot_id,
            in_namespaces,
            events,
            outbox: VecDeque::new(),
            runs: BTreeMap::new(),
            children: Vec::new(),
            orphans: Vec::new(),
        }
    }

    pub(super) fn run(mut self) {
        let mut heard = Vec::new();
        loop {
            for order in self.orders.take() {
                if matches!(order, Order::Quit) {
                    return;
                }
                self.carry_out(order);
            }
            let now = clock::now();
            for key in heard {
                self.listen(key, now);
            }
            for key in self.runs.keys().copied().collect::<Vec<_>>() {
                self.look(key, now);
            }
            self.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
            self.orphans.retain(|pid| {
                processes::collect(*pid).is_none()
                    && processes::Stat::of(*pid).is_some_and(|s| s.parent == own_pid())
            });
            self.flush();
            heard = self.sleep(clock::now().mono);
        }
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Start { start, refused, given } => self.start(*start, refused, given),
            Order::Renew { uid, fence, deadline, given } => {
                if let Some(run) = self.runs.get_mut(&(uid, fence)) {
                    run.renew(deadline, given);
                }
            }
            Order::Move { uid, fence, number, placement, grows_to } => {
                if let Some(run) = self.runs.get_mut(&(uid, fence)) {
                    run.movement = Some(Handover::Unwritten(
                        Movement { version: VERSION, number, placement, grows_to },
                        Mono(0),
                    ));
                    run.hand_over((uid, fence), clock::now().mono);
                }
            }
            Order::Shrink { uid, fence, size } => {
                if let Some(run) = self.runs.get_mut(&(uid, fence)) {
                    run.shrink(size);
                    run.hand_over_size((uid, fence), clock::now().mono);
                }
            }
            Order::Stop { uid, fence } => self.stop((uid, fence)),
            Order::Adopt { uid, fence } => {
                let run = Run::adopted(RunDir::of(&self.settings.runs(), uid, fence));
                self.runs.entry((uid, fence)).or_insert(run);
            }
            Order::Forget { uid, fence } => self.forget((uid, fence)),
            Order::Quit => {}
        }
    }

    /// Occupies the name, then starts a guard. A name that is occupied says by itself where its run is.
    fn start(&mut self, start: Start, refused: Option<String>, given: Now) {
        let key = (start.uid, start.fence);
        if let Some(run) = self.runs.get_mut(&key) {
            run.tell_again();
            return;
        }
        let mut run = Run::new(RunDir::of(&self.settings.runs(), key.0, key.1));
        run.stop_budget = start.stop_budget;
        let (deadline, now) = (Deadline::new(start.deadline, start.stop_budget, given), clock::now());
        run.deadline = Some(deadline);
        let why_not = |why| RunResult::Failed { reason: "NotRunnable".into(), message: why };
        // No guard for what has lapsed: one that is only starting would be taken for late.
        let over = refused
            .map(why_not)
            .or_else(|| (now.mono >= deadline.stop_at(now)).then_some(RunResult::LeaseLapsed));
        run.failures_told = start.failures;
        let plan = Plan {
            version: VERSION,
            boot_id: self.boot_id.clone(),
            given,
            cluster: self.settings.cluster.clone(),
            region: self.settings.region.clone(),
            retry_delay_first: self.settings.retry_delay_first,
            start,
        };
        match RunDir::occupy(&self.settings.runs(), key.0, key.1) {
            Ok(None) => {}
            Ok(Some(dir)) => match over {
                Some(result) => end_unstarted(&dir, &plan, result, &mut run),
                None => {
                    if let Err(error) = self.launch(&dir, &plan) {
                        tracing::error!(uid = %key.0, fence = %key.1, %error, "a gang could not be started");
                        run.instead = Some(RunResult::NodeLost { message: error.to_string() });
                    } else {
                        // At once, while the guard is only starting: a run without a conversation counts as one without a guard.
                        run.connect();
                    }
                }
            },
            Err(error) => {
                tracing::error!(uid = %key.0, fence = %key.1, %error, "a gang could not be started");
                let result = RunResult::NodeLost { message: error.to_string() };
                self.outbox.push_back(ended(
                    key,
                    End { result, pods: Vec::new(), failures: plan.start.failures, ran: Millis(0) },
                ));
                return;
            }
        }
        self.runs.insert(key, run);
    }

    fn launch(&mut self, dir: &RunDir, plan: &Plan) -> Result<(), Error> {
        dir.write_plan(plan)?;
        let listener = wire::bind(dir.path())
            .map_err(|source| Error::System { doing: "make the guard's socket", source })?;
        let mut args = vec!["--dir".into(), dir.path().as_os_str().to_owned()];
        if self.in_namespaces {
            args.push("--namespace".into());
        }
        // The listener is handed over and closed here, so that it says by itself when no guard has it any more.
        let child = self
            .settings
            .guard_command(args)
            .stdin(Stdio::from(rustix::fd::OwnedFd::from(listener)))
            .stderr(Stdio::from(dir.remarks()?))
            .spawn()
            .map_err(|source| Error::System { doing: "start the guard", source })?;
        self.children.push(child);
        Ok(())
    }

    /// Leaves the tombstone before anything else, so that nobody can start this run from here on.
    fn stop(&mut self, key: Key) {
        let run =
            self.runs.entry(key).or_insert_with(|| Run::new(RunDir::of(&self.settings.runs(), key.0, key.1)));
        let now = clock::now().mono;
        run.tombstone_due = Some(now);
        run.leave_tombstone(key, &self.settings, now);
        run.stopping_since.get_or_insert(now);
        run.send(&wire::Order::Stop);
        run.look_at = Mono(0);
    }

    fn forget(&mut self, key: Key) {
        if self.runs.contains_key(&key) {
            return;
        }
        let dir = RunDir::of(&self.settings.runs(), key.0, key.1);
        if matches!(dir.end(), Ok(Some(_)))
            && let Err(error) = dir.remove()
        {
            tracing::warn!(uid = %key.0, fence = %key.1, %error, "an ended run could not be cleared away");
        }
    }

    /// Takes in what the guard says.
    fn listen(&mut self, key: Key, now: Now) {
        let Some(run) = self.runs.get_mut(&key) else { return };
        let Some(line) = &mut run.line else { return };
        let mut heard: Vec<Status> = Vec::new();
        if line.receive(&mut heard).is_err() {
            run.line = None;
            run.look_at = now.mono;
        }
        for status in heard {
            if status.phase == Phase::Ended {
                run.line = None;
                run.look_at = now.mono;
            }
            if status.phase == Phase::Running && !std::mem::replace(&mut run.running_told, true) {
                self.outbox.push_back(RunnerEvent::Running { uid: key.0, fence: key.1 });
            }
            if status.failures > run.failures_told {
                run.failures_told = status.failures;
                self.outbox.push_back(RunnerEvent::PodFailed {
                    uid: key.0,
                    fence: key.1,
                    failures: status.failures,
                });
            }
            // A size is from before a growth, if there are both.
            run.heed_shrinks(key, status.shrinks);
            run.heed_moves(key, status.moved, &mut self.outbox);
            if status.spare > run.spare_told {
                run.spare_told = status.spare;
                self.outbox.extend(run.spare(key));
            }
            let deadline = run.deadline.get_or_insert(Deadline::new(status.lapses, run.stop_budget, now));
            // What the guard said may be from before a renewal that waited for this conversation.
            if let Some(renewal) = run.renewal {
                deadline.renew(renewal.lapses_from(now), now, now);
            }
        }
    }

    /// Finds out where a run without a conversation is, and kills a guard that is late.
    fn look(&mut self, key: Key, now: Now) {
        let Some(run) = self.runs.get_mut(&key) else { return };
        for deadline in [&mut run.deadline, &mut run.renewal].into_iter().flatten() {
            deadline.look(now);
        }
        if run.overdue(now) {
            run.kill_guard(key);
        }
        run.leave_tombstone(key, &self.settings, now.mono);
        run.hand_over_size(key, now.mono);
        run.hand_over(key, now.mono);
        if let Some(due) = run.tombstone_due.filter(|_| !run.dir.path().is_dir()) {
            // Nothing runs, and nothing says so yet: whoever came now could still start it.
            run.look_at = due;
            return;
        }
        if run.line.is_some() || now.mono < run.look_at {
            return;
        }
        match resolve::resolve(key.0, key.1, &run.dir, &self.boot_id, run.instead.as_ref()) {
            Ok(Resolution::Ended(end)) => {
                if let Ok(Some(guard)) = run.dir.identity() {
                    self.orphans.push(guard.pid);
                }
                self.runs.remove(&key);
                self.outbox.push_back(ended(key, end));
            }
            Ok(Resolution::Guarded) => {
                run.look_at = now.mono + LOOK_AGAIN;
                run.connect();
            }
            Ok(Resolution::NotYet) => run.look_at = now.mono + LOOK_AGAIN,
            Err(error) => {
                tracing::error!(uid = %key.0, fence = %key.1, %error, "a run's files can't be used");
                run.look_at = now.mono + LOOK_AGAIN_AFTER_ERROR;
            }
        }
    }

    fn flush(&mut self) {
        while let Some(event) = self.outbox.pop_front() {
            match self.events.try_send(event) {
                Ok(()) => {}
                Err(TrySendError::Full(event)) => {
                    self.outbox.push_front(event);
                    return;
                }
                // Nobody listens any more: the agent is going, and its successor will ask.
                Err(TrySendError::Closed(_)) => self.outbox.clear(),
            }
        }
    }

    /// Sleeps until something happens; returns the runs whose guards have said something.
    fn sleep(&self, now: Mono) -> Vec<Key> {
        let looks = self.runs.values().filter(|r| r.line.is_none()).map(|r| r.look_at.since(now));
        let tombstones = self.runs.values().filter_map(|r| r.tombstone_due).map(|due| due.since(now));
        let unwritten = |run: &Run| match run.movement {
            Some(Handover::Unwritten(_, due)) => Some(due.since(now)),
            Some(Handover::Written(..)) | None => None,
        };
        let moves = self.runs.values().filter_map(unwritten);
        let unwritten_size = |run: &Run| match run.shrinking {
            Some(Shrinking::Unwritten(_, due)) => Some(due.since(now)),
            Some(Shrinking::Written) | None => None,
        };
        let sizes = self.runs.values().filter_map(unwritten_size);
        let waiting = (!self.outbox.is_empty()).then_some(LOOK_AGAIN);
        let launching = self.in_namespaces && !self.children.is_empty();
        let collecting = (launching || !self.orphans.is_empty()).then_some(COLLECT_AGAIN);
        let millis = looks
            .chain(tombstones)
            .chain(moves)
            .chain(sizes)
            .chain(waiting)
            .chain(collecting)
            .min()
            .unwrap_or(TICK)
            .min(TICK)
            .0;
        let timeout = Timespec {
            tv_sec: i64::try_from(millis / 1_000).unwrap_or(1),
            tv_nsec: i64::try_from(millis % 1_000 * 1_000_000).unwrap_or(0),
        };
        let lines: Vec<(Key, &Line)> =
            self.runs.iter().filter_map(|(key, run)| Some((*key, run.line.as_ref()?))).collect();
        let mut fds = vec![PollFd::new(&self.orders.wake, PollFlags::IN)];
        fds.extend(lines.iter().map(|(_, line)| PollFd::new(line.stream(), PollFlags::IN)));
        // Interrupted or failed, nothing counts as heard, and the next turn polls again.
        let polled = poll(&mut fds, Some(&timeout)).is_ok();
        let heard = lines
            .iter()
            .zip(&fds[1..])
            .filter(|(_, fd)| polled && !fd.revents().is_empty())
            .map(|((key, _), _)| *key)
            .collect();
        let mut counter = [0; 8];
        // Empty when something else woke the thread.
        let _ = rustix::io::read(&self.orders.wake, &mut counter);
        heard
    }
}

impl Run {
    fn new(dir: RunDir) -> Self {
        Self {
            dir,
            line: None,
            renewal: None,
            deadline: None,
            stop_budget: Millis::default(),
            movement: None,
            guard_moves: None,
            shrinking: None,
            guard_shrinks: None,
            stopping_since: None,
            tombstone_due: None,
            running_told: false,
            failures_told: 0,
            spare_told: 0,
            instead: None,
            look_at: Mono(0),
        }
    }

    /// One that an earlier agent started.
    fn adopted(dir: RunDir) -> Self {
        let mut run = Self::new(dir);
        // It was reported as running already.
        run.running_told = true;
        if let Ok(Some(plan)) = run.dir.plan() {
            run.stop_budget = plan.start.stop_budget;
        }
        if let Ok(Some(_)) = run.dir.resize() {
            // The guard may not have heard of it.
            run.shrinking = Some(Shrinking::Written);
        }
        run
    }

    fn send(&mut self, order: &wire::Order) {
        if let Some(line) = &mut self.line
            && line.send(order).is_err()
        {
            self.line = None;
            self.look_at = Mono(0);
        }
    }

    fn renew(&mut self, lapses: Mono, given: Now) {
        let now = clock::now();
        if let Some(deadline) = &mut self.deadline {
            deadline.look(now);
            deadline.renew(lapses, given, now);
        }
        self.renewal = Some(Deadline::new(lapses, self.stop_budget, given));
        self.say_renewal(now);
    }

    /// Says the latest renewal as it has to be given now: the guard may not have seen all pauses since it came.
    fn say_renewal(&mut self, now: Now) {
        if let Some(renewal) = self.renewal {
            self.send(&wire::Order::Renew { deadline: renewal.lapses_from(now), given: now });
        }
    }

    /// Takes up the conversation with the guard, and says what it may have missed.
    fn connect(&mut self) {
        // Refused while the guard is going or not yet there: the next look decides.
        self.line = Line::connect(self.dir.path()).ok();
        (self.guard_moves, self.guard_shrinks) = (None, None);
        self.say_renewal(clock::now());
        if self.stopping_since.is_some() {
            self.send(&wire::Order::Stop);
        }
    }

    /// Writes down where pods belong, then tells the guard.
    fn hand_over(&mut self, key: Key, now: Mono) {
        let Some(Handover::Unwritten(movement, due)) = &self.movement else { return };
        if now < *due {
            return;
        }
        let grows = movement.grows_to.is_some();
        if grows && matches!(self.shrinking, Some(Shrinking::Unwritten(..))) {
            // What was said before comes first.
            return;
        }
        match self.dir.write_movement(movement) {
            Ok(()) => {
                self.movement = Some(Handover::Written(movement.number, grows));
                self.say_move();
            }
            Err(error) => {
                tracing::error!(uid = %key.0, fence = %key.1, %error, "a move of pods could not be handed over, it will be tried again");
                self.movement = Some(Handover::Unwritten(movement.clone(), now + LOOK_AGAIN_AFTER_ERROR));
            }
        }
    }

    /// Says a move to a guard that is known to understand it: an older one would end the conversation.
    fn say_move(&mut self) {
        if let (Some(Handover::Written(number, _)), Some(_)) = (&self.movement, self.guard_moves) {
            let order = wire::Order::Move { number: *number };
            self.send(&order);
        }
    }

    /// Takes in what the guard says of moves.
    fn heed_moves(&mut self, (uid, fence): Key, moved: Option<u32>, outbox: &mut VecDeque<RunnerEvent>) {
        let first = self.guard_moves.is_none() && moved.is_some();
        self.guard_moves = moved;
        let Some(number) = self.movement.as_ref().map(Handover::number) else { return };
        match moved {
            Some(done) if done >= number => {
                if let Some(Handover::Written(_, true)) = self.movement.take() {
                    // The guard has forgotten what was said of its size before.
                    self.shrinking = None;
                }
                outbox.push_back(RunnerEvent::Moved { uid, fence, number });
            }
            Some(_) if first => self.say_move(),
            Some(_) => {}
            None => {
                tracing::warn!(%uid, %fence, "the guard of this gang is of an older binary and can't move its pods: they stay where they are")
            }
        }
    }

    /// Notes a new size. Sizes only shrink, whichever agent says them in whatever order, until the run grows.
    fn shrink(&mut self, size: Size) {
        let known = match self.shrinking {
            Some(Shrinking::Unwritten(known, _)) => Some(known),
            // What can't be read is written anew.
            Some(Shrinking::Written) | None => self.dir.resize().ok().flatten().map(|resize| resize.size),
        };
        let size = known.map_or(size, |known| Size {
            parallelism: size.parallelism.min(known.parallelism),
            completions: size.completions.into_iter().chain(known.completions).min(),
        });
        self.shrinking = Some(Shrinking::Unwritten(size, Mono(0)));
    }

    /// Writes down how many pods are left, then tells the guard.
    fn hand_over_size(&mut self, key: Key, now: Mono) {
        let Some(Shrinking::Unwritten(size, due)) = self.shrinking else { return };
        if now < due {
            return;
        }
        match self.dir.write_resize(&Resize { version: VERSION, size }) {
            Ok(()) => {
                self.shrinking = Some(Shrinking::Written);
                self.say_size();
            }
            Err(error) => {
                tracing::error!(uid = %key.0, fence = %key.1, %error, "a smaller size of a gang could not be handed over, it will be tried again");
                self.shrinking = Some(Shrinking::Unwritten(size, now + LOOK_AGAIN_AFTER_ERROR));
            }
        }
    }

    /// Says that there is a size to a guard that is known to understand it: an older one would end the conversation.
    fn say_size(&mut self) {
        if let (Some(Shrinking::Written), Some(true)) = (self.shrinking, self.guard_shrinks) {
            self.send(&wire::Order::Shrink);
        }
    }

    /// Takes in whether the guard understands sizes: what it hasn't heard in this conversation is said.
    fn heed_shrinks(&mut self, key: Key, shrinks: bool) {
        let first = self.guard_shrinks.replace(shrinks).is_none();
        if first && shrinks {
            self.say_size();
        } else if first && self.shrinking.is_some() {
            tracing::warn!(uid = %key.0, fence = %key.1, "the guard of this gang is of an older binary and can't let it shrink: it keeps its pods");
        }
    }

    /// Forbids the start durably where a stop asks for it. On a disk that doesn't take it this is tried again, and until then a
    /// run that left no directory is not confirmed.
    fn leave_tombstone(&mut self, key: Key, settings: &Settings, now: Mono) {
        if self.tombstone_due.is_none_or(|due| now < due) {
            return;
        }
        let left = RunDir::occupy(&settings.runs(), key.0, key.1).and_then(|_| match self.dir.end() {
            Ok(Some(_)) => Ok(()),
            _ => self.dir.forbid_start(),
        });
        self.tombstone_due = left.err().map(|error| {
            tracing::error!(uid = %key.0, fence = %key.1, %error, "a stop could not be made durable, it will be tried again");
            now + LOOK_AGAIN_AFTER_ERROR
        });
    }

    /// Which pods have left their places for good, by what the guard wrote down. What can't be read is told with the next.
    fn spare(&self, (uid, fence): Key) -> Option<RunnerEvent> {
        let (state, plan) = (self.dir.state().ok().flatten()?, self.dir.plan().ok().flatten()?);
        let place = |slot: &u32| {
            plan.start
                .placement
                .get(usize::try_from(*slot).ok()?)
                .map(|place| (place.pod_set.clone(), place.index))
        };
        Some(RunnerEvent::Spare { uid, fence, places: state.spare.iter().filter_map(place).collect() })
    }

    /// The same order came again: say again where the run is.
    fn tell_again(&mut self) {
        self.running_told = false;
        self.spare_told = 0;
        self.connect();
    }

    /// Whether the guard should have ended the gang by now.
    fn overdue(&self, now: Now) -> bool {
        let stop =
            self.stopping_since.is_some_and(|since| now.mono >= since + self.stop_budget + GUARD_PATIENCE);
        let lapse = self.deadline.is_some_and(|d| {
            let (kill, margin) = (d.kill_at(now), crate::guard::lease::kill_margin(self.stop_budget));
            now.mono >= kill + Millis(margin.0 / 2)
        });
        stop || lapse
    }

    fn kill_guard(&mut self, key: Key) {
        if let Ok(Some(guard)) = self.dir.identity()
            && processes::lives(guard.pid, guard.started_ticks)
        {
            tracing::error!(uid = %key.0, fence = %key.1, guard = guard.pid, "a guard is late and is killed, which ends its gang");
            processes::kill_all(&[guard.pid]);
            self.instead = Some(RunResult::LeaseLapsed).filter(|_| self.stopping_since.is_none());
        }
        self.line = None;
    }
}

/// Writes down how a run ended that was never started.
fn end_unstarted(dir: &RunDir, plan: &Plan, result: RunResult, run: &mut Run) {
    let written = dir.lock().and_then(|lock| match lock {
        Some(_held) => resolve::write_end(dir, Some(plan), result).map(|_| ()),
        None => Ok(()),
    });
    run.instead = written.err().map(|e| RunResult::NodeLost { message: e.to_string() });
}

fn ended((uid, fence): Key, end: End) -> RunnerEvent {
    RunnerEvent::Ended { uid, fence, end }
}

fn own_pid() -> i32 {
    i32::try_from(std::process::id()).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_size_is_said_once_per_conversation_only_to_guards_that_understand_it_and_never_grows() {
        let data = tempfile::tempdir().unwrap();
        let key = (Uid(7), Fence { epoch: 1, leadership: 2, counter: 3 });
        let mut run = Run::new(RunDir::occupy(data.path(), key.0, key.1).unwrap().unwrap());
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut guard = Line::new(theirs).unwrap();
        run.line = Some(Line::new(ours).unwrap());
        let mut said = move || {
            let mut orders: Vec<wire::Order> = Vec::new();
            guard.receive(&mut orders).unwrap();
            orders
        };
        let size = |parallelism| Size { parallelism, completions: Some(parallelism) };
        run.shrink(size(2));
        run.hand_over_size(key, Mono(1));
        assert_eq!(said(), [], "it hasn't said what it understands");
        let older: Status =
            serde_json::from_str(r#"{"phase":"running","failures":0,"lapses":9,"moved":1,"spare":0}"#)
                .unwrap();
        run.heed_shrinks(key, older.shrinks);
        run.shrink(size(2));
        run.hand_over_size(key, Mono(1));
        assert_eq!(said(), [], "it would end the conversation");
        run.guard_shrinks = None;
        run.heed_shrinks(key, true);
        run.heed_shrinks(key, true);
        assert_eq!(said(), [wire::Order::Shrink]);
        run.shrink(size(3));
        run.hand_over_size(key, Mono(1));
        assert_eq!((said(), run.dir.resize().unwrap().unwrap().size), (vec![wire::Order::Shrink], size(2)));
        // The next agent says it without being told.
        let mut next = Run::adopted(run.dir.clone());
        next.line = run.line.take();
        next.heed_shrinks(key, true);
        assert_eq!(said(), [wire::Order::Shrink]);
    }
}
