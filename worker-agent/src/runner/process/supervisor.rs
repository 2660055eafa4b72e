//! The process runner's thread: carries out orders, listens to guards, and ends runs that lost their guard.
//!
//! Level-triggered: every turn it finds the state of each run that has no connection to its guard
//! ([`resolve`]); a connection only makes that faster. A guard that is late (stopped by a debugger, stuck) is
//! killed, which ends its gang.
//!
//! Invariant: a run leaves the table only with an `Ended` event.

use super::Settings;
use super::orders::{Orders, RunnerOrder};
use super::resolve::{self, Resolution};
use super::supervised::{Key, SupervisedRun};
use crate::guard::clock;
use crate::guard::processes;
use crate::guard::rundir::{Plan, RunDir, VERSION};
use crate::guard::wire::{self, Line};
use crate::job_run::{Error, RunEnd};
use meridian_agent_core::runtime::{RunnerEvent, Start};
use meridian_shared::protocol::EndResult;
use meridian_shared::time::{Millis, Mono, Now};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeMap, VecDeque};
use std::process::{Child, Stdio};
use std::sync::Arc;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

/// Longest sleep: the clocks are compared this often.
const TICK: Millis = Millis(1_000);
/// Pause before a run is resolved again while its guard is about to answer, or its processes are about to
/// end.
const RESOLVE_AGAIN: Millis = Millis(10);
/// Pause between two collections of ended processes.
const COLLECT_AGAIN: Millis = Millis(100);
/// Pause before the files of a run are used again after an error.
const AFTER_ERROR: Millis = Millis(1_000);

