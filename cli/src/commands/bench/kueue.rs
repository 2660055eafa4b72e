//! Kueue's scheduler benchmark, played in real time through the real manager, its API and three agents.
//!
//! The facts (queues, classes, what Kueue published) are those of `kubernetes-sigs/kueue: test/performance/scheduler`, Apache-2.0,
//! main of 2026-08-22, restated. There a runner creates workloads at an API server, counts a run's time from the moment it sees
//! the admission, and finishes it; pods and nodes don't exist. Here jobs come in through the bulk API at the same times, are
//! dispatched to three clusters whose room never binds, and take their time at the simulated runner; a displaced one starts its
//! run again, there and here.
//!
//! What is counted where: admission is the grant's line in the audit log, and its time counts from when the workload was due,
//! not from when it could be sent; the wall ends when every workload is seen finished; usage is the time from grant to end that
//! the jobs' histories tell, in CPUs, over nominal quota and wall.

use super::Effort;
use super::figures::{Figure, quantile};
use super::ideal;
use super::load::CLIENTS;
use super::measures::{Bench, sum};
use crate::client::{Bulk, Client, Selection};
use crate::error::Error;
use meridian_objects::Kind;
use meridian_objects::job::{PRIORITY_LABEL, QUEUE_LABEL};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Most jobs in one request: what is due at one moment goes out over several connections at once.
const REQUEST_JOBS: usize = 250;
/// How often the manager is asked how many have ended: it counts them four times a second.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// In which `/proc` counts processor time: `USER_HZ`, which is part of the kernel's interface.
const TICKS_PER_SECOND: f64 = 100.0;
const FLAVOR: &str = "rf";
/// There are no nodes in Kueue's benchmark. Here a few large ones stand in for them: each cluster could hold all quota at once.
pub(super) const FLEET: &str = "\
clusters:
- {cluster: eu, region: europe-west4, jurisdiction: EU, nodes: [&a {namePrefix: n, count: 8, cpu: 10000, memory: 1024Gi}]}
- {cluster: us, region: us-east4, jurisdiction: US, nodes: [*a]}
- {cluster: asia, region: asia-southeast1, jurisdiction: SG, nodes: [*a]}
";

/// Workloads of one kind, in every queue.
#[derive(Debug)]
pub(super) struct Class {
    name: &'static str,
    count: u64,
    every_ms: u64,
    pub(super) run_ms: u64,
    pub(super) priority: i32,
    pub(super) cpu: u64,
}

/// What Kueue's project measured on its CI, and what was measured with it on a machine of two cores like the build machines.
#[derive(Debug)]
struct Theirs {
    wall_s: f64,
    usage_pct: f64,
    /// Mean time to admission, in the order of the classes.
    admission_s: [f64; 3],
}

/// One of the benchmarks.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    cohorts: u64,
    pub(super) queues_per_cohort: u64,
    pub(super) nominal_cpu: u64,
    pub(super) borrowing_cpu: u64,
    pub(super) classes: [Class; 3],
    /// Means of Kueue's CI runs.
    published: Theirs,
    /// Kueue on two cores, measured in November 2026 (API server, etcd without fsync and Kueue on one machine), where it was.
    measured: Option<Theirs>,
}

pub(super) const BASELINE: Scenario = Scenario {
    name: "kueue-baseline",
    cohorts: 5,
    queues_per_cohort: 6,
    nominal_cpu: 20,
    borrowing_cpu: 100,
    classes: [
        Class { name: "small", count: 350, every_ms: 100, run_ms: 200, priority: 50, cpu: 1 },
        Class { name: "medium", count: 100, every_ms: 500, run_ms: 500, priority: 100, cpu: 5 },
        Class { name: "large", count: 50, every_ms: 1_200, run_ms: 1_000, priority: 200, cpu: 20 },
    ],
    published: Theirs { wall_s: 351.116, usage_pct: 55.9, admission_s: [215.468, 76.768, 16.501] },
    measured: Some(Theirs { wall_s: 410.0, usage_pct: 54.6, admission_s: [240.3, 110.8, 40.8] }),
};

pub(super) const LARGE_SCALE: Scenario = Scenario {
    name: "kueue-large-scale",
    cohorts: 10,
    queues_per_cohort: 100,
    nominal_cpu: 20,
    borrowing_cpu: 100,
    classes: [
        Class { name: "small", count: 35, every_ms: 60, run_ms: 150, priority: 50, cpu: 1 },
        Class { name: "medium", count: 11, every_ms: 300, run_ms: 350, priority: 100, cpu: 5 },
        Class { name: "large", count: 4, every_ms: 700, run_ms: 700, priority: 200, cpu: 20 },
    ],
    published: Theirs { wall_s: 1_179.411, usage_pct: 38.64, admission_s: [700.379, 256.413, 105.604] },
    measured: None,
};

