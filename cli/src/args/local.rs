//! Commands that start a fleet on this machine, `demo` and `up`; and `example`, for what to try there.

use super::values::{demo_speed, speed};
use crate::examples::EXAMPLES;
use clap::{Args, ValueEnum};
use clap_complete::{ArgValueCandidates, CompletionCandidate};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Run simulated jobs and nodes N times faster, from 10 to 30; leases keep real time
    #[arg(long, value_name = "N", default_value_t = 20.0, value_parser = demo_speed)]
    pub(crate) speed: f64,
    /// Keep the fleet running at the end, and keep its files
    #[arg(long)]
    pub(crate) keep: bool,
    /// Also write timeline, races, reasons and promises as a web page of its own
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Fleet file: clusters and their nodes [default: as before in this directory, else three regions with 4
    /// simulated T4 GPUs each]
    #[arg(long, value_name = "FILE")]
    pub(crate) fleet: Option<PathBuf>,
    /// Directory of all data; a later `up` continues from it
    #[arg(long, value_name = "DIR", default_value = ".meridian")]
    pub(crate) data_dir: PathBuf,
    /// How jobs run [default: as before in this directory, else simulated]
    #[arg(long, value_enum)]
    pub(crate) runner: Option<LocalRunner>,
    /// Run simulated jobs N times faster
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = speed)]
    pub(crate) speed: f64,
    /// Apply the queues of the tutorial example, so that jobs can be submitted at once
    #[arg(long, conflicts_with = "fleet")]
    pub(crate) examples: bool,
    /// Address that the manager listens on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) listen: String,
    /// Also start a local Prometheus with Meridian's alert rules, if `prometheus` is installed
    #[arg(long)]
    pub(crate) observe: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LocalRunner {
    /// Jobs are simulated: they take time, and no process starts
    Simulated,
    /// Jobs run as processes of this machine, with your rights
    Process,
}

impl LocalRunner {
    /// The value of `--runner`, here and of `meridian agent run`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Simulated => "simulated",
            Self::Process => "process",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ExampleArgs {
    /// Name of an example [default: list them]
    #[arg(add = ArgValueCandidates::new(example_names))]
    pub(crate) name: Option<String>,
}

fn example_names() -> Vec<CompletionCandidate> {
    EXAMPLES.iter().map(|one| CompletionCandidate::new(one.name).help(Some(one.about.into()))).collect()
}
