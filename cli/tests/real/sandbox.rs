//! A directory and an environment for one test, and a clean end.
//!
//! Invariant: a dropped sandbox leaves no process behind. Every process started in it, and every descendant,
//! carries the sandbox's path in its environment, command line or working directory.

use super::processes::{self, Process};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

/// One test at a time: they measure time, and the machine may be small.
static ONE_TEST: Mutex<()> = Mutex::const_new(());
/// A command that takes longer hangs.
const COMMAND_WITHIN: Duration = Duration::from_secs(60);
const POLL_EVERY: Duration = Duration::from_millis(100);
/// Lines of each log that a failed test prints.
const LOG_LINES: usize = 12;

/// Exit code and output of a command.
#[derive(Debug)]
pub(super) struct CommandOutput {
    pub(super) code: Option<i32>,
    pub(super) out: String,
    pub(super) err: String,
}

impl CommandOutput {
    fn of(output: &std::process::Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// Its standard output. Panics if it failed.
    pub(super) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "stdout: {}\nstderr: {}", self.out, self.err);
        self.out
    }

    /// Its standard output as JSON. Panics if it failed.
    pub(super) fn json(self) -> Value {
        let out = self.ok();
        serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"))
    }
}

/// The directory of one test.
pub(super) struct Sandbox {
    root: PathBuf,
    kubeconfig: PathBuf,
    _one_test: MutexGuard<'static, ()>,
}

impl Sandbox {
    /// Waits for the other tests and creates an empty directory. Commands use the kubeconfig at `kubeconfig`,
    /// relative to it.
    pub(super) async fn create(kubeconfig: &str) -> Self {
        let guard = ONE_TEST.lock().await;
        let root = tempfile::Builder::new().prefix("meridian-real-").tempdir().unwrap().keep();
        std::fs::create_dir(root.join("tmp")).unwrap();
        Self { kubeconfig: root.join(kubeconfig), root, _one_test: guard }
    }

    pub(super) fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    pub(super) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The program, with the sandbox's mark.
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

    /// Runs a command of the program to its end.
    pub(super) async fn meridian(&self, words: &[&str]) -> CommandOutput {
        self.meridian_within(words, COMMAND_WITHIN).await
    }

    /// As `meridian`, with another time limit.
    pub(super) async fn meridian_within(&self, words: &[&str], within: Duration) -> CommandOutput {
        let output = tokio::time::timeout(within, self.command().args(words).output()).await;
        let output = output
            .unwrap_or_else(|_| panic!("`meridian {}` hangs after {within:?}", words.join(" ")))
            .unwrap();
        CommandOutput::of(&output)
    }

    /// Runs the command that `cluster join` printed, as a shell does: the token goes through a pipe.
    /// `data_dir` replaces the directory that it names.
    pub(super) async fn join(&self, printed: &str, data_dir: Option<&Path>) -> CommandOutput {
        let (echo, join) = printed.trim().split_once(" | ").expect("a pipe");
        let mut words: Vec<&str> = join.split_whitespace().skip(1).collect();
        if let Some((dir, at)) = data_dir.zip(words.iter().position(|word| *word == "--data-dir")) {
            words[at + 1] = dir.to_str().unwrap();
        }
        let mut command = self.command();
        let piped = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let token = echo.strip_prefix("echo ").expect("the token is echoed");
        child.stdin.take().unwrap().write_all(token.as_bytes()).await.unwrap();
        let output = tokio::time::timeout(COMMAND_WITHIN, child.wait_with_output()).await;
        CommandOutput::of(&output.expect("`agent join` hangs").unwrap())
    }

    /// Writes a file in the sandbox; returns its path.
    pub(super) fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Opens a log in the sandbox, to append a process's standard error.
    pub(super) fn log(&self, name: &str) -> std::fs::File {
        std::fs::OpenOptions::new().create(true).append(true).open(self.path(name)).unwrap()
    }

    /// Every running process of the sandbox.
    pub(super) fn processes(&self) -> Vec<Process> {
        processes::of(&self.root)
    }

    /// Waits until no process of the sandbox runs.
    pub(super) async fn assert_nothing_left(&self) {
        wait_until("no process is left", Duration::from_secs(10), async || match self.processes() {
            left if left.is_empty() => Ok(()),
            left => Err(format!("{left:?}")),
        })
        .await;
    }

    fn logs(&self) -> impl Iterator<Item = PathBuf> {
        let files = std::fs::read_dir(&self.root).into_iter().flatten().flatten().map(|e| e.path());
        files.filter(|p| p.extension().is_some_and(|e| e == "log"))
    }

    /// Log lines that contain `word`, each with its log's path.
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

impl Drop for Sandbox {
    fn drop(&mut self) {
        processes::end_all(&self.root);
        if std::thread::panicking() {
            self.show_logs();
        } else {
            let _ = std::fs::remove_dir_all(&self.root);
        }
    }
}

/// Polls until `check` succeeds. Panics after `within` with the last error.
pub(super) async fn wait_until<T>(
    what: &str,
    within: Duration,
    mut check: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let end = Instant::now() + within;
    loop {
        match check().await {
            Ok(seen) => return seen,
            Err(last) => assert!(Instant::now() < end, "not within {within:?}: {what}; last seen: {last}"),
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}
