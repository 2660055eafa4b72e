//! The command line: every command and flag, with the text of `--help`.
//!
//! Knows no command's work. Everything that clap can check is checked here, so that a mistake costs no
//! request.

mod access;
mod bench;
mod clusters;
pub(crate) mod completion;
mod jobs;
mod local;
mod manifests;
mod migrate;
mod plan;
mod records;
#[cfg(test)]
mod reference;
pub(crate) mod targets;
mod values;

pub(crate) use self::access::{AuthCommand, CanIArgs, TokenArgs, TokenCommand};
pub(crate) use self::bench::{
    BenchArgs, BenchCommand, BenchMode, BenchUntil, KubernetesBenchArgs, Measure, ResourceRequest,
};
pub(crate) use self::clusters::{ClusterCommand, OrphanCommand};
pub(crate) use self::jobs::{ActivationArgs, LogsArgs, SubmitArgs, WhyArgs};
pub(crate) use self::local::{DemoArgs, ExampleArgs, LocalRunner, UpArgs};
pub(crate) use self::manifests::{
    ApplyArgs, CreateArgs, DeleteArgs, DescribeArgs, DryRun, EditArgs, GetArgs, TopArgs, TopView,
};
pub(crate) use self::migrate::{MigrateCommand, MigratePart, MigrateSource};
pub(crate) use self::plan::{PlanArgs, QuotaCheck};
pub(crate) use self::records::{AuditCommand, JournalCommand};

use self::values::object_name;
use crate::output::template::Template;
use clap::{ArgAction, Args, Parser, Subcommand};
use clap_complete::{ArgValueCandidates, ArgValueCompleter, Shell};
use std::path::PathBuf;

const AFTER_HELP: &str = "\
Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 130 interrupted.
Answers go to standard output, everything else to standard error.

Try `meridian demo` first: it needs nothing but this program.";

/// One global queue for accelerator jobs over many clusters.
#[derive(Debug, Parser)]
#[command(
    name = "meridian",
    version,
    after_help = AFTER_HELP,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Globals {
    /// Path of the kubeconfig [default: $KUBECONFIG, ./.meridian/kubeconfig or ~/.meridian/kubeconfig]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Namespace [default: the context's, else `default`]
    #[arg(short, long, global = true, value_name = "NAME", value_parser = object_name)]
    #[arg(add = ArgValueCompleter::new(completion::namespaces))]
    pub(crate) namespace: Option<String>,
    /// Format of the output: json, yaml, wide (more columns), name, text (the default), jsonpath=TEMPLATE or
    /// custom-columns=NAME:PATH,..
    #[arg(short, long, global = true, value_name = "FORMAT", value_parser = values::output)]
    #[arg(add = ArgValueCandidates::new(values::output_candidates))]
    pub(crate) output: Option<Output>,
    /// Disable colour; the variable NO_COLOR does the same
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
    /// Log retries to standard error; -vv also logs each request
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Yaml,
    /// Table with more columns.
    Wide,
    /// Only `kind.group/name` of each object.
    Name,
    /// Table or text.
    Text,
}

