//! Commands on objects: `apply`, `create`, `delete`, `get`, `describe`, `edit`, `top`.

use super::completion;
use super::values::object_name;
use crate::output::template::Path;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use clap_complete::ArgValueCompleter;
use meridian_objects::{FieldValidation, Strictness};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// File, directory (its *.yaml, *.yml and *.json, recursively) or - for standard input; repeatable
    #[arg(short, long = "filename", value_name = "FILE", required = true, num_args = 1..)]
    pub(crate) files: Vec<PathBuf>,
    /// Apply to this worker cluster only: its own quota caps and provider settings
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    #[arg(add = ArgValueCompleter::new(completion::clusters))]
    pub(crate) cluster: Option<String>,
    #[command(flatten)]
    pub(crate) dry_run: DryRunArgs,
    #[command(flatten)]
    pub(crate) strictness: StrictnessArgs,
}

#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct DryRunArgs {
    /// Change nothing: the manager validates the request (server), or only the files are read (client)
    #[arg(
        long = "dry-run",
        value_name = "WHERE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "server",
        default_value = "none",
        hide_default_value = true
    )]
    pub(crate) at: DryRun,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRun {
    /// Make the change.
    #[default]
    None,
    /// Read the files, and send nothing.
    Client,
    /// Let the manager validate the request, and store nothing.
    Server,
}

impl DryRun {
    /// The note after a result that was not stored.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Client => " (dry run)",
            Self::Server => " (server dry run)",
        }
    }
}

/// How strictly manifests are read.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct StrictnessArgs {
    /// What an unknown field is: an error (strict), a warning (warn) or nothing (ignore) [default: an error
    /// in the spec of a job, a warning elsewhere]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) validate: Option<Validate>,
    /// Refuse unknown fields, and documents of kinds that Meridian doesn't take
    #[arg(long, conflicts_with = "validate")]
    pub(crate) strict: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Validate {
    Strict,
    Warn,
    Ignore,
}

impl StrictnessArgs {
    /// How the files are read here.
    pub(crate) fn of_files(self) -> Strictness {
        let validation = match self.validate {
            _ if self.strict => FieldValidation::Strict,
            None => FieldValidation::StrictJobs,
            Some(Validate::Strict) => FieldValidation::Strict,
            Some(Validate::Warn) => FieldValidation::Warn,
            Some(Validate::Ignore) => FieldValidation::Ignore,
        };
        Strictness { validation, refuse_foreign: self.strict }
    }

    /// The manager's `fieldValidation`, if it is not the usual one.
    pub(crate) fn of_manager(self) -> Option<&'static str> {
        match self.of_files().validation {
            FieldValidation::Strict => Some("Strict"),
            FieldValidation::Ignore => Some("Ignore"),
            FieldValidation::Warn | FieldValidation::StrictJobs => None,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// File, directory or - for standard input; repeatable
    #[arg(short, long = "filename", value_name = "FILE", required = true, num_args = 1..)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) dry_run: DryRunArgs,
    #[command(flatten)]
    pub(crate) strictness: StrictnessArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// KIND NAME.. or KIND/NAME.., such as `job train` or `job/train cq/gpus`; with --all or -l only kinds
    #[arg(
        value_name = "KIND NAME",
        required_unless_present = "files",
        conflicts_with = "files",
        value_parser = NonEmptyStringValueParser::new(),
        add = ArgValueCompleter::new(completion::targets)
    )]
    pub(crate) targets: Vec<String>,
    /// Delete all objects of the kind; of one namespace, if the kind has namespaces
    #[arg(long, conflicts_with = "files")]
    pub(crate) all: bool,
    /// Delete the objects with these labels, such as `team=vision`
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with_all = ["files", "all"])]
    pub(crate) selector: Option<String>,
    /// File, directory or - for standard input; repeatable
    #[arg(short, long = "filename", value_name = "FILE", num_args = 1..)]
    pub(crate) files: Vec<PathBuf>,
    /// Wait until the objects are gone; a job stays until its pods have stopped
    #[arg(long)]
    pub(crate) wait: bool,
    /// Delete objects that others refer to, and queues in which workloads wait
    #[arg(long)]
    pub(crate) force: bool,
    /// Succeed if an object doesn't exist
    #[arg(long)]
    pub(crate) ignore_not_found: bool,
    #[command(flatten)]
    pub(crate) dry_run: DryRunArgs,
    /// Delete this worker cluster's own quota caps and provider settings
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    #[arg(add = ArgValueCompleter::new(completion::clusters))]
    pub(crate) cluster: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// KIND [NAME..] or KIND/NAME.., such as `jobs`, `cq`, `cluster eu` or `job/train`; several kinds as
    /// `jobs,cq`, or `all` for jobs, workloads and queues
    #[arg(
        value_name = "KIND NAME",
        required = true,
        value_parser = NonEmptyStringValueParser::new(),
        add = ArgValueCompleter::new(completion::targets)
    )]
    pub(crate) targets: Vec<String>,
    /// Sort by a path, such as `.metadata.creationTimestamp`
    #[arg(long, value_name = "PATH", value_parser = Path::parse, conflicts_with = "watch")]
    pub(crate) sort_by: Option<Path>,
    /// Watch for changes after listing
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// List objects of all namespaces
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// Label selector, such as `team=vision,tier!=test`
    #[arg(short = 'l', long, value_name = "SELECTOR", default_value = "", hide_default_value = true)]
    pub(crate) selector: String,
    /// Show this worker cluster's own quota caps and provider settings
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    #[arg(add = ArgValueCompleter::new(completion::clusters))]
    pub(crate) cluster: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DescribeArgs {
    /// KIND NAME.. or KIND/NAME..
    #[arg(
        value_name = "KIND NAME",
        required = true,
        value_parser = NonEmptyStringValueParser::new(),
        add = ArgValueCompleter::new(completion::targets)
    )]
    pub(crate) targets: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    /// KIND NAME or KIND/NAME. The editor is $MERIDIAN_EDITOR, $KUBE_EDITOR, $EDITOR or vi
    #[arg(
        value_name = "KIND NAME",
        required = true,
        value_parser = NonEmptyStringValueParser::new(),
        add = ArgValueCompleter::new(completion::targets)
    )]
    pub(crate) targets: Vec<String>,
    /// Edit this worker cluster's own quota caps and provider settings
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    #[arg(add = ArgValueCompleter::new(completion::clusters))]
    pub(crate) cluster: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// What to show [default: all three]
    #[arg(value_enum)]
    pub(crate) view: Option<TopView>,
    /// Show jobs of all namespaces
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// Print once, also on a terminal
    #[arg(long)]
    pub(crate) once: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TopView {
    #[value(alias = "cluster")]
    Clusters,
    #[value(aliases = ["queue", "clusterqueues", "cq"])]
    Queues,
    #[value(alias = "job")]
    Jobs,
}
