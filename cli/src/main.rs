//! The `meridian` command: everything that a person does to a fleet, on one line.
//!
//! This file only starts things; what a command does is in [`commands`], what it says to the manager in [`client`].

mod age;
mod args;
mod audit;
mod client;
mod columns;
mod commands;
mod error;
mod files;
mod fleet;
mod interrupts;
mod jobs;
mod kubeconfig;
mod log_lines;
mod out;
mod printable;
mod progress;
mod selector;
mod session;
mod table;
mod why;

use clap::Parser;
use std::process::ExitCode;
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    // Before any thread starts: this program is also the guard of its own gangs.
    if let Some(code) = meridian_agent::guard_if_asked() {
        return code;
    }
    let cli = args::Cli::parse();
    ExitCode::from(commands::run(cli))
}
