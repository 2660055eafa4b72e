//! The guard's loop: one thread that starts pods, takes orders, and ends everything in time.
//!
//! ```text
//!  Starting ──every first pod started──▶ Running ──▶ Ending(cause, kill at) ──nothing left, on disk──▶ ended
//!                                         (stop · lapse · run time used up · verdict)
//! ```
//! Pods whose node is lost end and start again in another place while the rest goes on, pods that are too many end when the job
//! shrinks, and more start when it grows (a move in which nobody moves): that changes no phase.
//! Invariants: once Ending, no pod starts and the cause never changes; the result is the cause's, whatever the pods' exit
//! codes then are (a pod that saves its work and exits 0 when told to stop has not completed the job).

use super::clock;
use super::lease::{Deadline, kill_margin};
use super::pod::{self, Live};
use super::processes::{self, Children};
use super::rundir::{Movement, Plan, RunDir, State, VERSION};
use super::wake::Wake;
use super::wire::{Line, Order, Phase, Status};
use crate::runner::pods::{Pods, Try};
use crate::runner::{End, Error, JobSpec, PodOutcome, RunResult};
use meridian_shared::time::{Millis, Mono, Now, Wall};
use nix::sys::signal::Signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::os::unix::net::UnixListener;
use std::time::Duration;

/// Agents that may talk to one guard at a time: one, its successor, and some that hang.
const LINKS_MAX: usize = 8;
/// The longest sleep: orphans that nobody waits for are reaped this often, and the clocks compared.
const TICK: Duration = Duration::from_secs(1);
/// The longest sleep where the kernel doesn't tell when a process ended.
const TICK_WITHOUT_PIDFD: Duration = Duration::from_millis(50);
/// Between two looks at whether killed processes are gone; it doubles up to the second value, for those stuck in the kernel.
const KILL_PAUSE: Duration = Duration::from_millis(1);
const KILL_PAUSE_MAX: Duration = Duration::from_millis(100);
/// Between two tries to write the end, for instance on a full disk.
const WRITE_PAUSE: Duration = Duration::from_millis(250);

#[derive(Debug)]
struct Running {
    this: Try,
    live: Live,
    /// When this pod alone has run too long.
    until: Option<Mono>,
    timed_out: bool,
    /// It ends here to start again elsewhere.
    moving: bool,
    /// It ends because the job goes on with fewer pods; that wins over a move.
    surplus: bool,
}

#[derive(Debug)]
struct Ending {
    result: RunResult,
    kill_at: Mono,
}

impl Running {
    /// Tells it to end; the first look at the clocks from `kill_at` on kills it.
    fn tell_to_end(&mut self, kill_at: Mono) {
        processes::signal_group(self.live.pid, Signal::SIGTERM);
        (self.timed_out, self.until) = (true, Some(kill_at));
    }
}

/// One run, from its first pod to its end.
#[derive(Debug)]
pub(super) struct Watch {
    dir: RunDir,
    plan: Plan,
    job: JobSpec,
    pods: Pods,
    deadline: Deadline,
    /// When the whole run has run too long.
    run_until: Option<Mono>,
    running: BTreeMap<usize, Running>,
    phase: Phase,
    started: Option<Wall>,
    /// So many places were said to be free for good.
    spare_told: u32,
    ending: Option<Ending>,
    /// Pods that are to be elsewhere: nothing starts before all of them were seen ended.
    movement: Option<Movement>,
    /// Tries that ended for its sake.
    moving_out: Vec<Try>,
    moved: u32,
    /// Tries that were too many and were collected, of which something may be left.
    surplus_out: Vec<Try>,
    listener: UnixListener,
    links: Vec<Line>,
    wake: Wake,
    in_namespace: bool,
}