impl Scenario {
    pub(super) fn queues(&self) -> u64 {
        self.cohorts * self.queues_per_cohort
    }

    fn jobs(&self) -> u64 {
        self.queues() * self.classes.iter().map(|c| c.count).sum::<u64>()
    }

    /// The wall below which no scheduler gets: all nominal quota in use all the time.
    fn floor_s(&self) -> f64 {
        self.classes.iter().map(|c| c.count * c.run_ms * c.cpu).sum::<u64>() as f64
            / 1_000.0
            / self.nominal_cpu as f64
    }

    fn objects(&self) -> Vec<Value> {
        let kueue = |kind: &str, name: &str| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}});
        let mut all = vec![kueue("ResourceFlavor", FLAVOR)];
        for class in &self.classes {
            let mut priority = kueue("WorkloadPriorityClass", class.name);
            priority["value"] = class.priority.into();
            all.push(priority);
        }
        for queue in 0..self.queues() {
            let name = queue_name(queue);
            let mut cluster_queue = kueue("ClusterQueue", &name);
            let cpu = json!({"name": "cpu", "nominalQuota": self.nominal_cpu.to_string(), "borrowingLimit": self.borrowing_cpu.to_string()});
            cluster_queue["spec"] = json!({
                "namespaceSelector": {},
                "queueingStrategy": "BestEffortFIFO",
                "cohortName": format!("cohort-{}", queue / self.queues_per_cohort),
                "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
                "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": FLAVOR, "resources": [cpu]}]}],
            });
            let mut local = kueue("LocalQueue", &name);
            local["metadata"]["namespace"] = "default".into();
            local["spec"] = json!({"clusterQueue": name});
            all.extend([cluster_queue, local]);
        }
        all
    }

    /// All requests by the millisecond at which they are due: every stream waits before each of its creates, the first included.
    fn schedule(&self) -> BTreeMap<u64, Vec<Bulk>> {
        let mut due: BTreeMap<u64, Vec<(usize, u64, u64)>> = BTreeMap::new();
        for (at, class, queue, number) in self.streams() {
            due.entry(at).or_default().push((class, queue, number));
        }
        let request = |jobs: &[(usize, u64, u64)]| {
            jobs.iter().map(|(class, queue, number)| job(&self.classes[*class], *queue, *number)).collect()
        };
        due.into_iter().map(|(at, jobs)| (at, jobs.chunks(REQUEST_JOBS).map(request).collect())).collect()
    }

    /// Due millisecond, class, queue and number of every workload.
    pub(super) fn streams(&self) -> impl Iterator<Item = (u64, usize, u64, u64)> + '_ {
        let classes = self.classes.iter().enumerate();
        classes.flat_map(move |(at, class)| {
            (0..class.count).flat_map(move |n| {
                (0..self.queues()).map(move |queue| ((n + 1) * class.every_ms, at, queue, n))
            })
        })
    }
}

fn queue_name(queue: u64) -> String {
    format!("queue-{queue}")
}

fn job_name(class: &Class, queue: u64, number: u64) -> String {
    format!("{}-{queue}-{number}", class.name)
}

fn job(class: &Class, queue: u64, number: u64) -> Value {
    let requests = json!({"cpu": class.cpu.to_string()});
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(class, queue, number), "namespace": "default",
            "labels": {QUEUE_LABEL: queue_name(queue), PRIORITY_LABEL: class.name},
            "annotations": {meridian_objects::job::SIMULATED_DURATION: format!("{}ms", class.run_ms)},
        },
        "spec": {
            "parallelism": 1, "completions": 1, "suspend": true,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{
                "name": "main", "image": "registry.example/none", "resources": {"requests": requests.clone(), "limits": requests},
            }]}},
        },
    })
}

/// What the kernel and the manager had counted at one moment.
#[derive(Clone, Copy, Debug)]
struct Counted {
    manager_cpu_s: f64,
    agents_cpu_s: f64,
    commits: u64,
    records: u64,
}

impl Counted {
    async fn now(bench: &Bench) -> Result<Self, Error> {
        let text = bench.client.metrics().await?;
        let pid = bench.fleet.manager_pid().ok_or_else(|| Error::Refused("the manager ended".into()))?;
        Ok(Self {
            manager_cpu_s: cpu_seconds(pid)?,
            agents_cpu_s: bench
                .fleet
                .agent_pids()
                .into_iter()
                .map(cpu_seconds)
                .sum::<Result<f64, Error>>()?,
            commits: sum(&text, "meridian_journal_commit_seconds_count", "")?,
            records: sum(&text, "meridian_journal_records_total", "")?,
        })
    }
}

