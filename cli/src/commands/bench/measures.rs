//! One function per measure: each starts a fleet, applies a load, and returns figures.

use super::figures::{Figure, quantile};
use super::load::{self, BATCH, CLIENTS, JobSeries, StopAt};
use super::samples::sum;
use super::shapes;
use crate::client::kubeconfig::{Access, Lookup};
use crate::client::{self, ApplyOptions, ChangeKind, Client, Selection};
use crate::error::Error;
use crate::fleet::Fleet;
use crate::fleet::setup::FleetSetup;
use crate::objects::fields::{name_of, text};
use meridian_objects::job::SUBMITTED_KIND;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Gangs that are submitted and not yet dispatched: enough to keep every part busy, few enough to end soon
/// after the load.
const BACKLOG_MAX: u64 = 2_000;
/// Submissions per second of the latency measure.
const LATENCY_RATE: u64 = 100;
/// Time limit for a load to end after its last submission.
const DRAIN_WITHIN: Duration = Duration::from_secs(120);
const POLL_EVERY: Duration = Duration::from_millis(50);
/// Pause before memory is read, so that the allocator can return what was freed.
const SETTLE: Duration = Duration::from_secs(2);

/// How much to measure.
#[derive(Clone, Debug)]
pub(super) struct Effort {
    /// Parent of all journals.
    pub(super) scratch: PathBuf,
    /// Length of one run.
    pub(super) seconds: u64,
    /// Runs of each rate.
    pub(super) runs: u32,
    /// Gangs in the queue for `memory` and `restart`.
    pub(super) gangs: usize,
    /// Seed of the jobs' shapes.
    pub(super) seed: u64,
}

/// A fleet with its queues applied.
pub(super) struct Bench {
    pub(super) fleet: Fleet,
    pub(super) client: Client,
    pub(super) access: Access,
}

impl Bench {
    /// Starts a manager, and agents if a fleet file is given. Fails if one of them does.
    pub(super) async fn start(
        effort: &Effort,
        name: &str,
        fleet: Option<&str>,
        queues: &[Value],
    ) -> Result<Self, Error> {
        let root = effort.scratch.join(name);
        let setup = match fleet {
            Some(text) => FleetSetup::simulated(root, text)?,
            None => FleetSetup::manager_only(root, shapes::FLEET),
        };
        let mut fleet = Fleet::start(setup).await?;
        let ready = match fleet.wait_until_ready().await {
            Ok(()) => Lookup::file(fleet.admin_kubeconfig()).access().map_err(Error::from),
            Err(error) => Err(error),
        };
        let access = match ready {
            Ok(access) => access,
            Err(error) => {
                fleet.discard().await;
                return Err(error);
            }
        };
        let bench = Self { client: fleet.client().clone(), fleet, access };
        match bench.client.apply(queues, ApplyOptions::default()).await {
            Ok(_) => Ok(bench),
            Err(error) => bench.end(Err(error.into())).await,
        }
    }

    /// Discards the fleet and returns the measurement. Fails if a process had ended meanwhile.
    pub(super) async fn end<T>(mut self, measured: Result<T, Error>) -> Result<T, Error> {
        let alive = self.fleet.check_alive();
        self.fleet.discard().await;
        let measured = measured?;
        alive.map(|()| measured)
    }

    /// The sum of a metric's samples with `label` among their labels.
    async fn metric(&self, name: &str, label: &str) -> Result<u64, Error> {
        Ok(sum(&self.client.metrics().await?, name, label))
    }

