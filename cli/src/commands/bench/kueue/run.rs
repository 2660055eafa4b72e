//! Plays a scenario against a real manager, and collects what it did.

use super::scenario::Scenario;
use crate::client::{Client, Selection};
use crate::commands::bench::load::CLIENTS;
use crate::commands::bench::measures::Bench;
use crate::commands::bench::samples::sum;
use crate::error::Error;
use meridian_objects::Kind;
use serde_json::Value;
use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How often to ask how many workloads have ended; the manager counts them four times a second.
const POLL_EVERY: Duration = Duration::from_millis(250);
/// `USER_HZ`: the unit of processor time in `/proc`, fixed by the kernel's interface.
const TICKS_PER_SECOND: f64 = 100.0;

/// Counters of kernel and manager at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counters {
    pub(super) manager_cpu_s: f64,
    pub(super) agents_cpu_s: f64,
    pub(super) commits: u64,
    pub(super) records: u64,
}

impl Counters {
    async fn read(bench: &Bench) -> Result<Self, Error> {
        let text = bench.client.metrics().await?;
        let pid = bench.fleet.manager_pid().ok_or_else(|| Error::Refused("the manager ended".into()))?;
        let agents = bench.fleet.agent_pids().into_iter().map(cpu_seconds);
        Ok(Self {
            manager_cpu_s: cpu_seconds(pid)?,
            agents_cpu_s: agents.sum::<Result<f64, Error>>()?,
            commits: sum(&text, "meridian_journal_commit_seconds_count", ""),
            records: sum(&text, "meridian_journal_records_total", ""),
        })
    }
}

/// Processor time that a process and its threads have used. Fails if the process has ended.
pub(super) fn cpu_seconds(pid: u32) -> Result<f64, Error> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .map_err(|e| Error::Refused(format!("can't read the processor time of process {pid}: {e}")))?;
    // Fields 14 and 15, counted after the name in parentheses, which may contain anything.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let fields = after_name.split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(ticks as f64 / TICKS_PER_SECOND)
}

/// The measurements of one run.
#[derive(Debug)]
pub(super) struct ScenarioRun {
    pub(super) wall: Duration,
    /// Wall clock at the beginning, in milliseconds since the Unix epoch.
    pub(super) began_ms: i64,
    /// The longest delay of a request after it was due.
    pub(super) latest_send: Duration,
    pub(super) before: Counters,
    pub(super) after: Counters,
    pub(super) admissions: Admissions,
    /// By job name.
    pub(super) workloads: HashMap<String, WorkloadRun>,
}

#[derive(Debug, Default)]
pub(super) struct Admissions {
    /// Wall clock of each UID's first grant, in milliseconds since the Unix epoch.
    pub(super) first_ms: HashMap<String, i64>,
    /// All grants, those after preemptions included.
    pub(super) grants: u64,
}

#[derive(Debug)]
pub(super) struct WorkloadRun {
    pub(super) uid: String,
    /// Sum over the workload's attempts of the time from grant to end, in seconds.
    pub(super) granted_s: f64,
}

/// Plays `scenario` once. Fails if it takes longer than Kueue did.
pub(super) async fn play(bench: &Bench, scenario: &Scenario) -> Result<ScenarioRun, Error> {
    let clients: Vec<Client> = (0..CLIENTS).map(|_| Client::new(&bench.access)).collect::<Result<_, _>>()?;
    let before = Counters::read(bench).await?;
    let began = Instant::now();
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let began_ms = i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX);
    let (latest_send, wall) =
        tokio::try_join!(send_all(scenario, &clients, began), wait_until_ended(bench, scenario, began))?;
    Ok(ScenarioRun {
        wall,
        began_ms,
        latest_send,
        before,
        after: Counters::read(bench).await?,
        admissions: read_admissions(bench).await?,
        workloads: read_workloads(bench).await?,
    })
}

/// Sends every request when it is due; returns the longest delay.
async fn send_all(scenario: &Scenario, clients: &[Client], began: Instant) -> Result<Duration, Error> {
    let (mut sends, mut latest, mut next) = (JoinSet::new(), Duration::ZERO, 0);
    for (at, requests) in scenario.schedule() {
        let due = began + Duration::from_millis(at);
        tokio::time::sleep_until(due).await;
        latest = latest.max(due.elapsed());
        for request in requests {
            let client = clients[next % clients.len()].clone();
            next += 1;
            sends.spawn(async move { client.bulk(&request).await.map(drop) });
        }
    }
    while let Some(done) = sends.join_next().await {
        done.map_err(|e| Error::Refused(format!("a client panicked: {e}")))??;
    }
    Ok(latest)
}

/// Returns the time until every workload has ended. A run slower than Kueue's needs no exact figure, so it
/// fails.
async fn wait_until_ended(bench: &Bench, scenario: &Scenario, began: Instant) -> Result<Duration, Error> {
    let give_up = Duration::from_secs_f64(scenario.published.wall_s);
    loop {
        tokio::time::sleep(POLL_EVERY).await;
        let text = bench.client.metric("meridian_workloads").await?;
        let ended = sum(&text, "meridian_workloads", "state=\"Finished\"");
        if ended >= scenario.jobs() {
            return Ok(began.elapsed());
        }
        if began.elapsed() > give_up {
            let (jobs, seconds) = (scenario.jobs(), give_up.as_secs());
            return Err(Error::Refused(format!("only {ended} of {jobs} workloads ended within {seconds}s")));
        }
    }
}

/// Reads every grant from the audit log.
async fn read_admissions(bench: &Bench) -> Result<Admissions, Error> {
    let mut admissions = Admissions::default();
    let mut lines = bench.client.audit(Some(1)).await?;
    while let Some(line) = lines.next(&bench.client).await? {
        let line: Value = serde_json::from_slice(&line)
            .map_err(|e| Error::Refused(format!("can't read the audit log: {e}")))?;
        if line["entry"]["action"] == "grant" {
            admissions.grants += 1;
            let uid = line["entry"]["subject"].as_str().unwrap_or_default().to_owned();
            admissions.first_ms.entry(uid).or_insert_with(|| line["at"].as_i64().unwrap_or_default());
        }
    }
    lines.finish()?;
    Ok(admissions)
}

async fn read_workloads(bench: &Bench) -> Result<HashMap<String, WorkloadRun>, Error> {
    let list = bench.client.list(&Selection::in_namespace(Kind::Workload, "default")).await?;
    let at_ms = |value: &Value| {
        let timestamp = value.as_str()?.parse::<jiff::Timestamp>().ok()?;
        Some(timestamp.as_millisecond())
    };
    let read = |workload: &Value| {
        let owner = &workload["metadata"]["ownerReferences"][0];
        let history = workload["status"]["meridian"]["history"].as_array().cloned().unwrap_or_default();
        let granted_ms: i64 = history
            .iter()
            .filter_map(|attempt| Some(at_ms(&attempt["over"])? - at_ms(&attempt["granted"])?))
            .sum();
        let run =
            WorkloadRun { uid: owner["uid"].as_str()?.to_owned(), granted_s: granted_ms as f64 / 1_000.0 };
        Some((owner["name"].as_str()?.to_owned(), run))
    };
    Ok(list.items.iter().filter_map(read).collect())
}
