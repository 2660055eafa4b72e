//! Commands on objects: `apply`, `create`, `delete`, `get`, `describe`.

use super::values::object_name;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
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
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// File, directory or - for standard input; repeatable
    #[arg(short, long = "filename", value_name = "FILE", required = true, num_args = 1..)]
    pub(crate) files: Vec<PathBuf>,
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