/// What a process and its threads have used of processors so far.
fn cpu_seconds(pid: u32) -> Result<f64, Error> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .map_err(|e| Error::Refused(format!("can't see what process {pid} used: {e}")))?;
    // Fields 14 and 15, counted behind the name in brackets, which may hold anything.
    let fields: Vec<u64> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|f| f.parse().ok())
        .collect();
    Ok(fields.iter().sum::<u64>() as f64 as f64 / TICKS_PER_SECOND)
}

/// A run that is over.
#[derive(Debug)]
struct Played {
    wall: Duration,
    /// Wall clock of its begin, in milliseconds.
    began_ms: i64,
    /// Moments at which a request was sent, less those at which it was due; the worst.
    late: Duration,
    used: (Counted, Counted),
}

/// Plays one of the benchmarks once: its figures are means over thousands of workloads.
pub(super) async fn play(scenario: &Scenario, effort: &Effort) -> Result<Vec<Figure>, Error> {
    let bench = Bench::start(effort, scenario.name, Some(FLEET), &scenario.objects()).await?;
    let measured = run_and_count(&bench, scenario).await;
    bench.end(measured).await
}

async fn run_and_count(bench: &Bench, scenario: &Scenario) -> Result<Vec<Figure>, Error> {
    let played = run(bench, scenario).await?;
    let admitted = admissions(bench).await?;
    let stays = stays(bench).await?;
    Ok(figures(scenario, &played, &admitted, &stays))
}

async fn run(bench: &Bench, scenario: &Scenario) -> Result<Played, Error> {
    let schedule = scenario.schedule();
    let clients: Vec<Client> = (0..CLIENTS).map(|_| Client::new(&bench.access)).collect::<Result<_, _>>()?;
    let before = Counted::now(bench).await?;
    let mut sends = JoinSet::new();
    let began = Instant::now();
    let began_ms = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX));
    let mut late = Duration::ZERO;
    let mut next = 0;
    let sending = async {
        for (at, requests) in schedule {
            let due = began + Duration::from_millis(at);
            tokio::time::sleep_until(due).await;
            late = late.max(due.elapsed());
            for request in requests {
                let client = clients[next % clients.len()].clone();
                next += 1;
                sends.spawn(async move { client.bulk(&request).await.map(drop) });
            }
        }
        while let Some(done) = sends.join_next().await {
            done.map_err(|e| Error::Refused(format!("a send broke: {e}")))??;
        }
        Ok::<_, Error>(())
    };
    // Who isn't faster than Kueue needs no exact figure.
    let give_up = Duration::from_secs_f64(scenario.published.wall_s);
    let watching = async {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let ended = sum(
                &bench.client.metric("meridian_workloads").await?,
                "meridian_workloads",
                "state=\"Finished\"",
            )?;
            if ended >= scenario.jobs() {
                return Ok(began.elapsed());
            }
            if began.elapsed() > give_up {
                return Err(Error::Refused(format!(
                    "only {ended} of {} workloads ended within {}s",
                    scenario.jobs(),
                    give_up.as_secs()
                )));
            }
        }
    };
    let ((), wall) = tokio::try_join!(sending, watching)?;
    Ok(Played { wall, began_ms, late, used: (before, Counted::now(bench).await?) })
}

/// The wall clock at which each uid was granted first, in milliseconds, and how many grants there were.
async fn admissions(bench: &Bench) -> Result<(HashMap<String, i64>, u64), Error> {
    let mut first = HashMap::new();
    let mut grants = 0;
    let mut lines = bench.client.audit(1).await?;
    while let Some(line) = lines.next(&bench.client).await? {
        let line: Value = serde_json::from_slice(&line)
            .map_err(|e| Error::Refused(format!("the audit log can't be read: {e}")))?;
        if line["entry"]["action"] == "grant" {
            grants += 1;
            first
                .entry(line["entry"]["subject"].as_str().unwrap_or_default().to_owned())
                .or_insert_with(|| line["at"].as_i64().unwrap_or_default());
        }
    }
    lines.finish()?;
    Ok((first, grants))
}