impl Watch {
    pub(super) fn new(
        dir: RunDir,
        plan: Plan,
        job: JobSpec,
        listener: UnixListener,
        in_namespace: bool,
    ) -> Result<Self, Error> {
        let system = |source| Error::System { doing: "set up the guard", source };
        listener.set_nonblocking(true).map_err(system)?;
        let wake = Wake::new().map_err(|e| system(e.into()))?;
        let start = &plan.start;
        let pods = Pods::new(&job, start.placement.len(), start.failures, plan.retry_delay_first);
        let deadline = Deadline::new(start.deadline, start.stop_budget, plan.given);
        let limit = [start.run_left, job.active_deadline].into_iter().flatten().min();
        let run_until = limit.map(|limit| clock::now().mono + limit);
        Ok(Self {
            dir,
            plan,
            job,
            pods,
            deadline,
            run_until,
            running: BTreeMap::new(),
            phase: Phase::Starting,
            started: None,
            spare_told: 0,
            ending: None,
            movement: None,
            moving_out: Vec::new(),
            moved: 0,
            surplus_out: Vec::new(),
            listener,
            links: Vec::new(),
            wake,
            in_namespace,
        })
    }

    /// Runs to the end: returns when nothing is left and that is on disk.
    pub(super) fn run(mut self) {
        loop {
            let now = clock::now();
            self.deadline.look(now);
            self.reap(now);
            self.take_orders(now);
            self.finish_shrink(now);
            self.finish_move();
            self.look_at_clocks(now);
            self.start_due(now);
            self.tell_spare();
            if let Some(ending) = &self.ending
                && (self.running.is_empty() || now.mono >= ending.kill_at)
            {
                break;
            }
            self.sleep(now);
        }
        self.finish();
    }

    /// Takes in which pods have ended.
    fn reap(&mut self, now: Now) {
        for running in self.running.values_mut() {
            running.live.output.take();
        }
        while let Children::Ended(pid) = processes::ended_child() {
            self.collect(pid, now);
        }
    }

    /// Collects one ended child. Anything but a pod is an orphan that some pod left behind.
    fn collect(&mut self, pid: i32, now: Now) {
        let slot = self.running.iter().find(|(_, r)| r.live.pid == pid).map(|(slot, _)| *slot);
        let running = slot.and_then(|slot| self.running.remove(&slot));
        if let Some(running) = &running {
            // Before the pod is collected: until then the number of its group can't belong to anybody else.
            self.clear_up_after(running);
        }
        if let (Some(code), Some(running)) = (processes::collect(pid), running) {
            self.pod_ended(running, code, now);
        }
    }

    fn pod_ended(&mut self, running: Running, code: i32, now: Now) {
        let Running { this, live, timed_out, moving, surplus, .. } = running;
        live.output.finish();
        if surplus {
            // Whatever it says: it was told to end, and has neither succeeded nor failed.
            return self.surplus_out.push(this);
        }
        if moving && self.ending.is_none() {
            // Whatever it says: it was told to end, and goes on elsewhere.
            self.moving_out.push(this);
            return self.pods.again(this, now.mono);
        }
        let message = (timed_out && !moving)
            .then(|| "the pod was active longer than its `activeDeadlineSeconds`".to_owned());
        // A pod that ran too long has failed, whatever it says.
        let code = if timed_out && code == 0 { 128 + Signal::SIGTERM as i32 } else { code };
        self.settle(this, code, message, now);
    }

    /// Ends what a pod left running: its process group, and what left the group but carries its marks.
    fn clear_up_after(&self, running: &Running) {
        processes::signal_group(running.live.pid, Signal::SIGKILL);
        if processes::proc_is_ours() {
            let marks = pod::marks(&self.plan, running.this);
            processes::kill_all(&processes::marked(&marks));
        }
    }

    fn settle(&mut self, this: Try, exit_code: i32, message: Option<String>, now: Now) {
        if self.ending.is_some() {
            self.pods.note(PodOutcome { index: this.index, attempt: this.attempt, exit_code, message });
            return;
        }
        if self.pods.ended(this, exit_code, message, now.mono) {
            self.save_progress();
            self.tell();
        }
        if let Some(verdict) = self.pods.verdict().cloned() {
            self.begin_ending(verdict, now);
        }
    }

