//! Commands on objects: `apply`, `create`, `delete`, `get`, `describe`.

use super::values::object_name;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use meridian_objects::{FieldValidation, Strictness};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// File, directory (its *.yaml, *.yml and *.json, recursively) or - for standard input; repeatable
    #[arg(short, long = "filename", value_name = "FILE", required = true, num_args = 1..)]
    pub(crate) files: Vec<PathBuf>,
    /// Apply to this worker cluster only: its own quota caps and provider settings
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub(crate) cluster: Option<String>,
    /// Let the manager check the objects, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) strictness: StrictnessArgs,
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

    /// The manager's `fieldValidation`, where it is not the usual one.
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
    pub(crate) strictness: StrictnessArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// KIND NAME.. or KIND/NAME.., such as `job train` or `job/train cq/gpus`
    #[arg(
        value_name = "KIND NAME",
        required_unless_present = "files",
        conflicts_with = "files",
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub(crate) targets: Vec<String>,
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
    /// Delete this worker cluster's own quota caps and provider settings
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub(crate) cluster: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// KIND [NAME..] or KIND/NAME.., such as `jobs`, `cq`, `cluster eu` or `job/train`
    #[arg(value_name = "KIND NAME", required = true, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) targets: Vec<String>,
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
    pub(crate) cluster: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DescribeArgs {
    /// KIND NAME.. or KIND/NAME..
    #[arg(value_name = "KIND NAME", required = true, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) targets: Vec<String>,
}