/// By the job's name: its uid, and the seconds that its attempts had the right to run.
async fn stays(bench: &Bench) -> Result<HashMap<String, (String, f64)>, Error> {
    let selection = Selection {
        kind: Kind::Workload,
        namespace: Some("default".into()),
        labels: String::new(),
        name: None,
    };
    let list = bench.client.list(&selection).await?;
    let at = |value: &Value| {
        value
            .as_str()
            .and_then(|text| text.parse::<jiff::Timestamp>().ok())
            .map(jiff::Timestamp::as_millisecond)
    };
    let of = |workload: &Value| {
        let owner = &workload["metadata"]["ownerReferences"][0];
        let history = workload["status"]["meridian"]["history"].as_array().cloned().unwrap_or_default();
        let held: i64 =
            history.iter().filter_map(|stay| Some(at(&stay["over"])? - at(&stay["granted"])?)).sum();
        Some((owner["name"].as_str()?.to_owned(), (owner["uid"].as_str()?.to_owned(), held as f64 / 1_000.0)))
    };
    Ok(list.items.iter().filter_map(of).collect())
}

fn figures(
    scenario: &Scenario,
    played: &Played,
    (admitted, grants): &(HashMap<String, i64>, u64),
    stays: &HashMap<String, (String, f64)>,
) -> Vec<Figure> {
    let wall = played.wall.as_secs_f64();
    let mut waits: [Vec<f64>; 3] = Default::default();
    let mut cpu_seconds = 0.0;
    for (due, at, queue, number) in scenario.streams() {
        let class = &scenario.classes[at];
        let Some((uid, held)) = stays.get(&job_name(class, queue, number)) else { continue };
        cpu_seconds += held * class.cpu as f64;
        if let Some(granted) = admitted.get(uid) {
            waits[at].push((granted - played.began_ms) as f64 - due as f64);
        }
    }
    waits.iter_mut().for_each(|of| of.sort_by(f64::total_cmp));
    let (before, after) = played.used;
    let figure = |what: String, unit: &'static str, value: f64, note: String| {
        Figure::of(scenario.name, what, unit, &[value], note)
    };
    let beside = |of: &dyn Fn(&Theirs) -> f64| {
        let measured = scenario
            .measured
            .as_ref()
            .map(|theirs| format!(", {:.1} on two cores", of(theirs)))
            .unwrap_or_default();
        format!("Kueue {:.1} on its CI{measured}", of(&scenario.published))
    };
    let jobs = scenario.jobs() as f64;
    let quota = (scenario.queues() * scenario.nominal_cpu) as f64;
    let ideal = ideal::play(scenario);
    let rate = |from: u64, to: u64| to.saturating_sub(from) as f64 / wall;
    let mut all = vec![
        figure("wall".into(), "s", wall, format!("{jobs} workloads; {}", beside(&|t| t.wall_s))),
        figure(
            "admissions".into(),
            "1/s",
            jobs / wall,
            format!("{grants} grants, displaced ones again; {}", beside(&|t| jobs / t.wall_s)),
        ),
        figure(
            "usage of nominal quota, grant to end".into(),
            "%",
            100.0 * cpu_seconds / quota / wall,
            beside(&|t| t.usage_pct),
        ),
        figure(
            "work done, of what nominal quota allows".into(),
            "%",
            100.0 * scenario.floor_s() / wall,
            format!("the floor is {:.1} s", scenario.floor_s()),
        ),
        figure(
            "wall, if nothing but runs took time".into(),
            "s",
            ideal.wall_ms as f64 / 1_000.0,
            format!("{} runs are displaced even so", ideal.displaced),
        ),
        figure(
            "CPU of the manager".into(),
            "s",
            after.manager_cpu_s - before.manager_cpu_s,
            per_workload(after.manager_cpu_s - before.manager_cpu_s, jobs),
        ),
        figure(
            "CPU of three agents".into(),
            "s",
            after.agents_cpu_s - before.agents_cpu_s,
            per_workload(after.agents_cpu_s - before.agents_cpu_s, jobs),
        ),
        figure(
            "durable commits of the manager".into(),
            "1/s",
            rate(before.commits, after.commits),
            String::new(),
        ),
        figure(
            "records".into(),
            "1/s",
            rate(before.records, after.records),
            format!("{:.1} a workload", rate(before.records, after.records) * wall / jobs),
        ),
        figure(
            "latest send".into(),
            "ms",
            played.late.as_secs_f64() * 1_000.0,
            "by the bench's own fault".into(),
        ),
    ];
    for (at, class) in scenario.classes.iter().enumerate() {
        let of = &waits[at];
        let mean = of.iter().sum::<f64>() / of.len().max(1) as f64;
        let quantiles = format!(
            "P50 {:.0}, P95 {:.0}, P99 {:.0} ms",
            quantile(of, 0.5),
            quantile(of, 0.95),
            quantile(of, 0.99)
        );
        all.push(figure(
            format!("mean time to admission, {}", class.name),
            "ms",
            mean,
            format!("{quantiles}; {} s", beside(&|t| t.admission_s[at])),
        ));
    }
    all
}

