//! The command `plan`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PlanArgs {
    /// File, directory (its *.yaml, *.yml and *.json, recursively) or - for standard input; repeatable
    #[arg(short, long = "filename", value_name = "FILE", required = true, num_args = 1..)]
    pub(crate) files: Vec<PathBuf>,
    /// Add these files to what the manager has, and show what they would change
    #[arg(long)]
    pub(crate) what_if: bool,
    /// Stop after N scheduling cycles [default: when nothing changes any more]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cycles: Option<u32>,
    /// Workloads of each queue that one cycle evaluates
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) heads_per_queue: u16,
    /// Use fair sharing between cluster queues, with these preemption strategies [default: Kueue's]
    #[arg(
        long,
        value_name = "STRATEGY,..",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = ""
    )]
    pub(crate) fair_sharing: Option<String>,
    /// Use fair sharing between local queues by past usage: half-life=168h,sampling=5m,weight.cpu=2
    #[arg(long, value_name = "KEY=VALUE,..")]
    pub(crate) admission_fair_sharing: Option<String>,
    /// File with the `resources` section of Kueue's configuration
    #[arg(long, value_name = "FILE")]
    pub(crate) resources: Option<PathBuf>,
    /// Time of the decision, such as 2026-06-01T12:00:00Z [default: now]
    #[arg(long, value_name = "TIME")]
    pub(crate) now: Option<String>,
    /// Kueue's feature gates, such as PartialAdmission=false; repeatable
    #[arg(long, value_name = "NAME=BOOL,..", value_delimiter = ',')]
    pub(crate) feature_gates: Vec<String>,
    /// Treatment of workloads that request a resource their queue doesn't declare
    #[arg(long, value_enum, default_value_t = QuotaCheck::BlockUndeclared)]
    pub(crate) quota_check_strategy: QuotaCheck,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum QuotaCheck {
    /// Ignore the undeclared resource
    IgnoreUndeclared,
    /// Don't admit the workload
    #[default]
    BlockUndeclared,
}
