//! A whole fleet on one machine: a manager and agents as processes of this program, started, watched and
//! stopped together.
//!
//! Owns processes and files below one directory. Every process is a `meridian manager` or `meridian agent` as
//! an operator would start it, so that what works here works elsewhere.

pub(crate) mod interrupts;
mod leftover;
pub(crate) mod observe;
mod process;
mod restarts;
pub(crate) mod setup;

use self::process::{append, make_directory};
use self::restarts::RestartState;
use self::setup::{FleetProcess, FleetSetup, RUNNER_FILE};
use crate::client::kubeconfig::Lookup;
use crate::client::{Client, JoinRequest};
use crate::error::Error;
use meridian_agent::identity::is_joined;
use meridian_agent::inventory::fleet::FleetCluster;
use meridian_manager::journal::{Journal as _, RedbJournal, mark};
use meridian_objects::Kind;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::Instant;

/// A manager or agent that isn't ready by then never will be.
const READY_WITHIN: Duration = Duration::from_secs(30);
const POLL_EVERY: Duration = Duration::from_millis(50);

pub(crate) struct Fleet {
    setup: FleetSetup,
    program: PathBuf,
    manager: Child,
    /// The running agents by cluster.
    agents: BTreeMap<String, Child>,
    /// Processes that ended by themselves.
    restarts: BTreeMap<FleetProcess, RestartState>,
    /// Keeps other fleets out of the directory.
    _lock: std::fs::File,
    client: Client,
    server: String,
}

impl Fleet {
    /// Starts the manager, joins the clusters that haven't joined yet, and starts the agents. Fails if one of
    /// them does, or if another fleet runs in the directory.
    pub(crate) async fn start(setup: FleetSetup) -> Result<Self, Error> {
        let program = std::env::current_exe()
            .map_err(|e| Error::Refused(format!("can't find the file of this program: {e}")))?;
        make_directory(&setup.root)?;
        let lock = process::lock(&setup.root)?;
        leftover::refuse(&setup)?;
        process::write(&setup.fleet_file(), &setup.fleet_text)?;
        let setup = setup.with_port()?;
        let mut manager = process::start_manager(&program, &setup)?;
        let kubeconfig = setup.admin_kubeconfig();
        let client = match connect(&kubeconfig, &mut manager, &setup.log_of(&FleetProcess::Manager)).await {
            Ok(client) => client,
            Err(error) => {
                process::end(&mut manager).await;
                return Err(error);
            }
        };
        let server = Lookup::file(kubeconfig).access()?.server;
        let (agents, restarts) = (BTreeMap::new(), BTreeMap::new());
        let mut fleet = Self { setup, program, manager, agents, restarts, _lock: lock, client, server };
        for cluster in fleet.setup.clusters.clone() {
            if let Err(error) = fleet.join(&cluster).await {
                fleet.stop().await;
                return Err(error);
            }
            fleet.start_agent(cluster.cluster.as_str())?;
        }
        Ok(fleet)
    }

    async fn join(&self, cluster: &FleetCluster) -> Result<(), Error> {
        let directory = self.setup.agent_directory(cluster.cluster.as_str());
        if is_joined(&directory) {
            return Ok(());
        }
        // An interrupted join may have taken the name already; only this fleet uses the directory.
        let replace = directory.exists();
        let request = JoinRequest {
            region: cluster.region.to_string(),
            jurisdiction: cluster.jurisdiction.to_string(),
            ttl: Some("5m".into()),
            replace,
            issuer: false,
        };
        let answer = self.client.join_token(cluster.cluster.as_str(), &request).await?;
        // The printed command, as an operator would run it; only its directory is replaced.
        let join = answer.command.split_once(" | ").map_or("", |(_, join)| join);
        let mut words: Vec<&str> = join.split_whitespace().skip(1).collect();
        if let Some(at) = words.iter().position(|w| *w == "--data-dir") {
            words.drain(at..(at + 2).min(words.len()));
        }
        make_directory(&directory)?;
        let mut command = Command::new(&self.program);
        command.args(words).arg("--data-dir").arg(&directory).kill_on_drop(true);
        let output = process::output_of(&mut command, &answer.token).await;
        let output = output.map_err(|e| Error::Refused(format!("can't run `meridian agent join`: {e}")))?;
        if output.status.success() {
            return Ok(());
        }
        let why = String::from_utf8_lossy(&output.stderr);
        Err(Error::Refused(format!("cluster `{}` could not join: {}", cluster.cluster, why.trim())))
    }

