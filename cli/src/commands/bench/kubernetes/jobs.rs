//! The jobs of one measurement: their manifests, their creation and their removal.

use super::target::{Target, TargetKind, job_resource, objects};
use crate::args::ResourceRequest;
use crate::commands::api_servers::refused;
use crate::error::Error;
use futures::StreamExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use meridian_kubernetes::connection::within;
use meridian_kubernetes::error::{Failure, classify};
use meridian_objects::job::QUEUE_LABEL;
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// Requests at the same time.
pub(super) const CONNECTIONS: usize = 8;
/// Label with the name of the run, by which its jobs are found again.
pub(super) const RUN_LABEL: &str = "meridian-bench";
/// The value of `managedBy` that keeps the management cluster's own controller from running a job.
const MANAGED_BY: &str = "kueue.x-k8s.io/multikueue";
/// Longest time for the jobs to go after their deletion.
const GONE_WITHIN: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Number of looks that must find no jobs: a request that was sent before an interruption may still create a
/// job after the first look.
const EMPTY_LOOKS: u32 = 2;
/// Variables that make a manifest about 1 kB long, as those of users are.
const VARIABLES: u32 = 8;

/// The jobs of one run: numbered names with the run's name in front, and the run's label.
pub(super) struct Jobs {
    /// Such as `bench-4f1c2a-rate`.
    pub(super) run: String,
    pub(super) count: u32,
    api: Api<DynamicObject>,
    template: Template,
}

/// What the jobs have in common.
#[derive(Clone, Debug)]
pub(super) struct Template {
    pub(super) namespace: String,
    pub(super) queue: String,
    pub(super) kind: TargetKind,
    pub(super) image: String,
    pub(super) requests: Vec<ResourceRequest>,
}

impl Template {
    /// A suspended job of one pod. A management cluster's own controller ignores it.
    fn job(&self, run: &str, name: &str) -> Value {
        let environment: Vec<Value> = (0..VARIABLES)
            .map(|number| json!({"name": format!("SETTING_{number}"), "value": format!("{name}-{number}")}))
            .collect();
        let amounts: Map<String, Value> =
            self.requests.iter().map(|one| (one.resource.clone(), json!(one.amount))).collect();
        let container = json!({
            "name": "main", "image": self.image, "env": environment,
            "resources": {"requests": amounts, "limits": amounts},
        });
        let mut job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "name": name, "namespace": self.namespace,
                "labels": {QUEUE_LABEL: self.queue, RUN_LABEL: run},
            },
            "spec": {
                "parallelism": 1, "completions": 1, "completionMode": "Indexed", "backoffLimit": 0,
                "suspend": true,
                "template": {
                    "spec": {
                        "restartPolicy": "Never", "terminationGracePeriodSeconds": 2,
                        "containers": [container],
                    },
                },
            },
        });
        if self.kind == TargetKind::ManagementCluster {
            job["spec"]["managedBy"] = json!(MANAGED_BY);
        }
        job
    }
}

/// A job, and when its creation was sent.
#[derive(Clone, Debug)]
pub(super) struct SentJob {
    pub(super) name: String,
    pub(super) at: Instant,
}

impl Jobs {
    pub(super) fn new(target: &Target, run: String, count: u32, template: Template) -> Self {
        let api = objects(&target.client, &target.namespace, &job_resource());
        Self { run, count, api, template }
    }

    /// Beginning of all names of the run.
    pub(super) fn prefix(&self) -> String {
        format!("{}-", self.run)
    }

    /// Selects the jobs of the run, and nothing else.
    pub(super) fn selector(&self) -> String {
        format!("{RUN_LABEL}={}", self.run)
    }

    /// Creates one job. Fails if the API server refuses it.
    pub(super) async fn create(&self, number: u32) -> Result<SentJob, Error> {
        let name = format!("{}-{number}", self.run);
        let job = self.template.job(&self.run, &name);
        let job: DynamicObject = serde_json::from_value(job).map_err(|error| Error::render("json", error))?;
        let at = Instant::now();
        let params = PostParams::default();
        within(format!("create the job `{name}`"), self.api.create(&params, &job)).await.map_err(refused)?;
        Ok(SentJob { name, at })
    }

