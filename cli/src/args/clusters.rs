//! Commands of cluster operators: `cluster`, `orphan`.

use super::completion;
use super::values::{object_name, positive_duration};
use clap::Subcommand;
use clap_complete::ArgValueCompleter;
use jiff::SignedDuration;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Print the command that joins a worker cluster
    Join {
        /// Name of the new cluster
        #[arg(value_parser = object_name)]
        name: String,
        /// Region, such as europe-west4
        #[arg(long)]
        region: String,
        /// Jurisdiction, such as EU
        #[arg(long)]
        jurisdiction: String,
        /// How long the printed command is valid [default: the manager's, 1h]
        #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
        ttl: Option<SignedDuration>,
        /// Let another agent take the name of a cluster that has joined; this locks out the previous agent
        #[arg(long)]
        replace: bool,
        /// Let the cluster's service account join, as the manager's setting join-by-issuer says, and print no
        /// command
        #[arg(long, conflicts_with = "ttl")]
        issuer: bool,
    },
    /// List the worker clusters
    List,
    /// Send work to a new cluster before others have acknowledged it
    Admit {
        #[arg(value_parser = object_name, add = ArgValueCompleter::new(completion::clusters))]
        name: String,
    },
    /// Stop sending new work to a cluster
    Cordon {
        #[arg(value_parser = object_name, add = ArgValueCompleter::new(completion::clusters))]
        name: String,
    },
    /// Send new work to a cordoned cluster again
    Uncordon {
        #[arg(value_parser = object_name, add = ArgValueCompleter::new(completion::clusters))]
        name: String,
    },
    /// Cordon a cluster and move its workloads to other clusters
    Drain {
        #[arg(value_parser = object_name, add = ArgValueCompleter::new(completion::clusters))]
        name: String,
    },
    /// Lock out the agent of a cluster: its certificates and unused join tokens become void
    Revoke {
        #[arg(value_parser = object_name, add = ArgValueCompleter::new(completion::clusters))]
        name: String,
        /// Repeat the name of the cluster: its gangs stop when their leases end, unless an agent joins again
        #[arg(long, value_name = "NAME")]
        confirm: Option<String>,
    },
    /// Declare that nothing runs on a cluster any more
    DeclareLost {
        #[arg(value_parser = object_name, add = ArgValueCompleter::new(completion::clusters))]
        name: String,
        /// Id of the lost ledger [default: the newest]
        #[arg(long, value_name = "ID")]
        ledger: Option<String>,
        /// Repeat the name of the cluster: anything still running there would run twice
        #[arg(long, value_name = "NAME")]
        confirm: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum OrphanCommand {
    /// List orphaned runs
    List,
    /// Stop an orphaned run
    Stop {
        /// UID of the workload
        uid: String,
        /// Fence of the run [default: the newest attempt's]
        #[arg(long)]
        fence: Option<String>,
    },
    /// Make an orphaned run an ordinary job again
    Adopt {
        /// UID of the workload
        uid: String,
        /// The job as it was submitted, or - for standard input
        #[arg(short, long = "filename", value_name = "FILE")]
        file: PathBuf,
        /// Fence of the run [default: the newest attempt's]
        #[arg(long)]
        fence: Option<String>,
    },
}
