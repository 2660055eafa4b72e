//! The process runner: really runs a job's `command`, every gang under a guard of its own.
//!
//! This half takes commands; one thread ([`supervisor`]) carries them out, talks to the guards and tells what happened.
//! Neither owns a process of a gang: dropping the runner leaves every gang to its guard, and the next runner over the same
//! directory takes it up again.

use super::{
    Enforcement, Error, Found, FoundState, JobSpec, LogReader, PodPlacement, Runner, RunnerEvent, Start,
};
use crate::guard::rundir::{RunDir, create_directories};
use crate::guard::{OWN_BINARY, PASSED_ON, clock};
use meridian_shared::ids::{ClusterName, Fence, Region, Uid};
use meridian_shared::protocol::Size;
use meridian_shared::time::{Millis, Mono, Now};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::mpsc::Sender;

mod resolve;
mod supervisor;

use resolve::Resolution;
use supervisor::{Order, Supervisor};

/// How a process runner is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether the agent allows real processes at all. When not, nothing new starts; what an earlier agent left is still looked after.
    pub enabled: bool,
    /// Where runs are kept.
    pub data: PathBuf,
    /// The cluster, as pods are told.
    pub cluster: ClusterName,
    /// Its region, as pods are told.
    pub region: Region,
    /// The binary that offers the hidden subcommand `guard`.
    pub guard: PathBuf,
    /// Whether to put gangs into PID namespaces where the kernel allows it.
    pub namespaces: bool,
    /// The wait before the first retry of a failed pod.
    pub retry_delay_first: Millis,
}

impl Settings {
    /// The usual set-up, with guards from this very binary.
    pub fn new(enabled: bool, data: PathBuf, cluster: ClusterName, region: Region) -> Self {
        Self {
            enabled,
            data,
            cluster,
            region,
            guard: PathBuf::from(OWN_BINARY),
            namespaces: true,
            retry_delay_first: super::pods::RETRY_DELAY_FIRST_DEFAULT,
        }
    }

    fn runs(&self) -> PathBuf {
        self.data.join("runs")
    }

    /// A command that runs this binary as a guard, with none of the agent's own environment.
    fn guard_command(&self, args: impl IntoIterator<Item = OsString>) -> Command {
        let mut command = Command::new(&self.guard);
        command.arg("guard").args(args).env_clear().stdin(Stdio::null()).stdout(Stdio::null());
        command.envs(PASSED_ON.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))));
        command
    }
}

/// What this half leaves for the thread.
#[derive(Debug)]
struct Orders {
    queue: Mutex<VecDeque<Order>>,
    wake: rustix::fd::OwnedFd,
}

impl Orders {
    /// The core gives a few orders per run and turn, and the thread takes all at once: the queue holds what one turn brought.
    fn give(&self, order: Order) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(order);
        // It can only fail when the counter is full, and then the thread is awake.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn take(&self) -> VecDeque<Order> {
        std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Runs jobs as processes of this machine.
#[derive(Debug)]
pub struct ProcessRunner {
    settings: Arc<Settings>,
    orders: Arc<Orders>,
    boot_id: String,
    in_namespaces: bool,
    thread: Option<JoinHandle<()>>,
}

impl ProcessRunner {
    /// Opens the runner over its directory. Events go to `events`; one that is full delays them and loses none.
    pub fn open(settings: Settings, events: Sender<RunnerEvent>) -> Result<Self, Error> {
        let system = |doing| move |source| Error::System { doing, source };
        let runs = settings.runs();
        create_directories(&runs).map_err(|source| Error::File { doing: "create", path: runs, source })?;
        let boot_id = clock::boot_id().map_err(system("read the boot id"))?;
        let in_namespaces = settings.namespaces && probe(&settings);
        if !in_namespaces {
            tracing::warn!(
                "this machine gives the process runner no PID namespaces: a gang whose guard is killed is ended by the agent only, so its enforcement is `Supervised`"
            );
        }
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|e| system("make an event counter")(e.into()))?;
        let orders = Arc::new(Orders { queue: Mutex::default(), wake });
        let settings = Arc::new(settings);
        let supervisor = Supervisor::new(
            Arc::clone(&settings),
            Arc::clone(&orders),
            boot_id.clone(),
            in_namespaces,
            events,
        );
        let thread = std::thread::Builder::new()
            .name("process-runner".into())
            .spawn(move || supervisor.run())
            .map_err(system("start the process runner's thread"))?;
        Ok(Self { settings, orders, boot_id, in_namespaces, thread: Some(thread) })
    }
}

