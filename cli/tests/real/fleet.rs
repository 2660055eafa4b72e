//! A manager and its agents as processes that a test kills, pauses and restarts.
//!
//! The test uses the program as an operator does: `manager`, `cluster join`, `agent join`, `agent run`. It
//! fails if a process ends without having been killed.

use super::processes::{self, Process};
use super::rest::RestClient;
use super::sandbox::{Sandbox, wait_until};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Child;
use tokio::time::Instant;

/// Name of the manager among the processes; the others have their clusters' names.
pub(super) const MANAGER: &str = "manager";
/// Name, region and jurisdiction.
pub(super) const CLUSTERS: [(&str, &str, &str); 3] =
    [("eu", "europe-west4", "EU"), ("us", "us-east4", "US"), ("asia", "asia-southeast1", "SG")];
/// Relative to the sandbox.
pub(super) const KUBECONFIG: &str = "manager/admin.kubeconfig";
/// Lease term: the shortest that leaves time for a restart in between.
pub(super) const TERM: Duration = Duration::from_secs(8);
const TERM_FLAG: &str = "8s";
/// Guards killed per workload: each kill doubles its back-off, and the test waits for its end.
const LOSSES_MAX: u32 = 2;
const READY_WITHIN: Duration = Duration::from_secs(30);
/// A process may finish a commit before it ends, on a busy machine.
const END_WITHIN: Duration = Duration::from_secs(8);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Condition {
    Up,
    /// Killed; to be restarted at this time.
    Down(Instant),
    /// Stopped by SIGSTOP; to be continued at this time.
    Paused(Instant),
}

#[derive(Debug)]
struct FleetProcess {
    child: Child,
    condition: Condition,
    since: Instant,
}

/// The number of injected faults.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FaultCounts {
    pub(super) manager_kills: u32,
    /// Kills of the manager that also removed the journal's mark, so that the next start recovers.
    pub(super) marks_lost: u32,
    pub(super) agent_kills: u32,
    pub(super) manager_pauses: u32,
    pub(super) agent_pauses: u32,
    pub(super) guard_kills: u32,
    pub(super) restarts: u32,
}

/// One manager and its agents.
pub(super) struct TestFleet<'s> {
    sandbox: &'s Sandbox,
    listen: String,
    mark: PathBuf,
    /// Number of killed guards by the directory of their workload.
    losses: BTreeMap<OsString, u32>,
    processes: BTreeMap<&'static str, FleetProcess>,
    pub(super) counts: FaultCounts,
}

impl<'s> TestFleet<'s> {
    /// Starts the manager, joins the clusters of the fleet file, and waits until each has reported its
    /// capacity.
    pub(super) async fn start(sandbox: &'s Sandbox, fleet_text: &str) -> Self {
        Self::start_through(sandbox, fleet_text, async |_, listen| listen.to_owned()).await
    }

