//! What each command does. One file per command; this one starts the run-time, and names objects as people know them.

mod activity;
mod agent;
mod apply;
mod audit;
mod bench;
mod cluster;
mod create;
mod delete;
mod demo;
mod describe;
mod get;
mod journal;
mod logs;
mod orphan;
mod plan;
mod remarks;
mod submit;
mod targets;
#[cfg(test)]
mod tests;
mod up;
mod why;

use crate::args::{Cli, Command, Format};
use crate::error::{EXIT_FAILED, Error};
use crate::out::Out;
use crate::session::Session;
use clap::CommandFactory;
use meridian_objects::Kind;
use serde_json::{Value, json};
use std::io;

/// Runs a command line to its end; returns the exit code.
pub(crate) fn run(cli: Cli) -> u8 {
    // The servers bring their own logging, with traces and metrics.
    if !matches!(cli.command, Command::Agent(_) | Command::Manager(_)) {
        start_tracing(cli.globals.verbose, crate::out::notes_in_colour(cli.globals.no_color));
    }
    let mut session =
        Session::new(cli.globals.clone(), Out::of_process(cli.globals.no_color), Box::new(io::stdin()));
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
    // a read of standard input that nobody waits for any more must not keep the process
    runtime.shutdown_background();
    code
}

/// Runs one command.
pub(crate) async fn dispatch(session: &mut Session, command: Command) -> Result<(), Error> {
    match command {
        Command::Demo(args) => demo::run(session, args).await,
        Command::Up(args) => up::run(session, args).await,
        Command::Manager(args) => meridian_manager::server::run(*args)
            .await
            .map_err(|error| Error::Refused(meridian_manager::with_causes(error.as_ref()))),
        Command::Apply(args) => apply::run(session, args).await,
        Command::Create(args) => create::run(session, args).await,
        Command::Delete(args) => delete::run(session, args).await,
        Command::Get(args) => get::run(session, args).await,
        Command::Describe(args) => describe::run(session, args).await,
        Command::Submit(args) => submit::run(session, *args).await,
        Command::Plan(args) => plan::run(session, *args).await,
        Command::Stop(args) => activity::run(session, args, false).await,
        Command::Resume(args) => activity::run(session, args, true).await,
        Command::Why(args) => why::run(session, args).await,
        Command::Logs(args) => logs::run(session, args).await,
        Command::Cluster(command) => cluster::run(session, command).await,
        Command::Orphan(command) => orphan::run(session, command).await,
        Command::Audit(command) => audit::run(session, command).await,
        Command::Journal(command) => journal::run(session, command).await,
        Command::Agent(command) => agent::run(command).await,
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "meridian", &mut script);
            session.out.raw(&script)
        }
        Command::Bench(args) => bench::run(session, args).await,
        Command::Version => version(session),
    }
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

/// Logs go to standard error; `-v` shows what is taken up again, `-vv` every request.
fn start_tracing(verbose: u8, colour: bool) {
    let level = match verbose {
        0 => "warn",
        1 => "meridian=info,warn",
        2 => "meridian=debug,warn",
        _ => "debug",
    };
    let filter = tracing_subscriber::EnvFilter::new(level);
    // a second subscriber would be our own mistake, and no reason not to work
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(colour)
        .with_target(false)
        .try_init();
}

/// `job.batch/train`, `clusterqueue.kueue.x-k8s.io/q`, `namespace/research`: as `kubectl` names objects.
fn reference(kind: Kind, name: &str) -> String {
    let name = crate::printable::line(name);
    if kind.group().is_empty() {
        format!("{}/{name}", kind.singular())
    } else {
        format!("{}.{}/{name}", kind.singular(), kind.group())
    }
}

/// The name of an object that the manager answered with.
fn name_of(object: &Value) -> &str {
    crate::columns::text(object, "/metadata/name")
}

/// Shows what was done to objects: documents for machines, or a line each.
fn show_done(session: &mut Session, documents: &[Value], lines: &[(String, String)]) -> Result<(), Error> {
    let whole = match documents {
        [one] => one.clone(),
        many => json!({"apiVersion": "v1", "kind": "List", "items": many}),
    };
    match session.format() {
        Some(Format::Json) => session.out.json(&whole),
        Some(Format::Yaml) => session.out.yaml(&whole),
        Some(Format::Name) => lines.iter().try_for_each(|(reference, _)| session.out.line(reference)),
        Some(Format::Wide | Format::Text) | None => {
            lines.iter().try_for_each(|(reference, done)| session.out.line(format!("{reference} {done}")))
        }
    }
}
