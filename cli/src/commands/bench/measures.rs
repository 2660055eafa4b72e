//! One function per measure: a fleet of its own, a load, and what was seen.

use super::Effort;
use super::figures::{Figure, quantile};
use super::load::{self, BATCH, CLIENTS, Enough, Kinds};
use super::shapes;
use crate::client::{ChangeKind, Client, Selection};
use crate::error::Error;
use crate::fleet::{Fleet, Plan};
use crate::kubeconfig::{Access, Lookup};
use meridian_agent::capacity::fleet;
use meridian_objects::Kind;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Gangs that may be submitted and not yet granted: enough to keep every part busy, few enough that a run ends with its load.
const BACKLOG_MAX: u64 = 2_000;
/// Offered load of the latency measure, per second.
const OFFERED: u64 = 100;
/// A load that hasn't come to its end after this long won't.
const DRAIN_WITHIN: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Between the last answer and the look at the memory: what was freed meanwhile may have gone back.
const SETTLE: Duration = Duration::from_secs(2);

/// A manager, with its three agents where there are any.
pub(super) struct Bench {
    pub(super) fleet: Fleet,
    pub(super) client: Client,
    pub(super) access: Access,
}

impl Bench {
    pub(super) async fn start(
        effort: &Effort,
        name: &str,
        fleet: Option<&str>,
        queues: &[Value],
    ) -> Result<Self, Error> {
        let clusters = fleet
            .map(|text| fleet::parse("fleet.yaml", text))
            .transpose()
            .map_err(|e| Error::Refused(e.to_string()))?
            .unwrap_or_default();
        let plan = Plan {
            root: effort.scratch.join(name),
            clusters,
            fleet_text: fleet.unwrap_or(shapes::FLEET).to_owned(),
            runner: "simulated",
            speed: 1.0,
            term: None,
            listen: "127.0.0.1:0".into(),
        };
        let mut fleet = Fleet::start(plan).await?;
        let ready = match fleet.ready().await {
            Ok(()) => {
                Lookup { flag: Some(fleet.kubeconfig()), ..Lookup::default() }.access().map_err(Error::from)
            }
            Err(error) => Err(error),
        };
        let access = match ready {
            Ok(access) => access,
            Err(error) => {
                fleet.discard().await;
                return Err(error);
            }
        };
        let bench = Self { client: fleet.client.clone(), fleet, access };
        match bench.client.apply(queues, None, false).await {
            Ok(_) => Ok(bench),
            Err(error) => Err(bench.fail(error.into()).await),
        }
    }

    /// Ends the fleet whichever way the measure went.
    pub(super) async fn end<T>(mut self, measured: Result<T, Error>) -> Result<T, Error> {
        let alive = self.fleet.all_alive();
        self.fleet.discard().await;
        let measured = measured?;
        alive.map(|()| measured)
    }

    async fn fail(self, error: Error) -> Error {
        self.end::<()>(Err(error)).await.err().unwrap_or(Error::Reported)
    }

    /// The sum of a metric's samples whose labels contain `label`.
    async fn metric(&self, name: &str, label: &str) -> Result<u64, Error> {
        sum(&self.client.metrics().await?, name, label)
    }

    async fn drained(&self, finished: u64) -> Result<(), Error> {
        let until = Instant::now() + DRAIN_WITHIN;
        loop {
            let now = self.metric("meridian_workloads", "state=\"Finished\"").await?;
            if now >= finished {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(Error::Refused(format!(
                    "only {now} of {finished} gangs ended within {}s",
                    DRAIN_WITHIN.as_secs()
                )));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// The sum of the samples of `name` whose labels contain `label`, from Prometheus' text.
pub(super) fn sum(text: &str, name: &str, label: &str) -> Result<u64, Error> {
    let samples =
        text.lines().filter_map(|line| line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' '])));
    let values: Vec<u64> = samples
        .filter(|rest| rest.contains(label))
        .filter_map(|rest| rest.rsplit(' ').next()?.parse().ok())
        .collect();
    // A metric without a sample yet is a zero; the wrong name is found by the load that never ends.
    Ok(values.iter().sum())
}

/// Durable submissions per second: batches, and no agents, so that nothing else happens.
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
        "{CLIENTS} clients, batches of {BATCH}, {} s each, no agents; {commits:.0} jobs per commit",
        effort.seconds
    );
    Ok(vec![Figure::of("submissions", "durable submissions", "1/s", &rates, note)])
}

