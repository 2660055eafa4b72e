//! The simulated runner: gangs that take time and nothing else. It says that it simulates wherever it shows.
//!
//! How long a pod takes comes from the annotation `simulated.meridian.dev/duration`, else from `sleep N` or a length of
//! time such as `120s` in the container's command and arguments, else [`plan::DURATION_DEFAULT`]; divided by the speed.
//! Leases apply as to any runner: a run whose lease isn't renewed ends when its stop would begin.
//!
//! [`book`] decides (pure), one thread keeps time, [`notebook`] keeps the book's inputs in a file, so that a restarted
//! agent finds its runs again; after a reboot they are lost like real ones.

use super::{Enforcement, Error, Found, JobSpec, LogReader, PodPlacement, Runner, RunnerEvent, Start};
use crate::guard::clock;
use crate::guard::lease::Deadline;
use crate::guard::rundir::create_directories;
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::protocol::Size;
use meridian_shared::time::{Millis, Mono, Now};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

pub mod book;
mod notebook;
pub mod plan;

use book::{Book, Input};
use notebook::Notebook;
use plan::Speed;

/// The longest sleep: the clocks are compared this often.
const TICK: Duration = Duration::from_secs(1);
/// How soon events that the agent had no room for are offered again.
const OFFER_AGAIN: Duration = Duration::from_millis(10);

/// How a simulated runner is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the notebook is kept.
    pub data: PathBuf,
    /// How much faster than real time jobs go; leases go in real time.
    pub speed: Speed,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    book: Book,
    notebook: Notebook,
    /// Events that the agent has not taken yet: a few per run at most.
    outbox: std::collections::VecDeque<RunnerEvent>,
    quit: bool,
}

/// Pretends to run jobs.
#[derive(Debug)]
pub struct SimulatedRunner {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl SimulatedRunner {
    /// Opens the runner over its directory. Events go to `events`; one that is full delays them and loses none.
    pub fn open(settings: Settings, events: Sender<RunnerEvent>) -> Result<Self, Error> {
        let directory = settings.data.join("simulated");
        create_directories(&directory).map_err(|source| Error::File {
            doing: "create",
            path: directory.clone(),
            source,
        })?;
        let boot_id =
            clock::boot_id().map_err(|source| Error::System { doing: "read the boot id", source })?;
        let (notebook, mut book) =
            Notebook::open(directory.join("runs.jsonl"), &boot_id, Book::new(settings.speed))?;
        // What ended while no agent was there is told by `adopt`.
        let _ = book.advance(clock::now());
        let shared = Arc::new(Shared {
            state: Mutex::new(State { book, notebook, outbox: Default::default(), quit: false }),
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

    fn take_in(&mut self, input: Input) {
        self.take_in_at(input, clock::now());
    }

    fn take_in_at(&mut self, input: Input, now: Now) {
        let mut state = self.state();
        state.notebook.note(now, &input);
        let events = state.book.take_in(input, now);
        state.outbox.extend(events);
        drop(state);
        self.shared.changed.notify_one();
    }
}

/// The thread: lets the book's time pass, and hands over its events.
fn keep_time(shared: &Shared, events: &Sender<RunnerEvent>) {
    let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
    while !state.quit {
        let now = clock::now();
        let happened = state.book.advance(now);
        state.outbox.extend(happened);
        let State { book, notebook, .. } = &mut *state;
        notebook.compact_when_long(book);
        let delivered = deliver(&mut state, events);
        let nap = if delivered { nap(state.book.next_due(), now) } else { OFFER_AGAIN };
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
            // Nobody listens any more: the agent is going, and its successor will ask.
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
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }
}

impl Runner for SimulatedRunner {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn enforcement(&self) -> Enforcement {
        // Nothing runs, so nothing can run on.
        Enforcement::Guarded
    }

    fn accepts(&self, spec: &JobSpec) -> Result<(), String> {
        plan::check(spec)
    }

    fn start(&mut self, start: Start, decided: Now) {
        let now = clock::now();
        let deadline = Deadline::new(start.deadline, start.stop_budget, decided).lapses_from(now);
        self.take_in_at(Input::Start(Box::new(Start { deadline, ..start })), now);
    }

    fn renew(&mut self, uid: Uid, fence: Fence, deadline: Mono, decided: Now) {
        let now = clock::now();
        let deadline = Deadline::new(deadline, Millis(0), decided).lapses_from(now);
        self.take_in_at(Input::Renew { uid, fence, deadline }, now);
    }

    fn move_pods(&mut self, uid: Uid, fence: Fence, number: u32, placement: Vec<PodPlacement>) {
        self.take_in(Input::Move { uid, fence, number, placement });
    }

    fn grow(&mut self, uid: Uid, fence: Fence, number: u32, placement: Vec<PodPlacement>, size: Size) {
        self.take_in(Input::Grow { uid, fence, number, placement, size });
    }

    fn shrink(&mut self, uid: Uid, fence: Fence, size: Size) {
        self.take_in(Input::Shrink { uid, fence, size });
    }

    fn stop(&mut self, uid: Uid, fence: Fence) {
        self.take_in(Input::Stop { uid, fence });
    }

    fn adopt(&mut self) -> Vec<Found> {
        let mut state = self.state();
        // What this brings to an end is among the found.
        let _ = state.book.advance(clock::now());
        let spare = state.book.spare();
        state.outbox.extend(spare);
        state.book.found()
    }

    fn forget(&mut self, uid: Uid, fence: Fence) {
        self.take_in(Input::Forget { uid, fence });
    }

    fn logs(&self, uid: Uid, fence: Fence, pod: Option<u32>) -> Result<LogReader, Error> {
        self.state().book.logs(uid, fence, pod).ok_or(Error::Unknown { uid, fence })
    }
}

/// A simulated moment is never shorter than this, so that time passes at any speed.
pub(super) const INSTANT_MIN: Millis = Millis(1);
