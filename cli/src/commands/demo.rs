//! `meridian demo`: the whole promise in under a minute, on one machine, with real processes and simulated accelerators.
//!
//! Each act submits, watches, and judges what it saw; nothing is printed that wasn't observed through the API. The exit code
//! is 0 only if every promise was seen kept.

use crate::args::DemoArgs;
use crate::client::Client;
use crate::error::Error;
use crate::fleet::{DEFAULT_FLEET, Fleet, Plan};
use crate::interrupts::Interrupts;
use crate::out::{Out, Stream};
use crate::session::Session;
use meridian_agent::capacity::fleet;
use meridian_objects::{Kind, parse};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

const MANAGER: &str = include_str!("../../../manifests/examples/tutorial/manager.yaml");
const WORKER: &str = include_str!("../../../manifests/examples/tutorial/worker.yaml");
const JOB: &str = include_str!("../../../manifests/examples/tutorial/job.yaml");
const RESIDENCY: &str = include_str!("../../../manifests/examples/residency-eu.yaml");
/// The demo's lease term: long enough to be real, short enough to watch.
const TERM: &str = "8s";
const TERM_LENGTH: Duration = Duration::from_secs(8);
/// No act takes longer at the usual speed unless something is wrong.
const ACT_WITHIN: Duration = Duration::from_secs(45);
const USUAL_SPEED: f64 = 20.0;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What was seen of one job.
#[derive(Clone, Debug, Default, PartialEq)]
struct Seen {
    state: String,
    cluster: String,
    region: String,
    attempts: u64,
}

/// One promise and whether it was seen kept.
struct Verdict {
    promise: &'static str,
    kept: bool,
    seen: String,
}

struct Demo<'s> {
    out: &'s mut Out,
    stream: Option<Stream>,
    began: Instant,
    act_within: Duration,
    fleet: Fleet,
    client: Client,
    seen: BTreeMap<String, Seen>,
    regions: BTreeMap<String, Vec<String>>,
    verdicts: Vec<Verdict>,
}

pub(crate) async fn run(session: &mut Session, args: DemoArgs) -> Result<(), Error> {
    let DemoArgs { speed, keep } = args;
    let stream = session.stream();
    let root = std::env::temp_dir().join(format!("meridian-demo-{}", uuid::Uuid::new_v4().simple()));
    let clusters = fleet::parse("fleet.yaml", DEFAULT_FLEET).map_err(|e| Error::Refused(e.to_string()))?;
    let plan = Plan {
        root: root.clone(),
        clusters,
        fleet_text: DEFAULT_FLEET.to_owned(),
        runner: "simulated",
        speed,
        term: Some(TERM),
        listen: "127.0.0.1:0".into(),
    };
    let began = Instant::now();
    let mut interrupts = Interrupts::listen()?;
    let fleet = Fleet::start(plan).await?;
    let client = fleet.client.clone();
    let act_within = ACT_WITHIN.mul_f64((USUAL_SPEED / speed).max(1.0));
    let mut demo = Demo {
        out: &mut session.out,
        stream,
        began,
        act_within,
        fleet,
        client,
        seen: BTreeMap::new(),
        regions: BTreeMap::new(),
        verdicts: Vec::new(),
    };
    let played = tokio::select! {
        played = demo.play() => played,
        () = interrupts.recv() => Err(Error::Refused("interrupted".into())),
    };
    let kept = demo.finish(&played);
    if keep && played.is_ok() {
        let kubeconfig = demo.fleet.kubeconfig();
        demo.out.note(format!(
            "the fleet stays up until Ctrl-C; look at it with `meridian --kubeconfig {} get jobs -A`",
            kubeconfig.display()
        ));
        interrupts.recv().await;
    }
    if !keep && played.is_ok() {
        demo.fleet.discard().await;
    } else {
        demo.fleet.stop().await;
        demo.out.note(format!("logs and data are kept in `{}`", root.display()));
    }
    played?;
    if kept? { Ok(()) } else { Err(Error::Reported) }
}

