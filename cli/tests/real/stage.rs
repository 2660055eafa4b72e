//! Where a test plays: a directory of its own, the program with an environment of its own, and a clean end whatever happens.
//!
//! Invariant: when a stage is gone, so is every process that was started on it, and everything that those started: all of it
//! carries the stage's directory in its environment, its command line or its working directory.

use super::processes::{self, Process};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

/// One test at a time: they measure time, and the machine may be small.
static TURN: Mutex<()> = Mutex::const_new(());
/// A command that takes longer hangs.
const COMMAND_WITHIN: Duration = Duration::from_secs(60);
/// Between two looks at something that is awaited.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Lines of each log that a failure shows.
const LOG_LINES: usize = 12;

/// What a command said.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) code: Option<i32>,
    pub(super) out: String,
    pub(super) err: String,
}

impl Said {
    /// Standard output of a command that had to succeed.
    pub(super) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "stdout: {}\nstderr: {}", self.out, self.err);
        self.out
    }

    /// The same, as JSON.
    pub(super) fn json(self) -> Value {
        let out = self.ok();
        serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"))
    }
}

/// A place for one test.
pub(super) struct Stage {
    root: PathBuf,
    kubeconfig: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

impl Stage {
    /// Waits for its turn and makes an empty place. Commands will use the kubeconfig at `kubeconfig`, below the place.
    pub(super) async fn begin(kubeconfig: &str) -> Self {
        let turn = TURN.lock().await;
        let root = tempfile::Builder::new().prefix("meridian-real-").tempdir().unwrap().keep();
        std::fs::create_dir(root.join("tmp")).unwrap();
        Self { kubeconfig: root.join(kubeconfig), root, _turn: turn }
    }

    /// The place.
    pub(super) fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    /// The kubeconfig that commands use.
    pub(super) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The program, marked as this stage's.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_meridian"));
        command.current_dir(&self.root).stdin(Stdio::null()).kill_on_drop(true);
        command
            .env("MERIDIAN_REAL_TEST", &self.root)
            .env("HOME", &self.root)
            .env("TMPDIR", self.root.join("tmp"))
            .env("KUBECONFIG", &self.kubeconfig);
        command
    }

    /// Runs one command of the program to its end.
    pub(super) async fn meridian(&self, words: &[&str]) -> Said {
        self.meridian_within(words, COMMAND_WITHIN).await
    }

    /// The same for one that may take long.
    pub(super) async fn meridian_within(&self, words: &[&str], within: Duration) -> Said {
        let output = tokio::time::timeout(within, self.command().args(words).output()).await;
        let output = output
            .unwrap_or_else(|_| panic!("`meridian {}` hangs after {within:?}", words.join(" ")))
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Said { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// Writes a file of the place.
    pub(super) fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// A file of the place to add to, for a process's standard error.
    pub(super) fn log(&self, name: &str) -> std::fs::File {
        std::fs::OpenOptions::new().create(true).append(true).open(self.path(name)).unwrap()
    }

    /// Every living process that was started here, directly or not.
    pub(super) fn processes(&self) -> Vec<Process> {
        processes::of(&self.root)
    }

    /// Waits until nothing that was started here is left.
    pub(super) async fn nothing_left(&self) {
        until("no process is left", Duration::from_secs(10), async || match self.processes() {
            left if left.is_empty() => Ok(()),
            left => Err(format!("{left:?}")),
        })
        .await;
    }

    fn logs(&self) -> impl Iterator<Item = PathBuf> {
        let files = std::fs::read_dir(&self.root).into_iter().flatten().flatten().map(|e| e.path());
        files.filter(|p| p.extension().is_some_and(|e| e == "log"))
    }

    /// Lines of the logs that hold `word`, each with its log's name.
    pub(super) fn log_lines(&self, word: &str) -> Vec<(String, String)> {
        let lines = |path: PathBuf| {
            let (name, text) =
                (path.display().to_string(), std::fs::read_to_string(&path).unwrap_or_default());
            text.lines()
                .filter(|line| line.contains(word))
                .map(|line| (name.clone(), line.to_owned()))
                .collect::<Vec<_>>()
        };
        self.logs().flat_map(lines).collect()
    }

    fn show_logs(&self) {
        for path in self.logs() {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            eprintln!("--- the end of {}", path.display());
            lines[lines.len().saturating_sub(LOG_LINES)..].iter().for_each(|line| eprintln!("{line}"));
        }
        eprintln!("--- everything is kept in {}", self.root.display());
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        processes::end_all(&self.root);
        if std::thread::panicking() {
            self.show_logs();
        } else {
            let _ = std::fs::remove_dir_all(&self.root);
        }
    }
}

/// Looks until `look` is content; what it says last stands in the failure.
pub(super) async fn until<T>(
    what: &str,
    within: Duration,
    mut look: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let end = Instant::now() + within;
    loop {
        match look().await {
            Ok(seen) => return seen,
            Err(last) => assert!(Instant::now() < end, "not within {within:?}: {what}; last seen: {last}"),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