    fn take_orders(&mut self, now: Now) {
        while let Ok((stream, _)) = self.listener.accept() {
            if let Ok(mut line) = Line::new(stream)
                && line.send(&self.status()).is_ok()
            {
                if self.links.len() == LINKS_MAX {
                    self.links.remove(0);
                }
                self.links.push(line);
            }
        }
        let mut orders = Vec::new();
        self.links.retain_mut(|line| line.receive(&mut orders).is_ok());
        for order in orders {
            match order {
                Order::Renew { deadline, given } if self.ending.is_none() => {
                    self.deadline.renew(deadline, given, now);
                }
                Order::Renew { .. } => {}
                Order::Move { number } => self.begin_move(number, now),
                Order::Shrink => self.begin_shrink(now),
                Order::Stop => self.begin_ending(RunResult::Stopped, now),
            }
        }
    }

    /// Ends the pods that belong elsewhere; the others go on.
    fn begin_move(&mut self, number: u32, now: Now) {
        if number <= self.moved {
            return self.tell();
        }
        if self.ending.is_some() || self.movement.is_some() {
            return;
        }
        let movement = match self.dir.movement() {
            Ok(Some(movement)) if movement.number == number && self.is_possible(&movement) => movement,
            Ok(_) => return super::remark("there is nothing in `move.json` by which pods could be moved"),
            Err(error) => return super::remark(&error.to_string()),
        };
        let grace = self.grace();
        for (slot, running) in &mut self.running {
            if self.plan.start.placement.get(*slot) != movement.placement.get(*slot) && !running.moving {
                running.moving = true;
                if !running.surplus {
                    running.tell_to_end(now.mono + grace);
                }
            }
        }
        self.movement = Some(movement);
    }

    /// Whether a move has the places that there are; or those, and more behind them.
    fn is_possible(&self, movement: &Movement) -> bool {
        let known = &self.plan.start.placement;
        if movement.grows_to.is_some() {
            movement.placement.starts_with(known)
        } else {
            movement.placement.len() == known.len()
        }
    }

    /// Ends the pods that are too many; the others go on.
    fn begin_shrink(&mut self, now: Now) {
        if self.ending.is_some() {
            return;
        }
        let size = match self.dir.resize() {
            Ok(Some(resize)) => resize.size,
            Ok(None) => {
                return super::remark("there is nothing in `size.json` by which the job could shrink");
            }
            Err(error) => return super::remark(&error.to_string()),
        };
        let Some(leaving) = self.pods.shrink(size) else { return };
        let grace = self.grace();
        for this in leaving {
            let Some(running) = self.running.get_mut(&this.slot) else { continue };
            running.surplus = true;
            if !running.moving {
                running.tell_to_end(now.mono + grace);
            }
        }
        if let Some(verdict) = self.pods.verdict().cloned() {
            self.begin_ending(verdict, now);
        }
    }

    /// Gives up the places of pods that were too many, of each once nothing of it is left.
    fn finish_shrink(&mut self, now: Now) {
        if self.ending.is_some() {
            return;
        }
        let (left, gone) =
            std::mem::take(&mut self.surplus_out).into_iter().partition(|this| self.left_behind(this));
        self.surplus_out = left;
        for this in gone {
            self.pods.removed(this, now.mono);
        }
    }

    /// Whether something of a try is still there. What it left behind was killed with it, and may take a moment to be gone.
    fn left_behind(&self, this: &Try) -> bool {
        processes::proc_is_ours() && !processes::marked(&pod::marks(&self.plan, *this)).is_empty()
    }

