//! Real faults: many small gangs from many clients, while manager, agents and guards are killed and paused at
//! random.
//!
//! | promise | proof |
//! |---|---|
//! | P1 durable | every acknowledged submission ends with the acknowledged UID, and stays ended |
//! | P2 at most one | no run ever found its workload's lock taken |
//! | P4 quota and capacity | all usage returns to zero |
//! | – | no process is left behind; the audit log is intact |
//!
//! `MERIDIAN_FAULTS_SEED` and `MERIDIAN_FAULTS_GANGS` change the seed and the number of gangs. The timing of
//! the processes stays random.

use super::fleet::{CLUSTERS, FaultCounts, KUBECONFIG, MANAGER, TERM, TestFleet};
use super::gangs::{self, Dice, FLEET, JOBS, QUEUE};
use super::rest::RestClient;
use super::sandbox::{Sandbox, wait_until};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

const GANGS_DEFAULT: usize = 500;
const CLIENTS: usize = 8;
const SEED_DEFAULT: u64 = 0x6d65_7269_6469_616e;
/// Duration of the faults.
const CHAOS: Duration = Duration::from_secs(60);
/// Submissions are spread over this time.
const SUBMITTING: Duration = Duration::from_secs(35);
/// Time limit after the last fault: a lapsed lease with its drift, a back-off, the longest gangs, and a slow
/// machine.
const END_WITHIN: Duration = Duration::from_secs(110);
/// The manager runs at least this long between kills; else it would never finish its recovery.
const MANAGER_RUNS_FOR: Duration = Duration::from_millis(3_500);

/// UIDs of acknowledged jobs by name; `None` if the answer with the UID was lost.
type Acknowledgements = BTreeMap<String, Option<String>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts real processes for minutes: cargo test -p meridian --test real -- --ignored"]
async fn gangs_end_and_never_overlap_whatever_is_killed() {
    let count = number("MERIDIAN_FAULTS_GANGS").map_or(GANGS_DEFAULT, |n| usize::try_from(n).unwrap());
    let seed = number("MERIDIAN_FAULTS_SEED").unwrap_or(SEED_DEFAULT);
    eprintln!("{count} gangs, seed {seed}");
    let sandbox = Sandbox::create(KUBECONFIG).await;
    let proofs = sandbox.path("proofs");
    gangs::prepare(&proofs);
    let mut fleet = TestFleet::start(&sandbox, FLEET).await;
    let rest = fleet.rest().await;
    let queue = sandbox.write("queue.yaml", QUEUE);
    sandbox.meridian(&["apply", "-f", &queue]).await.ok();

    let history = Arc::new(Mutex::new(History::default()));
    let mut watching = JoinSet::new();
    watching.spawn(watch(rest.clone(), Arc::clone(&history)));
    let mut clients = submit(&rest, count, seed, &proofs);
    Chaos { fleet: &mut fleet, dice: Dice::new(seed, 1), spared_until: Instant::now() }.go_on(&proofs).await;
    fleet.restore_all();
    let acknowledged = acknowledged(&mut clients).await;
    assert_eq!(acknowledged.len(), count, "every submission was acknowledged in the end");
    let jobs = ends(&mut fleet, &rest, count).await;
    let over = count_attempt_ends(&rest).await;
    watching.shutdown().await;

    history.lock().unwrap().check(&jobs, &acknowledged);
    let twice = check_proofs(&proofs, &jobs);
    wait_until_all_is_free(&rest).await;
    wait_until_gangs_are_gone(&sandbox).await;
    sandbox.meridian(&["audit", "verify"]).await.ok();
    let counts = fleet.counts;
    assert_no_bug(&sandbox, &rest).await;
    summary(counts, &jobs, &over, &acknowledged, twice);
    fleet.stop().await;
    sandbox.assert_nothing_left().await;
    assert_enough_faults(counts, &over, count);
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}: `{text}` is not a number")))
}

/// Starts the clients. Each returns the acknowledged names, with the UID if an answer had one.
fn submit(rest: &RestClient, count: usize, seed: u64, proofs: &Path) -> JoinSet<Acknowledgements> {
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let numbers: Vec<usize> = (client..count).step_by(CLIENTS).collect();
        clients.spawn(one_client(rest.clone(), numbers, seed, proofs.to_owned()));
    }
    clients
}