async fn one_submission_run(bench: &Bench, effort: &Effort, run: u32) -> Result<(f64, f64), Error> {
    let kinds = Kinds { run: format!("s{run}"), seed: effort.seed, length: "1h" };
    let before = bench.metric("meridian_journal_commit_seconds_count", "").await?;
    let end = Instant::now() + Duration::from_secs(effort.seconds);
    let sent = load::batches(&bench.access, &kinds, Enough::At(end), Arc::new(|| true)).await?;
    let commits = bench.metric("meridian_journal_commit_seconds_count", "").await?.saturating_sub(before);
    Ok((sent.jobs as f64 / sent.took.as_secs_f64(), sent.jobs as f64 / commits.max(1) as f64))
}

/// Dispatches per second: a steady backlog before three agents; gangs take a simulated second, and every one must end.
pub(super) async fn dispatches(effort: &Effort) -> Result<Vec<Figure>, Error> {
    let bench = Bench::start(effort, "dispatches", Some(shapes::FLEET), &shapes::queues(true)).await?;
    let measured = dispatch_runs(&bench, effort).await;
    let (rates, gangs) = bench.end(measured).await?;
    let note = format!(
        "submit to running with 3 agents, {CLIENTS} clients, backlog of {BACKLOG_MAX}, {gangs} gangs, all ended well"
    );
    Ok(vec![Figure::of("dispatches", "dispatches", "1/s", &rates, note)])
}

async fn dispatch_runs(bench: &Bench, effort: &Effort) -> Result<(Vec<f64>, u64), Error> {
    let (mut rates, mut submitted) = (Vec::new(), 0);
    for run in 0..effort.runs {
        let kinds = Kinds { run: format!("d{run}"), seed: effort.seed ^ u64::from(run), length: "1s" };
        let open = Arc::new(AtomicBool::new(true));
        let (gate, end) = (Arc::clone(&open), Instant::now() + Duration::from_secs(effort.seconds));
        let load = load::batches(
            &bench.access,
            &kinds,
            Enough::At(end),
            Arc::new(move || gate.load(Ordering::Relaxed)),
        );
        let (sent, rate) = tokio::join!(load, steady_rate(bench, end, &open));
        submitted += sent?.jobs;
        rates.push(rate?);
        bench.drained(submitted).await?;
    }
    Ok((rates, submitted))
}