    /// Lets pods start in their new places once every one of them was seen ended in its old one, and that is on disk.
    fn finish_move(&mut self) {
        // A pod that was too many may have had to move as well.
        if self.ending.is_some()
            || !self.surplus_out.is_empty()
            || self.running.values().any(|running| running.moving)
        {
            return;
        }
        let Some(movement) = &self.movement else { return };
        // Nothing starts beside a pod of its own index that has yet to end.
        if movement.grows_to.is_some() && self.running.values().any(|running| running.surplus) {
            return;
        }
        if self.moving_out.iter().any(|this| self.left_behind(this)) {
            return;
        }
        let mut plan = self.plan.clone();
        plan.start.placement.clone_from(&movement.placement);
        // The size that was said before it grows is no longer the smallest.
        let forgotten = if movement.grows_to.is_some() { self.dir.forget_resize() } else { Ok(()) };
        if let Err(error) = forgotten.and_then(|()| self.dir.write_plan(&plan)) {
            return super::remark(&error.to_string());
        }
        self.moved = movement.number;
        if let Some(size) = movement.grows_to {
            self.pods.grow(size, plan.start.placement.len());
        }
        (self.plan, self.movement) = (plan, None);
        self.moving_out.clear();
        self.tell();
    }

    /// Begins to end what has no more time.
    fn look_at_clocks(&mut self, now: Now) {
        if now.mono >= self.deadline.stop_at(now) {
            self.begin_ending(RunResult::LeaseLapsed, now);
        }
        if self.run_until.is_some_and(|until| now.mono >= until) {
            let message = "the job was active longer than its run time allows".to_owned();
            self.begin_ending(RunResult::Failed { reason: "DeadlineExceeded".into(), message }, now);
        }
        if let Some(ending) = &mut self.ending {
            // A pause of the machine brings the last moment closer.
            ending.kill_at = ending.kill_at.min(self.deadline.kill_at(now));
            return;
        }
        let grace = self.grace();
        for running in self.running.values_mut() {
            let Some(until) = running.until.filter(|until| now.mono >= *until) else { continue };
            let signal = if running.timed_out { Signal::SIGKILL } else { Signal::SIGTERM };
            processes::signal_group(running.live.pid, signal);
            running.timed_out = true;
            running.until = (signal == Signal::SIGTERM).then_some(until + grace);
        }
    }

    /// How long a pod may take to stop; never so long that the kill would come after the lapse.
    fn grace(&self) -> Millis {
        let budget = self.plan.start.stop_budget;
        self.job.grace.unwrap_or(budget).min(budget.saturating_sub(kill_margin(budget)))
    }

    fn begin_ending(&mut self, result: RunResult, now: Now) {
        if self.ending.is_some() {
            return;
        }
        for running in self.running.values() {
            processes::signal_group(running.live.pid, Signal::SIGTERM);
        }
        let kill_at = (now.mono + self.grace()).min(self.deadline.kill_at(now));
        self.ending = Some(Ending { result, kill_at });
    }

    fn start_due(&mut self, now: Now) {
        if self.ending.is_some() || self.movement.is_some() {
            return;
        }
        for this in self.pods.due(now.mono) {
            match pod::start(&self.dir, &self.plan, &self.job, this, self.in_namespace) {
                Ok(live) => {
                    let until = self.job.pod_active_deadline.map(|limit| now.mono + limit);
                    self.running.insert(
                        this.slot,
                        Running { this, live, until, timed_out: false, moving: false, surplus: false },
                    );
                }
                Err(not) => {
                    super::remark(&not.message);
                    self.settle(this, not.exit_code, Some(not.message), now);
                }
            }
            if self.ending.is_some() {
                break;
            }
        }
        if self.phase == Phase::Starting {
            self.phase = Phase::Running;
            self.started = Some(now.wall);
            self.save_progress();
            self.tell();
        }
        if let Some(verdict) = self.pods.verdict().cloned() {
            self.begin_ending(verdict, now);
        }
    }

    /// Says that nobody needs some places any more, once for all that a turn brought.
    fn tell_spare(&mut self) {
        let spare = u32::try_from(self.spare().len()).unwrap_or(u32::MAX);
        if spare > self.spare_told && self.ending.is_none() && self.phase == Phase::Running {
            self.spare_told = spare;
            self.save_progress();
            self.tell();
        }
    }

    fn spare(&self) -> Vec<u32> {
        // Of a pod that moved out something may still be in a place that was given up since.
        let moved_out = |slot: &usize| self.moving_out.iter().any(|this| this.slot == *slot);
        self.pods
            .spare()
            .into_iter()
            .filter(|slot| !moved_out(slot))
            .filter_map(|slot| u32::try_from(slot).ok())
            .collect()
    }

