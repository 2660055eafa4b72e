//! A manager and its agents as processes of their own, to be killed, paused and started again.
//!
//! Everything is done through the program as an operator does it: `manager`, `cluster join`, `agent join`, `agent run`.
//! A process that ends without having been killed by the test is a failure of its own.

use super::door::Door;
use super::processes::{self, Process};
use super::stage::{Stage, until};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Child;
use tokio::time::Instant;

/// The member that isn't an agent.
pub(super) const MANAGER: &str = "manager";
/// The clusters: name, region, jurisdiction.
pub(super) const CLUSTERS: [(&str, &str, &str); 3] =
    [("eu", "europe-west4", "EU"), ("us", "us-east4", "US"), ("asia", "asia-southeast1", "SG")];
/// Below the stage's place.
pub(super) const KUBECONFIG: &str = "manager/admin.kubeconfig";
/// The lease term: the shortest at which the protocol's numbers fit with a restart in between.
pub(super) const TERM: Duration = Duration::from_secs(8);
const TERM_FLAG: &str = "8s";
/// A workload's guards are killed so often at most.
const LOSSES_MAX: u32 = 2;
const READY_WITHIN: Duration = Duration::from_secs(30);
/// A process that is asked to end may finish a commit, on a machine that is busy.
const ENDS_WITHIN: Duration = Duration::from_secs(8);

/// What a member is made to be.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Condition {
    Up,
    /// Killed; starts again then.
    Down(Instant),
    /// Stopped by SIGSTOP; goes on then.
    Paused(Instant),
}

#[derive(Debug)]
struct Member {
    child: Child,
    condition: Condition,
    since: Instant,
}

/// How often what was done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) manager_kills: u32,
    /// Of these, those that lost the journal's mark too, so that the next start went through recovery.
    pub(super) marks_lost: u32,
    pub(super) agent_kills: u32,
    pub(super) manager_pauses: u32,
    pub(super) agent_pauses: u32,
    pub(super) guard_kills: u32,
    pub(super) restarts: u32,
}

/// The processes of one manager and its agents.
pub(super) struct Crew<'s> {
    stage: &'s Stage,
    listen: String,
    mark: PathBuf,
    /// Killed guards, by the directory of their workload.
    losses: BTreeMap<OsString, u32>,
    members: BTreeMap<&'static str, Member>,
    pub(super) tally: Tally,
}

impl<'s> Crew<'s> {
    /// Starts the manager, joins the clusters of the fleet file, and waits until each has reported its room.
    pub(super) async fn start(stage: &'s Stage, fleet: &str) -> Self {
        Self::start_by_way(stage, fleet, async |_, listen| listen.to_owned()).await
    }