impl Demo<'_> {
    async fn play(&mut self) -> Result<(), Error> {
        self.say("start", "one manager and three agents start as processes of their own; accelerators and jobs are simulated", json!({}))?;
        self.fleet.ready().await?;
        self.set_the_stage().await?;
        let first = self.four_gangs_in_three_regions().await?;
        self.residency(&first).await?;
        self.a_killed_agent().await
    }

    async fn set_the_stage(&mut self) -> Result<(), Error> {
        self.apply("manager.yaml", MANAGER, None).await?;
        for cluster in ["multikueue-dws-worker-eu", "multikueue-dws-worker-us", "multikueue-dws-worker-asia"]
        {
            self.apply("worker.yaml", WORKER, Some(cluster)).await?;
        }
        self.say(
            "ready",
            "queues are applied from the tutorial's files; each region has 4 simulated T4",
            json!({}),
        )
    }

    /// Three gangs of three GPUs fill three regions; the fourth waits with the reason, and starts when room is there.
    async fn four_gangs_in_three_regions(&mut self) -> Result<Vec<String>, Error> {
        let mut jobs = Vec::new();
        for _ in 0..4 {
            jobs.push(self.submit("default", JOB, "120s").await?);
        }
        self.say("submitted", "the 3-GPU job, four times", json!({"jobs": jobs}))?;
        self.until("three gangs run", &jobs, |seen| running(seen).len() == 3).await?;
        let now = self.seen.clone();
        let places: BTreeSet<&str> =
            jobs.iter().map(|j| now[j].region.as_str()).filter(|r| !r.is_empty()).collect();
        self.judge("three gangs run whole, in three regions", places.len() == 3, format!("{places:?}"));
        let waiting: Vec<String> = jobs.iter().filter(|j| now[*j].state == "Pending").cloned().collect();
        let Some(fourth) = waiting.first().cloned() else {
            self.judge("the fourth waits with its reason", false, "nothing waited".into());
            return Ok(jobs);
        };
        let why = self.client.why("default", &fourth).await?;
        let rooms: Vec<&str> = why["clusters"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|c| c["verdict"] == "no-room")
            .filter_map(|c| c["reason"].as_str())
            .collect();
        let explained = rooms.len() == 3
            && rooms.iter().all(|r| r.contains("1 of the 4") || r.contains("room for 1 of 3"));
        self.say("why", &format!("{fourth} {}", why["summary"].as_str().unwrap_or_default()), why.clone())?;
        self.judge(
            "the fourth waits, and each region says why: 1 of 4 is free",
            explained,
            rooms.join(" | "),
        );
        self.until("the fourth starts when a gang ends", &jobs, |seen| started(seen, &fourth)).await?;
        let early = jobs.iter().filter(|j| **j != fourth).any(|j| self.seen[j].state == "Finished");
        self.judge(
            "the fourth starts when the first ends",
            early,
            format!("in {}", self.seen[&fourth].region),
        );
        Ok(jobs)
    }

    /// Two jobs under a policy that allows the EU only: the second waits for europe-west4 although other regions are free.
    async fn residency(&mut self, earlier: &[String]) -> Result<(), Error> {
        self.until("the first four end", earlier, |seen| earlier.iter().all(|j| seen[j].state == "Finished"))
            .await?;
        self.apply("residency-eu.yaml", RESIDENCY, None).await?;
        let first = self.submit("research", JOB, "60s").await?;
        let second = self.submit("research", JOB, "60s").await?;
        let both = vec![first.clone(), second.clone()];
        self.say(
            "submitted",
            "two jobs in namespace `research`, which a policy binds to the EU",
            json!({"jobs": both}),
        )?;
        self.until("one runs in the EU", &both, |seen| running(seen).len() == 1).await?;
        let waits = if self.seen[&first].state == "Pending" { &first } else { &second }.clone();
        let why = self.client.why("research", &waits).await?;
        self.say("why", &format!("{waits} {}", why["summary"].as_str().unwrap_or_default()), why.clone())?;
        let forbidden =
            why["clusters"].as_array().into_iter().flatten().filter(|c| c["verdict"] == "forbidden").count();
        self.until("both end", &both, |seen| both.iter().all(|j| seen[j].state == "Finished")).await?;
        let places: BTreeSet<&String> = both.iter().flat_map(|j| self.regions.get(j)).flatten().collect();
        let home = places.len() == 1 && places.iter().all(|r| *r == "europe-west4");
        self.judge(
            "a job bound to the EU stays in europe-west4 although others are free",
            home && forbidden == 2,
            format!("ran in {places:?}, {forbidden} regions forbidden"),
        );
        Ok(())
    }

    /// An agent is killed in mid-run: its gang starts elsewhere once, and only after its lease has lapsed.
    async fn a_killed_agent(&mut self) -> Result<(), Error> {
        let job = self.submit("default", JOB, "200s").await?;
        let only = vec![job.clone()];
        self.until("it runs", &only, |seen| seen[&job].state == "Running").await?;
        let home = self.seen[&job].clone();
        self.fleet.kill_agent(&home.cluster).await?;
        let killed = Instant::now();
        self.say(
            "killed",
            &format!("the agent of {} was killed with SIGKILL while {job} ran there", home.region),
            json!({"cluster": home.cluster}),
        )?;
        self.until("it runs elsewhere", &only, |seen| {
            seen[&job].state == "Running" && seen[&job].cluster != home.cluster
        })
        .await?;
        let after = killed.elapsed();
        // The last renewal was composed at most two polls before the kill; everything later would have been too early.
        let earliest = TERM_LENGTH - TERM_LENGTH / 4;
        self.judge(
            "a lost cluster's gang starts elsewhere only after its lease lapsed",
            after >= earliest,
            format!("{:.1}s after the kill, term {TERM}", after.as_secs_f64()),
        );
        self.fleet.start_agent(&home.cluster)?;
        self.until("it ends", &only, |seen| seen[&job].state == "Finished").await?;
        let attempts = self.seen[&job].attempts;
        self.judge("it was restarted exactly once", attempts == 2, format!("{attempts} attempts"));
        let why = self.client.why("default", &job).await?;
        let lapsed = why["history"][0]["end"] == "the lease lapsed";
        self.judge("its history says so", lapsed, why["history"][0]["end"].to_string());
        Ok(())
    }

    async fn apply(&mut self, name: &str, text: &str, cluster: Option<&str>) -> Result<(), Error> {
        let objects = objects(name, text)?;
        self.client.apply(&objects, cluster, false).await?;
        Ok(())
    }

    async fn submit(&mut self, namespace: &str, text: &str, length: &str) -> Result<String, Error> {
        let mut job = objects("job.yaml", text)?.remove(0);
        job["metadata"]["namespace"] = json!(namespace);
        job["spec"]["template"]["spec"]["containers"][0]["args"] = json!([length]);
        let made = self.client.create(Kind::Job, Some(namespace), &job).await?;
        let name = made.object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.seen.insert(name.clone(), Seen { state: "Pending".into(), ..Seen::default() });
        Ok(name)
    }

    /// Looks until `enough`, and tells every change on the way.
    async fn until(
        &mut self,
        what: &str,
        jobs: &[String],
        enough: impl Fn(&BTreeMap<String, Seen>) -> bool,
    ) -> Result<(), Error> {
        let until = Instant::now() + self.act_within;
        loop {
            self.look(jobs).await?;
            let of_these: BTreeMap<String, Seen> = self
                .seen
                .iter()
                .filter(|(n, _)| jobs.contains(n))
                .map(|(n, s)| (n.clone(), s.clone()))
                .collect();
            if enough(&of_these) {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(Error::Refused(format!(
                    "waited {}s for: {what}; seen: {of_these:?}",
                    self.act_within.as_secs()
                )));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn look(&mut self, jobs: &[String]) -> Result<(), Error> {
        let list = self
            .client
            .list(&crate::client::Selection {
                kind: Kind::Job,
                namespace: None,
                labels: String::new(),
                name: None,
            })
            .await?;
        for job in list.items {
            let name = job["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            if !jobs.contains(&name) {
                continue;
            }
            let status = &job["status"]["meridian"];
            let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
            let is = Seen {
                state: text("state"),
                cluster: text("cluster"),
                region: text("region"),
                attempts: status["attempts"].as_u64().unwrap_or(0),
            };
            let was = self.seen.insert(name.clone(), is.clone()).unwrap_or_default();
            if is.state == "Running" && (was.state != "Running" || was.cluster != is.cluster) {
                self.regions.entry(name.clone()).or_default().push(is.region.clone());
                let again =
                    if is.attempts > 1 { format!(" (attempt {})", is.attempts) } else { String::new() };
                let why =
                    self.client.why(job["metadata"]["namespace"].as_str().unwrap_or_default(), &name).await?;
                let here = why["clusters"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .find(|cluster| cluster["cluster"] == is.cluster.as_str());
                let reason =
                    here.and_then(|cluster| cluster["reason"].as_str()).unwrap_or_default().to_owned();
                let more = json!({"job": name, "region": is.region, "attempt": is.attempts, "why": reason});
                self.say("running", &format!("{name} runs in {}{again}: {reason}", is.region), more)?;
            }
            if is.state == "Finished" && was.state != "Finished" {
                let reason = job["status"]["conditions"][0]["reason"].as_str().unwrap_or_default().to_owned();
                self.say(
                    "finished",
                    &format!("{name} is over: {reason}"),
                    json!({"job": name, "reason": reason}),
                )?;
            }
        }
        Ok(())
    }

    fn say(&mut self, event: &str, words: &str, more: Value) -> Result<(), Error> {
        let at = self.began.elapsed();
        if let Some(format) = self.stream {
            let document = json!({"at": at.as_secs_f64(), "event": event, "words": words, "more": more});
            self.out.document(format, &document)?;
        } else {
            self.out.line(format!("{:6.1}s  {words}", at.as_secs_f64()))?;
        }
        self.out.flush()
    }

    fn judge(&mut self, promise: &'static str, kept: bool, seen: String) {
        self.verdicts.push(Verdict { promise, kept, seen });
    }

    /// The table at the end; true when everything was kept.
    fn finish(&mut self, played: &Result<(), Error>) -> Result<bool, Error> {
        let kept = played.is_ok() && self.verdicts.iter().all(|v| v.kept);
        if let Some(format) = self.stream {
            let verdicts: Vec<Value> = self
                .verdicts
                .iter()
                .map(|v| json!({"promise": v.promise, "kept": v.kept, "seen": v.seen}))
                .collect();
            let document = json!({"at": self.began.elapsed().as_secs_f64(), "event": "verdict", "kept": kept, "verdicts": verdicts});
            self.out.document(format, &document)?;
            return Ok(kept);
        }
        self.out.line("")?;
        self.out.line(format!("{:<22} {:<12} {:>8}  RAN IN", "JOB", "STATE", "ATTEMPTS"))?;
        for (name, seen) in &self.seen {
            let ran = self.regions.get(name).map(|r| r.join(", then ")).unwrap_or_default();
            self.out.line(format!("{name:<22} {:<12} {:>8}  {ran}", seen.state, seen.attempts))?;
        }
        self.out.line("")?;
        for v in &self.verdicts {
            self.out.line(format!(
                "{}  {} ({})",
                if v.kept { "kept  " } else { "BROKEN" },
                v.promise,
                v.seen
            ))?;
        }
        self.out.line("")?;
        self.out.line(if kept {
            "every promise was seen kept"
        } else {
            "not every promise was seen kept"
        })?;
        self.out.flush()?;
        Ok(kept)
    }
}

fn running(seen: &BTreeMap<String, Seen>) -> Vec<&str> {
    seen.iter().filter(|(_, s)| s.state == "Running").map(|(n, _)| n.as_str()).collect()
}

fn started(seen: &BTreeMap<String, Seen>, job: &str) -> bool {
    matches!(seen[job].state.as_str(), "Running" | "Finished")
}

fn objects(name: &str, text: &str) -> Result<Vec<Value>, Error> {
    let parsed = parse(name, text);
    match parsed.errors.first() {
        Some(problem) => Err(Error::Refused(problem.to_string())),
        None => Ok(parsed.objects.into_iter().map(|o| o.value.stored).collect()),
    }
}