    /// Creates all jobs as fast as answers come. Fails with the first refusal.
    pub(super) async fn create_all(&self) -> Result<Vec<SentJob>, Error> {
        let mut created = futures::stream::iter(0..self.count)
            .map(|number| self.create(number))
            .buffer_unordered(CONNECTIONS);
        let mut sent = Vec::new();
        while let Some(job) = created.next().await {
            sent.push(job?);
        }
        Ok(sent)
    }

    /// Deletes every job of the run, and waits until none is left. Fails with the number of those that are
    /// still there at the end, and with how to delete them.
    pub(super) async fn remove(&self) -> Result<(), Error> {
        let until = Instant::now() + GONE_WITHIN;
        let mut empty_looks = 0;
        loop {
            let failed = match self.look_and_delete().await {
                Ok(0) => {
                    empty_looks += 1;
                    if empty_looks == EMPTY_LOOKS {
                        return Ok(());
                    }
                    None
                }
                Ok(left) => {
                    empty_looks = 0;
                    Some(format!("{left} jobs of this run are still there"))
                }
                Err(error) => Some(error.to_string()),
            };
            if let Some(failed) = failed
                && Instant::now() > until
            {
                return Err(Error::Refused(format!("{failed}: {}", self.advice())));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The command by which a user deletes the jobs that the run left.
    pub(super) fn advice(&self) -> String {
        let Template { namespace, .. } = &self.template;
        format!("`kubectl delete jobs -n {namespace} -l {}` deletes what is left", self.selector())
    }

    /// Deletes the jobs that aren't being deleted yet. Returns how many jobs there were in all.
    async fn look_and_delete(&self) -> Result<usize, Error> {
        let params = ListParams::default().labels(&self.selector());
        let doing = "list the jobs of this run".to_owned();
        let found = within(doing, self.api.list(&params)).await.map_err(refused)?.items;
        let number = found.len();
        let present = found.into_iter().filter(|job| job.metadata.deletion_timestamp.is_none());
        let names = present.filter_map(|job| job.metadata.name);
        let mut deleted =
            futures::stream::iter(names).map(|name| self.delete(name)).buffer_unordered(CONNECTIONS);
        while let Some(result) = deleted.next().await {
            result?;
        }
        Ok(number)
    }

    async fn delete(&self, name: String) -> Result<(), Error> {
        let params = DeleteParams::background();
        let asked = async {
            match self.api.delete(&name, &params).await {
                Err(error) if classify(&error) == Failure::Absent => Ok(()),
                deleted => deleted.map(drop),
            }
        };
        within(format!("delete the job `{name}`"), asked).await.map_err(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(kind: TargetKind) -> Template {
        Template {
            namespace: "research".to_owned(),
            queue: "main".to_owned(),
            kind,
            image: "registry.example/pause".to_owned(),
            requests: vec![ResourceRequest { resource: "cpu".to_owned(), amount: "100m".to_owned() }],
        }
    }

    #[test]
    fn jobs_are_small_suspended_and_of_the_run() {
        let job = template(TargetKind::ManagementCluster).job("bench-1-rate", "bench-1-rate-7");
        assert_eq!(job["spec"]["suspend"], true);
        assert_eq!(job["spec"]["managedBy"], MANAGED_BY);
        assert_eq!(job["metadata"]["labels"][RUN_LABEL], "bench-1-rate");
        assert_eq!(job["metadata"]["labels"][QUEUE_LABEL], "main");
        let resources = &job["spec"]["template"]["spec"]["containers"][0]["resources"];
        assert_eq!(resources, &json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "100m"}}));
        let bytes = job.to_string().len();
        assert!((900..1_300).contains(&bytes), "{bytes} bytes");
    }

    #[test]
    fn a_managers_job_names_no_other_controller() {
        let job = template(TargetKind::Manager).job("bench-1-rate", "bench-1-rate-7");
        assert!(job["spec"].get("managedBy").is_none());
    }
}