/// Whether gangs can have PID namespaces here.
fn probe(settings: &Settings) -> bool {
    match settings.guard_command(["--probe".into()]).stderr(Stdio::null()).status() {
        Ok(status) => status.success(),
        Err(error) => {
            tracing::error!(guard = %settings.guard.display(), %error, "the guard can't be started, so no gang will be");
            false
        }
    }
}

impl Drop for ProcessRunner {
    fn drop(&mut self) {
        self.orders.give(Order::Quit);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }
}

impl Runner for ProcessRunner {
    fn name(&self) -> &'static str {
        "process"
    }

    fn enforcement(&self) -> Enforcement {
        if self.in_namespaces { Enforcement::Guarded } else { Enforcement::Supervised }
    }

    fn accepts(&self, spec: &JobSpec) -> Result<(), String> {
        if !self.settings.enabled {
            return Err(
                "this cluster's agent doesn't run processes: its operator must enable the process runner"
                    .into(),
            );
        }
        spec.unrunnable().map_or(Ok(()), |why| Err(why.to_owned()))
    }

    fn start(&mut self, start: Start, decided: Now) {
        let refused = match JobSpec::parse(&start.spec) {
            Ok(spec) => self.accepts(&spec).err(),
            Err(error) => Some(error.to_string()),
        };
        self.orders.give(Order::Start { start: Box::new(start), refused, given: decided });
    }

    fn renew(&mut self, uid: Uid, fence: Fence, deadline: Mono, decided: Now) {
        self.orders.give(Order::Renew { uid, fence, deadline, given: decided });
    }

    fn move_pods(&mut self, uid: Uid, fence: Fence, number: u32, placement: Vec<PodPlacement>) {
        self.orders.give(Order::Move { uid, fence, number, placement, grows_to: None });
    }

    fn grow(&mut self, uid: Uid, fence: Fence, number: u32, placement: Vec<PodPlacement>, size: Size) {
        self.orders.give(Order::Move { uid, fence, number, placement, grows_to: Some(size) });
    }

    fn shrink(&mut self, uid: Uid, fence: Fence, size: Size) {
        self.orders.give(Order::Shrink { uid, fence, size });
    }

    fn stop(&mut self, uid: Uid, fence: Fence) {
        self.orders.give(Order::Stop { uid, fence });
    }

    fn adopt(&mut self) -> Vec<Found> {
        let runs = match RunDir::list(&self.settings.runs()) {
            Ok(runs) => runs,
            Err(error) => {
                tracing::error!(%error, "the runs of this machine can't be listed");
                return Vec::new();
            }
        };
        let mut found = Vec::new();
        for (uid, fence, dir) in runs {
            let state = match resolve::resolve(uid, fence, &dir, &self.boot_id, None) {
                Ok(Resolution::Ended(end)) => FoundState::Ended(end),
                Ok(Resolution::Guarded) => {
                    FoundState::Running { failures: dir.state().ok().flatten().map_or(0, |s| s.failures) }
                }
                Ok(Resolution::NotYet) => FoundState::Ending,
                Err(error) => {
                    tracing::error!(%uid, %fence, %error, "a run's files can't be used");
                    FoundState::Ending
                }
            };
            if !matches!(state, FoundState::Ended(_)) {
                self.orders.give(Order::Adopt { uid, fence });
            }
            // Without a plan nothing was started; with one that can't be read it may be anywhere.
            let plan = dir.plan().ok().flatten();
            let nodes = plan
                .map(|plan| plan.start.placement.into_iter().map(|place| place.node).collect())
                .unwrap_or_default();
            found.push(Found { uid, fence, nodes, state });
        }
        found
    }

    fn forget(&mut self, uid: Uid, fence: Fence) {
        self.orders.give(Order::Forget { uid, fence });
    }

    fn logs(&self, uid: Uid, fence: Fence, pod: Option<u32>) -> Result<LogReader, Error> {
        let dir = RunDir::of(&self.settings.runs(), uid, fence);
        if dir.path().is_dir() { Ok(LogReader::files(dir, pod)) } else { Err(Error::Unknown { uid, fence }) }
    }
}