    /// As `start`, but each agent reaches the manager through a proxy. `proxy` returns its address, from the
    /// agent's name and the manager's address.
    pub(super) async fn start_through(
        sandbox: &'s Sandbox,
        fleet_text: &str,
        mut proxy: impl AsyncFnMut(&'static str, &str) -> String,
    ) -> Self {
        // Agents keep the manager's address, so it must not change with a restart.
        let listen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut fleet = Self {
            sandbox,
            listen,
            mark: PathBuf::new(),
            losses: BTreeMap::new(),
            processes: BTreeMap::new(),
            counts: FaultCounts::default(),
        };
        sandbox.write("fleet.yaml", fleet_text);
        fleet.launch(MANAGER, &["--init"]);
        let rest = fleet.rest().await;
        fleet.mark = fleet.find_mark();
        for (name, region, jurisdiction) in CLUSTERS {
            let printed = sandbox
                .meridian(&["cluster", "join", name, "--region", region, "--jurisdiction", jurisdiction])
                .await
                .ok();
            // The printed command, as an operator would run it.
            let printed = printed.replace(&fleet.listen, &proxy(name, &fleet.listen).await);
            sandbox.join(&printed, None).await.ok();
            fleet.launch(name, &[]);
        }
        wait_until("every cluster has reported its capacity", READY_WITHIN, async || {
            let clusters = rest.list("/apis/meridian.dev/v1alpha1/clusters").await?;
            let ready = clusters
                .iter()
                .filter(|c| c["status"]["resources"]["cpu"]["free"].as_u64().is_some_and(|free| free > 0))
                .count();
            if ready == CLUSTERS.len() { Ok(()) } else { Err(format!("{clusters:?}")) }
        })
        .await;
        fleet
    }

    /// The administrator's client, once the manager answers.
    pub(super) async fn rest(&self) -> RestClient {
        wait_until("the manager is ready", READY_WITHIN, async || {
            let rest = RestClient::open(self.sandbox.kubeconfig()).ok_or("no kubeconfig")?;
            match rest.get("/readyz").await? {
                (200, _) => Ok(rest),
                (status, body) => Err(format!("{status} {body}")),
            }
        })
        .await
    }

    /// The data directory of an agent.
    pub(super) fn agent_dir(&self, name: &str) -> PathBuf {
        self.sandbox.path(&format!("meridian-agent-{name}"))
    }

    fn launch(&mut self, name: &'static str, flags: &[&str]) {
        let mut command = self.sandbox.command();
        if name == MANAGER {
            let data = self.sandbox.path(MANAGER);
            std::fs::create_dir_all(&data).unwrap();
            command
                .args([
                    "manager",
                    "--listen",
                    &self.listen,
                    "--term",
                    TERM_FLAG,
                    "--term-min",
                    TERM_FLAG,
                    "--data-dir",
                ])
                .arg(data);
        } else {
            command
                .args(["agent", "run", "--runner", "process", "--fleet"])
                .arg(self.sandbox.path("fleet.yaml"));
            // The directory in the printed command.
            command.arg("--data-dir").arg(self.agent_dir(name));
        }
        let child = command
            .args(flags)
            .stdout(Stdio::null())
            .stderr(self.sandbox.log(&format!("{name}.log")))
            .spawn()
            .unwrap();
        self.processes.insert(name, FleetProcess { child, condition: Condition::Up, since: Instant::now() });
    }

    pub(super) fn pid(&self, name: &str) -> u32 {
        self.processes[name].child.id().expect("it runs")
    }

    /// Whether a process has been running for so long.
    pub(super) fn up_for(&self, name: &str, long: Duration) -> bool {
        let process = &self.processes[name];
        process.condition == Condition::Up && process.since.elapsed() >= long
    }

    /// The running agents.
    pub(super) fn agents_up(&self) -> Vec<&'static str> {
        self.processes
            .iter()
            .filter(|(name, m)| **name != MANAGER && m.condition == Condition::Up)
            .map(|(name, _)| *name)
            .collect()
    }

    /// Kills a process with SIGKILL; it is restarted after `away`.
    pub(super) async fn kill(&mut self, name: &'static str, away: Duration) {
        let process = self.processes.get_mut(name).unwrap();
        process.child.kill().await.unwrap();
        process.condition = Condition::Down(Instant::now() + away);
        *(if name == MANAGER { &mut self.counts.manager_kills } else { &mut self.counts.agent_kills }) += 1;
    }

    /// Removes the journal's mark from shared memory, as a reboot does: the next manager must ask every agent
    /// what it runs. The manager must be down.
    pub(super) fn remove_mark(&mut self) {
        assert!(matches!(self.processes[MANAGER].condition, Condition::Down(_)));
        std::fs::remove_file(&self.mark).unwrap();
        self.counts.marks_lost += 1;
    }

    fn find_mark(&self) -> PathBuf {
        let files = format!("/proc/{}/fd", self.processes[MANAGER].child.id().unwrap());
        let open =
            std::fs::read_dir(files).unwrap().filter_map(|e| std::fs::read_link(e.unwrap().path()).ok());
        let mut marks = open.filter(|path| path.extension().is_some_and(|e| e == "mark"));
        marks.next().expect("a manager keeps its mark open")
    }

