//! A whole fleet on one machine: a manager and its agents as processes of this program, started, watched and ended together.
//!
//! Owns processes and files below one directory; decides nothing. Every process is a `meridian manager` or `meridian agent`
//! as an operator would start it, so that what is seen here is what is run elsewhere.

mod leftover;

use crate::client::{Client, JoinRequest};
use crate::error::Error;
use crate::kubeconfig::Lookup;
use meridian_agent::capacity::fleet::FleetCluster;
use meridian_agent::identity::is_joined;
use meridian_manager::journal::{Journal as _, RedbJournal, mark};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::Instant;

/// A manager or an agent that isn't up after this long won't come up.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// A process that was asked to end is killed after this long.
const END_WITHIN: Duration = Duration::from_secs(5);
/// Before a process that ended is started again: at first, and twice as long each time that it happens soon after.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// A process that lived this long has started well.
const WELL_AFTER: Duration = Duration::from_secs(60);
/// Ends soon after a start, in a row, after which a process is left alone.
const TRIES_MAX: u32 = 5;
/// Between two looks at something that is awaited.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// What the manager's process is called.
const MANAGER: &str = "manager";
/// Where it is kept what runs jobs.
pub(crate) const RUNNER_FILE: &str = "runner";
/// The three regions of every example.
pub(crate) const DEFAULT_FLEET: &str = include_str!("../../manifests/examples/fleet.yaml");

/// How the fleet is run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Everything is kept below it.
    pub(crate) root: PathBuf,
    /// The clusters.
    pub(crate) clusters: Vec<FleetCluster>,
    /// The text they were read from.
    pub(crate) fleet_text: String,
    /// `simulated` or `process`.
    pub(crate) runner: &'static str,
    /// Simulated jobs and providers go so much faster.
    pub(crate) speed: f64,
    /// Lease term.
    pub(crate) term: Option<&'static str>,
    /// Where the manager listens; with port 0 a free one is chosen once, and kept: agents come back to where they joined.
    pub(crate) listen: String,
}

/// Running processes.
pub(crate) struct Fleet {
    plan: Plan,
    program: PathBuf,
    manager: Child,
    agents: BTreeMap<String, Child>,
    /// Processes that ended, as their logs are called, and when they are started again.
    ended: BTreeMap<String, Ended>,
    /// Held as long as this fleet runs here.
    _lock: std::fs::File,
    /// The administrator's connection.
    pub(crate) client: Client,
    /// Where the manager answers.
    pub(crate) server: String,
}

/// A process that ended by itself.
#[derive(Default)]
struct Ended {
    /// How often in a row, each time soon after its start.
    times: u32,
    /// The last time.
    at: Option<Instant>,
    /// When it is started again.
    again_at: Option<Instant>,
}

impl Ended {
    fn note(&mut self, now: Instant) {
        let soon = self.at.is_some_and(|at| now - at < WELL_AFTER);
        self.times = if soon { self.times + 1 } else { 1 };
        self.at = Some(now);
        self.again_at = (self.times < TRIES_MAX).then(|| now + AGAIN_AFTER * 2_u32.pow(self.times - 1));
    }

    /// Whether it is, or was, started again.
    fn due(&self) -> bool {
        self.times < TRIES_MAX
    }
}

impl Fleet {
    /// Starts the manager, joins what hasn't joined yet, and starts the agents.
    pub(crate) async fn start(plan: Plan) -> Result<Self, Error> {
        let program = std::env::current_exe()
            .map_err(|e| Error::Refused(format!("can't find this program's own file: {e}")))?;
        make_dir(&plan.root)?;
        let lock = lock(&plan.root)?;
        leftover::refuse(&plan)?;
        let fleet_file = plan.root.join("fleet.yaml");
        std::fs::write(&fleet_file, &plan.fleet_text).map_err(|e| cannot("write", &fleet_file, &e))?;
        let plan = Plan { listen: settle_port(&plan)?, ..plan };
        let mut manager = start_manager(&program, &plan)?;
        let kubeconfig = plan.admin_kubeconfig();
        let client = match connect(&kubeconfig, &mut manager, &plan.root.join("manager.log")).await {
            Ok(client) => client,
            Err(error) => {
                end(&mut manager).await;
                return Err(error);
            }
        };
        let server = Lookup { flag: Some(kubeconfig), ..Lookup::default() }.access()?.server;
        let mut fleet = Self {
            plan,
            program,
            manager,
            agents: BTreeMap::new(),
            ended: BTreeMap::new(),
            _lock: lock,
            client,
            server,
        };
        let clusters: Vec<FleetCluster> = fleet.plan.clusters.clone();
        for cluster in &clusters {
            if let Err(error) = fleet.join(cluster).await {
                fleet.stop().await;
                return Err(error);
            }
            fleet.start_agent(cluster.cluster.as_str())?;
        }
        Ok(fleet)
    }

