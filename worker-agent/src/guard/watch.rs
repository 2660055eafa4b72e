//! The guard's loop: one thread that starts pods, takes orders, and ends everything in time.
//!
//! ```text
//!  Starting ──every first pod started──▶ Running ──▶ Ending(cause, kill at) ──nothing left, on disk──▶ ended
//!                                         (stop · lapse · run time used up · verdict)
//! ```
//! Moves, scale-downs and scale-ups ([`resize`]) change no phase.
//!
//! Invariants: once Ending, no pod starts and the cause never changes; the result is that of the cause,
//! whatever the pods' exit codes are then (a pod that saves its work and exits 0 on a stop has not completed
//! the job).

use super::clock;
use super::lease::{Deadline, kill_margin};
use super::pod::{self, Live};
use super::processes::{self, Children};
use super::rundir::{GuardState, Movement, Plan, RunDir, VERSION};
use super::wake::Wake;
use super::wire::{GuardPhase, Line, Order, Status};
use crate::job_run::pods::{Pods, Try};
use crate::job_run::{Error, JobSpec, PodOutcome, RunEnd};
use meridian_shared::protocol::EndResult;
use meridian_shared::time::{Millis, Mono, Now, Wall};
use nix::sys::signal::Signal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::os::unix::net::UnixListener;
use std::time::Duration;

mod resize;

/// Connections of one guard: an agent, its successor, and some that hang.
const LINKS_MAX: usize = 8;
/// Longest sleep: orphans are collected this often, and the clocks compared.
const TICK: Duration = Duration::from_secs(1);
/// Longest sleep if the kernel doesn't report the end of a process.
const TICK_WITHOUT_PIDFD: Duration = Duration::from_millis(50);
/// Pause between two checks whether killed processes have ended. It doubles up to the second value, for
/// processes that are stuck in the kernel.
const KILL_PAUSE: Duration = Duration::from_millis(1);
const KILL_PAUSE_MAX: Duration = Duration::from_millis(100);
/// Pause between two attempts to write the end, for instance on a full disk.
const WRITE_PAUSE: Duration = Duration::from_millis(250);

/// A pod that runs.
#[derive(Debug)]
struct Running {
    this: Try,
    live: Live,
    /// When the run time of this pod is used up.
    until: Option<Mono>,
    timed_out: bool,
    /// The pod ends to start again elsewhere.
    moving: bool,
    /// The pod ends because of a scale-down, which takes precedence over a move.
    surplus: bool,
}

#[derive(Debug)]
struct Ending {
    result: EndResult,
    kill_at: Mono,
}

