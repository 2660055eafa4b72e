//! Real faults: many small gangs from many clients, while manager, agents and guards are killed and paused at random times.
//!
//! | promise | proof |
//! |---|---|
//! | P1 durable | every submission that was acknowledged ends, under the uid that was acknowledged, and stays ended |
//! | P2 at most one | no run ever found its workload's lock taken |
//! | P4 quota and room | what was used comes back to zero |
//! | – | no process is left behind; the audit log holds |
//!
//! `MERIDIAN_FAULTS_SEED` and `MERIDIAN_FAULTS_GANGS` change the dice and the number of gangs; the processes' own timing stays
//! as random as it is.

use super::crew::{CLUSTERS, Crew, KUBECONFIG, MANAGER, TERM, Tally};
use super::door::Door;
use super::gangs::{self, Dice, FLEET, JOBS, QUEUE};
use super::stage::{Stage, until};
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
/// How long faults go on.
const CHAOS: Duration = Duration::from_secs(60);
/// Over how much of it submissions are spread.
const SUBMITTING: Duration = Duration::from_secs(35);
/// After the last fault everything ends within: a lapse with its drift, a back-off, the longest gangs, and a slow machine.
const ENDS_WITHIN: Duration = Duration::from_secs(110);
/// A manager that never ran longer than this would never get through its recovery.
const MANAGER_RUNS_FOR: Duration = Duration::from_millis(3_500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a whole fleet of processes and keeps both cores busy for minutes: cargo test -p meridian --test real -- --ignored"]
async fn whatever_is_killed_every_gang_ends_once_and_never_runs_twice_at_a_time() {
    let count = number("MERIDIAN_FAULTS_GANGS").map_or(GANGS_DEFAULT, |n| usize::try_from(n).unwrap());
    let seed = number("MERIDIAN_FAULTS_SEED").unwrap_or(SEED_DEFAULT);
    eprintln!("{count} gangs, seed {seed}");
    let stage = Stage::begin(KUBECONFIG).await;
    let proofs = stage.path("proofs");
    gangs::prepare(&proofs);
    let mut crew = Crew::start(&stage, FLEET).await;
    let door = crew.door().await;
    let queue = stage.write("queue.yaml", QUEUE);
    stage.meridian(&["apply", "-f", &queue]).await.ok();

    let history = Arc::new(Mutex::new(History::default()));
    let mut watching = JoinSet::new();
    watching.spawn(watch(door.clone(), Arc::clone(&history)));
    let mut clients = submit(&door, count, seed, &proofs);
    Chaos { crew: &mut crew, dice: Dice::new(seed, 1), spared_until: Instant::now() }.go_on(&proofs).await;
    crew.heal();
    let acknowledged = acknowledged(&mut clients).await;
    assert_eq!(acknowledged.len(), count, "every submission was acknowledged in the end");
    let jobs = ends(&mut crew, &door, count).await;
    let over = attempts_over(&door).await;
    watching.shutdown().await;

    history.lock().unwrap().judge(&jobs, &acknowledged);
    let twice = judge_proofs(&proofs, &jobs);
    used_up_again(&door).await;
    only_the_crew_is_left(&stage).await;
    stage.meridian(&["audit", "verify"]).await.ok();
    let tally = crew.tally;
    no_bug_was_met(&stage, &door).await;
    summary(tally, &jobs, &over, &acknowledged, twice);
    crew.stop().await;
    stage.nothing_left().await;
    exercised(tally, &over, count);
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}: `{text}` is not a number")))
}

/// Starts the clients. Each tells the name and, where an answer named it, the uid of what was acknowledged.
fn submit(door: &Door, count: usize, seed: u64, proofs: &Path) -> JoinSet<Vec<(String, Option<String>)>> {
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let numbers: Vec<usize> = (client..count).step_by(CLIENTS).collect();
        clients.spawn(one_client(door.clone(), numbers, seed, proofs.to_owned()));
    }
    clients
}

