//! The process runner: runs a job's `command` as processes of this machine, every gang under a guard of its
//! own.
//!
//! [`ProcessRunner`] takes commands. One thread ([`supervisor`]) carries them out, talks to the guards and
//! reports events. Neither owns a process of a gang: dropping the runner leaves every gang to its guard, and
//! the next runner over the same directory adopts it.

use crate::guard::rundir::{RunDir, create_directories};
use crate::guard::{OWN_BINARY, PASSED_ON, clock};
use crate::job_run::pods::RETRY_DELAY_FIRST_DEFAULT;
use crate::job_run::{Error, JobSpec};
use crate::runner::logs::LogFiles;
use meridian_agent_core::runtime::{
    self, Answer, Enforcement, Found, FoundState, LogSource, PodPlacement, Runner, RunnerEvent, Start,
};
use meridian_shared::ids::{ClusterName, Fence, Region, Uid};
use meridian_shared::protocol::{RunnerKind, Size};
use meridian_shared::time::{Millis, Mono, Now};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::mpsc::Sender;

mod orders;
mod resolve;
mod supervised;
mod supervisor;

use orders::{Orders, RunnerOrder};
use resolve::Resolution;
use supervisor::Supervisor;

#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether new gangs may start. If not, runs of an earlier agent are still supervised.
    pub enabled: bool,
    /// Directory of the runs.
    pub data: PathBuf,
    /// Cluster and region are passed to pods in their environment.
    pub cluster: ClusterName,
    pub region: Region,
    /// The binary that offers the hidden subcommand `guard`.
    pub guard: PathBuf,
    /// Whether to put gangs into PID namespaces if the kernel allows it.
    pub namespaces: bool,
    /// Delay before the first retry of a failed pod.
    pub retry_delay_first: Millis,
}

impl Settings {
    /// The defaults, with guards from this binary.
    pub fn new(enabled: bool, data: PathBuf, cluster: ClusterName, region: Region) -> Self {
        Self {
            enabled,
            data,
            cluster,
            region,
            guard: PathBuf::from(OWN_BINARY),
            namespaces: true,
            retry_delay_first: RETRY_DELAY_FIRST_DEFAULT,
        }
    }

    fn runs(&self) -> PathBuf {
        self.data.join("runs")
    }

    /// A command that runs a guard, without the agent's own environment.
    fn guard_command(&self, args: impl IntoIterator<Item = OsString>) -> Command {
        let mut command = Command::new(&self.guard);
        command.arg("guard").args(args).env_clear().stdin(Stdio::null()).stdout(Stdio::null());
        command.envs(PASSED_ON.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))));
        command
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
    /// Opens the runner over its directory, with a channel for its events. Fails if the directory can't be
    /// used or the thread can't be started.
    pub fn open(settings: Settings, events: Sender<RunnerEvent>) -> Result<Self, Error> {
        let system = |doing| move |source| Error::System { doing, source };
        let runs = settings.runs();
        create_directories(&runs).map_err(|source| Error::File { doing: "create", path: runs, source })?;
        let boot_id = clock::boot_id().map_err(system("read the boot id"))?;
        let in_namespaces = settings.namespaces && probe(&settings);
        if !in_namespaces {
            tracing::warn!(
                "this machine has no PID namespaces for the process runner: if a guard is killed, only the \
                 agent ends its gang, so the enforcement is `Supervised`"
            );
        }
        let orders = Arc::new(Orders::new().map_err(system("make an event counter"))?);
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

impl ProcessRunner {
    /// Whether this runner can run a job. Fails with a reason for the submitter.
    pub fn accepts(&self, spec: &JobSpec) -> Result<(), String> {
        if !self.settings.enabled {
            return Err(
                "this cluster's agent doesn't run processes: its operator must enable the process runner"
                    .into(),
            );
        }
        spec.unrunnable().map_or(Ok(()), |why| Err(why.to_owned()))
    }

    /// Every run that has a directory. Fails if the directories can't be listed.
    fn find_runs(&self) -> Result<Vec<Found>, Error> {
        let mut found = Vec::new();
        for (uid, fence, dir) in RunDir::list(&self.settings.runs())? {
            let completed = dir.state().ok().flatten().map(|state| state.completed).unwrap_or_default();
            let state = match resolve::resolve(uid, fence, &dir, &self.boot_id, None) {
                Ok(Resolution::Ended(end)) => end.found(),
                Ok(Resolution::Guarded) => FoundState::Live { running: true },
                Ok(Resolution::NotYet) => FoundState::Live { running: false },
                Err(error) => {
                    tracing::error!(%uid, %fence, %error, "a run's files can't be used");
                    FoundState::Live { running: false }
                }
            };
            if !matches!(state, FoundState::Ended { .. }) {
                self.orders.push(RunnerOrder::Adopt { uid, fence });
            }
            // Without a plan nothing was started. If the plan can't be read, the run may be on any node.
            let plan = dir.plan().ok().flatten();
            let nodes = plan
                .map(|plan| plan.start.placement.into_iter().map(|place| place.node).collect())
                .unwrap_or_default();
            found.push(Found { uid, fence, nodes, completed, state });
        }
        Ok(found)
    }
}

/// Whether the kernel gives PID namespaces to gangs.
fn probe(settings: &Settings) -> bool {
    match settings.guard_command(["--probe".into()]).stderr(Stdio::null()).status() {
        Ok(status) => status.success(),
        Err(error) => {
            tracing::error!(guard = %settings.guard.display(), %error, "the guard can't be started, so no \
                                                                        gang can");
            false
        }
    }
}

impl Drop for ProcessRunner {
    fn drop(&mut self) {
        self.orders.push(RunnerOrder::Quit);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed already.
            let _ = thread.join();
        }
    }
}

