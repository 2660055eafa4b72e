//! The states of the demo's jobs and regions, polled from the manager.

use super::history::{Answer, History, JobHistory, Race, RunEnd};
use super::narrator::Narrator;
use crate::client::{Client, JobName, Selection};
use crate::commands::jobs::explanation::Explanation;
use crate::error::Error;
use crate::objects::fields::{name_of, text};
use meridian_manager::metrics::{Metrics, Named as _};
use meridian_objects::Kind;
use meridian_objects::job::SUBMITTED_KIND;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

const POLL_EVERY: Duration = Duration::from_millis(100);
/// The resource that the demo counts.
pub(super) const GPU: &str = "nvidia.com/gpu";
/// The label of a node's kind of accelerator, and that of the tutorial's nodes.
pub(super) const ACCELERATOR_LABEL: &str = "cloud.google.com/gke-accelerator";
pub(super) const T4: &str = "nvidia-tesla-t4";

/// The last observed state of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct JobRecord {
    pub(super) state: String,
    pub(super) cluster: String,
    pub(super) region: String,
    pub(super) attempts: u64,
}

impl JobRecord {
    fn read(job: &Value) -> Self {
        let field = |name: &str| text(job, &format!("/status/meridian/{name}")).to_owned();
        let attempts = job.pointer("/status/meridian/attempts").and_then(Value::as_u64).unwrap_or(0);
        Self { state: field("state"), cluster: field("cluster"), region: field("region"), attempts }
    }

    pub(super) fn is_running(&self) -> bool {
        self.state == "Running"
    }

    pub(super) fn is_finished(&self) -> bool {
        self.state == "Finished"
    }
}

pub(super) struct JobTracker {
    client: Client,
    /// Time limit of every wait.
    step_within: Duration,
    began: Instant,
    jobs: BTreeMap<String, JobRecord>,
    history: History,
}