async fn one_client(
    door: Door,
    numbers: Vec<usize>,
    seed: u64,
    proofs: PathBuf,
) -> Vec<(String, Option<String>)> {
    let mut dice = Dice::new(seed, 100 + numbers.first().map_or(0, |n| *n as u64));
    let gap = SUBMITTING.as_millis() as u64 / numbers.len().max(1) as u64;
    let mut acknowledged = Vec::new();
    for number in numbers {
        let job = gangs::job(number, seed, &proofs);
        let uid = loop {
            match door.post(JOBS, &job).await {
                Ok((200 | 201, made)) => break made["metadata"]["uid"].as_str().map(str::to_owned),
                Ok((409, status)) if status["reason"] == "AlreadyExists" => break None,
                Ok((429 | 502..=504, _)) | Err(_) => {
                    tokio::time::sleep(Duration::from_millis(dice.between(50, 400))).await
                }
                Ok((status, body)) => panic!("a submission was answered with {status}: {body}"),
            }
        };
        acknowledged.push((gangs::name(number), uid));
        tokio::time::sleep(Duration::from_millis(dice.between(0, 2 * gap))).await;
    }
    acknowledged
}

async fn acknowledged(
    clients: &mut JoinSet<Vec<(String, Option<String>)>>,
) -> BTreeMap<String, Option<String>> {
    let mut all = BTreeMap::new();
    while let Some(done) = clients.join_next().await {
        all.extend(done.unwrap());
    }
    all
}

/// Faults at random times.
struct Chaos<'c, 's> {
    crew: &'c mut Crew<'s>,
    dice: Dice,
    /// Until then nothing happens to the manager: a new leadership counts every lease from its own start, so that under a
    /// manager that is always killed again no lease ever lapses.
    spared_until: Instant,
}

