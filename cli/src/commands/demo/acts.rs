//! The acts of the demo in their order, and their common parts.

use super::narrator::Narrator;
use super::tracker::{ACCELERATOR_LABEL, GPU, JobTracker};
use crate::client::{CreateOptions, JobName};
use crate::commands::example;
use crate::commands::jobs::explanation::Explanation;
use crate::error::Error;
use crate::examples::{FLEX_START, TUTORIAL, TUTORIAL_JOB};
use crate::fleet::Fleet;
use crate::objects::fields::name_of;
use meridian_objects::job::SUBMITTED_KIND;
use serde_json::json;
use std::collections::BTreeSet;

/// The tutorial's queue, and that of the example `flex-start`.
const TUTORIAL_QUEUE: &str = "dws-local-queue";
const ACCELERATORS_QUEUE: &str = "accelerators";
const QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";

pub(super) struct Demo<'s> {
    pub(super) narrator: Narrator<'s>,
    pub(super) fleet: Fleet,
    pub(super) tracker: JobTracker,
}

impl Demo<'_> {
    /// Plays all acts. Fails if one of them doesn't come to its end.
    pub(super) async fn play(&mut self) -> Result<(), Error> {
        self.fleet.wait_until_ready().await?;
        example::apply(self.tracker.client(), &TUTORIAL, None).await?;
        example::apply(self.tracker.client(), &FLEX_START, None).await?;
        self.wait_until("the pools are known", &[], |tracker| tracker.history().pools.len() == 3).await?;
        let message =
            "tutorial queues applied; no region has a GPU: simulated Flex Start makes nodes on request";
        self.narrator.tell("ready", message)?;
        self.race_in_three_regions().await?;
        self.keep_personal_data_in_the_eu().await?;
        self.lose_an_agent().await
    }

    /// Prints why a job waits.
    pub(super) async fn explain_pending(
        &mut self,
        namespace: &str,
        name: &str,
    ) -> Result<Explanation, Error> {
        let answer = self.tracker.client().why(namespace, &JobName::new(None, name)).await?;
        self.narrator.tell_pending(answer.clone())?;
        Explanation::parse(answer).map_err(|why| Error::render("text", why))
    }

    pub(super) async fn wait_until(
        &mut self,
        goal: &str,
        names: &[String],
        is_reached: impl Fn(&JobTracker) -> bool,
    ) -> Result<(), Error> {
        self.tracker.wait_until(&mut self.narrator, goal, names, is_reached).await
    }

    pub(super) async fn wait_until_finished(&mut self, names: &[String]) -> Result<(), Error> {
        let is_reached = |tracker: &JobTracker| names.iter().all(|name| tracker.job(name).is_finished());
        self.tracker.wait_until(&mut self.narrator, "they end", names, is_reached).await
    }

    /// Submits the tutorial's gang, three pods with a T4 each, with this simulated duration; returns its
    /// name.
    pub(super) async fn submit_gang(
        &mut self,
        namespace: &str,
        title: &str,
        duration: &str,
    ) -> Result<String, Error> {
        let mut job = example::objects(&TUTORIAL_JOB)?.remove(0);
        job["metadata"]["namespace"] = json!(namespace);
        job["metadata"]["labels"][QUEUE_LABEL] = json!(TUTORIAL_QUEUE);
        job["spec"]["template"]["spec"]["containers"][0]["args"] = json!([duration]);
        self.create(namespace, title, 3, &job).await
    }

    /// Submits a job of one pod with GPUs of one kind to the queue `accelerators`; returns its name.
    pub(super) async fn submit_pod(
        &mut self,
        title: &str,
        accelerator: &str,
        gpus: u32,
        duration: &str,
    ) -> Result<String, Error> {
        let mut job = example::objects(&TUTORIAL_JOB)?.remove(0);
        job["metadata"]["generateName"] = json!(format!("{}-", title.to_lowercase()));
        job["metadata"]["labels"][QUEUE_LABEL] = json!(ACCELERATORS_QUEUE);
        (job["spec"]["parallelism"], job["spec"]["completions"]) = (json!(1), json!(1));
        let pod = &mut job["spec"]["template"]["spec"];
        pod["nodeSelector"][ACCELERATOR_LABEL] = json!(accelerator);
        pod["containers"][0]["args"] = json!([duration]);
        for amounts in ["requests", "limits"] {
            pod["containers"][0]["resources"][amounts][GPU] = json!(gpus);
        }
        self.create("default", title, gpus, &job).await
    }

    async fn create(
        &mut self,
        namespace: &str,
        title: &str,
        accelerators: u32,
        job: &serde_json::Value,
    ) -> Result<String, Error> {
        let options = CreateOptions::default();
        let created = self.tracker.client().create(SUBMITTED_KIND, Some(namespace), job, options).await?;
        let name = name_of(&created.object).to_owned();
        self.tracker.add(&name, title, accelerators);
        Ok(name)
    }
}

pub(super) fn joined<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    let texts: BTreeSet<&str> = texts.into_iter().collect();
    texts.into_iter().collect::<Vec<_>>().join(", ")
}
