//! The acts of the demo.

use super::narrator::Narrator;
use super::tracker::JobTracker;
use super::{TERM, TERM_FLAG};
use crate::client::CreateOptions;
use crate::commands::example;
use crate::commands::jobs::explanation::Explanation;
use crate::error::Error;
use crate::examples::{RESIDENCY, TUTORIAL, TUTORIAL_JOB, TUTORIAL_WORKER};
use crate::fleet::Fleet;
use crate::objects::fields::name_of;
use meridian_objects::job::SUBMITTED_KIND;
use serde_json::json;
use std::collections::BTreeSet;
use tokio::time::Instant;

const WORKERS: [&str; 3] =
    ["multikueue-dws-worker-eu", "multikueue-dws-worker-us", "multikueue-dws-worker-asia"];
/// The only region that the residency policy allows.
const HOME: &str = "europe-west4";

pub(super) struct Demo<'s> {
    pub(super) narrator: Narrator<'s>,
    pub(super) fleet: Fleet,
    pub(super) tracker: JobTracker,
}

impl Demo<'_> {
    /// Plays all acts. Fails if one of them doesn't come to its end.
    pub(super) async fn play(&mut self) -> Result<(), Error> {
        self.fleet.wait_until_ready().await?;
        self.apply_queues().await?;
        let first = self.fill_three_regions().await?;
        self.keep_personal_data_in_the_eu(&first).await?;
        self.lose_a_cluster().await
    }

    async fn apply_queues(&mut self) -> Result<(), Error> {
        example::apply(self.tracker.client(), &TUTORIAL, None).await?;
        for cluster in WORKERS {
            example::apply(self.tracker.client(), &TUTORIAL_WORKER, Some(cluster)).await?;
        }
        self.narrator.tell("ready", "tutorial queues applied; each region has 4 simulated T4 GPUs")
    }

    /// Three gangs of three GPUs fill three regions. The fourth is pending with a reason, and starts once a
    /// gang ends.
    async fn fill_three_regions(&mut self) -> Result<Vec<String>, Error> {
        let mut jobs = Vec::new();
        for _ in 0..4 {
            jobs.push(self.submit("default", "120s").await?);
        }
        self.narrator.tell_with("submitted", "4 jobs submitted, with 3 GPUs each", json!({"jobs": jobs}))?;
        self.wait_until("three gangs run", &jobs, |tracker| count_running(tracker, &jobs) == 3).await?;
        let running = jobs.iter().map(|name| self.tracker.job(name)).filter(|job| job.is_running());
        let regions: BTreeSet<&str> = running.map(|job| job.region.as_str()).collect();
        let (in_three, observed) = (regions.len() == 3, joined(&regions));
        self.narrator.judge("three whole gangs run in three regions", in_three, observed);
        let Some(fourth) = jobs.iter().find(|name| self.tracker.job(name).state == "Pending").cloned() else {
            self.narrator.judge("each region says why the fourth waits", false, "no job was pending");
            return Ok(jobs);
        };
        let explanation = self.explain_pending("default", &fourth).await?;
        let full = explanation.count_reasons("no-room");
        let observed = format!("{full} of 3 regions are full");
        self.narrator.judge("each region says why the fourth waits", full == 3, observed);
        let has_started = |tracker: &JobTracker| {
            let job = tracker.job(&fourth);
            job.is_running() || job.is_finished()
        };
        self.wait_until("the fourth starts", &jobs, has_started).await?;
        let one_ended = jobs.iter().any(|name| *name != fourth && self.tracker.job(name).is_finished());
        let region = self.tracker.job(&fourth).region.clone();
        self.narrator.judge("the fourth starts when a gang ends", one_ended, region);
        Ok(jobs)
    }

    /// Under a policy that allows only the EU, the second of two jobs waits although other regions are free.
    async fn keep_personal_data_in_the_eu(&mut self, earlier: &[String]) -> Result<(), Error> {
        let finished =
            |tracker: &JobTracker, names: &[String]| names.iter().all(|name| tracker.job(name).is_finished());
        self.wait_until("the first four end", earlier, |tracker| finished(tracker, earlier)).await?;
        example::apply(self.tracker.client(), &RESIDENCY, None).await?;
        let both = vec![self.submit("research", "60s").await?, self.submit("research", "60s").await?];
        let message = "2 jobs submitted in namespace research, which a policy binds to the EU";
        self.narrator.tell_with("submitted", message, json!({"jobs": both}))?;
        self.wait_until("one runs in the EU", &both, |tracker| count_running(tracker, &both) == 1).await?;
        let is_first_pending = self.tracker.job(&both[0]).state == "Pending";
        let pending = if is_first_pending { &both[0] } else { &both[1] };
        let explanation = self.explain_pending("research", pending).await?;
        let forbidden = explanation.count_reasons("forbidden");
        self.wait_until("both end", &both, |tracker| finished(tracker, &both)).await?;
        let regions: BTreeSet<&str> =
            both.iter().flat_map(|name| self.tracker.regions_of(name)).map(String::as_str).collect();
        let kept = regions == BTreeSet::from([HOME]) && forbidden == 2;
        let observed = format!("ran in {}; {forbidden} regions forbidden", joined(&regions));
        self.narrator.judge("personal data stays in the EU", kept, observed);
        Ok(())
    }

    /// A killed agent's gang is restarted elsewhere, once, and only after its lease has lapsed.
    async fn lose_a_cluster(&mut self) -> Result<(), Error> {
        let job = self.submit("default", "200s").await?;
        let only = vec![job.clone()];
        self.wait_until("it runs", &only, |tracker| tracker.job(&job).is_running()).await?;
        let before = self.tracker.job(&job).clone();
        self.fleet.kill_agent(&before.cluster).await?;
        let killed = Instant::now();
        let message = format!("killed the agent in {} while {job} runs there", before.region);
        self.narrator.tell_with("killed", &message, json!({"cluster": before.cluster}))?;
        let has_moved = |tracker: &JobTracker| {
            let now = tracker.job(&job);
            now.is_running() && now.cluster != before.cluster
        };
        self.wait_until("it runs elsewhere", &only, has_moved).await?;
        let after = killed.elapsed();
        // The last renewal was at most two polls before the kill: an earlier start would break the lease.
        let earliest = TERM - TERM / 4;
        let observed = format!("{:.1}s after the kill, term {TERM_FLAG}", after.as_secs_f64());
        self.narrator.judge("a lost gang restarts after its lease", after >= earliest, observed);
        self.fleet.start_agent(&before.cluster)?;
        self.wait_until("it ends", &only, |tracker| tracker.job(&job).is_finished()).await?;
        let attempts = self.tracker.job(&job).attempts;
        self.narrator.judge(
            "a lost gang restarts exactly once",
            attempts == 2,
            format!("{attempts} attempts"),
        );
        let answer = self.tracker.client().why("default", &job).await?;
        let explanation = Explanation::parse(answer).map_err(|why| Error::render("text", why))?;
        let end = explanation.end_of_attempt(0);
        self.narrator.judge("its history shows the lapsed lease", end.contains("lease"), end);
        Ok(())
    }

    /// Prints why a job is pending.
    async fn explain_pending(&mut self, namespace: &str, name: &str) -> Result<Explanation, Error> {
        let answer = self.tracker.client().why(namespace, name).await?;
        self.narrator.tell_pending(answer.clone())?;
        Explanation::parse(answer).map_err(|why| Error::render("text", why))
    }

    async fn wait_until(
        &mut self,
        goal: &str,
        names: &[String],
        is_reached: impl Fn(&JobTracker) -> bool,
    ) -> Result<(), Error> {
        self.tracker.wait_until(&mut self.narrator, goal, names, is_reached).await
    }

    /// Submits the tutorial's job with this simulated duration; returns its name.
    async fn submit(&mut self, namespace: &str, duration: &str) -> Result<String, Error> {
        let mut job = example::objects(&TUTORIAL_JOB)?.remove(0);
        job["metadata"]["namespace"] = json!(namespace);
        job["spec"]["template"]["spec"]["containers"][0]["args"] = json!([duration]);
        let options = CreateOptions::default();
        let created = self.tracker.client().create(SUBMITTED_KIND, Some(namespace), &job, options).await?;
        let name = name_of(&created.object).to_owned();
        self.tracker.add(&name);
        Ok(name)
    }
}

fn count_running(tracker: &JobTracker, names: &[String]) -> usize {
    names.iter().filter(|name| tracker.job(name).is_running()).count()
}

fn joined(regions: &BTreeSet<&str>) -> String {
    regions.iter().copied().collect::<Vec<_>>().join(", ")
}