impl Chaos<'_, '_> {
    async fn go_on(mut self, proofs: &Path) {
        let end = Instant::now() + CHAOS;
        let mut next = Instant::now();
        while Instant::now() < end {
            let now = Instant::now();
            self.crew.tend(now);
            assert_eq!(gangs::overlaps(proofs), "", "two runs of one workload at a time");
            if now >= next {
                self.one_fault().await;
                next = now + Duration::from_millis(self.dice.between(300, 1_500));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn one_fault(&mut self) {
        let agents = self.crew.agents_up();
        let agent = agents.get(usize::try_from(self.dice.below(CLUSTERS.len() as u64)).unwrap()).copied();
        let manager = self.crew.up_for(MANAGER, MANAGER_RUNS_FOR) && Instant::now() >= self.spared_until;
        match (self.dice.below(20), agent) {
            (0..=5, _) if manager => {
                let away = Duration::from_millis(self.dice.between(0, 1_000));
                self.crew.kill(MANAGER, away).await;
                if self.dice.below(3) == 0 {
                    self.crew.lose_mark();
                }
            }
            (6..=7, _) if manager => {
                self.crew.pause(MANAGER, Duration::from_millis(self.dice.between(200, 3_000)))
            }
            (8..=12, Some(agent)) => {
                let away = self.away(2_000, false);
                self.crew.kill(agent, away).await;
            }
            (13..=16, Some(agent)) => {
                let away = self.away(3_000, self.crew.tally.agent_pauses == 0);
                self.crew.pause(agent, away);
            }
            _ => self.crew.kill_a_guard(self.dice.below(1 << 16)),
        }
    }

    /// How long an agent is away: mostly a moment, now and then, or where it must be, through the lapse of all its leases.
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

/// What readers were shown over time.
#[derive(Debug, Default)]
struct History {
    uids: BTreeMap<String, String>,
    finished: BTreeMap<String, Value>,
    wrongs: Vec<String>,
}

impl History {
    fn see(&mut self, job: &Value) {
        let name = job["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let uid = job["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let first = self.uids.entry(name.clone()).or_insert_with(|| uid.clone());
        if *first != uid {
            self.wrongs.push(format!("{name} changed its uid from {first} to {uid}"));
        }
        let conditions = &job["status"]["conditions"];
        match self.finished.get(&name) {
            Some(end) if end != conditions => {
                self.wrongs.push(format!("{name} had ended with {end}, then {conditions}"))
            }
            Some(_) => {}
            None if conditions.is_null() => {}
            None => drop(self.finished.insert(name, conditions.clone())),
        }
    }

    /// What was acknowledged is there, once, under its uid, and succeeded.
    fn judge(&mut self, jobs: &BTreeMap<String, Value>, acknowledged: &BTreeMap<String, Option<String>>) {
        jobs.values().for_each(|job| self.see(job));
        assert_eq!(self.wrongs, Vec::<String>::new());
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

/// Looks again and again; a look that fails is none.
async fn watch(door: Door, history: Arc<Mutex<History>>) {
    loop {
        if let Ok(jobs) = door.list(JOBS).await {
            let mut history = history.lock().unwrap();
            jobs.iter().for_each(|job| history.see(job));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Waits until every gang has ended, one way or the other.
async fn ends(crew: &mut Crew<'_>, door: &Door, count: usize) -> BTreeMap<String, Value> {
    until("every gang ends", ENDS_WITHIN, async || {
        crew.tend(Instant::now());
        let jobs = door.list(JOBS).await?;
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
            Some(name) => door.get(&format!("/meridian/v1/why/default/{name}")).await?.1,
            None => Value::Null,
        };
        Err(format!("{} of {count} jobs, {} open, such as {states:?}; why: {why}", jobs.len(), open.len()))
    })
    .await
}

/// No overlap, and every pod ran to its end, at most once per attempt. Returns how many gangs did so more than once: a run
/// whose end was lost with its guard or its lease is done again, after the first.
fn judge_proofs(proofs: &Path, jobs: &BTreeMap<String, Value>) -> usize {
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

/// Quota and room are back.
async fn used_up_again(door: &Door) {
    until("quota and room are back", Duration::from_secs(20), async || {
        let (_, queue) = door.get("/apis/kueue.x-k8s.io/v1beta1/clusterqueues/small").await?;
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
        let clusters = door.list("/apis/meridian.dev/v1alpha1/clusters").await?;
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

/// One manager and the agents; no guard and nothing of a gang.
async fn only_the_crew_is_left(stage: &Stage) {
    until("only the manager and the agents are left", Duration::from_secs(15), async || {
        let (crew, others): (Vec<_>, Vec<_>) = stage
            .processes()
            .into_iter()
            .partition(|p| p.line.contains(" manager ") || p.line.contains(" agent run "));
        if crew.len() == CLUSTERS.len() + 1 && others.is_empty() {
            Ok(())
        } else {
            Err(format!("{crew:?} and {others:?}"))
        }
    })
    .await;
}

/// How the attempts of all workloads were over, in the manager's words, and how often.
async fn attempts_over(door: &Door) -> BTreeMap<String, usize> {
    let mut over = BTreeMap::new();
    for workload in door.list("/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads").await.unwrap() {
        for attempt in workload["status"]["meridian"]["history"].as_array().into_iter().flatten() {
            let end = attempt["end"].as_str().unwrap_or("not over");
            *over.entry(end.split(':').next().unwrap_or(end).to_owned()).or_default() += 1;
        }
    }
    over
}

/// No thread of any process panicked, and the manager found nothing wrong with itself.
async fn no_bug_was_met(stage: &Stage, door: &Door) {
    if let Some((log, line)) = stage.log_lines("panicked").into_iter().next() {
        panic!("{log}: {line}");
    }
    let metrics = door.text("/metrics").await.unwrap();
    let broken = metrics.lines().find(|line| line.starts_with("meridian_invariant_violations_total"));
    assert!(broken.is_some_and(|line| line.ends_with(" 0")), "{broken:?}");
}

fn summary(
    tally: Tally,
    jobs: &BTreeMap<String, Value>,
    over: &BTreeMap<String, usize>,
    acknowledged: &BTreeMap<String, Option<String>>,
    twice: usize,
) {
    let mut by_attempts: BTreeMap<usize, usize> = BTreeMap::new();
    jobs.values().for_each(|job| *by_attempts.entry(attempts(job)).or_default() += 1);
    eprintln!("{tally:?}");
    eprintln!("gangs by attempts: {by_attempts:?}; how attempts were over: {over:?}");
    let repeated = acknowledged.values().filter(|uid| uid.is_none()).count();
    eprintln!(
        "submissions whose first answer was lost: {repeated}; gangs that ran to the end again after their first run's end was lost: {twice}"
    );
}

/// A run that did little proves little.
fn exercised(tally: Tally, over: &BTreeMap<String, usize>, count: usize) {
    let Tally { manager_kills, agent_kills, agent_pauses, guard_kills, restarts, .. } = tally;
    assert!(manager_kills >= 3 && agent_kills >= 4 && agent_pauses >= 1 && restarts >= 7, "{tally:?}");
    if count >= GANGS_DEFAULT {
        assert!(guard_kills >= 1, "{tally:?}");
        assert!(over.contains_key("the lease lapsed"), "no lease lapsed: {over:?}");
    }
}