    /// Stops a process with SIGSTOP for `away`.
    pub(super) fn pause(&mut self, name: &'static str, away: Duration) {
        let process = self.processes.get_mut(name).unwrap();
        processes::send(process.child.id().unwrap().cast_signed(), Signal::STOP);
        process.condition = Condition::Paused(Instant::now() + away);
        *(if name == MANAGER { &mut self.counts.manager_pauses } else { &mut self.counts.agent_pauses }) += 1;
    }

    /// Kills the `which`th guard, counted modulo their number. A workload is spared after its second loss.
    pub(super) fn kill_guard(&mut self, which: u64) {
        let workload = |guard: &Process| {
            guard.directory.parent().map(|of_uid| of_uid.as_os_str().to_owned()).unwrap_or_default()
        };
        let mut guards: Vec<Process> =
            self.sandbox.processes().into_iter().filter(|p| p.name == "meridian-guard").collect();
        guards.retain(|guard| self.losses.get(&workload(guard)).is_none_or(|losses| *losses < LOSSES_MAX));
        if let Some(guard) = usize::try_from(which).ok().and_then(|w| guards.get(w % guards.len().max(1))) {
            processes::send(guard.pid, Signal::KILL);
            *self.losses.entry(workload(guard)).or_default() += 1;
            self.counts.guard_kills += 1;
        }
    }

    /// Restarts and continues what is due at `now`. Panics if a process ended by itself.
    pub(super) fn restore_due(&mut self, now: Instant) {
        let names: Vec<&'static str> = self.processes.keys().copied().collect();
        for name in names {
            let process = self.processes.get_mut(name).unwrap();
            match process.condition {
                Condition::Up => {
                    let ended = process.child.try_wait().unwrap();
                    assert!(ended.is_none(), "{name} ended by itself with {ended:?}; see its log");
                }
                Condition::Down(until) if until <= now => {
                    self.launch(name, &[]);
                    self.counts.restarts += 1;
                }
                Condition::Paused(until) if until <= now => {
                    processes::send(process.child.id().unwrap().cast_signed(), Signal::CONT);
                    process.condition = Condition::Up;
                }
                Condition::Down(_) | Condition::Paused(_) => {}
            }
        }
    }

    /// Restarts and continues everything at once.
    pub(super) fn restore_all(&mut self) {
        let forever = self
            .processes
            .values()
            .filter_map(|m| {
                if let Condition::Down(t) | Condition::Paused(t) = m.condition { Some(t) } else { None }
            })
            .max();
        self.restore_due(forever.unwrap_or_else(Instant::now));
    }

    /// Ends a process with SIGTERM; it must exit with 0 soon. It stays down until `start_again`.
    pub(super) async fn terminate(&mut self, name: &'static str) {
        let mut process = self.processes.remove(name).unwrap();
        processes::send(process.child.id().unwrap().cast_signed(), Signal::TERM);
        let status = tokio::time::timeout(END_WITHIN, process.child.wait()).await;
        let status = status
            .unwrap_or_else(|_| panic!("{name} doesn't end within {END_WITHIN:?} when it is asked to"))
            .unwrap();
        assert!(status.success(), "{name} ended with {status}");
    }

    /// Starts a process that is down.
    pub(super) fn start_again(&mut self, name: &'static str) {
        self.start_again_with(name, &[]);
    }

    /// As `start_again`, with more flags.
    pub(super) fn start_again_with(&mut self, name: &'static str, flags: &[&str]) {
        assert!(!self.processes.contains_key(name));
        self.launch(name, flags);
    }

    /// Kills a process with SIGKILL. It stays down until `start_again`.
    pub(super) async fn kill_for_good(&mut self, name: &'static str) {
        self.processes.remove(name).unwrap().child.kill().await.unwrap();
    }

    /// Ends every process with SIGTERM, the agents first.
    pub(super) async fn stop(mut self) {
        let mut names: Vec<&'static str> = self.processes.keys().copied().collect();
        names.sort_by_key(|name| *name == MANAGER);
        for name in names {
            self.terminate(name).await;
        }
    }
}

impl Drop for TestFleet<'_> {
    fn drop(&mut self) {
        // The mark is outside the sandbox.
        let _ = std::fs::remove_file(&self.mark);
    }
}
