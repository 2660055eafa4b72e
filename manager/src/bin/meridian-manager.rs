//! The manager as a separate program. `meridian manager` is the same.

use clap::Parser;
use meridian_manager::server::{ManagerArgs, run};
use meridian_manager::with_causes;
use std::process::ExitCode;

/// The manager: one global queue for accelerator gangs over many clusters.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    manager: ManagerArgs,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(run(cli.manager)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", with_causes(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}
