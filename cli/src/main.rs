//! The `meridian` command: manager, agent and every client command in one binary.
//!
//! | module | owns |
//! |---|---|
//! | `args` | the command line and its help texts |
//! | `commands` | what each command does |
//! | `session` | one run: flags, streams, connection |
//! | `fleet` | a manager and agents as local processes, for `up`, `demo` and `bench` |
//! | `files` | manifests behind `-f` |
//! | `client` | kubeconfig, HTTP, watches, logs |
//! | `output` | tables, ages, safe text, streams |
//! | `objects` | reading objects as the manager sends them |
//!
//! Modules use those below them in this list, never those above.

mod args;
mod client;
mod commands;
mod error;
mod files;
mod fleet;
mod objects;
mod output;
mod session;

use clap::Parser;
use std::process::ExitCode;
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    // Before any thread starts: an agent starts this program as the guard of a gang.
    if let Some(code) = meridian_agent::guard_if_asked() {
        return code;
    }
    let cli = args::Cli::parse();
    ExitCode::from(commands::run(cli))
}
