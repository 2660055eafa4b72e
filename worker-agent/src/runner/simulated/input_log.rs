//! The commands to the simulated runs, one JSON value per line, so that a restarted agent finds its runs
//! again.
//!
//! Never synced: the file must outlive the agent, not the machine, because a reboot loses every run anyway. A
//! cut last line is dropped. A failed write is logged once; the next agent then does not know the run.

use super::command::RunCommand;
use super::runs::SimulatedRuns;
use crate::job_run::Error;
use meridian_shared::time::Now;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

const VERSION: u32 = 1;
/// The file is rewritten when it has more than four lines per run plus this number.
const LINES_SLACK: usize = 10_000;
const LINES_PER_RUN: usize = 4;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Header {
    version: u32,
    boot_id: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct LogLine {
    now: Now,
    command: RunCommand,
}

#[derive(Debug)]
pub(super) struct InputLog {
    path: PathBuf,
    boot_id: String,
    file: File,
    lines: usize,
    failure_logged: bool,
}

impl InputLog {
    /// Opens the log at `path` and applies it to `runs`. Fails if it can't be read or written.
    pub(super) fn open(
        path: PathBuf,
        boot_id: &str,
        mut runs: SimulatedRuns,
    ) -> Result<(Self, SimulatedRuns), Error> {
        let file_error = |doing| {
            let path = path.clone();
            move |source| Error::File { doing, path, source }
        };
        match File::open(&path) {
            Ok(file) => replay(file, boot_id, &mut runs).map_err(file_error("read"))?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(file_error("open")(e)),
        }
        let file = rewrite(&path, boot_id, &runs).map_err(file_error("write"))?;
        let lines = runs.len();
        Ok((Self { path, boot_id: boot_id.to_owned(), file, lines, failure_logged: false }, runs))
    }

    pub(super) fn append(&mut self, now: Now, command: &RunCommand) {
        let written = serde_json::to_vec(&LogLine { now, command: command.clone() })
            .map_err(io::Error::from)
            .and_then(|mut line| {
                line.push(b'\n');
                self.file.write_all(&line)
            });
        self.lines += 1;
        self.log_failure(written.err());
    }

    /// Rewrites the file if it has many more lines than the runs need.
    pub(super) fn compact_when_long(&mut self, runs: &SimulatedRuns) {
        if self.lines <= LINES_PER_RUN * runs.len() + LINES_SLACK {
            return;
        }
        self.lines = runs.len();
        match rewrite(&self.path, &self.boot_id, runs) {
            Ok(file) => self.file = file,
            Err(error) => self.log_failure(Some(error)),
        }
    }

    fn log_failure(&mut self, error: Option<io::Error>) {
        if let Some(error) = error
            && !std::mem::replace(&mut self.failure_logged, true)
        {
            tracing::error!(path = %self.path.display(), %error, "simulated runs can't be logged: a \
                                                                  restarted agent will not know them");
        }
    }
}

fn replay(file: File, boot_id: &str, runs: &mut SimulatedRuns) -> io::Result<()> {
    let mut lines = BufReader::new(file).lines();
    let header = lines.next().transpose()?.and_then(|line| serde_json::from_str::<Header>(&line).ok());
    for line in lines {
        // Only the last line can be cut, if the agent was killed while it wrote.
        let Ok(LogLine { now, command }) = serde_json::from_str(&line?) else { break };
        runs.apply(command, now);
    }
    if header != Some(Header { version: VERSION, boot_id: boot_id.to_owned() }) {
        runs.lose_all();
    }
    Ok(())
}

fn rewrite(path: &Path, boot_id: &str, runs: &SimulatedRuns) -> io::Result<File> {
    let aside = path.with_extension("new");
    let mut text = Vec::new();
    let mut line = |value: serde_json::Result<Vec<u8>>| {
        text.extend(value?);
        text.push(b'\n');
        io::Result::Ok(())
    };
    line(serde_json::to_vec(&Header { version: VERSION, boot_id: boot_id.to_owned() }))?;
    for (now, command) in runs.commands() {
        line(serde_json::to_vec(&LogLine { now, command }))?;
    }
    std::fs::write(&aside, &text)?;
    std::fs::rename(&aside, path)?;
    OpenOptions::new().append(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::super::plan::Speed;
    use super::*;
    use meridian_agent_core::runtime::FoundState;
    use meridian_shared::ids::{Fence, Uid};

    #[test]
    fn another_boot_loses_runs_and_keeps_ends() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("runs.jsonl");
        let stop = RunCommand::Stop { uid: Uid(7), fence: Fence { epoch: 1, leadership: 2, counter: 3 } };
        let (mut log, _) = InputLog::open(path.clone(), "boot", SimulatedRuns::new(Speed::REAL)).unwrap();
        log.append(Now::default(), &stop);
        log.file.write_all(b"{\"now\":").unwrap();
        for boot in ["boot", "other"] {
            let (_, runs) = InputLog::open(path.clone(), boot, SimulatedRuns::new(Speed::REAL)).unwrap();
            assert!(matches!(runs.found()[0].state, FoundState::Ended { .. }), "{boot}");
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2);
    }
}