    async fn join(&self, cluster: &FleetCluster) -> Result<(), Error> {
        let dir = self.plan.agent_dir(cluster.cluster.as_str());
        if is_joined(&dir) {
            return Ok(());
        }
        // A join that was cut short may have used up the name; nobody else keeps its agent in this directory.
        let replace = dir.exists();
        let request = JoinRequest {
            region: cluster.region.to_string(),
            jurisdiction: cluster.jurisdiction.to_string(),
            ttl: Some("5m".into()),
            replace,
        };
        let answer = self.client.join_token(cluster.cluster.as_str(), &request).await?;
        // The printed command, word by word, as an operator would paste it over there; only its directory is ours.
        let mut words: Vec<&str> = answer.command.split_whitespace().skip(1).collect();
        if let Some(at) = words.iter().position(|w| *w == "--data-dir") {
            words.drain(at..(at + 2).min(words.len()));
        }
        make_dir(&dir)?;
        let output = Command::new(&self.program)
            .args(words)
            .arg("--data-dir")
            .arg(&dir)
            .stdin(Stdio::null())
            .output()
            .await;
        let output = output.map_err(|e| Error::Refused(format!("can't start `meridian agent join`: {e}")))?;
        if output.status.success() {
            return Ok(());
        }
        Err(Error::Refused(format!(
            "cluster `{}` could not join: {}",
            cluster.cluster,
            String::from_utf8_lossy(&output.stderr).trim()
        )))
    }