fn per_workload(seconds: f64, jobs: f64) -> String {
    format!("{:.2} ms a workload", 1_000.0 * seconds / jobs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_objects::Object;

    #[test]
    fn the_benchmarks_are_those_that_were_published() {
        assert_eq!(
            (BASELINE.queues(), BASELINE.jobs(), LARGE_SCALE.queues(), LARGE_SCALE.jobs()),
            (30, 15_000, 1_000, 50_000)
        );
        assert!((BASELINE.floor_s() - 66.0).abs() < 1e-9 && (LARGE_SCALE.floor_s() - 4.025).abs() < 1e-9);
        assert_eq!(BASELINE.streams().map(|(due, ..)| due).max(), Some(60_000));
        assert_eq!(LARGE_SCALE.streams().map(|(due, ..)| due).max(), Some(3_300));
        let due = |at| BASELINE.streams().filter(|(due, ..)| *due == at).count();
        assert_eq!((due(100), due(500), due(6_000)), (30, 60, 90));
        assert_eq!(LARGE_SCALE.schedule()[&300].len(), 8, "2,000 jobs, 250 in a request");
    }

    #[test]
    fn the_ideal_is_what_displacing_leaves() {
        let one = |count, every_ms, run_ms, priority, cpu| Class {
            name: "",
            count,
            every_ms,
            run_ms,
            priority,
            cpu,
        };
        // A large one comes every 1.2 s and runs for 1 s: a medium one that starts in between never gets to its end before the
        // last large one has come, at 3.6 s, and ended.
        let classes = [one(0, 1, 1, 0, 1), one(1, 1_100, 500, 100, 20), one(3, 1_200, 1_000, 200, 20)];
        let scenario = Scenario {
            cohorts: 1,
            queues_per_cohort: 1,
            classes,
            published: LARGE_SCALE.published,
            measured: None,
            ..BASELINE
        };
        assert_eq!(ideal::play(&scenario), ideal::Ideal { wall_ms: 4_600 + 500, displaced: 3 });
        // Nothing comes between the small ones of a queue.
        let scenario =
            Scenario { classes: [one(40, 1, 100, 0, 1), one(0, 1, 1, 0, 1), one(0, 1, 1, 0, 1)], ..scenario };
        assert_eq!(ideal::play(&scenario), ideal::Ideal { wall_ms: 201 + 19, displaced: 0 });
    }

    #[test]
    fn its_objects_are_real() {
        assert_eq!(meridian_agent::capacity::fleet::parse("fleet.yaml", FLEET).unwrap().len(), 3);
        let jobs = BASELINE.classes.iter().map(|class| job(class, 3, 7));
        for object in BASELINE.objects().into_iter().chain(jobs) {
            Object::from_value(object.clone()).unwrap_or_else(|errors| panic!("{errors:?} in {object}"));
        }
    }

    #[test]
    fn figures_stand_beside_those_of_kueue() {
        let counted =
            |cpu: f64, n: u64| Counted { manager_cpu_s: cpu, agents_cpu_s: cpu, commits: n, records: 2 * n };
        let played = Played {
            wall: Duration::from_secs(100),
            began_ms: 1_000,
            late: Duration::ZERO,
            used: (counted(1.0, 0), counted(4.0, 1_000)),
        };
        let stays = HashMap::from([("small-0-0".to_owned(), ("u".to_owned(), 60_000.0))]);
        let all = figures(&BASELINE, &played, &(HashMap::from([("u".to_owned(), 1_600)]), 1), &stays);
        let of = |what: &str| all.iter().find(|f| f.what.starts_with(what)).unwrap();
        assert_eq!((of("wall").value, of("admissions").value, of("usage").value), (100.0, 150.0, 100.0));
        assert_eq!((of("durable").value, of("records").value), (10.0, 20.0));
        // Due after 100 ms, granted after 600.
        assert_eq!(of("mean time to admission, small").value, 500.0);
        assert!(
            of("wall").note.ends_with("Kueue 351.1 on its CI, 410.0 on two cores"),
            "{}",
            of("wall").note
        );
    }

    #[test]
    fn a_process_has_used_something() {
        assert!(cpu_seconds(std::process::id()).unwrap() >= 0.0);
        assert!(cpu_seconds(u32::MAX).is_err());
    }
}
