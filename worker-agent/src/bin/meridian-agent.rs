//! The worker agent's binary: `meridian agent` by itself.

use clap::Parser;
use meridian_agent::AgentCommand;
use std::io::Write as _;
use std::process::ExitCode;

/// Runs gangs on a worker cluster for a Meridian manager.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: AgentCommand,
}

fn main() -> ExitCode {
    if let Some(code) = meridian_agent::guard_if_asked() {
        return code;
    }
    let command = Cli::parse().command;
    match execute(command) {
        Ok(code) => code,
        Err(error) => {
            // The error can't be reported if the error output is closed.
            let _ = writeln!(std::io::stderr(), "error: {}", meridian_agent::with_causes(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn execute(command: AgentCommand) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = runtime.block_on(async {
        match command {
            AgentCommand::Run(args) => meridian_agent::run(*args).await,
            AgentCommand::Join(args) => meridian_agent::join(args).await.map(|()| ExitCode::SUCCESS),
        }
    });
    // A stop must not wait for blocked reads.
    runtime.shutdown_background();
    code
}