    fn status(&self) -> Status {
        Status {
            phase: self.phase,
            failures: self.pods.failures(),
            lapses: self.deadline.lapses(),
            moved: Some(self.moved),
            spare: self.spare_told,
            shrinks: true,
        }
    }

    fn tell(&mut self) {
        let status = self.status();
        self.links.retain_mut(|line| line.send(&status).is_ok());
    }

    fn state(&self) -> State {
        State {
            version: VERSION,
            failures: self.pods.failures(),
            started: self.started,
            spare: self.spare(),
            ended: None,
            end: None,
        }
    }

    /// Keeps failures, and what is free, across the guard's own death. Where that fails the run goes on; its end is written in any case.
    fn save_progress(&self) {
        if let Err(error) = self.dir.write_state(&self.state()) {
            super::remark(&error.to_string());
        }
    }

    /// Sleeps until something happens.
    fn sleep(&self, now: Now) {
        let moments = [
            Some(self.deadline.stop_at(now)).filter(|_| self.ending.is_none()),
            self.ending.as_ref().map(|e| e.kill_at),
            self.run_until.filter(|_| self.ending.is_none()),
            self.pods.next_due().filter(|_| self.ending.is_none() && self.movement.is_none()),
            self.running.values().filter_map(|r| r.until).min(),
        ];
        let next = moments.into_iter().flatten().min().unwrap_or(Mono(u64::MAX));
        // Nothing tells when the last of what a pod left behind is gone.
        let seen = self.running.values().all(|r| r.live.ended.is_some())
            && self.surplus_out.is_empty()
            && self.moving_out.is_empty();
        let mut tick = if seen { TICK } else { TICK_WITHOUT_PIDFD };
        if let Err(error) = self.wake.arm(next) {
            super::remark(&format!("the wake-up timer failed: {error}"));
            tick = TICK_WITHOUT_PIDFD;
        }
        let mut fds: Vec<PollFd<'_>> =
            self.wake.fds().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).into();
        fds.push(PollFd::new(&self.listener, PollFlags::IN));
        fds.extend(self.links.iter().map(|line| PollFd::new(line.stream(), PollFlags::IN)));
        for running in self.running.values() {
            fds.extend(running.live.ended.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
            fds.extend(running.live.output.pipe().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        }
        let timeout = Timespec {
            tv_sec: i64::try_from(tick.as_secs()).unwrap_or(1),
            tv_nsec: i64::from(tick.subsec_nanos()),
        };
        // Interrupted or failed, the next turn looks at everything again.
        let _ = poll(&mut fds, Some(&timeout));
        drop(fds);
        self.wake.clear();
    }

    /// Kills what is left, sees it ended, and writes the end down.
    fn finish(mut self) {
        let mut pause = KILL_PAUSE;
        loop {
            processes::kill_everything_below(self.in_namespace);
            match processes::ended_child() {
                Children::Ended(pid) => self.collect(pid, clock::now()),
                Children::Living => {
                    std::thread::sleep(pause);
                    pause = (2 * pause).min(KILL_PAUSE_MAX);
                }
                Children::None => break,
            }
        }
        let result = self.ending.take().map_or(RunResult::Stopped, |e| e.result);
        let (state, ended) = (self.state(), clock::now().wall);
        let ran = state.started.map_or(Millis(0), |started| ended.since(started));
        let end = End { result, pods: self.pods.outcomes(), failures: self.pods.failures(), ran };
        let state = State { ended: Some(ended), end: Some(end), ..state };
        while let Err(error) = self.dir.write_state(&state) {
            super::remark(&error.to_string());
            if matches!(&error, Error::File { source, .. } if source.kind() == std::io::ErrorKind::NotFound) {
                // Somebody removed the run's directory: nobody will ever read it.
                break;
            }
            std::thread::sleep(WRITE_PAUSE);
        }
        self.phase = Phase::Ended;
        self.tell();
    }
}