    /// Starts the agent of a cluster. Fails if its process can't be started.
    pub(crate) fn start_agent(&mut self, cluster: &str) -> Result<(), Error> {
        let metrics = self.setup.metrics.get(cluster).map(|address| ["--metrics-listen", address]);
        let child = Command::new(&self.program)
            .args(["agent", "run", "--runner", self.setup.runner, "--cluster", cluster])
            .args(["--speed", &self.setup.speed.to_string()])
            .args(metrics.into_iter().flatten())
            .arg("--fleet")
            .arg(self.setup.fleet_file())
            .arg("--data-dir")
            .arg(self.setup.agent_directory(cluster))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(append(&self.setup.log_of(&FleetProcess::Agent(cluster.to_owned())))?)
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| Error::Refused(format!("can't start the agent of `{cluster}`: {e}")))?;
        self.agents.insert(cluster.to_owned(), child);
        Ok(())
    }

    /// Kills an agent with SIGKILL. Fails if it doesn't run.
    pub(crate) async fn kill_agent(&mut self, cluster: &str) -> Result<(), Error> {
        let Some(mut child) = self.agents.remove(cluster) else {
            return Err(Error::Refused(format!("no agent of `{cluster}` runs")));
        };
        child.kill().await.map_err(|e| Error::Refused(format!("can't kill the agent of `{cluster}`: {e}")))
    }

    /// Kills the manager with SIGKILL. Fails if it doesn't run.
    pub(crate) async fn kill_manager(&mut self) -> Result<(), Error> {
        self.manager.kill().await.map_err(|e| Error::Refused(format!("can't kill the manager: {e}")))
    }

    /// Starts a killed manager again. Fails if its process can't be started.
    pub(crate) fn restart_manager(&mut self) -> Result<(), Error> {
        self.manager = process::start_manager(&self.program, &self.setup)?;
        Ok(())
    }

    /// `None` if the manager has ended.
    pub(crate) fn manager_pid(&self) -> Option<u32> {
        self.manager.id()
    }

    /// Process ids of the agents that run.
    pub(crate) fn agent_pids(&self) -> Vec<u32> {
        self.agents.values().filter_map(Child::id).collect()
    }

    /// The administrator's client.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn setup(&self) -> &FleetSetup {
        &self.setup
    }

    /// The manager's URL.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Waits until every cluster is connected and has reported its capacity. Fails if a process ends, or
    /// after a time.
    pub(crate) async fn wait_until_ready(&mut self) -> Result<(), Error> {
        let until = Instant::now() + READY_WITHIN;
        loop {
            let missing = self.missing_clusters().await;
            if missing.is_empty() {
                return Ok(());
            }
            self.check_alive()?;
            if Instant::now() > until {
                return Err(self.not_connected(&missing));
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }

    /// As [`Fleet::wait_until_ready`], but restarts processes that end, and doesn't wait for an agent that
    /// keeps ending. Then stores the runner: an agent refuses another runner than the one that started its
    /// gangs.
    pub(crate) async fn wait_until_settled(&mut self, mut note: impl FnMut(String)) -> Result<(), Error> {
        let until = Instant::now() + 2 * READY_WITHIN;
        loop {
            self.restart_ended()?.into_iter().for_each(&mut note);
            let missing = self.missing_clusters().await;
            if missing.is_empty() {
                break;
            }
            if Instant::now() > until {
                return Err(self.not_connected(&missing));
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
        if self.restarts.values().all(RestartState::is_restarted) {
            process::write(&self.setup.root.join(RUNNER_FILE), self.setup.runner)?;
        }
        Ok(())
    }

    fn not_connected(&self, missing: &[String]) -> Error {
        let (missing, root) = (missing.join(", "), self.setup.root.display());
        Error::Refused(format!("not connected in time: {missing}; see the logs in `{root}`"))
    }

    /// Clusters that aren't connected or haven't reported their capacity. Agents that keep ending don't
    /// count.
    async fn missing_clusters(&self) -> Vec<String> {
        let mut missing = Vec::new();
        let names = self.setup.clusters.iter().map(|cluster| cluster.cluster.as_str());
        for name in names {
            let process = FleetProcess::Agent(name.to_owned());
            if !self.restarts.get(&process).is_none_or(RestartState::is_restarted) {
                continue;
            }
            let object = self.client.get(Kind::Cluster, None, name).await;
            let is_ready = object.is_ok_and(|o| {
                o["status"]["state"] == "Connected"
                    && o["status"]["resources"].as_object().is_some_and(|r| !r.is_empty())
            });
            if !is_ready {
                missing.push(name.to_owned());
            }
        }
        missing
    }

    /// Fails if the manager or an agent has ended.
    pub(crate) fn check_alive(&mut self) -> Result<(), Error> {
        let agents = self.agents.iter_mut().map(|(name, child)| (FleetProcess::Agent(name.clone()), child));
        for (process, child) in agents.chain([(FleetProcess::Manager, &mut self.manager)]) {
            if let Ok(Some(status)) = child.try_wait() {
                let tail = process::tail(&self.setup.log_of(&process));
                let message = format!("{process} ended with {status}; its log ends with: {tail}");
                return Err(Error::Refused(message));
            }
        }
        Ok(())
    }

    /// Restarts processes that ended by themselves, after a pause, and gives up on those that keep ending.
    /// Returns what happened. Fails if the manager keeps ending.
    pub(crate) fn restart_ended(&mut self) -> Result<Vec<String>, Error> {
        let now = Instant::now();
        let mut messages = Vec::new();
        for (process, status) in self.newly_ended() {
            if let FleetProcess::Agent(cluster) = &process {
                self.agents.remove(cluster);
            }
            let log = self.setup.log_of(&process);
            let state = self.restarts.entry(process.clone()).or_default();
            state.record_end(now);
            if state.is_scheduled() {
                let last = process::last_line(&log);
                let ended = format!("{process} ended with {status} and is restarted");
                messages.push(format!("{ended}; its log ends with: {last}"));
                continue;
            }
            let (times, tail) = (restarts::TRIES_MAX, process::tail(&log));
            let ended = format!("{process} ended with {status}, {times} times in a row");
            if process == FleetProcess::Manager {
                return Err(Error::Refused(format!("{ended}; its log ends with: {tail}")));
            }
            messages
                .push(format!("{ended}, and is not restarted: its cluster gets no work; last log: {tail}"));
        }
        let due = self.restarts.iter().filter(|(_, state)| state.is_due(now));
        let due: Vec<FleetProcess> = due.map(|(process, _)| process.clone()).collect();
        for process in due {
            self.restarts.entry(process.clone()).or_default().clear_schedule();
            match process {
                FleetProcess::Manager => self.restart_manager()?,
                FleetProcess::Agent(cluster) => self.start_agent(&cluster)?,
            }
        }
        Ok(messages)
    }

    /// Processes that ended since the last call. A manager that waits for its restart is not among them.
    fn newly_ended(&mut self) -> Vec<(FleetProcess, ExitStatus)> {
        let agents = self.agents.iter_mut().filter_map(|(cluster, child)| {
            Some((FleetProcess::Agent(cluster.clone()), child.try_wait().ok()??))
        });
        let mut ended: Vec<(FleetProcess, ExitStatus)> = agents.collect();
        let is_known = self.restarts.get(&FleetProcess::Manager).is_some_and(RestartState::is_scheduled);
        if !is_known && let Ok(Some(status)) = self.manager.try_wait() {
            ended.push((FleetProcess::Manager, status));
        }
        ended
    }

    /// The administrator's kubeconfig.
    pub(crate) fn admin_kubeconfig(&self) -> PathBuf {
        self.setup.admin_kubeconfig()
    }

    pub(crate) fn submitter_kubeconfig(&self) -> PathBuf {
        self.setup.submitter_kubeconfig()
    }

    /// Ends every process, the agents first.
    pub(crate) async fn stop(&mut self) {
        for child in self.agents.values_mut() {
            process::end(child).await;
        }
        process::end(&mut self.manager).await;
    }

    /// Ends every process and removes all their files.
    pub(crate) async fn discard(&mut self) {
        self.stop().await;
        // A failed removal only leaves files behind.
        if let Ok(journal) = RedbJournal::open(&self.setup.journal()) {
            let _ = mark::remove(Path::new(mark::SHARED_MEMORY), journal.meta().journal);
        }
        let _ = std::fs::remove_dir_all(&self.setup.root);
    }
}

/// Waits for the kubeconfig that the manager writes, and for its first answer.
async fn connect(kubeconfig: &Path, manager: &mut Child, log: &Path) -> Result<Client, Error> {
    let until = Instant::now() + READY_WITHIN;
    loop {
        if let Ok(Some(status)) = manager.try_wait() {
            let tail = process::tail(log);
            return Err(Error::Refused(format!(
                "the manager ended with {status}; its log ends with: {tail}"
            )));
        }
        if let Ok(access) = Lookup::file(kubeconfig.to_owned()).access() {
            let client = Client::new(&access)?;
            if client.recovery().await.is_ok() {
                return Ok(client);
            }
        }
        if Instant::now() > until {
            let (seconds, log) = (READY_WITHIN.as_secs(), log.display());
            return Err(Error::Refused(format!("the manager isn't ready after {seconds}s; see `{log}`")));
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}