    async fn wait_until_finished(&self, gangs: u64) -> Result<(), Error> {
        let until = Instant::now() + DRAIN_WITHIN;
        loop {
            let now = self.metric("meridian_workloads", "state=\"Finished\"").await?;
            if now >= gangs {
                return Ok(());
            }
            if Instant::now() > until {
                let seconds = DRAIN_WITHIN.as_secs();
                return Err(Error::Refused(format!("only {now} of {gangs} gangs ended within {seconds}s")));
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }
}

/// Durable submissions per second in batches, without agents, so that nothing else happens. Fails if the
/// fleet does.
pub(super) async fn submissions(effort: &Effort) -> Result<Vec<Figure>, Error> {
    let mut rates = Vec::new();
    let mut commits = 0.0;
    for run in 0..effort.runs {
        let bench = Bench::start(effort, &format!("submissions-{run}"), None, &shapes::queues(true)).await?;
        let measured = one_submission_run(&bench, effort, run).await;
        let (rate, per_commit) = bench.end(measured).await?;
        rates.push(rate);
        commits = per_commit;
    }
    let note = format!(
        "{CLIENTS} clients, batches of {BATCH}, {}s per run, no agents; {commits:.0} jobs per commit",
        effort.seconds
    );
    Ok(vec![Figure::of("submissions", "durable submissions", "1/s", &rates, note)])
}

async fn one_submission_run(bench: &Bench, effort: &Effort, run: u32) -> Result<(f64, f64), Error> {
    let series = JobSeries { prefix: format!("s{run}"), seed: effort.seed, duration: "1h" };
    let before = bench.metric("meridian_journal_commit_seconds_count", "").await?;
    let end = Instant::now() + Duration::from_secs(effort.seconds);
    let sent = load::batches(&bench.access, &series, StopAt::Time(end), Arc::new(|| true)).await?;
    let commits = bench.metric("meridian_journal_commit_seconds_count", "").await?.saturating_sub(before);
    Ok((sent.jobs as f64 / sent.took.as_secs_f64(), sent.jobs as f64 / commits.max(1) as f64))
}

/// Dispatches per second with a steady backlog and three agents. Gangs run for a simulated second. Fails if
/// one doesn't end.
pub(super) async fn dispatches(effort: &Effort) -> Result<Vec<Figure>, Error> {
    let bench = Bench::start(effort, "dispatches", Some(shapes::FLEET), &shapes::queues(true)).await?;
    let measured = dispatch_runs(&bench, effort).await;
    let (rates, gangs) = bench.end(measured).await?;
    let note = format!(
        "submission to running, 3 agents, {CLIENTS} clients, backlog {BACKLOG_MAX}; all {gangs} gangs ended"
    );
    Ok(vec![Figure::of("dispatches", "dispatches", "1/s", &rates, note)])
}

async fn dispatch_runs(bench: &Bench, effort: &Effort) -> Result<(Vec<f64>, u64), Error> {
    let (mut rates, mut submitted) = (Vec::new(), 0);
    for run in 0..effort.runs {
        let series =
            JobSeries { prefix: format!("d{run}"), seed: effort.seed ^ u64::from(run), duration: "1s" };
        let open = Arc::new(AtomicBool::new(true));
        let (gate, end) = (Arc::clone(&open), Instant::now() + Duration::from_secs(effort.seconds));
        let load = load::batches(
            &bench.access,
            &series,
            StopAt::Time(end),
            Arc::new(move || gate.load(Ordering::Relaxed)),
        );
        let (sent, rate) = tokio::join!(load, steady_rate(bench, end, &open));
        submitted += sent?.jobs;
        rates.push(rate?);
        bench.wait_until_finished(submitted).await?;
    }
    Ok((rates, submitted))
}

/// Keeps the backlog full by opening and closing the clients' gate; counts dispatches over the last three
/// quarters of the run.
async fn steady_rate(bench: &Bench, end: Instant, gate: &AtomicBool) -> Result<f64, Error> {
    let began = Instant::now();
    let warmed_up = began + (end - began) / 4;
    let mut first = None;
    let mut last = None;
    while Instant::now() < end {
        let text = bench.client.metrics().await?;
        let (at, dispatched) = (Instant::now(), sum(&text, "meridian_workloads_dispatched_total", ""));
        let taken = sum(&text, "meridian_submissions_total", "result=\"accepted\"");
        gate.store(taken.saturating_sub(dispatched) < BACKLOG_MAX, Ordering::Relaxed);
        if at >= warmed_up {
            first.get_or_insert((at, dispatched));
            last = Some((at, dispatched));
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
    // Waiting clients must see that the run is over.
    gate.store(true, Ordering::Relaxed);
    match (first, last) {
        (Some((from, a)), Some((to, b))) if to > from => Ok((b - a) as f64 / (to - from).as_secs_f64()),
        _ => Err(Error::Refused("the run was too short to measure a rate: increase `--seconds`".into())),
    }
}

/// Time from when a submission was due until a watch showed its gang running, at a steady load. Fails if one
/// never runs.
pub(super) async fn latency(effort: &Effort) -> Result<Vec<Figure>, Error> {
    let bench = Bench::start(effort, "latency", Some(shapes::FLEET), &shapes::queues(true)).await?;
    let measured = latency_run(&bench, effort).await;
    let (mut millis, late) = bench.end(measured).await?;
    millis.sort_by(f64::total_cmp);
    let note = format!("{} gangs at {LATENCY_RATE}/s, {late} sent late; observed by a watch", millis.len());
    let figure = |q: f64, name: &str| {
        Figure::of(
            "latency",
            format!("submission to running, {name}"),
            "ms",
            &[quantile(&millis, q)],
            note.clone(),
        )
    };
    Ok(vec![figure(0.5, "P50"), figure(0.99, "P99"), figure(1.0, "longest")])
}

async fn latency_run(bench: &Bench, effort: &Effort) -> Result<(Vec<f64>, u64), Error> {
    let length = Duration::from_secs(effort.seconds * u64::from(effort.runs));
    let count = usize::try_from(LATENCY_RATE * length.as_secs()).expect("a bench's gangs can be counted");
    let series = JobSeries { prefix: "l".into(), seed: effort.seed, duration: "5s" };
    let selection = Selection::in_namespace(SUBMITTED_KIND, "default");
    let (_, mut watch) = bench.client.watch(selection).await?;
    let watching = tokio::spawn(async move {
        let mut running: BTreeMap<String, Instant> = BTreeMap::new();
        while running.len() < count {
            let event = watch.next().await?;
            let state = text(&event.object, "/status/meridian/state");
            if event.kind != ChangeKind::Deleted && matches!(state, "Running" | "Finished") {
                running.entry(name_of(&event.object).to_owned()).or_insert_with(Instant::now);
            }
        }
        Ok::<_, client::Error>(running)
    });
    let (sent, late) = load::on_schedule(&bench.access, &series, LATENCY_RATE, length).await?;
    let running = tokio::time::timeout(DRAIN_WITHIN, watching).await;
    let running = running
        .map_err(|_| Error::Refused(format!("not every gang ran within {}s", DRAIN_WITHIN.as_secs())))?;
    let running = running.map_err(|e| Error::Refused(format!("the watch panicked: {e}")))??;
    let millis = sent
        .iter()
        .filter_map(|job| Some(running.get(&job.name)?.duration_since(job.due).as_secs_f64() * 1_000.0))
        .collect();
    Ok((millis, late))
}

/// Memory per queued gang; then the time until a killed manager is ready with that queue. Fails if the fleet
/// does.
pub(super) async fn full_queue(effort: &Effort, restart: bool) -> Result<Vec<Figure>, Error> {
    let mut bench = Bench::start(effort, "queue", Some(shapes::FLEET), &shapes::queues(false)).await?;
    let measured = fill_and_restart(&mut bench, effort, restart).await;
    bench.end(measured).await
}

async fn fill_and_restart(bench: &mut Bench, effort: &Effort, restart: bool) -> Result<Vec<Figure>, Error> {
    tokio::time::sleep(SETTLE).await;
    let empty = resident(bench)?;
    let series = JobSeries { prefix: "m".into(), seed: effort.seed, duration: "1h" };
    let sent =
        load::batches(&bench.access, &series, StopAt::Jobs(effort.gangs as u64), Arc::new(|| true)).await?;
    tokio::time::sleep(SETTLE).await;
    let full = resident(bench)?;
    let mib = |bytes: u64| bytes >> 20;
    let note = format!(
        "{} distinct gangs pending; the manager's resident memory grew from {} to {} MiB",
        sent.jobs,
        mib(empty),
        mib(full)
    );
    let each = full.saturating_sub(empty) as f64 / sent.jobs as f64;
    let mut figures = vec![Figure::of("memory", "memory per queued gang", "B", &[each], note)];
    if restart {
        let (mut ready, mut recovered) = (Vec::new(), Vec::new());
        for _ in 0..effort.runs {
            let restarted = one_restart(bench).await?;
            ready.push(restarted.ready_ms);
            recovered.push(restarted.recovered_ms);
        }
        let note = format!("after kill -9, {} gangs in the journal", sent.jobs);
        figures.push(Figure::of("restart", "restart, from exec to ready", "ms", &ready, note.clone()));
        figures.push(Figure::of("restart", "restart, from exec to end of recovery", "ms", &recovered, note));
    }
    Ok(figures)
}

struct RestartTimes {
    ready_ms: f64,
    recovered_ms: f64,
}

async fn one_restart(bench: &mut Bench) -> Result<RestartTimes, Error> {
    bench.fleet.kill_manager().await?;
    let began = Instant::now();
    bench.fleet.restart_manager()?;
    let elapsed_ms = || began.elapsed().as_secs_f64() * 1_000.0;
    let mut ready = None;
    loop {
        if ready.is_none() && bench.client.is_ready().await {
            ready = Some(elapsed_ms());
        }
        if let Some(ready_ms) = ready
            && bench.client.recovery().await.is_ok_and(|recovery| recovery["open"] == false)
        {
            let recovered_ms = elapsed_ms();
            // Agents must be connected before the next kill, or it would measure their back-off.
            bench.fleet.wait_until_ready().await?;
            return Ok(RestartTimes { ready_ms, recovered_ms });
        }
        if began.elapsed() > DRAIN_WITHIN {
            let seconds = DRAIN_WITHIN.as_secs();
            return Err(Error::Refused(format!("the manager was not ready within {seconds}s")));
        }
        bench.fleet.check_alive()?;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The manager's resident memory in bytes.
fn resident(bench: &Bench) -> Result<u64, Error> {
    let pid = bench.fleet.manager_pid().ok_or_else(|| Error::Refused("the manager ended".into()))?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
        .map_err(|e| Error::Refused(format!("can't read the manager's memory: {e}")))?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map(|kib| kib << 10)
        .ok_or_else(|| Error::Refused("the kernel doesn't report the manager's memory".into()))
}