    /// The same with agents that reach the manager by a way of their own: where each finds it, by its name and the manager's address.
    pub(super) async fn start_by_way(
        stage: &'s Stage,
        fleet: &str,
        mut way: impl AsyncFnMut(&'static str, &str) -> String,
    ) -> Self {
        // Agents keep the manager's address, so it must be the same after every restart.
        let listen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut crew = Self {
            stage,
            listen,
            mark: PathBuf::new(),
            losses: BTreeMap::new(),
            members: BTreeMap::new(),
            tally: Tally::default(),
        };
        stage.write("fleet.yaml", fleet);
        crew.launch(MANAGER, &["--init"]);
        let door = crew.door().await;
        crew.mark = crew.find_mark();
        for (name, region, jurisdiction) in CLUSTERS {
            let printed = stage
                .meridian(&["cluster", "join", name, "--region", region, "--jurisdiction", jurisdiction])
                .await
                .ok();
            // The printed command, word by word, as an operator would paste it over there.
            let printed = printed.replace(&crew.listen, &way(name, &crew.listen).await);
            let words: Vec<&str> = printed.split_whitespace().skip(1).collect();
            stage.meridian(&words).await.ok();
            crew.launch(name, &[]);
        }
        until("every cluster has reported its room", READY_WITHIN, async || {
            let clusters = door.list("/apis/meridian.dev/v1alpha1/clusters").await?;
            let ready = clusters
                .iter()
                .filter(|c| c["status"]["resources"]["cpu"]["free"].as_u64().is_some_and(|free| free > 0))
                .count();
            if ready == CLUSTERS.len() { Ok(()) } else { Err(format!("{clusters:?}")) }
        })
        .await;
        crew
    }

    /// The administrator's connection, once the manager answers.
    pub(super) async fn door(&self) -> Door {
        until("the manager is ready", READY_WITHIN, async || {
            let door = Door::open(self.stage.kubeconfig()).ok_or("no kubeconfig")?;
            match door.get("/readyz").await? {
                (200, _) => Ok(door),
                (status, body) => Err(format!("{status} {body}")),
            }
        })
        .await
    }

    /// Where an agent keeps what it is.
    pub(super) fn agent_dir(&self, name: &str) -> PathBuf {
        self.stage.path(&format!("meridian-agent-{name}"))
    }

    fn launch(&mut self, name: &'static str, flags: &[&str]) {
        let mut command = self.stage.command();
        if name == MANAGER {
            let data = self.stage.path(MANAGER);
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
                .arg(self.stage.path("fleet.yaml"));
            // Where the printed command puts it.
            command.arg("--data-dir").arg(self.agent_dir(name));
        }
        let child = command
            .args(flags)
            .stdout(Stdio::null())
            .stderr(self.stage.log(&format!("{name}.log")))
            .spawn()
            .unwrap();
        self.members.insert(name, Member { child, condition: Condition::Up, since: Instant::now() });
    }

    /// A member's process.
    pub(super) fn pid(&self, name: &str) -> u32 {
        self.members[name].child.id().expect("it runs")
    }

    /// Whether a member runs, and has for so long.
    pub(super) fn up_for(&self, name: &str, long: Duration) -> bool {
        let member = &self.members[name];
        member.condition == Condition::Up && member.since.elapsed() >= long
    }

    /// The agents that run.
    pub(super) fn agents_up(&self) -> Vec<&'static str> {
        self.members
            .iter()
            .filter(|(name, m)| **name != MANAGER && m.condition == Condition::Up)
            .map(|(name, _)| *name)
            .collect()
    }

    /// Kills a member as a power cut would; it is back after `away`.
    pub(super) async fn kill(&mut self, name: &'static str, away: Duration) {
        let member = self.members.get_mut(name).unwrap();
        member.child.kill().await.unwrap();
        member.condition = Condition::Down(Instant::now() + away);
        *(if name == MANAGER { &mut self.tally.manager_kills } else { &mut self.tally.agent_kills }) += 1;
    }

    /// Removes the journal's mark from shared memory, as a restart of the whole machine would: the next manager can't take the
    /// short cut and must ask every agent what it runs. Only for a manager that is down.
    pub(super) fn lose_mark(&mut self) {
        assert!(matches!(self.members[MANAGER].condition, Condition::Down(_)));
        std::fs::remove_file(&self.mark).unwrap();
        self.tally.marks_lost += 1;
    }

    fn find_mark(&self) -> PathBuf {
        let files = format!("/proc/{}/fd", self.members[MANAGER].child.id().unwrap());
        let open =
            std::fs::read_dir(files).unwrap().filter_map(|e| std::fs::read_link(e.unwrap().path()).ok());
        let mut marks = open.filter(|path| path.extension().is_some_and(|e| e == "mark"));
        marks.next().expect("a manager keeps its mark open")
    }

    /// Stops a member's clock hand, so to say: it does nothing for `away`, and doesn't notice.
    pub(super) fn pause(&mut self, name: &'static str, away: Duration) {
        let member = self.members.get_mut(name).unwrap();
        processes::send(member.child.id().unwrap().cast_signed(), Signal::STOP);
        member.condition = Condition::Paused(Instant::now() + away);
        *(if name == MANAGER { &mut self.tally.manager_pauses } else { &mut self.tally.agent_pauses }) += 1;
    }