async fn one_client(rest: RestClient, numbers: Vec<usize>, seed: u64, proofs: PathBuf) -> Acknowledgements {
    let mut dice = Dice::new(seed, 100 + numbers.first().map_or(0, |n| *n as u64));
    let gap = SUBMITTING.as_millis() as u64 / numbers.len().max(1) as u64;
    let mut acknowledged = Acknowledgements::new();
    for number in numbers {
        let job = gangs::job(number, seed, &proofs);
        let uid = loop {
            match rest.post(JOBS, &job).await {
                Ok((200 | 201, made)) => break made["metadata"]["uid"].as_str().map(str::to_owned),
                Ok((409, status)) if status["reason"] == "AlreadyExists" => break None,
                Ok((429 | 502..=504, _)) | Err(_) => {
                    tokio::time::sleep(Duration::from_millis(dice.between(50, 400))).await
                }
                Ok((status, body)) => panic!("a submission was answered with {status}: {body}"),
            }
        };
        acknowledged.insert(gangs::name(number), uid);
        tokio::time::sleep(Duration::from_millis(dice.between(0, 2 * gap))).await;
    }
    acknowledged
}

async fn acknowledged(clients: &mut JoinSet<Acknowledgements>) -> Acknowledgements {
    let mut all = BTreeMap::new();
    while let Some(done) = clients.join_next().await {
        all.extend(done.unwrap());
    }
    all
}

/// Injects faults at random times.
struct Chaos<'c, 's> {
    fleet: &'c mut TestFleet<'s>,
    dice: Dice,
    /// The manager is spared until then. A new leadership counts every lease from its own start: if the
    /// manager is killed again and again, no lease ever lapses.
    spared_until: Instant,
}