/// Keeps the backlog full by opening and closing the clients' gate, and counts dispatches over the last three quarters of the time.
async fn steady_rate(bench: &Bench, end: Instant, gate: &AtomicBool) -> Result<f64, Error> {
    let began = Instant::now();
    let warm = began + (end - began) / 4;
    let mut first = None;
    let mut last = None;
    while Instant::now() < end {
        let text = bench.client.metrics().await?;
        let (at, dispatched) = (Instant::now(), sum(&text, "meridian_workloads_dispatched_total", "")?);
        let taken = sum(&text, "meridian_submissions_total", "result=\"accepted\"")?;
        gate.store(taken.saturating_sub(dispatched) < BACKLOG_MAX, Ordering::Relaxed);
        if at >= warm {
            first.get_or_insert((at, dispatched));
            last = Some((at, dispatched));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    // Clients that wait for room must see the end.
    gate.store(true, Ordering::Relaxed);
    match (first, last) {
        (Some((from, a)), Some((to, b))) if to > from => Ok((b - a) as f64 / (to - from).as_secs_f64()),
        _ => Err(Error::Refused("the run was too short to see a rate: give `--seconds` more".into())),
    }
}

/// From submit to running at a steady load: from when a submission was due to when a watch showed it running.
pub(super) async fn latency(effort: &Effort) -> Result<Vec<Figure>, Error> {
    let bench = Bench::start(effort, "latency", Some(shapes::FLEET), &shapes::queues(true)).await?;
    let measured = latency_run(&bench, effort).await;
    let (mut millis, late) = bench.end(measured).await?;
    millis.sort_by(f64::total_cmp);
    let note = format!("{} gangs at {OFFERED}/s, {late} sent late; seen through a watch", millis.len());
    let figure = |q: f64, name: &str| {
        Figure::of(
            "latency",
            format!("submit to running, {name}"),
            "ms",
            &[quantile(&millis, q)],
            note.clone(),
        )
    };
    Ok(vec![figure(0.5, "P50"), figure(0.99, "P99"), figure(1.0, "longest")])
}

async fn latency_run(bench: &Bench, effort: &Effort) -> Result<(Vec<f64>, u64), Error> {
    let length = Duration::from_secs(effort.seconds * u64::from(effort.runs));
    let count = usize::try_from(OFFERED * length.as_secs()).expect("a bench's gangs can be counted");
    let kinds = Kinds { run: "l".into(), seed: effort.seed, length: "5s" };
    let selection =
        Selection { kind: Kind::Job, namespace: Some("default".into()), labels: String::new(), name: None };
    let (_, mut watch) = bench.client.watch(selection).await?;
    let watching = tokio::spawn(async move {
        let mut running: BTreeMap<String, Instant> = BTreeMap::new();
        while running.len() < count {
            let change = watch.next().await?;
            let state = change.object["status"]["meridian"]["state"].as_str().unwrap_or_default();
            if change.kind != ChangeKind::Deleted && matches!(state, "Running" | "Finished") {
                let name = change.object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                running.entry(name).or_insert_with(Instant::now);
            }
        }
        Ok::<_, crate::client::Error>(running)
    });
    let (sent, late) = load::on_schedule(&bench.access, &kinds, OFFERED, length).await?;
    let running = tokio::time::timeout(DRAIN_WITHIN, watching).await;
    let running = running
        .map_err(|_| Error::Refused(format!("not every gang ran within {}s", DRAIN_WITHIN.as_secs())))?;
    let running = running.map_err(|e| Error::Refused(format!("the watch broke: {e}")))??;
    let millis = sent
        .iter()
        .filter_map(|one| Some(running.get(&one.name)?.duration_since(one.due).as_secs_f64() * 1_000.0))
        .collect();
    Ok((millis, late))
}

/// Memory per queued gang, and then how long a killed manager takes to be back with that queue.
pub(super) async fn full_queue(effort: &Effort, restart: bool) -> Result<Vec<Figure>, Error> {
    let mut bench = Bench::start(effort, "queue", Some(shapes::FLEET), &shapes::queues(false)).await?;
    let measured = fill_and_restart(&mut bench, effort, restart).await;
    bench.end(measured).await
}

async fn fill_and_restart(bench: &mut Bench, effort: &Effort, restart: bool) -> Result<Vec<Figure>, Error> {
    tokio::time::sleep(SETTLE).await;
    let empty = resident(bench)?;
    let kinds = Kinds { run: "m".into(), seed: effort.seed, length: "1h" };
    let sent =
        load::batches(&bench.access, &kinds, Enough::Jobs(effort.gangs as u64), Arc::new(|| true)).await?;
    tokio::time::sleep(SETTLE).await;
    let full = resident(bench)?;
    let mib = |bytes: u64| bytes >> 20;
    let note = format!(
        "{} distinct gangs wait for quota; the manager's resident size went from {} to {} MiB",
        sent.jobs,
        mib(empty),
        mib(full)
    );
    let each = full.saturating_sub(empty) as f64 / sent.jobs as f64;
    let mut figures = vec![Figure::of("memory", "memory per queued gang", "B", &[each], note)];
    if restart {
        let (mut ready, mut recovered) = (Vec::new(), Vec::new());
        for _ in 0..effort.runs {
            let (a, b) = one_restart(bench).await?;
            ready.push(a);
            recovered.push(b);
        }
        let note = format!("after kill -9, {} gangs in the journal", sent.jobs);
        figures.push(Figure::of("restart", "restart, from exec to ready", "ms", &ready, note.clone()));
        figures.push(Figure::of("restart", "restart, from exec to recovery closed", "ms", &recovered, note));
    }
    Ok(figures)
}

async fn one_restart(bench: &mut Bench) -> Result<(f64, f64), Error> {
    bench.fleet.kill_manager().await?;
    let began = Instant::now();
    bench.fleet.restart_manager()?;
    let millis = || began.elapsed().as_secs_f64() * 1_000.0;
    let mut ready = None;
    loop {
        if ready.is_none() && bench.client.ready().await {
            ready = Some(millis());
        }
        if let Some(ready) = ready
            && bench.client.recovery().await.is_ok_and(|recovery| recovery["open"] == false)
        {
            let recovered = millis();
            // Agents must be back before the next kill, or it measures their back-off.
            bench.fleet.ready().await?;
            return Ok((ready, recovered));
        }
        if began.elapsed() > DRAIN_WITHIN {
            return Err(Error::Refused(format!(
                "the manager was not back within {}s",
                DRAIN_WITHIN.as_secs()
            )));
        }
        bench.fleet.all_alive()?;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What the manager holds in memory, in bytes.
fn resident(bench: &Bench) -> Result<u64, Error> {
    let pid = bench.fleet.manager_pid().ok_or_else(|| Error::Refused("the manager ended".into()))?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
        .map_err(|e| Error::Refused(format!("can't see the manager's memory: {e}")))?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map(|kib| kib << 10)
        .ok_or_else(|| Error::Refused("the kernel doesn't say how much memory the manager holds".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_by_name_and_label() {
        let text = "# HELP a x\na{s=\"R\",c=\"1\"} 3\na{s=\"R\",c=\"2\"} 4\na{s=\"F\"} 10\na_count 9\nb 5\n";
        let of = |name, label| sum(text, name, label).unwrap();
        assert_eq!(
            (of("a", "s=\"R\""), of("a", ""), of("a_count", ""), of("b", ""), of("c", "")),
            (7, 17, 9, 5, 0)
        );
    }
}