    /// Kills one guard, the `which`th of those that there are, if there are any. A workload is spared after its second loss:
    /// its back-off doubles with each, and the test wants its end.
    pub(super) fn kill_a_guard(&mut self, which: u64) {
        let workload = |guard: &Process| {
            guard.place.parent().map(|of_uid| of_uid.as_os_str().to_owned()).unwrap_or_default()
        };
        let mut guards: Vec<Process> =
            self.stage.processes().into_iter().filter(|p| p.name == "meridian-guard").collect();
        guards.retain(|guard| self.losses.get(&workload(guard)).is_none_or(|losses| *losses < LOSSES_MAX));
        if let Some(guard) = usize::try_from(which).ok().and_then(|w| guards.get(w % guards.len().max(1))) {
            processes::send(guard.pid, Signal::KILL);
            *self.losses.entry(workload(guard)).or_default() += 1;
            self.tally.guard_kills += 1;
        }
    }

    /// Brings back what is due at `now`. Panics if a process went by itself.
    pub(super) fn tend(&mut self, now: Instant) {
        let names: Vec<&'static str> = self.members.keys().copied().collect();
        for name in names {
            let member = self.members.get_mut(name).unwrap();
            match member.condition {
                Condition::Up => {
                    let ended = member.child.try_wait().unwrap();
                    assert!(ended.is_none(), "{name} ended by itself with {ended:?}; see its log");
                }
                Condition::Down(until) if until <= now => {
                    self.launch(name, &[]);
                    self.tally.restarts += 1;
                }
                Condition::Paused(until) if until <= now => {
                    processes::send(member.child.id().unwrap().cast_signed(), Signal::CONT);
                    member.condition = Condition::Up;
                }
                Condition::Down(_) | Condition::Paused(_) => {}
            }
        }
    }

    /// Brings everything back at once.
    pub(super) fn heal(&mut self) {
        let forever = self
            .members
            .values()
            .filter_map(|m| {
                if let Condition::Down(t) | Condition::Paused(t) = m.condition { Some(t) } else { None }
            })
            .max();
        self.tend(forever.unwrap_or_else(Instant::now));
    }

    /// Ends one process as an operator would; it must be gone soon and say that it ended well. It stays away until it is
    /// called back.
    pub(super) async fn ask_to_end(&mut self, name: &'static str) {
        let mut member = self.members.remove(name).unwrap();
        processes::send(member.child.id().unwrap().cast_signed(), Signal::TERM);
        let status = tokio::time::timeout(ENDS_WITHIN, member.child.wait()).await;
        let status = status
            .unwrap_or_else(|_| panic!("{name} doesn't end within {ENDS_WITHIN:?} when it is asked to"))
            .unwrap();
        assert!(status.success(), "{name} ended with {status}");
    }

    /// Waits until an agent has ended because nobody follows it any more. It stays away until it is called back.
    pub(super) async fn gives_up(&mut self, name: &'static str) {
        let mut member = self.members.remove(name).unwrap();
        let status = tokio::time::timeout(READY_WITHIN, member.child.wait()).await;
        let status =
            status.unwrap_or_else(|_| panic!("{name} doesn't give up within {READY_WITHIN:?}")).unwrap();
        assert_eq!(status.code(), Some(1), "{name}");
    }

    /// Starts again what was asked to end.
    pub(super) fn call_back(&mut self, name: &'static str) {
        self.call_back_with(name, &[]);
    }

    /// The same with more flags.
    pub(super) fn call_back_with(&mut self, name: &'static str, flags: &[&str]) {
        assert!(!self.members.contains_key(name));
        self.launch(name, flags);
    }

    /// Kills a member as a power cut would. It stays away until it is called back.
    pub(super) async fn strike(&mut self, name: &'static str) {
        self.members.remove(name).unwrap().child.kill().await.unwrap();
    }

    /// Ends every process as an operator would, the agents first.
    pub(super) async fn stop(mut self) {
        let mut names: Vec<&'static str> = self.members.keys().copied().collect();
        names.sort_by_key(|name| *name == MANAGER);
        for name in names {
            self.ask_to_end(name).await;
        }
    }
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        // It lies outside the stage's place.
        let _ = std::fs::remove_file(&self.mark);
    }
}
