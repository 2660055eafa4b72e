//! The command `bench`: a fleet on this machine, and `bench kubernetes` for a deployment of the user.

use super::values::{object_name, resource_request, web_url};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) command: Option<BenchCommand>,
    /// What to measure
    #[arg(value_name = "MEASURE", value_enum, default_values_t = [Measure::All])]
    pub(crate) measures: Vec<Measure>,
    /// Directory for the journals, to choose the disk [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Length of one run, in seconds
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(2..=600)
    )]
    pub(crate) seconds: u64,
    /// Runs of each measure; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(crate) runs: u32,
    /// Gangs in the queue for the measures `memory` and `restart`
    #[arg(
        long,
        value_name = "N",
        default_value_t = 20_000,
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(100..=1_000_000)
    )]
    pub(crate) gangs: usize,
    /// Seed of the jobs' shapes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Measure {
    /// Durable submissions per second
    Submissions,
    /// Gangs per second from submission to running
    Dispatches,
    /// Time from submission to running at a steady load
    Latency,
    /// Memory of the manager per queued gang
    Memory,
    /// Time until a killed manager is ready again
    Restart,
    /// Kueue's scheduler benchmark "baseline" in real time: 15,000 workloads in 30 queues
    KueueBaseline,
    /// Kueue's scheduler benchmark "large-scale" in real time: 50,000 workloads in 1,000 queues
    KueueLargeScale,
    /// All of these measures
    All,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure a deployment: create jobs at a manager or a management cluster, and delete them again
    Kubernetes(KubernetesBenchArgs),
}

/// What to create and to watch. The manager or management cluster is that of `--kubeconfig` and `--context`.
#[derive(Clone, Debug, Args)]
pub(crate) struct KubernetesBenchArgs {
    /// Local queue of the jobs, in the namespace of --namespace. It needs quota and nodes for all jobs at
    /// once
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub(crate) queue: String,
    /// What to measure
    #[arg(long, value_enum, value_name = "MODE", default_value_t = BenchMode::Both)]
    pub(crate) mode: BenchMode,
    /// Jobs of each mode [default: 500 for rate, 20 for latency]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) jobs: Option<u32>,
    /// State that ends a job's measurement [default: admitted for rate, running for latency]
    #[arg(long, value_enum, value_name = "STATE")]
    pub(crate) until: Option<BenchUntil>,
    /// Worker cluster, a context of the same kubeconfig; may be repeated. Its requests are counted, and its
    /// jobs are timed until they are resumed there: name every cluster that may get a job
    #[arg(long = "worker", value_name = "CONTEXT")]
    pub(crate) workers: Vec<String>,
    /// API server whose requests are counted, a context of the same kubeconfig; may be repeated
    #[arg(long = "server", value_name = "CONTEXT")]
    pub(crate) servers: Vec<String>,
    /// Metrics of an API server whose requests are counted, such as those behind a `kubectl proxy`; may be
    /// repeated
    #[arg(long = "metrics", value_name = "URL", value_parser = web_url)]
    pub(crate) metrics: Vec<String>,
    /// Idle time before the jobs, in seconds. The rate of requests in it is subtracted from the jobs'
    /// requests
    #[arg(
        long,
        value_name = "N",
        default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(0..=600)
    )]
    pub(crate) idle: u64,
    /// Longest wait for the last job after its creation, in seconds
    #[arg(
        long,
        value_name = "N",
        default_value_t = 120,
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    pub(crate) timeout: u64,
    /// What each job's only pod requests, such as nvidia.com/gpu=1; may be repeated
    #[arg(
        long = "request",
        value_name = "NAME=AMOUNT",
        value_parser = resource_request,
        default_values = ["cpu=100m", "memory=100Mi"]
    )]
    pub(crate) requests: Vec<ResourceRequest>,
    /// Image of the jobs' only container. It should run until it is deleted
    #[arg(long, value_name = "IMAGE", default_value = "registry.k8s.io/pause:3.10")]
    pub(crate) image: String,
}

/// A value of `--request`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourceRequest {
    pub(crate) resource: String,
    /// A quantity of Kubernetes; the API server checks it.
    pub(crate) amount: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchMode {
    /// All jobs at once, by 8 connections: jobs per second until the last one is there
    Rate,
    /// One job after the other: the times of an unloaded deployment
    Latency,
    /// First the rate, then the latency
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchUntil {
    /// A worker cluster has the job, and its admission is shown where the job was created
    Admitted,
    /// The job's pods run, and this is shown where the job was created
    Running,
}