impl Chaos<'_, '_> {
    async fn go_on(mut self, proofs: &Path) {
        let end = Instant::now() + CHAOS;
        let mut next = Instant::now();
        while Instant::now() < end {
            let now = Instant::now();
            self.fleet.restore_due(now);
            assert_eq!(gangs::overlaps(proofs), "", "two runs of one workload at a time");
            if now >= next {
                self.one_fault().await;
                next = now + Duration::from_millis(self.dice.between(300, 1_500));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn one_fault(&mut self) {
        let agents = self.fleet.agents_up();
        let agent = agents.get(usize::try_from(self.dice.below(CLUSTERS.len() as u64)).unwrap()).copied();
        let manager = self.fleet.up_for(MANAGER, MANAGER_RUNS_FOR) && Instant::now() >= self.spared_until;
        match (self.dice.below(20), agent) {
            (0..=5, _) if manager => {
                let away = Duration::from_millis(self.dice.between(0, 1_000));
                self.fleet.kill(MANAGER, away).await;
                if self.dice.below(3) == 0 {
                    self.fleet.remove_mark();
                }
            }
            (6..=7, _) if manager => {
                self.fleet.pause(MANAGER, Duration::from_millis(self.dice.between(200, 3_000)))
            }
            (8..=12, Some(agent)) => {
                let away = self.away(2_000, false);
                self.fleet.kill(agent, away).await;
            }
            (13..=16, Some(agent)) => {
                let away = self.away(3_000, self.fleet.counts.agent_pauses == 0);
                self.fleet.pause(agent, away);
            }
            _ => self.fleet.kill_guard(self.dice.below(1 << 16)),
        }
    }

    /// How long an agent is away: mostly a moment; sometimes, and with `must_lapse` always, until all its
    /// leases have lapsed.
    fn away(&mut self, millis_max: u64, must_lapse: bool) -> Duration {
        let through_a_lapse = TERM + Duration::from_secs(3);
        if must_lapse {
            self.spared_until = Instant::now() + through_a_lapse;
        }
        if must_lapse || self.dice.below(8) == 0 {
            through_a_lapse
        } else {
            Duration::from_millis(self.dice.between(0, millis_max))
        }
    }
}

/// What readers of the API saw over time.
#[derive(Debug, Default)]
struct History {
    uids: BTreeMap<String, String>,
    finished: BTreeMap<String, Value>,
    errors: Vec<String>,
}

impl History {
    fn see(&mut self, job: &Value) {
        let name = job["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let uid = job["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let first = self.uids.entry(name.clone()).or_insert_with(|| uid.clone());
        if *first != uid {
            self.errors.push(format!("{name} changed its uid from {first} to {uid}"));
        }
        let conditions = &job["status"]["conditions"];
        match self.finished.get(&name) {
            Some(end) if end != conditions => {
                self.errors.push(format!("{name} had ended with {end}, then {conditions}"))
            }
            Some(_) => {}
            None if conditions.is_null() => {}
            None => drop(self.finished.insert(name, conditions.clone())),
        }
    }

    /// Every acknowledged job exists once, with its UID, and succeeded.
    fn check(&mut self, jobs: &BTreeMap<String, Value>, acknowledged: &Acknowledgements) {
        jobs.values().for_each(|job| self.see(job));
        assert_eq!(self.errors, Vec::<String>::new());
        for (name, uid) in acknowledged {
            let job = &jobs[name];
            assert!(
                uid.as_deref().is_none_or(|uid| job["metadata"]["uid"] == uid),
                "{name} was acknowledged as {uid:?}: {job}"
            );
            assert!(succeeded(job), "{name}: {}", job["status"]);
        }
    }
}

fn succeeded(job: &Value) -> bool {
    job["status"]["conditions"]
        .as_array()
        .is_some_and(|all| all.iter().filter(|c| c["status"] == "True").map(|c| &c["type"]).eq(["Complete"]))
}

/// Polls the jobs forever; a failed poll is skipped.
async fn watch(rest: RestClient, history: Arc<Mutex<History>>) {
    loop {
        if let Ok(jobs) = rest.list(JOBS).await {
            let mut history = history.lock().unwrap();
            jobs.iter().for_each(|job| history.see(job));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Waits until every gang has ended, whether it succeeded or failed.
async fn ends(fleet: &mut TestFleet<'_>, rest: &RestClient, count: usize) -> BTreeMap<String, Value> {
    wait_until("every gang ends", END_WITHIN, async || {
        fleet.restore_due(Instant::now());
        let jobs = rest.list(JOBS).await?;
        let open: Vec<&Value> = jobs.iter().filter(|job| job["status"]["conditions"].is_null()).collect();
        if jobs.len() == count && open.is_empty() {
            return Ok(jobs
                .into_iter()
                .map(|job| (job["metadata"]["name"].as_str().unwrap_or_default().to_owned(), job))
                .collect());
        }
        let states: Vec<String> = open
            .iter()
            .take(3)
            .map(|job| format!("{}: {}", job["metadata"]["name"], job["status"]))
            .collect();
        let why = match open.first().and_then(|job| job["metadata"]["name"].as_str()) {
            Some(name) => rest.get(&format!("/meridian/v1/why/default/{name}")).await?.1,
            None => Value::Null,
        };
        Err(format!("{} of {count} jobs, {} open, such as {states:?}; why: {why}", jobs.len(), open.len()))
    })
    .await
}

/// Checks that no runs overlapped and that every pod ran to its end, at most once per attempt. Returns how
/// many gangs did so more than once: if a run's end is lost with its guard or lease, the gang runs again.
fn check_proofs(proofs: &Path, jobs: &BTreeMap<String, Value>) -> usize {
    assert_eq!(gangs::overlaps(proofs), "", "two runs of one workload at a time");
    let mut twice = 0;
    for number in 0..jobs.len() {
        let attempts = attempts(&jobs[&gangs::name(number)]);
        let ends = gangs::ends(proofs, number);
        assert!(
            ends.values().all(|n| (1..=attempts).contains(n)),
            "{} ran to its end {ends:?} times in {attempts} attempts",
            gangs::name(number)
        );
        twice += usize::from(ends.values().any(|n| *n > 1));
    }
    twice
}

fn attempts(job: &Value) -> usize {
    usize::try_from(job["status"]["meridian"]["attempts"].as_u64().unwrap_or(0)).unwrap()
}

/// Waits until all quota and capacity are free.
async fn wait_until_all_is_free(rest: &RestClient) {
    wait_until("quota and capacity are free", Duration::from_secs(20), async || {
        let (_, queue) = rest.get("/apis/kueue.x-k8s.io/v1beta1/clusterqueues/small").await?;
        let status = &queue["status"];
        let used = status["flavorsReservation"]
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|f| f["resources"].as_array().into_iter().flatten());
        let free = used.clone().all(|r| r["total"] == "0" || r["total"] == 0);
        let idle = ["pendingWorkloads", "reservingWorkloads", "admittedWorkloads"]
            .iter()
            .all(|count| status[count] == 0);
        if !free || !idle {
            return Err(format!("the queue says {status}"));
        }
        let clusters = rest.list("/apis/meridian.dev/v1alpha1/clusters").await?;
        for cluster in &clusters {
            let (status, resources) = (&cluster["status"], cluster["status"]["resources"].as_object());
            let all = resources.is_some_and(|r| {
                !r.is_empty() && r.values().all(|r| r["free"] == r["capacity"] && r["free"] != 0)
            });
            if !all || status["workloads"] != 0 {
                return Err(format!("cluster {} says {status}", cluster["metadata"]["name"]));
            }
        }
        if clusters.len() == CLUSTERS.len() { Ok(()) } else { Err(format!("{} clusters", clusters.len())) }
    })
    .await;
}

/// Waits until only the manager and the agents run: no guard, nothing of a gang.
async fn wait_until_gangs_are_gone(sandbox: &Sandbox) {
    wait_until("only the manager and the agents are left", Duration::from_secs(15), async || {
        let (fleet, others): (Vec<_>, Vec<_>) = sandbox
            .processes()
            .into_iter()
            .partition(|p| p.line.contains(" manager ") || p.line.contains(" agent run "));
        if fleet.len() == CLUSTERS.len() + 1 && others.is_empty() {
            Ok(())
        } else {
            Err(format!("{fleet:?} and {others:?}"))
        }
    })
    .await;
}

/// Counts how attempts ended, by the manager's reason.
async fn count_attempt_ends(rest: &RestClient) -> BTreeMap<String, usize> {
    let mut over = BTreeMap::new();
    for workload in rest.list("/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads").await.unwrap() {
        for attempt in workload["status"]["meridian"]["history"].as_array().into_iter().flatten() {
            let end = attempt["end"].as_str().unwrap_or("not over");
            *over.entry(end.split(':').next().unwrap_or(end).to_owned()).or_default() += 1;
        }
    }
    over
}

/// Checks that no process panicked, and that the manager found no violated invariant.
async fn assert_no_bug(sandbox: &Sandbox, rest: &RestClient) {
    if let Some((log, line)) = sandbox.log_lines("panicked").into_iter().next() {
        panic!("{log}: {line}");
    }
    let metrics = rest.text("/metrics").await.unwrap();
    let broken = metrics.lines().find(|line| line.starts_with("meridian_invariant_violations_total"));
    assert!(broken.is_some_and(|line| line.ends_with(" 0")), "{broken:?}");
}

fn summary(
    counts: FaultCounts,
    jobs: &BTreeMap<String, Value>,
    over: &BTreeMap<String, usize>,
    acknowledged: &Acknowledgements,
    twice: usize,
) {
    let mut by_attempts: BTreeMap<usize, usize> = BTreeMap::new();
    jobs.values().for_each(|job| *by_attempts.entry(attempts(job)).or_default() += 1);
    eprintln!("{counts:?}");
    eprintln!("gangs by attempts: {by_attempts:?}; how attempts were over: {over:?}");
    let repeated = acknowledged.values().filter(|uid| uid.is_none()).count();
    eprintln!(
        "submissions repeated after a lost answer: {repeated}; gangs run again after a lost end: {twice}"
    );
}

/// Checks that enough faults happened: a run with few faults proves little.
fn assert_enough_faults(counts: FaultCounts, over: &BTreeMap<String, usize>, count: usize) {
    let FaultCounts { manager_kills, agent_kills, agent_pauses, guard_kills, restarts, .. } = counts;
    assert!(manager_kills >= 3 && agent_kills >= 4 && agent_pauses >= 1 && restarts >= 7, "{counts:?}");
    if count >= GANGS_DEFAULT {
        assert!(guard_kills >= 1, "{counts:?}");
        // At the agent, or at the manager while the cluster was disconnected.
        let lapsed = |end: &String| end.contains("lease") || end == "cluster lost";
        assert!(over.keys().any(lapsed), "no lease lapsed: {over:?}");
    }
}
