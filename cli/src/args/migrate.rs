//! The commands `migrate check` and `migrate plan`.

use super::values::object_name;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum MigrateCommand {
    /// Show for each object of a MultiKueue management cluster whether it carries over; exits with 1 if one
    /// doesn't. Nothing is changed
    Check(MigrateSource),
    /// Print the steps for moving one queue at a time, and back. Nothing is changed
    Plan {
        #[command(flatten)]
        source: MigrateSource,
        /// Only this cluster queue
        #[arg(long, value_name = "NAME", value_parser = object_name)]
        queue: Option<String>,
        /// Print these objects of the queue, ready for `meridian apply`, instead of the steps
        #[arg(long, value_enum, value_name = "PART", requires = "queue")]
        manifests: Option<MigratePart>,
    },
}

/// Where the objects are. The cluster is that of `--kubeconfig` and `--context`.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct MigrateSource {
    /// Exported objects instead of the cluster of --kubeconfig and --context [default: $KUBECONFIG or
    /// ~/.kube/config]: files, directories or - for standard input
    #[arg(short, long = "filename", value_name = "FILE", num_args = 1..)]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MigratePart {
    /// The cluster queue, its local queues, and the objects that queues refer to
    Queue,
    /// The jobs that wait in the queue
    Jobs,
}
