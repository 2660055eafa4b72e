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

fn request_body(fake: &Fake, index: usize) -> Value {
    serde_json::from_str(&fake.requests()[index].body).unwrap()
}
