//! The simulated runner: gangs only take time. Every message says that it is simulated.
//!
//! The duration of a pod is the annotation `simulated.meridian.dev/duration`, else `sleep N` or a length of
//! time such as `120s` in the container's command and arguments, else [`plan::DURATION_DEFAULT`]; divided by
//! the speed. Leases apply as to any runner: a run without renewals ends when its stop would begin.
//!
//! [`runs`] decides (pure), one thread keeps time, and [`input_log`] keeps the commands in a file, so that a
//! restarted agent finds its runs again; after a reboot they are lost like real ones.

use crate::guard::clock;
use crate::guard::lease::Deadline;
use crate::guard::rundir::create_directories;
use crate::job_run::Error;
use meridian_agent_core::runtime::{
    self, Answer, Enforcement, Found, LogSource, PodPlacement, Runner, RunnerEvent, Start,
};
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::protocol::{RunnerKind, Size};
use meridian_shared::time::{Millis, Mono, Now};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

mod command;
mod input_log;
mod live;
mod log;
pub mod plan;
mod runs;

use command::RunCommand;
use input_log::InputLog;
use log::SimulatedLog;
use plan::Speed;
use runs::SimulatedRuns;

/// Longest sleep: the clocks are compared this often.
const TICK: Duration = Duration::from_secs(1);
/// Pause before events that did not fit the channel are sent again.
const SEND_AGAIN: Duration = Duration::from_millis(10);

#[derive(Clone, Debug)]
pub struct Settings {
    /// Directory of the input log.
    pub data: PathBuf,
    /// Speed of jobs; leases run in real time.
    pub speed: Speed,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    runs: SimulatedRuns,
    log: InputLog,
    /// Events that did not fit the channel: a few per run at most.
    outbox: VecDeque<RunnerEvent>,
    quit: bool,
}

#[derive(Debug)]
pub struct SimulatedRunner {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl SimulatedRunner {
    /// Opens the runner over its directory, with a channel for its events. Fails if the directory can't be
    /// used or the thread can't be started.
    pub fn open(settings: Settings, events: Sender<RunnerEvent>) -> Result<Self, Error> {
        let directory = settings.data.join("simulated");
        create_directories(&directory).map_err(|source| Error::File {
            doing: "create",
            path: directory.clone(),
            source,
        })?;
        let boot_id =
            clock::boot_id().map_err(|source| Error::System { doing: "read the boot id", source })?;
        let (log, mut runs) =
            InputLog::open(directory.join("runs.jsonl"), &boot_id, SimulatedRuns::new(settings.speed))?;
        // Runs that ended without an agent are reported by `adopt`.
        let _ = runs.advance(clock::now());
        let shared = Arc::new(Shared {
            state: Mutex::new(State { runs, log, outbox: Default::default(), quit: false }),
            changed: Condvar::new(),
        });
        let thread = {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name("simulated-runner".into())
                .spawn(move || keep_time(&shared, &events))
                .map_err(|source| Error::System { doing: "start the simulated runner's thread", source })?
        };
        Ok(Self { shared, thread: Some(thread) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&mut self, command: RunCommand) {
        self.apply_at(command, clock::now());
    }

    fn apply_at(&mut self, command: RunCommand, now: Now) {
        let mut state = self.state();
        state.log.append(now, &command);
        let events = state.runs.apply(command, now);
        state.outbox.extend(events);
        drop(state);
        self.shared.changed.notify_one();
    }
}

/// The thread: lets time pass, and sends events.
fn keep_time(shared: &Shared, events: &Sender<RunnerEvent>) {
    let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
    while !state.quit {
        let now = clock::now();
        let happened = state.runs.advance(now);
        state.outbox.extend(happened);
        let State { runs, log, .. } = &mut *state;
        log.compact_when_long(runs);
        let delivered = deliver(&mut state, events);
        let nap = if delivered { nap(state.runs.next_due(), now) } else { SEND_AGAIN };
        state = shared.changed.wait_timeout(state, nap).unwrap_or_else(PoisonError::into_inner).0;
    }
}

fn deliver(state: &mut State, events: &Sender<RunnerEvent>) -> bool {
    while let Some(event) = state.outbox.pop_front() {
        match events.try_send(event) {
            Ok(()) => {}
            Err(TrySendError::Full(event)) => {
                state.outbox.push_front(event);
                return false;
            }
            // The agent ends; its successor adopts the runs.
            Err(TrySendError::Closed(_)) => state.outbox.clear(),
        }
    }
    true
}

fn nap(due: Option<Mono>, now: Now) -> Duration {
    due.map_or(TICK, |due| Duration::from_millis(due.since(now.mono).0.max(1)).min(TICK))
}

impl Drop for SimulatedRunner {
    fn drop(&mut self) {
        self.state().quit = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed already.
            let _ = thread.join();
        }
    }
}

impl Runner for SimulatedRunner {
    fn kind(&self) -> RunnerKind {
        RunnerKind::Simulated
    }

    fn name(&self) -> &'static str {
        "simulated"
    }

    fn enforcement(&self) -> Enforcement {
        // A simulated run has no process, so nothing outlives its lease.
        Enforcement::Guarded
    }

    fn start(&mut self, start: Start, decided: Now) {
        let now = clock::now();
        let lapses = Deadline::new(start.lapses(), start.stop_budget, decided).lapses_from(now);
        let deadline = start.deadline.map(|_| lapses);
        self.apply_at(RunCommand::Start(Box::new(Start { deadline, ..start })), now);
    }

    fn renew(&mut self, uid: Uid, fence: Fence, deadline: Mono, decided: Now) {
        let now = clock::now();
        let deadline = Deadline::new(deadline, Millis(0), decided).lapses_from(now);
        self.apply_at(RunCommand::Renew { uid, fence, deadline }, now);
    }

    fn move_pods(&mut self, uid: Uid, fence: Fence, number: u32, placement: Vec<PodPlacement>) {
        self.apply(RunCommand::Move { uid, fence, number, placement });
    }

    fn scale_up(&mut self, uid: Uid, fence: Fence, number: u32, placement: Vec<PodPlacement>, size: Size) {
        self.apply(RunCommand::ScaleUp { uid, fence, number, placement, size });
    }

    fn scale_down(&mut self, uid: Uid, fence: Fence, size: Size) {
        self.apply(RunCommand::ScaleDown { uid, fence, size });
    }

    fn stop(&mut self, uid: Uid, fence: Fence) {
        self.apply(RunCommand::Stop { uid, fence });
    }

    fn adopt(&mut self) -> Answer<'_, Result<Vec<Found>, runtime::Error>> {
        let mut state = self.state();
        // Runs that end now are among the found ones.
        let _ = state.runs.advance(clock::now());
        let reclaimable = state.runs.reclaimable();
        state.outbox.extend(reclaimable);
        let found = state.runs.found();
        Box::pin(std::future::ready(Ok(found)))
    }

    fn forget(&mut self, uid: Uid, fence: Fence) {
        self.apply(RunCommand::Forget { uid, fence });
    }

    fn logs(&self, uid: Uid, fence: Fence, pod: Option<u32>) -> Result<Box<dyn LogSource>, runtime::Error> {
        self.state().runs.describe(uid, fence).ok_or(Error::Unknown { uid, fence })?;
        Ok(Box::new(SimulatedLog::new(Arc::clone(&self.shared), (uid, fence), pod.unwrap_or(0))))
    }
}