impl JobTracker {
    /// A tracker whose times count from `began`.
    pub(super) fn new(client: Client, step_within: Duration, began: Instant) -> Self {
        Self { client, step_within, began, jobs: BTreeMap::new(), history: History::default() }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Seconds since the begin of the demo.
    pub(super) fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Adds a submitted job.
    pub(super) fn add(&mut self, name: &str, title: &str, accelerators: u32) {
        let pending = JobRecord { state: "Pending".into(), ..JobRecord::default() };
        self.jobs.insert(name.to_owned(), pending);
        let (name, title) = (name.to_owned(), title.to_owned());
        self.history.jobs.push(JobHistory { name, title, accelerators, ..JobHistory::default() });
    }

    pub(super) fn job(&self, name: &str) -> &JobRecord {
        &self.jobs[name]
    }

    pub(super) fn history(&self) -> &History {
        &self.history
    }

    /// The history of a job that was added.
    pub(super) fn seen(&self, name: &str) -> &JobHistory {
        self.history.job(name).expect("every job that is tracked was added")
    }

    /// The regions in which a job ran, in order.
    pub(super) fn regions_of(&self, name: &str) -> Vec<&str> {
        self.seen(name).runs.iter().map(|run| run.region.as_str()).collect()
    }

    /// In the order of their submission.
    pub(super) fn summary(&self) -> impl Iterator<Item = (&JobHistory, &JobRecord)> {
        self.history.jobs.iter().filter_map(|seen| Some((seen, self.jobs.get(&seen.name)?)))
    }

    /// Ends the history.
    pub(super) fn finish(&mut self) {
        self.history.ended = self.now();
    }

    /// Accelerators times seconds that regions held in vain, by the manager's metric. Fails if the manager
    /// doesn't answer.
    pub(super) async fn held_twice(&self) -> Result<f64, Error> {
        let name = Metrics::new("demo").fleet.held_twice.name();
        let metric = self.client.metric(&name).await?;
        let series = metric.lines().filter(|line| line.starts_with(&name));
        Ok(series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    /// Polls until `is_reached`, and prints every change of the jobs. Fails after the time limit.
    pub(super) async fn wait_until(
        &mut self,
        narrator: &mut Narrator<'_>,
        goal: &str,
        names: &[String],
        is_reached: impl Fn(&Self) -> bool,
    ) -> Result<(), Error> {
        let until = Instant::now() + self.step_within;
        loop {
            self.poll(narrator).await?;
            if is_reached(self) {
                return Ok(());
            }
            if Instant::now() > until {
                let states: Vec<String> =
                    names.iter().map(|name| format!("{name} is {}", self.jobs[name].state)).collect();
                return Err(Error::Refused(format!(
                    "waited {}s until {goal}, but {}",
                    self.step_within.as_secs(),
                    states.join(", ")
                )));
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }

    async fn poll(&mut self, narrator: &mut Narrator<'_>) -> Result<(), Error> {
        for job in self.client.list(&Selection::all(SUBMITTED_KIND)).await?.items {
            let name = name_of(&job).to_owned();
            let Some(before) = self.jobs.get(&name).cloned() else { continue };
            if before.is_finished() {
                continue;
            }
            let now = JobRecord::read(&job);
            self.jobs.insert(name.clone(), now.clone());
            self.observe_job(narrator, &job, &before, &now).await?;
        }
        let at = self.now();
        for cluster in self.client.list(&Selection::all(Kind::Cluster)).await?.items {
            let region = text(&cluster, "/spec/region").to_owned();
            let Some(left) = nodes_left(&cluster) else { continue };
            let seen = self.history.pools.entry(region.clone()).or_default();
            if seen.observe(at, left) && seen.now() == 0 {
                let message = format!("{region}: its T4 pool shrinks to zero nodes, and none is requested");
                narrator.tell_with("shrunk", &message, json!({"region": region}))?;
            }
        }
        Ok(())
    }

    async fn observe_job(
        &mut self,
        narrator: &mut Narrator<'_>,
        job: &Value,
        before: &JobRecord,
        now: &JobRecord,
    ) -> Result<(), Error> {
        let name = name_of(job).to_owned();
        let has_moved = now.is_running() && (!before.is_running() || before.cluster != now.cluster);
        if !(now.is_running() && before.is_running()) || has_moved {
            let why = self.client.why(text(job, "/metadata/namespace"), &JobName::new(None, &name)).await?;
            let at = self.now();
            let Some(seen) = self.history.job_mut(&name) else { return Ok(()) };
            let races = seen.races.len();
            seen.observe(at, &why);
            if let Some(race) = seen.races.get(races) {
                tell_race(narrator, &name, race)?;
            }
            if has_moved {
                seen.start_run(at, &now.region);
                tell_running(narrator, &name, now, why)?;
            }
        }
        if now.is_finished() {
            let at = self.now();
            if let Some(seen) = self.history.job_mut(&name) {
                seen.end_run(at, RunEnd::Finished);
            }
            let reason = text(job, "/status/conditions/0/reason");
            let message = format!("{name}  Finished  {reason}");
            narrator.tell_with("finished", &message, json!({"job": name, "reason": reason}))?;
        }
        Ok(())
    }
}

/// Number of T4 nodes that the pools of a cluster can still make; `None` if the cluster isn't connected.
fn nodes_left(cluster: &Value) -> Option<i64> {
    let blocks = cluster["status"]["provisionable"].as_array()?;
    if text(cluster, "/status/state") != "Connected" {
        return None;
    }
    let has_t4 = |block: &&Value| block["labels"][ACCELERATOR_LABEL] == T4;
    Some(blocks.iter().filter(has_t4).filter_map(|block| block["nodes"].as_i64()).sum())
}

fn tell_race(narrator: &mut Narrator<'_>, name: &str, race: &Race) -> Result<(), Error> {
    let Race { winner, took, losers, open_after } = race;
    let lost: Vec<String> = losers
        .iter()
        .map(|(region, answer): &(String, Answer)| format!("{region} ({})", answer.words()))
        .collect();
    let withdrawn = match (lost.as_slice(), open_after.as_slice()) {
        ([], _) => "no other region was asked".to_owned(),
        (lost, []) => format!("withdrawn: {}", lost.join(", ")),
        (_, open) => format!("still open: {}", open.join(", ")),
    };
    let message = format!("{name}  {winner} wins after {took:.1}s; {withdrawn}");
    let losers: BTreeMap<&str, &str> =
        losers.iter().map(|(region, answer)| (region.as_str(), answer.words())).collect();
    let more =
        json!({"job": name, "region": winner, "seconds": took, "losers": losers, "openAfter": open_after});
    narrator.tell_with("race", &message, more)
}

fn tell_running(narrator: &mut Narrator<'_>, name: &str, now: &JobRecord, why: Value) -> Result<(), Error> {
    let explanation = Explanation::parse(why).map_err(|why| Error::render("text", why))?;
    let (region, attempt, reason) = (&now.region, now.attempts, explanation.reason_of(&now.cluster));
    let again = if attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
    let message = format!("{name}  Running  in {region}{again}");
    let more = json!({"job": name, "region": region, "attempt": attempt, "why": reason});
    narrator.tell_with("running", &message, more)
}
