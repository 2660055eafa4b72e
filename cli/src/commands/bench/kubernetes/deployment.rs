//! The measured deployment: where jobs are created, the worker clusters, and the counted API servers.

use super::progress::{JobState, Progress};
use super::sources::{Source, Sources};
use super::target::{
    Target, WATCHER, check_rights, job_resource, objects, states_of_worker_job, states_of_workload,
};
use crate::args::KubernetesBenchArgs;
use crate::commands::api_servers;
use crate::error::Error;
use futures::StreamExt as _;
use kube::api::{Api, DynamicObject};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use meridian_kubernetes::Client;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Longest wait until all watches have read the existing jobs.
const WATCHED_WITHIN: Duration = Duration::from_secs(30);

/// A worker cluster whose jobs are timed.
struct WorkerCluster {
    client: Client,
}

/// Every API server that is asked.
pub(super) struct Deployment {
    pub(super) target: Target,
    pub(super) sources: Sources,
    workers: Vec<WorkerCluster>,
}

/// The deployment that the flags of all commands select.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) context: Option<String>,
    /// `None`: the context's.
    pub(super) namespace: Option<String>,
}

impl Deployment {
    /// Connects to all API servers and checks them. Fails before anything is created if an API server can't
    /// be reached or has no metrics, a right is missing, or the queue doesn't exist.
    pub(super) async fn open(place: Place, args: &KubernetesBenchArgs) -> Result<Self, Error> {
        check_names(args)?;
        let Place { kubeconfig, context, namespace } = place;
        let connection = api_servers::open(kubeconfig.clone(), context).await?;
        let namespace = namespace.unwrap_or_else(|| connection.namespace().to_owned());
        let target = Target::check(&connection, namespace, args.queue.clone()).await?;
        let (mut sources, mut workers) = (Vec::new(), Vec::new());
        for name in &args.workers {
            let worker = api_servers::open(kubeconfig.clone(), Some(name.clone())).await?;
            check_rights(&worker.client, worker.server(), &target.namespace, &[WATCHER]).await?;
            sources.push(Source::Server { name: name.clone(), client: worker.client.clone() });
            workers.push(WorkerCluster { client: worker.client });
        }
        for name in &args.servers {
            let server = api_servers::open(kubeconfig.clone(), Some(name.clone())).await?;
            sources.push(Source::Server { name: name.clone(), client: server.client });
        }
        for url in &args.metrics {
            sources.push(Source::page(url.clone())?);
        }
        let sources = Sources(sources);
        sources.snapshot().await?;
        Ok(Self { target, sources, workers })
    }

    /// The states that every job passes on its way to `until`, as far as they can be seen.
    pub(super) fn states(&self, until: JobState) -> Vec<JobState> {
        let states = [JobState::Admitted, JobState::Resumed, JobState::Running];
        let is_seen = |state: &JobState| match state {
            JobState::Admitted => true,
            JobState::Resumed => !self.workers.is_empty(),
            JobState::Running => until == JobState::Running,
        };
        states.into_iter().filter(is_seen).collect()
    }

    /// Follows the jobs that `selector` selects, until the result is dropped. Fails if a watch doesn't start.
    pub(super) async fn follow(
        &self,
        selector: &str,
        progress: &Arc<Progress>,
    ) -> Result<JoinSet<()>, Error> {
        let Target { client, kind, namespace, workloads, .. } = &self.target;
        let jobs = |client: &Client| objects(client, namespace, &job_resource());
        let mut watches = JoinSet::new();
        let selected = Config::default().labels(selector);
        let kind = *kind;
        watches.spawn(follow(jobs(client), selected.clone(), Arc::clone(progress), move |progress, job| {
            progress.note(name_of(job), kind.states_of_job(job));
        }));
        if kind == super::target::TargetKind::ManagementCluster {
            let workloads = objects(client, namespace, workloads);
            watches.spawn(follow(
                workloads,
                Config::default(),
                Arc::clone(progress),
                |progress, workload| {
                    progress.note(owner_of(workload), states_of_workload(workload));
                },
            ));
        }
        for worker in &self.workers {
            let jobs = jobs(&worker.client);
            watches.spawn(follow(jobs, selected.clone(), Arc::clone(progress), |progress, job| {
                progress.note(name_of(job), states_of_worker_job(job));
            }));
        }
        if progress.is_watched(watches.len(), WATCHED_WITHIN).await {
            return Ok(watches);
        }
        let seconds = WATCHED_WITHIN.as_secs();
        Err(Error::Refused(format!("not every watch of the jobs began within {seconds} s; `-v` shows why")))
    }
}

/// Fails if an API server would be counted twice.
fn check_names(args: &KubernetesBenchArgs) -> Result<(), Error> {
    let mut names = BTreeSet::new();
    let mut all = args.workers.iter().chain(&args.servers).chain(&args.metrics);
    match all.find(|name| !names.insert(*name)) {
        Some(name) => Err(Error::Usage(format!(
            "`{name}` is named twice with `--worker`, `--server` or `--metrics`: its requests would count \
             twice"
        ))),
        None => Ok(()),
    }
}

/// Hands each object of a watch to `note`, for ever.
async fn follow(
    api: Api<DynamicObject>,
    selected: Config,
    progress: Arc<Progress>,
    note: impl Fn(&Progress, &Value),
) {
    let mut events = watcher(api, selected).default_backoff().boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => match serde_json::to_value(&object) {
                Ok(object) => note(&progress, &object),
                Err(error) => tracing::warn!(%error, "an object of a watch can't be read"),
            },
            Ok(Event::InitDone) => progress.note_watch(),
            Ok(Event::Init | Event::Delete(_)) => {}
            Err(error) => tracing::warn!(%error, "a watch failed and is started again"),
        }
    }
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The name of the job that a Workload belongs to.
fn owner_of(workload: &Value) -> &str {
    workload.pointer("/metadata/ownerReferences/0/name").and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{BenchArgs, BenchCommand, Cli, Command};
    use clap::Parser as _;

    fn args(line: &str) -> KubernetesBenchArgs {
        let words = format!("meridian bench kubernetes --queue q {line}");
        let cli = Cli::try_parse_from(words.split_whitespace()).unwrap();
        let Command::Bench(BenchArgs { command: Some(BenchCommand::Kubernetes(args)), .. }) = cli.command
        else {
            panic!("not the bench of a deployment")
        };
        args
    }

    #[test]
    fn no_server_counts_twice() {
        assert!(check_names(&args("--worker asia --server front --metrics http://localhost:8001/m")).is_ok());
        for line in ["--worker asia --server asia", "--worker asia --worker asia"] {
            let error = check_names(&args(line)).unwrap_err();
            assert_eq!(error.exit_code(), crate::error::EXIT_USAGE);
            assert!(error.to_string().contains("`asia` is named twice"), "{error}");
        }
    }
}
