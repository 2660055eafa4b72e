//! The worker agent's binary.

use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs gangs on a worker cluster for a Meridian manager.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Owns one gang's processes and its deadline; started by the agent only.
    #[command(hide = true)]
    Guard {
        /// Passed on as they are.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Guard { args } => meridian_agent::guard::main(args),
    }
}
