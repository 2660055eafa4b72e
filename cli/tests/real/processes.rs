//! Finds and ends the processes of a test by a mark that all of them carry: the path of the test's directory.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes read of an environment or command line; the mark is at the beginning.
const READ_BYTES_MAX: usize = 64 << 10;

/// A running process of the test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    /// As `ps` shows it; a guard calls itself `meridian-guard`.
    pub(super) name: String,
    /// Its arguments, separated by spaces.
    pub(super) line: String,
    /// Its working directory; a guard's ends with the UID and the fence of its run.
    pub(super) directory: PathBuf,
}

/// Every running process with `mark` in its environment, command line or working directory.
pub(super) fn of(mark: &Path) -> Vec<Process> {
    let mark = mark.as_os_str().as_encoded_bytes();
    let own = std::process::id().cast_signed();
    let pids = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|e| e.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| *pid != own).filter_map(|pid| read(pid, mark)).collect()
}

fn read(pid: i32, mark: &[u8]) -> Option<Process> {
    let dir = Path::new("/proc").join(pid.to_string());
    let stat = fs::read_to_string(dir.join("stat")).ok()?;
    // The name is in parentheses and may contain parentheses, so the last one ends it.
    let state = stat.rsplit_once(')')?.1.trim_start().chars().next()?;
    if matches!(state, 'Z' | 'X') {
        return None;
    }
    let line = fs::read(dir.join("cmdline")).unwrap_or_default();
    let directory = fs::read_link(dir.join("cwd")).unwrap_or_default();
    let environment = fs::read(dir.join("environ")).unwrap_or_default();
    let marked = [line.as_slice(), directory.as_os_str().as_encoded_bytes(), &environment]
        .iter()
        .any(|text| holds(text, mark));
    let name = fs::read_to_string(dir.join("comm")).unwrap_or_default().trim_end().to_owned();
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    marked.then_some(Process { pid, name, line, directory })
}

fn holds(text: &[u8], mark: &[u8]) -> bool {
    text[..text.len().min(READ_BYTES_MAX)].windows(mark.len()).any(|window| window == mark)
}

/// Sends a signal; a process that has ended is ignored.
pub(super) fn send(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

/// Kills every process with the mark, until there is none.
pub(super) fn end_all(mark: &Path) {
    const ROUNDS_MAX: usize = 200;
    for _ in 0..ROUNDS_MAX {
        let left = of(mark);
        if left.is_empty() {
            return;
        }
        for process in left {
            send(process.pid, Signal::KILL);
        }
        // The kernel needs a moment to remove a killed process. No verdict depends on this pause.
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn processes_are_found_by_environment_and_directory() {
    let dir = tempfile::tempdir().unwrap();
    let start = |command: &mut std::process::Command| command.arg("60").spawn().unwrap();
    let mut by_environment = start(std::process::Command::new("sleep").env("MARK", dir.path()));
    let mut by_directory = start(std::process::Command::new("sleep").current_dir(dir.path()));
    // A spawned process appears before its environment does.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
    for child in [&by_environment, &by_directory] {
        while !of(dir.path()).iter().any(|p| p.pid == child.id().cast_signed()) {
            assert!(std::time::Instant::now() < end, "{:?}", of(dir.path()));
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    end_all(dir.path());
    by_environment.wait().unwrap();
    by_directory.wait().unwrap();
    assert_eq!(of(dir.path()), []);
}
