//! The commands. This file starts the runtime and dispatches; every command has a file of its own.

mod agent;
mod api_servers;
mod bench;
mod demo;
mod example;
mod jobs;
mod migrate;
mod objects;
mod operators;
mod plan;
mod results;
#[cfg(test)]
mod tests;
mod top;
mod up;

use crate::args::completion::COMPLETE_VARIABLE;
use crate::args::{Cli, Command, Format};
use crate::error::{EXIT_FAILED, Error};
use crate::output::streams::{Streams, notes_in_colour};
use crate::session::Session;
use clap_complete::Shell;
use clap_complete::env::Shells;
use serde_json::json;
use std::io;
use std::path::PathBuf;

/// Runs a command line to its end; returns the exit code.
pub(crate) fn run(cli: Cli) -> u8 {
    // The servers set up their own logging, with traces and metrics.
    if !matches!(cli.command, Command::Agent(_) | Command::Manager(_)) {
        start_logging(cli.globals.verbose, notes_in_colour(cli.globals.no_color));
    }
    let mut session =
        Session::new(cli.globals.clone(), Streams::of_process(cli.globals.no_color), Box::new(io::stdin()));
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            session.out.note(format!("error: can't start threads: {error}"));
            return EXIT_FAILED;
        }
    };
    let result = runtime.block_on(dispatch(&mut session, cli.command)).and_then(|()| session.out.flush());
    let code = match result {
        Ok(()) => 0,
        Err(error) => {
            if !error.is_silent() {
                session.out.note(format!("error: {error}"));
            }
            error.exit_code()
        }
    };
    // Don't wait for a blocked read of standard input.
    runtime.shutdown_background();
    code
}

async fn dispatch(session: &mut Session, command: Command) -> Result<(), Error> {
    match command {
        Command::Demo(args) => demo::run(session, args).await,
        Command::Up(args) => up::run(session, args).await,
        Command::Example(args) => example::run(session, &args),
        Command::Manager(args) => meridian_manager::server::run(*args)
            .await
            .map_err(|error| Error::Refused(meridian_manager::with_causes(error.as_ref()))),
        Command::Apply(args) => objects::apply::run(session, args).await,
        Command::Create(args) => objects::create::run(session, args).await,
        Command::Delete(args) => objects::delete::run(session, args).await,
        Command::Get(args) => objects::get::run(session, args).await,
        Command::Describe(args) => objects::describe::run(session, args).await,
        Command::Edit(args) => objects::edit::run(session, args).await,
        Command::Top(args) => top::run(session, args).await,
        Command::Submit(args) => jobs::submit::run(session, *args).await,
        Command::Plan(args) => plan::run(session, *args).await,
        Command::Stop(args) => jobs::activation::run(session, args, false).await,
        Command::Resume(args) => jobs::activation::run(session, args, true).await,
        Command::Why(args) => jobs::why::run(session, args).await,
        Command::Logs(args) => jobs::logs::run(session, args).await,
        Command::Migrate(command) => migrate::run(session, command).await,
        Command::Cluster(command) => operators::cluster::run(session, command).await,
        Command::Orphan(command) => operators::orphan::run(session, command).await,
        Command::Audit(command) => operators::audit::run(session, command).await,
        Command::Token(command) => operators::access::tokens(session, command).await,
        Command::Auth(command) => operators::access::auth(session, command).await,
        Command::Journal(command) => operators::journal::run(session, command).await,
        Command::Agent(command) => agent::run(command).await,
        Command::Completion { shell } => completion(session, shell),
        Command::Bench(args) => bench::run(session, args).await,
        Command::Version => version(session),
    }
}

/// A script with which a shell asks this program at each tab.
fn completion(session: &mut Session, shell: Shell) -> Result<(), Error> {
    let shells = Shells::builtins();
    let name = shell.to_string();
    let completer = shells.completer(&name).ok_or_else(|| Error::Usage(format!("unknown shell `{name}`")))?;
    // The program as it was called; `meridian` is found by the shell.
    let called = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let program = match called.canonicalize() {
        Ok(path) if called.components().count() > 1 => path.display().to_string(),
        _ => "meridian".to_owned(),
    };
    let mut script = Vec::new();
    completer.write_registration(COMPLETE_VARIABLE, "meridian", "meridian", &program, &mut script)?;
    session.out.raw(&script)
}

fn version(session: &mut Session) -> Result<(), Error> {
    let version = env!("CARGO_PKG_VERSION");
    match session.format() {
        Some(Format::Json) => session.out.json(&json!({"clientVersion": {"version": version}})),
        Some(Format::Yaml) => session.out.yaml(&json!({"clientVersion": {"version": version}})),
        Some(Format::Wide | Format::Name | Format::Text) | None => {
            session.out.line(format!("meridian {version}"))
        }
    }
}

/// Logs to standard error: `-v` shows what is retried, `-vv` every request.
fn start_logging(verbose: u8, colour: bool) {
    let level = match verbose {
        0 => "warn",
        1 => "meridian=info,warn",
        2 => "meridian=debug,warn",
        _ => "debug",
    };
    let filter = tracing_subscriber::EnvFilter::new(level);
    // Fails only if a subscriber is set already; the command works without logs too.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(colour)
        .with_target(false)
        .try_init();
}