impl Runner for ProcessRunner {
    fn kind(&self) -> RunnerKind {
        RunnerKind::Process
    }

    fn name(&self) -> &'static str {
        "process"
    }

    fn enforcement(&self) -> Enforcement {
        if self.in_namespaces { Enforcement::Guarded } else { Enforcement::Supervised }
    }

    fn start(&mut self, start: Start, decided: Now) {
        let refused = match JobSpec::parse(&start.spec) {
            Ok(spec) => self.accepts(&spec).err(),
            Err(error) => Some(error.to_string()),
        };
        self.orders.push(RunnerOrder::Start { start: Box::new(start), refused, given: decided });
    }

    fn renew(&mut self, uid: Uid, fence: Fence, deadline: Mono, decided: Now) {
        self.orders.push(RunnerOrder::Renew { uid, fence, deadline, given: decided });
    }

    fn move_pods(&mut self, uid: Uid, fence: Fence, number: u32, placement: Vec<PodPlacement>) {
        self.orders.push(RunnerOrder::Move { uid, fence, number, placement, scale_up_to: None });
    }

    fn scale_up(&mut self, uid: Uid, fence: Fence, number: u32, placement: Vec<PodPlacement>, size: Size) {
        self.orders.push(RunnerOrder::Move { uid, fence, number, placement, scale_up_to: Some(size) });
    }

    fn scale_down(&mut self, uid: Uid, fence: Fence, size: Size) {
        self.orders.push(RunnerOrder::ScaleDown { uid, fence, size });
    }

    fn stop(&mut self, uid: Uid, fence: Fence) {
        self.orders.push(RunnerOrder::Stop { uid, fence });
    }

    fn adopt(&mut self) -> Answer<'_, Result<Vec<Found>, runtime::Error>> {
        Box::pin(std::future::ready(self.find_runs().map_err(Into::into)))
    }

    fn forget(&mut self, uid: Uid, fence: Fence) {
        self.orders.push(RunnerOrder::Forget { uid, fence });
    }

    fn logs(&self, uid: Uid, fence: Fence, pod: Option<u32>) -> Result<Box<dyn LogSource>, runtime::Error> {
        let dir = RunDir::of(&self.settings.runs(), uid, fence);
        if !dir.path().is_dir() {
            return Err(Error::Unknown { uid, fence }.into());
        }
        Ok(Box::new(LogFiles::new(dir, pod)))
    }
}
