//! The guard: a small process that owns one gang's processes and its deadline.
//!
//! The agent starts one guard per run, in its own session, and talks to it over a socket ([`wire`]). The
//! guard outlives a killed agent, ends the gang by its own reading of the boot clock ([`lease`]), writes the
//! end of the run where a restarted agent finds it ([`rundir`]), and exits. If the kernel allows it
//! ([`namespace`]), the guard is init of a PID namespace, so that its own death ends the gang. Otherwise it
//! adopts orphans, its direct children die with it, and the agent ends the rest.
//!
//! ```text
//! agent ── guard --dir D ─┬─(namespace)── guard --init D  (pid 1) ── pods…
//!                         └─(none)─ the same process ── guard --exec … → pods…
//! ```
//! Invariants: the guard holds `guard.lock` for as long as it lives. It starts no pod if `state.json` has an
//! end, if the stop tombstone exists, or if the stop should have begun. It reports the end only when it has
//! no child left and the end is on disk. It is one thread and knows nothing of managers, ledgers or holds.

use crate::job_run::{Error, JobSpec};
use nix::unistd::setsid;
use std::ffi::OsString;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

pub mod clock;
pub mod lease;
mod namespace;
mod output;
mod pod;
pub mod processes;
pub mod rundir;
mod wake;
mod watch;
pub mod wire;

pub use pod::PASSED_ON;
use rundir::{Identity, Plan, RunDir, VERSION};

/// Exit code for a command that was not found (the shells' convention).
const EXIT_NOT_FOUND: u8 = 127;
/// Exit code for a command that can't be executed (the shells' convention).
const EXIT_NOT_EXECUTABLE: u8 = 126;

/// This binary, even if its file was replaced or deleted after the start.
pub const OWN_BINARY: &str = "/proc/self/exe";

/// Runs as a guard. `args` are those after the hidden subcommand `guard`. A binary that starts guards must
/// offer the subcommand before it starts any thread.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let words: Vec<&str> = args.iter().map(|a| a.to_str().unwrap_or_default()).collect();
    let done = match words.as_slice() {
        ["--dir", _] => start(Path::new(&args[1]), false),
        ["--dir", _, "--namespace"] => start(Path::new(&args[1]), true),
        ["--init", _] => own(Path::new(&args[1]), true),
        ["--exec", parent, _, ..] => return exec(parent, &args[2..]),
        ["--probe"] => namespace::probe(),
        ["--probe-init"] => return ExitCode::from(u8::from(std::process::id() != 1)),
        _ => {
            remark("`guard` is started by the agent only; it takes `--dir DIRECTORY [--namespace]`");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            remark(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// Writes to the guard's log, which is its standard error.
fn remark(text: &str) {
    // A failure to write the log can't be reported anywhere.
    let _ = writeln!(std::io::stderr(), "guard: {text}");
}

/// Runs in the process that the agent starts: becomes the guard, or starts the guard as init of a namespace
/// and exits.
fn start(directory: &Path, in_namespace: bool) -> Result<(), Error> {
    // This comes first: a Ctrl-C in the agent's terminal must not reach the guard. Fails only for a session
    // leader, which does not need it.
    let _ = setsid();
    std::env::set_current_dir(directory)
        .map_err(|source| Error::System { doing: "enter the run's directory", source })?;
    if !in_namespace {
        return own(Path::new("."), false);
    }
    namespace::enter()?;
    Command::new(OWN_BINARY)
        .arg0("meridian-guard")
        .args(["guard", "--init", "."])
        .stdin(Stdio::inherit())
        .spawn()
        .map_err(|source| Error::System { doing: "start the namespace's init", source })?;
    Ok(())
}

/// Owns the run of `directory` until it has ended.
fn own(directory: &Path, in_namespace: bool) -> Result<(), Error> {
    let dir = RunDir::at(directory);
    let Some(_lock) = dir.lock()? else {
        remark("another process owns this run");
        return Ok(());
    };
    if dir.end()?.is_some() || dir.start_forbidden() {
        remark("this run ended before it started");
        return Ok(());
    }
    let Some(plan) = dir.plan()? else {
        remark("there is no plan to run");
        return Ok(());
    };
    let listener = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map(UnixListener::from)
        .map_err(|source| Error::System { doing: "take over the socket", source })?;
    // The init of a namespace must become a session leader. The call fails for the process that the agent
    // started, which is one already.
    let _ = setsid();
    // Shown in process lists.
    let _ = rustix::thread::set_name(c"meridian-guard");
    let own = processes::Stat::of("self").ok_or_else(|| Error::System {
        doing: "read `/proc/self/stat`",
        source: std::io::ErrorKind::NotFound.into(),
    })?;
    dir.write_identity(&Identity {
        version: VERSION,
        pid: own.pid,
        started_ticks: own.started_ticks,
        namespace: in_namespace,
    })?;
    if in_namespace {
        namespace::mount_own_proc();
    } else {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(|e| Error::System { doing: "become the adopter of orphans", source: e.into() })?;
    }
    check_boot(&plan)?;
    let job = JobSpec::parse(&plan.start.spec)?;
    watch::Watch::new(dir, plan, job, listener, in_namespace)?.run();
    Ok(())
}

/// Fails if the plan was made before this machine's last boot: the clock of its deadline has started again.
fn check_boot(plan: &Plan) -> Result<(), Error> {
    let boot = clock::boot_id().map_err(|source| Error::System { doing: "read the boot id", source })?;
    if boot == plan.boot_id { Ok(()) } else { Err(Error::OtherBoot) }
}

/// Becomes a pod's command that dies with the guard, for a guard that isn't init of a namespace.
fn exec(parent: &str, words: &[OsString]) -> ExitCode {
    let tied = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let orphaned = rustix::process::getppid().is_none_or(|p| p.as_raw_nonzero().get().to_string() != parent);
    if tied.is_err() || orphaned {
        // The guard died before the parent-death signal was set up, or the signal can't be set up.
        return ExitCode::from(EXIT_NOT_EXECUTABLE);
    }
    let error = Command::new(&words[0]).args(&words[1..]).exec();
    remark(&format!("cannot run `{}`: {error}", words[0].to_string_lossy()));
    ExitCode::from(exit_code(&error))
}

/// The exit code of a command that could not be started.
fn exit_code(error: &std::io::Error) -> u8 {
    if error.kind() == std::io::ErrorKind::NotFound { EXIT_NOT_FOUND } else { EXIT_NOT_EXECUTABLE }
}
