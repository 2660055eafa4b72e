//! Processes of the fleet, their logs and files.

use super::setup::{FleetProcess, FleetSetup};
use crate::error::Error;
use std::fs::File;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

/// A process that doesn't end within this time after SIGTERM is killed.
const END_WITHIN: Duration = Duration::from_secs(5);
/// Lines of a log that a message quotes.
const TAIL_LINES: usize = 5;

pub(super) fn start_manager(program: &Path, setup: &FleetSetup) -> Result<Child, Error> {
    let directory = setup.manager_directory();
    let is_new = !setup.journal().exists();
    make_directory(&directory)?;
    let mut command = Command::new(program);
    command.args(["manager", "--listen", &setup.listen, "--data-dir"]).arg(&directory);
    if is_new {
        command.arg("--init");
    }
    if let Some(term) = setup.term {
        command.args(["--term", term, "--term-min", term]);
    }
    let log = append(&setup.log_of(&FleetProcess::Manager))?;
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true).spawn();
    child.map_err(|e| Error::Refused(format!("can't start the manager: {e}")))
}

/// Runs a command to its end, with `input` as its standard input.
pub(super) async fn output_of(command: &mut Command, input: &str) -> std::io::Result<Output> {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // a program that doesn't read its input says why in its own output
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    child.wait_with_output().await
}

/// Ends a process with SIGTERM, or else SIGKILL.
pub(super) async fn end(child: &mut Child) {
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    if tokio::time::timeout(END_WITHIN, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

/// Makes a directory that only its owner may enter, unless it exists.
pub(super) fn make_directory(path: &Path) -> Result<(), Error> {
    let mut builder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(builder.recursive(true), 0o700)
        .create(path)
        .map_err(|e| cannot("create", path, &e))
}

/// Locks a directory for one fleet.
pub(super) fn lock(root: &Path) -> Result<File, Error> {
    let path = root.join("lock");
    let file = append(&path)?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Refused(format!(
            "a fleet runs in `{}` already: use it, or name another directory with `--data-dir`",
            root.display()
        ))),
        Err(error) => Err(cannot("lock", &path, &error.into())),
    }
}

pub(super) fn append(path: &Path) -> Result<File, Error> {
    File::options().create(true).append(true).open(path).map_err(|e| cannot("open", path, &e))
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(|e| cannot("write", path, &e))
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::Refused(format!("can't {what} `{}`: {error}", path.display()))
}

/// The last line of a log.
pub(super) fn last_line(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("(it is empty)").to_owned()
}

/// The error that a log ends with, or its last lines.
pub(super) fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    match lines.last() {
        Some(last) if last.starts_with("error: ") => (*last).to_owned(),
        _ => lines[lines.len().saturating_sub(TAIL_LINES)..].join(" | "),
    }
}
