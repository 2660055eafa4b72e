//! Commands on jobs: `submit`, `why`, `logs`, `stop`, `resume`.

use super::completion;
use super::values::{job_name, object_name, positive_duration};
use crate::client::JobName;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use clap_complete::ArgValueCompleter;
use jiff::SignedDuration;

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SubmitArgs {
    /// Local queue [default: the namespace's only one]
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    #[arg(add = ArgValueCompleter::new(completion::local_queues))]
    pub(crate) queue: Option<String>,
    /// Name of the job [default: made from the command]
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub(crate) name: Option<String>,
    /// Accelerator model, such as nvidia-tesla-t4
    #[arg(long, value_name = "MODEL")]
    pub(crate) accelerator: Option<String>,
    /// Accelerators per node [default: 1 with --accelerator, else 0]
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u32>,
    /// Nodes: pods that start together
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) nodes: u32,
    /// CPU cores per node, such as 4 or 500m
    #[arg(long, value_name = "QUANTITY")]
    pub(crate) cpu: Option<String>,
    /// Memory per node, such as 16Gi
    #[arg(long, value_name = "QUANTITY")]
    pub(crate) memory: Option<String>,
    /// Maximum run time, such as 2h
    #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
    pub(crate) max_run: Option<SignedDuration>,
    /// Run only in this region; repeatable
    #[arg(long, value_name = "REGION")]
    pub(crate) region: Vec<String>,
    /// Container image; not needed where clusters run plain processes
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,
    /// Wait until the job ends; exit with 1 if it fails
    #[arg(long)]
    pub(crate) wait: bool,
    /// Command and arguments of every pod
    #[arg(value_name = "CMD", last = true, required = true)]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ActivationArgs {
    /// Names of jobs, or `job NAME..` or `workload NAME..`; a workload may be named by its job
    #[arg(
        value_name = "JOB",
        required = true,
        value_parser = NonEmptyStringValueParser::new(),
        add = ArgValueCompleter::new(completion::jobs_or_targets)
    )]
    pub(crate) targets: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// Name of the job, or KIND/NAME
    #[arg(value_parser = job_name, add = ArgValueCompleter::new(completion::jobs))]
    pub(crate) name: JobName,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Name of the job, or KIND/NAME
    #[arg(value_parser = job_name, add = ArgValueCompleter::new(completion::jobs))]
    pub(crate) name: JobName,
    /// Follow the output until the job ends, over all of its attempts
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Number of one attempt; 1 is the first [default: the newest]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) attempt: Option<u64>,
    /// The attempt before the newest one
    #[arg(short, long, conflicts_with = "attempt")]
    pub(crate) previous: bool,
    /// Index of one pod
    #[arg(long, value_name = "N")]
    pub(crate) pod: Option<u32>,
    /// Print only the last N lines
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<u64>,
}