    /// Starts one agent, again if it was killed.
    pub(crate) fn start_agent(&mut self, name: &str) -> Result<(), Error> {
        let log = self.plan.root.join(format!("agent-{name}.log"));
        let child = Command::new(&self.program)
            .args(["agent", "run", "--runner", self.plan.runner, "--cluster", name])
            .args(["--speed", &self.plan.speed.to_string()])
            .arg("--fleet")
            .arg(self.plan.root.join("fleet.yaml"))
            .arg("--data-dir")
            .arg(self.plan.agent_dir(name))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(append(&log)?)
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| Error::Refused(format!("can't start the agent of `{name}`: {e}")))?;
        self.agents.insert(name.to_owned(), child);
        Ok(())
    }

    /// Kills an agent as a power cut would: nothing of it runs a moment later.
    pub(crate) async fn kill_agent(&mut self, name: &str) -> Result<(), Error> {
        let Some(mut child) = self.agents.remove(name) else {
            return Err(Error::Refused(format!("there is no agent of `{name}`")));
        };
        child.kill().await.map_err(|e| Error::Refused(format!("can't kill the agent of `{name}`: {e}")))
    }

    /// Kills the manager as a power cut would.
    pub(crate) async fn kill_manager(&mut self) -> Result<(), Error> {
        self.manager.kill().await.map_err(|e| Error::Refused(format!("can't kill the manager: {e}")))
    }

    /// Starts a killed manager again, where it was.
    pub(crate) fn restart_manager(&mut self) -> Result<(), Error> {
        self.manager = start_manager(&self.program, &self.plan)?;
        Ok(())
    }

    /// The manager's process, while it runs.
    pub(crate) fn manager_pid(&self) -> Option<u32> {
        self.manager.id()
    }

    /// The agents' processes, those that run.
    pub(crate) fn agent_pids(&self) -> Vec<u32> {
        self.agents.values().filter_map(Child::id).collect()
    }

    /// Waits until every cluster is connected and has reported its room.
    pub(crate) async fn ready(&mut self) -> Result<(), Error> {
        let until = Instant::now() + READY_WITHIN;
        loop {
            let missing = self.missing().await;
            if missing.is_empty() {
                return Ok(());
            }
            self.all_alive()?;
            if Instant::now() > until {
                return Err(self.not_connected(&missing));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The same, with what ends meanwhile started again; who can't be kept up isn't waited for. Where everybody took the runner,
    /// it is remembered: an agent refuses one that isn't what its gangs were started by.
    pub(crate) async fn settled(&mut self, mut note: impl FnMut(String)) -> Result<(), Error> {
        let until = Instant::now() + 2 * READY_WITHIN;
        loop {
            self.keep_up()?.into_iter().for_each(&mut note);
            let missing = self.missing().await;
            if missing.is_empty() {
                let file = self.plan.root.join(RUNNER_FILE);
                let taken = self.ended.values().all(Ended::due);
                return if taken {
                    std::fs::write(&file, self.plan.runner).map_err(|e| cannot("write", &file, &e))
                } else {
                    Ok(())
                };
            }
            if Instant::now() > until {
                return Err(self.not_connected(&missing));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn not_connected(&self, missing: &[String]) -> Error {
        Error::Refused(format!(
            "not connected in time: {}; see the logs in `{}`",
            missing.join(", "),
            self.plan.root.display()
        ))
    }

    /// Clusters that aren't connected yet, or haven't reported their room, but for those whose agents are left alone.
    async fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for name in self
            .plan
            .clusters
            .iter()
            .map(|cluster| cluster.cluster.as_str())
            .filter(|name| self.ended.get(*name).is_none_or(|ended| ended.due()))
        {
            let object = self.client.get(meridian_objects::Kind::Cluster, None, name).await;
            let ready = object.is_ok_and(|o| {
                o["status"]["state"] == "Connected"
                    && o["status"]["resources"].as_object().is_some_and(|r| !r.is_empty())
            });
            if !ready {
                missing.push(name.to_owned());
            }
        }
        missing
    }

    /// An error if a process that should run has ended.
    pub(crate) fn all_alive(&mut self) -> Result<(), Error> {
        let processes = self
            .agents
            .iter_mut()
            .map(|(n, c)| (format!("agent-{n}"), c))
            .chain([("manager".to_owned(), &mut self.manager)]);
        for (name, child) in processes {
            if let Ok(Some(status)) = child.try_wait() {
                let log = self.plan.root.join(format!("{name}.log"));
                return Err(Error::Refused(format!(
                    "{name} ended with {status}; its last words: {}",
                    tail(&log)
                )));
            }
        }
        Ok(())
    }

    /// Starts again what ended by itself, after a while; what can't be kept up is left alone. What happened, in words; an error where
    /// that is the manager.
    pub(crate) fn keep_up(&mut self) -> Result<Vec<String>, Error> {
        let now = Instant::now();
        let mut gone: Vec<(String, ExitStatus)> = Vec::new();
        gone.extend(
            self.agents.iter_mut().filter_map(|(name, child)| Some((name.clone(), child.try_wait().ok()??))),
        );
        let known = self.ended.get(MANAGER).is_some_and(|ended| ended.again_at.is_some());
        gone.extend(
            self.manager
                .try_wait()
                .ok()
                .flatten()
                .filter(|_| !known)
                .map(|status| (MANAGER.to_owned(), status)),
        );
        let mut told = Vec::new();
        for (name, status) in gone {
            self.agents.remove(&name);
            let ended = self.ended.entry(name.clone()).or_default();
            ended.note(now);
            let process = if name == MANAGER { name.clone() } else { format!("agent-{name}") };
            let log = self.plan.root.join(format!("{process}.log"));
            if ended.again_at.is_some() {
                told.push(format!(
                    "{process} ended with {status}, and is started again; its last words: {}",
                    last_line(&log)
                ));
                continue;
            }
            let last = tail(&log);
            let words =
                format!("{process} ended with {status}, {TRIES_MAX} times in a row; its last words: {last}");
            if name == MANAGER {
                return Err(Error::Refused(words));
            }
            told.push(format!("{words}; it is left alone, and its cluster gets no work"));
        }
        let due: Vec<String> = self
            .ended
            .iter()
            .filter(|(_, ended)| ended.again_at.is_some_and(|at| now >= at))
            .map(|(name, _)| name.clone())
            .collect();
        for name in due {
            self.ended.entry(name.clone()).or_default().again_at = None;
            if name == MANAGER { self.restart_manager()? } else { self.start_agent(&name)? }
        }
        Ok(told)
    }

    /// The administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.plan.admin_kubeconfig()
    }

    /// The submitter's kubeconfig.
    pub(crate) fn submitter_kubeconfig(&self) -> PathBuf {
        self.plan.root.join("manager").join("submitter.kubeconfig")
    }

    /// Ends every process, the agents first.
    pub(crate) async fn stop(&mut self) {
        for child in self.agents.values_mut() {
            end(child).await;
        }
        end(&mut self.manager).await;
    }

    /// The same for a fleet that is thrown away: nothing of it is left.
    pub(crate) async fn discard(&mut self) {
        self.stop().await;
        self.plan.remove();
    }
}

impl Plan {
    /// Removes everything that its processes left, below its root and in shared memory. They must have ended.
    fn remove(&self) {
        // What can't be removed only takes space.
        if let Ok(journal) = RedbJournal::open(&self.journal()) {
            let _ = mark::remove(Path::new(mark::SHARED_MEMORY), journal.meta().journal);
        }
        let _ = std::fs::remove_dir_all(&self.root);
    }

    fn journal(&self) -> PathBuf {
        self.root.join("manager").join("journal.redb")
    }

    fn admin_kubeconfig(&self) -> PathBuf {
        self.root.join("manager").join("admin.kubeconfig")
    }

    fn agent_dir(&self, name: &str) -> PathBuf {
        self.root.join("agents").join(name)
    }
}

/// The address that was used here before, or a free one.
fn settle_port(plan: &Plan) -> Result<String, Error> {
    let Some(host) = plan.listen.strip_suffix(":0") else { return Ok(plan.listen.clone()) };
    let kept = plan.root.join("listen");
    if let Ok(listen) = std::fs::read_to_string(&kept) {
        return Ok(listen.trim().to_owned());
    }
    let free = std::net::TcpListener::bind((host, 0)).and_then(|l| l.local_addr());
    let listen = free.map_err(|e| Error::Refused(format!("no free port at `{host}`: {e}")))?.to_string();
    std::fs::write(&kept, &listen).map_err(|e| cannot("write", &kept, &e))?;
    Ok(listen)
}

fn start_manager(program: &Path, plan: &Plan) -> Result<Child, Error> {
    let dir = plan.root.join("manager");
    let fresh = !plan.journal().exists();
    make_dir(&dir)?;
    let mut command = Command::new(program);
    command.args(["manager", "--listen", &plan.listen, "--data-dir"]).arg(&dir);
    if fresh {
        command.arg("--init");
    }
    if let Some(term) = plan.term {
        command.args(["--term", term, "--term-min", term]);
    }
    let log = append(&plan.root.join("manager.log"))?;
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true).spawn();
    child.map_err(|e| Error::Refused(format!("can't start the manager: {e}")))
}

/// Waits until the manager says that it is ready, at the address of the kubeconfig that it writes.
async fn connect(kubeconfig: &Path, manager: &mut Child, log: &Path) -> Result<Client, Error> {
    let until = Instant::now() + READY_WITHIN;
    loop {
        if let Ok(Some(status)) = manager.try_wait() {
            return Err(Error::Refused(format!(
                "the manager ended with {status}; its last words: {}",
                tail(log)
            )));
        }
        if let Ok(access) = (Lookup { flag: Some(kubeconfig.to_owned()), ..Lookup::default() }).access() {
            let client = Client::new(&access)?;
            if client.recovery().await.is_ok() {
                return Ok(client);
            }
        }
        if Instant::now() > until {
            return Err(Error::Refused(format!(
                "the manager isn't ready after {}s; see `{}`",
                READY_WITHIN.as_secs(),
                log.display()
            )));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn end(child: &mut Child) {
    if let Some(pid) =
        child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw)
    {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    if tokio::time::timeout(END_WITHIN, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

/// What is made anew only its owner may enter.
fn make_dir(path: &Path) -> Result<(), Error> {
    let mut make = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(make.recursive(true), 0o700)
        .create(path)
        .map_err(|e| cannot("make", path, &e))
}

/// Takes a directory for this fleet alone.
fn lock(root: &Path) -> Result<std::fs::File, Error> {
    let path = root.join("lock");
    let file = append(&path)?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Refused(format!(
            "a fleet runs in `{}` already: use it, or name another directory with `--data-dir`",
            root.display()
        ))),
        Err(error) => Err(cannot("lock", &path, &error.into())),
    }
}

fn append(path: &Path) -> Result<std::fs::File, Error> {
    std::fs::OpenOptions::new().create(true).append(true).open(path).map_err(|e| cannot("open", path, &e))
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::Refused(format!("can't {what} `{}`: {error}", path.display()))
}

/// The last line of a log.
fn last_line(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("none").to_owned()
}

fn tail(log: &Path) -> String {
    const LINES: usize = 5;
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    match lines.last() {
        // What it ended with says it.
        Some(last) if last.starts_with("error: ") => (*last).to_owned(),
        _ => lines[lines.len().saturating_sub(LINES)..].join(" | "),
    }
}