impl Running {
    /// Signals the pod to end; it is killed at `kill_at`.
    fn signal_end(&mut self, kill_at: Mono) {
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
    /// When the run time of the run is used up.
    run_until: Option<Mono>,
    running: BTreeMap<usize, Running>,
    phase: GuardPhase,
    started: Option<Wall>,
    /// Number of reclaimable positions that were reported.
    reclaimable_reported: u32,
    /// Number of completed indexes that were reported.
    completed_reported: u32,
    ending: Option<Ending>,
    /// The current move: nothing starts before all moved pods were seen ended.
    movement: Option<Movement>,
    /// Tries that were ended for the current move.
    moving_out: Vec<Try>,
    /// Number of the last finished move.
    moved: u32,
    /// Ended surplus tries, whose other processes may still run.
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
        let (places, failures) = (start.placement.len(), start.pod_failures);
        let pods = Pods::new(&job, places, failures, &start.completed, plan.retry_delay_first);
        let deadline = Deadline::new(start.lapses(), start.stop_budget, plan.given);
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
            phase: GuardPhase::Starting,
            started: None,
            reclaimable_reported: 0,
            completed_reported: 0,
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

    /// Runs until no process is left and the end is on disk.
    pub(super) fn run(mut self) {
        loop {
            let now = clock::now();
            self.deadline.look(now);
            self.collect_ended(now);
            self.take_orders(now);
            self.finish_scale_down(now);
            self.finish_move();
            self.check_clocks(now);
            self.start_due(now);
            self.report_reclaimable();
            self.report_completed();
            if let Some(ending) = &self.ending
                && (self.running.is_empty() || now.mono >= ending.kill_at)
            {
                break;
            }
            self.sleep(now);
        }
        self.finish();
    }

    /// Collects the pods that have ended.
    fn collect_ended(&mut self, now: Now) {
        for running in self.running.values_mut() {
            running.live.output.take();
        }
        while let Children::Ended(pid) = processes::ended_child() {
            self.collect(pid, now);
        }
    }

    /// Collects one ended child: a pod, or an orphaned process of a pod.
    fn collect(&mut self, pid: i32, now: Now) {
        let slot = self.running.iter().find(|(_, r)| r.live.pid == pid).map(|(slot, _)| *slot);
        let running = slot.and_then(|slot| self.running.remove(&slot));
        if let Some(running) = &running {
            // This comes before the pod is collected, because until then the id of its process group can't be
            // reused.
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
            // The exit code doesn't count: the pod was signalled to end, and has neither succeeded nor
            // failed.
            return self.surplus_out.push(this);
        }
        if moving && self.ending.is_none() {
            // The exit code doesn't count: the pod was signalled to end, and continues elsewhere.
            self.moving_out.push(this);
            return self.pods.restart(this, now.mono);
        }
        let message = (timed_out && !moving)
            .then(|| "the pod was active longer than its `activeDeadlineSeconds`".to_owned());
        // A pod that exceeded its run time has failed, whatever its exit code.
        let code = if timed_out && code == 0 { 128 + Signal::SIGTERM as i32 } else { code };
        self.settle(this, code, message, now);
    }

    /// Ends the processes that a pod left running: its process group, and processes that left the group but
    /// have its marks.
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
            self.report_status();
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
                Order::ScaleDown => self.begin_scale_down(now),
                Order::Stop => self.begin_ending(EndResult::Stopped, now),
            }
        }
    }

    /// Ends pods and the run when their time is used up.
    fn check_clocks(&mut self, now: Now) {
        if now.mono >= self.deadline.stop_at(now) {
            self.begin_ending(EndResult::LeaseLapsed, now);
        }
        if self.run_until.is_some_and(|until| now.mono >= until) {
            let message = "the job was active longer than its run time allows".to_owned();
            self.begin_ending(EndResult::Failed { reason: "DeadlineExceeded".into(), message }, now);
        }
        if let Some(ending) = &mut self.ending {
            // A pause of the machine moves the kill closer.
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

    /// How long a pod may take to stop. It never delays the kill beyond the lapse.
    fn grace(&self) -> Millis {
        let budget = self.plan.start.stop_budget;
        self.job.grace.unwrap_or(budget).min(budget.saturating_sub(kill_margin(budget)))
    }

    fn begin_ending(&mut self, result: EndResult, now: Now) {
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
        if self.phase == GuardPhase::Starting {
            self.phase = GuardPhase::Running;
            self.started = Some(now.wall);
            self.save_progress();
            self.report_status();
        }
        if let Some(verdict) = self.pods.verdict().cloned() {
            self.begin_ending(verdict, now);
        }
    }

    /// Reports new reclaimable positions, once per turn.
    fn report_reclaimable(&mut self) {
        let count = u32::try_from(self.reclaimable().len()).unwrap_or(u32::MAX);
        if count > self.reclaimable_reported && self.ending.is_none() && self.phase == GuardPhase::Running {
            self.reclaimable_reported = count;
            self.save_progress();
            self.report_status();
        }
    }

    /// Reports new completed indexes, once per turn. The last ones are reported with the end.
    fn report_completed(&mut self) {
        let count = self.pods.completed().len();
        if count > self.completed_reported && self.ending.is_none() {
            self.completed_reported = count;
            self.save_progress();
            self.report_status();
        }
    }

    fn reclaimable(&self) -> Vec<u32> {
        // A process of a moved pod may be left in a position that has become reclaimable.
        let moved_out = |slot: &usize| self.moving_out.iter().any(|this| this.slot == *slot);
        self.pods
            .reclaimable()
            .into_iter()
            .filter(|slot| !moved_out(slot))
            .filter_map(|slot| u32::try_from(slot).ok())
            .collect()
    }

    fn status(&self) -> Status {
        Status {
            phase: self.phase,
            pod_failures: self.pods.failures(),
            lapses: self.deadline.lapses(),
            moved: Some(self.moved),
            reclaimable: self.reclaimable_reported,
            completed: self.completed_reported,
            scales_down: true,
        }
    }

    fn report_status(&mut self) {
        let status = self.status();
        self.links.retain_mut(|line| line.send(&status).is_ok());
    }

    fn state(&self) -> GuardState {
        GuardState {
            version: VERSION,
            pod_failures: self.pods.failures(),
            started: self.started,
            reclaimable: self.reclaimable(),
            completed: self.pods.completed().clone(),
            ended: None,
            end: None,
        }
    }

    /// Writes failures and reclaimable positions, so that they survive the guard. If that fails the run
    /// continues; its end is written in any case.
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
        // The kernel doesn't report the end of processes that a pod left running.
        let is_reported = self.running.values().all(|r| r.live.ended.is_some())
            && self.surplus_out.is_empty()
            && self.moving_out.is_empty();
        let mut tick = if is_reported { TICK } else { TICK_WITHOUT_PIDFD };
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
        // If the poll was interrupted or failed, the next turn checks everything again.
        let _ = poll(&mut fds, Some(&timeout));
        drop(fds);
        self.wake.clear();
    }

    /// Kills the remaining processes, waits for their end, and writes the end of the run.
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
        let result = self.ending.take().map_or(EndResult::Stopped, |e| e.result);
        let (state, ended) = (self.state(), clock::now().wall);
        let ran = state.started.map_or(Millis(0), |started| ended.since(started));
        let (pods, pod_failures) = (self.pods.outcomes(), self.pods.failures());
        let completed = self.pods.completed().clone();
        let end = RunEnd { result, pods, pod_failures, ran, completed };
        let state = GuardState { ended: Some(ended), end: Some(end), ..state };
        while let Err(error) = self.dir.write_state(&state) {
            super::remark(&error.to_string());
            if matches!(&error, Error::File { source, .. } if source.kind() == std::io::ErrorKind::NotFound) {
                // The run's directory was removed, so no agent reads the end.
                break;
            }
            std::thread::sleep(WRITE_PAUSE);
        }
        self.phase = GuardPhase::Ended;
        self.report_status();
    }
}
