//! Whole commands against a scripted manager: their requests, their output, their exit code.

mod access;
mod habits;
mod jobs;
mod logs;
mod objects;
mod operators;

use super::dispatch;
use crate::args::Cli;
use crate::client::fake::{Fake, FakeAnswer};
use crate::error::Error;
use crate::session::Session;
use clap::Parser;
use serde_json::{Value, json};

const CLUSTER_QUEUE: &str = "\
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: dws}
spec:
  namespaceSelector: {}
  resourceGroups:
  - {coveredResources: [cpu], flavors: [{name: f, resources: [{name: cpu, nominalQuota: 10}]}]}
";
const LOCAL_QUEUE: &str = "\
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: gpus}
spec: {clusterQueue: dws}
";
const JOB: &str = "\
---
apiVersion: batch/v1
kind: Job
metadata: {generateName: dws-job-, labels: {kueue.x-k8s.io/queue-name: gpus}}
spec:
  parallelism: 3
  completions: 3
  suspend: true
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i, args: ['120s']}]}}
";

pub(super) struct CommandRun {
    pub(super) result: Result<(), Error>,
    /// What it wrote to standard output.
    pub(super) answers: String,
    /// What it wrote to standard error; without the error that it returned.
    pub(super) notes: String,
}

impl CommandRun {
    pub(super) fn code(&self) -> u8 {
        self.result.as_ref().map_or_else(Error::exit_code, |()| 0)
    }

    pub(super) fn error(&self) -> String {
        self.result.as_ref().unwrap_err().to_string()
    }
}

pub(super) async fn run(fake: &Fake, line: &[&str], stdin: &str) -> CommandRun {
    let cli = Cli::try_parse_from(std::iter::once("meridian").chain(line.iter().copied())).unwrap();
    let (mut session, answers, notes) = Session::for_test(fake.start().await, cli.globals.clone(), stdin);
    let result = dispatch(&mut session, cli.command).await;
    CommandRun { result, answers: answers.text(), notes: notes.text() }
}

/// The requests for a job of any kind in namespace `default`, in their order.
const JOBS_OF_ALL_KINDS: [&str; 10] = [
    "GET /apis/batch/v1/",
    "GET /apis/jobset.x-k8s.io/",
    "GET /apis/kubeflow.org/v1/",
    "GET /apis/kubeflow.org/v2beta1/",
    "GET /apis/ray.io/v1/namespaces/default/rayjobs/",
    "GET /apis/ray.io/v1/namespaces/default/rayclusters/",
    "GET /apis/leaderworkerset.x-k8s.io/",
    "GET /apis/trainer.kubeflow.org/",
    "GET /api/v1/namespaces/default/pods/",
    "GET /apis/meridian.dev/v1alpha1/namespaces/default/podgroups/train",
];

/// Answers to those requests: the job, with its workload, for the kinds whose request has one of these words.
fn jobs_named(found: &[&str]) -> Vec<(&'static str, FakeAnswer)> {
    let missing = json!({"message": "jobs.batch \"train\" not found", "reason": "NotFound"});
    let job = json!({"metadata": {"name": "train"}, "status": {"meridian": {"workload": "job-train-0"}}});
    let answer = |line: &&'static str| {
        let is_found = found.iter().any(|word| line.contains(word));
        let answer = if is_found { (200, job.clone()) } else { (404, missing.clone()) };
        (*line, FakeAnswer::Json(answer.0, answer.1))
    };
    JOBS_OF_ALL_KINDS.iter().map(answer).collect()
}

fn request_body(fake: &Fake, index: usize) -> Value {
    serde_json::from_str(&fake.requests()[index].body).unwrap()
}