/// The state of the thread.
#[derive(Debug)]
pub(super) struct Supervisor {
    settings: Arc<Settings>,
    orders: Arc<Orders>,
    boot_id: String,
    in_namespaces: bool,
    events: Sender<RunnerEvent>,
    /// Events that did not fit the channel: a few per run at most.
    outbox: VecDeque<RunnerEvent>,
    runs: BTreeMap<Key, SupervisedRun>,
    /// Processes that this agent started, to be collected when they end.
    children: Vec<Child>,
    /// Guards that may have become children of this process, if the agent is the first process of a
    /// container.
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
        let mut ready = Vec::new();
        loop {
            for order in self.orders.take() {
                if matches!(order, RunnerOrder::Quit) {
                    return;
                }
                self.carry_out(order);
            }
            let now = clock::now();
            for key in ready {
                self.listen(key, now);
            }
            for key in self.runs.keys().copied().collect::<Vec<_>>() {
                self.supervise(key, now);
            }
            self.collect_children();
            self.flush();
            ready = self.sleep(clock::now().mono);
        }
    }

    fn collect_children(&mut self) {
        self.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        self.orphans.retain(|pid| {
            processes::collect(*pid).is_none()
                && processes::Stat::of(*pid).is_some_and(|s| s.parent == own_pid())
        });
    }

    fn carry_out(&mut self, order: RunnerOrder) {
        match order {
            RunnerOrder::Start { start, refused, given } => self.start(*start, refused, given),
            RunnerOrder::Renew { uid, fence, deadline, given } => {
                if let Some(run) = self.runs.get_mut(&(uid, fence)) {
                    run.renew(deadline, given);
                }
            }
            RunnerOrder::Move { uid, fence, number, placement, scale_up_to } => {
                if let Some(run) = self.runs.get_mut(&(uid, fence)) {
                    run.order_move((uid, fence), number, placement, scale_up_to);
                }
            }
            RunnerOrder::ScaleDown { uid, fence, size } => {
                if let Some(run) = self.runs.get_mut(&(uid, fence)) {
                    run.order_scale_down((uid, fence), size);
                }
            }
            RunnerOrder::Stop { uid, fence } => self.stop((uid, fence)),
            RunnerOrder::Adopt { uid, fence } => {
                let run = SupervisedRun::adopted(RunDir::of(&self.settings.runs(), uid, fence));
                self.runs.entry((uid, fence)).or_insert(run);
            }
            RunnerOrder::Forget { uid, fence } => self.forget((uid, fence)),
            RunnerOrder::Quit => {}
        }
    }

    /// Occupies the name, then starts a guard. If the name is occupied already, the state of its run is
    /// reported.
    fn start(&mut self, start: Start, refused: Option<String>, given: Now) {
        let key = (start.uid, start.fence);
        if let Some(run) = self.runs.get_mut(&key) {
            run.report_again();
            return;
        }
        let mut run = SupervisedRun::of_start(RunDir::of(&self.settings.runs(), key.0, key.1), &start, given);
        let not_runnable = |message| EndResult::Failed { reason: "NotRunnable".into(), message };
        // A lapsed run gets no guard: while the guard starts, it would count as late.
        let over = refused
            .map(not_runnable)
            .or_else(|| run.must_have_stopped(clock::now()).then_some(EndResult::LeaseLapsed));
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
                Some(result) => run.known_result = end_unstarted(&dir, &plan, result),
                None => match self.launch(&dir, &plan) {
                    // Connect early: a run without a connection counts as one without a guard.
                    Ok(()) => run.connect(),
                    Err(error) => {
                        tracing::error!(uid = %key.0, fence = %key.1, %error, "a gang could not be started");
                        run.known_result = Some(EndResult::NodeLost { message: error.to_string() });
                    }
                },
            },
            Err(error) => {
                tracing::error!(uid = %key.0, fence = %key.1, %error, "a gang could not be started");
                let result = EndResult::NodeLost { message: error.to_string() };
                let end = RunEnd::without_pods(result, plan.start.pod_failures);
                self.outbox.extend(end.events(key.0, key.1));
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
        // The listener is handed over and closed here, so that only the guard keeps it open.
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

    /// Leaves the tombstone before anything else, so that this run can't be started afterwards.
    fn stop(&mut self, key: Key) {
        let run = self
            .runs
            .entry(key)
            .or_insert_with(|| SupervisedRun::new(RunDir::of(&self.settings.runs(), key.0, key.1)));
        run.order_stop(key, &self.settings.runs(), clock::now().mono);
    }

    fn forget(&mut self, key: Key) {
        if self.runs.contains_key(&key) {
            return;
        }
        let dir = RunDir::of(&self.settings.runs(), key.0, key.1);
        if matches!(dir.end(), Ok(Some(_)))
            && let Err(error) = dir.remove()
        {
            tracing::warn!(uid = %key.0, fence = %key.1, %error, "an ended run could not be removed");
        }
    }

    /// Applies the reports of a run's guard.
    fn listen(&mut self, key: Key, now: Now) {
        let Some(run) = self.runs.get_mut(&key) else { return };
        for status in run.receive(now) {
            run.take_status(key, status, now, &mut self.outbox);
        }
    }

    /// Kills a late guard, writes what could not be written, and resolves a run without a connection.
    fn supervise(&mut self, key: Key, now: Now) {
        let Some(run) = self.runs.get_mut(&key) else { return };
        run.observe_clocks(now);
        if run.is_overdue(now) {
            run.kill_guard(key);
        }
        run.hand_over(key, &self.settings.runs(), now.mono);
        if !run.is_resolvable(now.mono) {
            return;
        }
        match resolve::resolve(key.0, key.1, &run.dir, &self.boot_id, run.known_result.as_ref()) {
            Ok(Resolution::Ended(end)) => {
                if let Ok(Some(guard)) = run.dir.identity() {
                    self.orphans.push(guard.pid);
                }
                self.runs.remove(&key);
                self.outbox.extend(end.events(key.0, key.1));
            }
            Ok(Resolution::Guarded) => {
                run.resolve_at = now.mono + RESOLVE_AGAIN;
                run.connect();
            }
            Ok(Resolution::NotYet) => run.resolve_at = now.mono + RESOLVE_AGAIN,
            Err(error) => {
                tracing::error!(uid = %key.0, fence = %key.1, %error, "a run's files can't be used");
                run.resolve_at = now.mono + AFTER_ERROR;
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
                // The agent ends; its successor adopts the runs.
                Err(TrySendError::Closed(_)) => self.outbox.clear(),
            }
        }
    }

    /// Sleeps until something happens. Returns the runs with something to read from their guards.
    fn sleep(&self, now: Mono) -> Vec<Key> {
        let timeout = self.timeout(now);
        let lines: Vec<(Key, &Line)> =
            self.runs.iter().filter_map(|(key, run)| Some((*key, run.line()?))).collect();
        let mut fds = vec![PollFd::new(self.orders.wake(), PollFlags::IN)];
        fds.extend(lines.iter().map(|(_, line)| PollFd::new(line.stream(), PollFlags::IN)));
        // If the poll was interrupted or failed, nothing counts as ready, and the next turn polls again.
        let polled = poll(&mut fds, Some(&timeout)).is_ok();
        let ready = lines
            .iter()
            .zip(&fds[1..])
            .filter(|(_, fd)| polled && !fd.revents().is_empty())
            .map(|((key, _), _)| *key)
            .collect();
        self.orders.clear_wake();
        ready
    }

    fn timeout(&self, now: Mono) -> Timespec {
        let runs = self.runs.values().flat_map(SupervisedRun::due).map(|due| due.since(now));
        let waiting = (!self.outbox.is_empty()).then_some(RESOLVE_AGAIN);
        let launching = self.in_namespaces && !self.children.is_empty();
        let collecting = (launching || !self.orphans.is_empty()).then_some(COLLECT_AGAIN);
        let millis = runs.chain(waiting).chain(collecting).min().unwrap_or(TICK).min(TICK).0;
        Timespec {
            tv_sec: i64::try_from(millis / 1_000).unwrap_or(1),
            tv_nsec: i64::try_from(millis % 1_000 * 1_000_000).unwrap_or(0),
        }
    }
}

/// Writes the end of a run that was never started. Returns its result if that failed.
fn end_unstarted(dir: &RunDir, plan: &Plan, result: EndResult) -> Option<EndResult> {
    let written = dir.lock().and_then(|lock| match lock {
        Some(_held) => resolve::write_end(dir, Some(plan), result).map(|_| ()),
        None => Ok(()),
    });
    written.err().map(|e| EndResult::NodeLost { message: e.to_string() })
}

fn own_pid() -> i32 {
    i32::try_from(std::process::id()).unwrap_or(i32::MAX)
}
