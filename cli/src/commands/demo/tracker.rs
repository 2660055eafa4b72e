//! The states of the demo's jobs, polled from the manager.

use super::narrator::Narrator;
use crate::client::{Client, Selection};
use crate::commands::jobs::explanation::Explanation;
use crate::error::Error;
use crate::objects::fields::{name_of, text};
use meridian_objects::job::SUBMITTED_KIND;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

const POLL_EVERY: Duration = Duration::from_millis(100);

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
    jobs: BTreeMap<String, JobRecord>,
    /// Regions in which each job ran, in order.
    regions: BTreeMap<String, Vec<String>>,
}

impl JobTracker {
    pub(super) fn new(client: Client, step_within: Duration) -> Self {
        Self { client, step_within, jobs: BTreeMap::new(), regions: BTreeMap::new() }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Adds a submitted job.
    pub(super) fn add(&mut self, name: &str) {
        let pending = JobRecord { state: "Pending".into(), ..JobRecord::default() };
        self.jobs.insert(name.to_owned(), pending);
    }

    pub(super) fn job(&self, name: &str) -> &JobRecord {
        &self.jobs[name]
    }

    /// The regions in which a job ran, in order.
    pub(super) fn regions_of(&self, name: &str) -> &[String] {
        self.regions.get(name).map_or(&[], Vec::as_slice)
    }

    pub(super) fn summary(&self) -> impl Iterator<Item = (&str, &JobRecord, &[String])> {
        self.jobs.iter().map(|(name, job)| (name.as_str(), job, self.regions_of(name)))
    }

    /// Polls until `is_reached`, and prints every change of these jobs. Fails after the time limit.
    pub(super) async fn wait_until(
        &mut self,
        narrator: &mut Narrator<'_>,
        goal: &str,
        names: &[String],
        is_reached: impl Fn(&Self) -> bool,
    ) -> Result<(), Error> {
        let until = Instant::now() + self.step_within;
        loop {
            self.poll(narrator, names).await?;
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

    async fn poll(&mut self, narrator: &mut Narrator<'_>, names: &[String]) -> Result<(), Error> {
        for job in self.client.list(&Selection::all(SUBMITTED_KIND)).await?.items {
            let name = name_of(&job).to_owned();
            if !names.contains(&name) {
                continue;
            }
            let now = JobRecord::read(&job);
            let before = self.jobs.insert(name.clone(), now.clone()).unwrap_or_default();
            let has_moved = !before.is_running() || before.cluster != now.cluster;
            if now.is_running() && has_moved {
                self.regions.entry(name.clone()).or_default().push(now.region.clone());
                self.tell_running(narrator, &job, &name, &now).await?;
            }
            if now.is_finished() && !before.is_finished() {
                let reason = text(&job, "/status/conditions/0/reason");
                let message = format!("{name}  Finished  {reason}");
                narrator.tell_with("finished", &message, json!({"job": name, "reason": reason}))?;
            }
        }
        Ok(())
    }

    async fn tell_running(
        &self,
        narrator: &mut Narrator<'_>,
        job: &Value,
        name: &str,
        now: &JobRecord,
    ) -> Result<(), Error> {
        let answer = self.client.why(text(job, "/metadata/namespace"), name).await?;
        let explanation = Explanation::parse(answer).map_err(|why| Error::render("text", why))?;
        let (region, attempt, reason) = (&now.region, now.attempts, explanation.reason_of(&now.cluster));
        let again = if attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
        let message = format!("{name}  Running  in {region}{again}: {reason}");
        let more = json!({"job": name, "region": region, "attempt": attempt, "why": reason});
        narrator.tell_with("running", &message, more)
    }
}
