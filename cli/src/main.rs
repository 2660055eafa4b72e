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
//! | `examples` | the example manifests, embedded |
//!
//! Modules use those below them in this list, never those above.

mod args;
mod client;
mod commands;
mod error;
mod examples;
mod files;
mod fleet;
mod objects;
mod output;
mod session;

use args::completion::COMPLETE_VARIABLE;
use clap::{CommandFactory, Parser};
use clap_complete::CompleteEnv;
use std::process::ExitCode;
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    // An agent starts this program as the guard of a gang. This comes before any thread starts.
    if let Some(code) = meridian_agent::guard_if_asked() {
        return code;
    }
    // Also before any thread starts, because it removes a variable from the environment.
    CompleteEnv::with_factory(args::Cli::command).var(COMPLETE_VARIABLE).complete();
    let cli = args::Cli::parse();
    ExitCode::from(commands::run(cli))
}