/// The value of `--output`.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    /// JSON for a template.
    pub(crate) format: Format,
    pub(crate) template: Option<Template>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show in a minute what Meridian does, with simulated clusters
    Demo(DemoArgs),
    /// Start a manager and three simulated clusters on this machine
    Up(UpArgs),
    /// List the example manifests, or print one
    Example(ExampleArgs),
    /// Create or change objects from files, all of them or none
    Apply(ApplyArgs),
    /// Create objects from files
    Create(CreateArgs),
    /// Delete objects by name or from files
    Delete(DeleteArgs),
    /// List objects of a kind
    Get(GetArgs),
    /// Show all details of an object
    Describe(DescribeArgs),
    /// Change an object in an editor
    Edit(EditArgs),
    /// Show the load of clusters, queues and jobs; live on a terminal
    Top(TopArgs),
    /// Submit a job without writing YAML
    Submit(Box<SubmitArgs>),
    /// Show why a job is pending, or why it runs where it does
    Why(WhyArgs),
    /// Print the output of a job
    Logs(LogsArgs),
    /// Stop jobs and keep them out of the queue until they are resumed
    Stop(ActivationArgs),
    /// Return stopped jobs to the queue
    Resume(ActivationArgs),
    /// Preview which workloads of files are admitted, preempted or pending
    Plan(Box<PlanArgs>),
    /// Check a MultiKueue management cluster, and plan its move to Meridian
    #[command(subcommand)]
    Migrate(MigrateCommand),
    /// Join, cordon, drain and retire worker clusters
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Handle runs that agents report and the manager's journal doesn't know
    #[command(subcommand)]
    Orphan(OrphanCommand),
    /// Verify or export the audit log
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Create, list and revoke tokens of users
    #[command(subcommand)]
    Token(TokenCommand),
    /// Ask what you may do
    #[command(subcommand)]
    Auth(AuthCommand),
    /// Inspect, back up and restore the manager's journal
    #[command(subcommand)]
    Journal(JournalCommand),
    /// Run a manager
    Manager(Box<meridian_manager::server::ManagerArgs>),
    /// Run or join the agent of a worker cluster
    #[command(subcommand)]
    Agent(meridian_agent::AgentCommand),
    /// Measure Meridian on this machine, or a deployment
    Bench(BenchArgs),
    /// Print shell completions
    Completion { shell: Shell },
    /// Print the version of this program
    Version,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use meridian_objects::Kind;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn usage_errors_exit_with_two() {
        let check = |line: &str| {
            assert_eq!(Cli::try_parse_from(line.split(' ')).unwrap_err().exit_code(), 2, "{line}")
        };
        check("meridian fly");
        check("meridian apply");
        check("meridian why ../x");
        check("meridian logs cq/x");
        check("meridian submit --nodes 0 -- true");
        check("meridian submit --max-run soon -- true");
        check("meridian submit");
        check("meridian get jobs -o xml");
        check("meridian get jobs -o jsonpath={.a");
        check("meridian get jobs -o custom-columns=NAME");
        check("meridian apply --dry-run=half -f x");
        check("meridian delete job x -f y");
        check("meridian agent run --speed fast");
        check("meridian bench kubernetes");
        check("meridian bench restart kubernetes --queue q");
        check("meridian bench --runs 2 kubernetes --queue q");
        check("meridian bench kubernetes --queue q --mode fast");
        check("meridian bench kubernetes --queue q --jobs 0");
        check("meridian bench kubernetes --queue a/b");
        check("meridian bench kubernetes --queue q --request cpu");
        check("meridian bench kubernetes --queue q --metrics api:6443/metrics");
        assert_eq!(Cli::try_parse_from(["meridian", "--help"]).unwrap_err().exit_code(), 0);
    }

    #[test]
    fn global_flags_may_stand_anywhere() {
        let cli =
            Cli::try_parse_from(["meridian", "get", "jobs", "-n", "research", "-o", "json", "-vv"]).unwrap();
        assert_eq!(cli.globals.namespace.as_deref(), Some("research"));
        assert_eq!((cli.globals.output.unwrap().format, cli.globals.verbose), (Format::Json, 2));
        let cli = Cli::try_parse_from(["meridian", "submit", "--nodes", "2", "--", "sh", "-c", "echo -n x"])
            .unwrap();
        let Command::Submit(submit) = cli.command else { panic!("not a submit") };
        assert_eq!(submit.command, ["sh", "-c", "echo -n x"]);
        for (word, kind) in [
            ("train", None),
            ("job/train", Some(Kind::Job)),
            ("jobsets.jobset.x-k8s.io/train", Some(Kind::JobSet)),
            ("wl/train", Some(Kind::Workload)),
        ] {
            let Command::Logs(logs) = Cli::try_parse_from(["meridian", "logs", word]).unwrap().command else {
                panic!("not logs")
            };
            assert_eq!((logs.name.kind(), logs.name.name()), (kind, "train"));
        }
    }

    /// Help is read in 80 columns; a summary that wraps there is hard to scan.
    #[test]
    fn summaries_of_commands_are_short() {
        let mut cli = Cli::command();
        cli.build();
        assert!(cli.find_subcommand("help").is_some());
        for command in cli.get_subcommands() {
            let summary = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(!summary.is_empty() && summary.len() <= 78, "{}: {summary}", command.get_name());
        }
    }
}
