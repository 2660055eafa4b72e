//! The hook that gets finished segments, in their order: a directory into which they are copied, or a program
//! that is run with the path of each.
//!
//! The exporter has a thread of its own, so that a slow hook delays nothing. A segment that couldn't be
//! exported is tried again, less and less often, while newer segments wait. After a crash the last segment
//! may be exported twice.

use super::Error;
use super::directory::{AuditDirectory, SegmentFile, flush};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Time limit of the program for one segment.
const PROGRAM_TIME_MAX: Duration = Duration::from_secs(10 * 60);
/// Interval at which a running program is checked.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The pause after the first failure; doubled after each one.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(5 * 60);

/// Destination of finished segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook(PathBuf);

/// Why a segment wasn't exported.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    #[error(transparent)]
    File(#[from] Error),
    #[error("`{}` exists, with other content", .0.display())]
    Exists(PathBuf),
    #[error("the program `{}` can't be run", path.display())]
    Run {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the program `{}` failed: {why}", path.display())]
    Program { path: PathBuf, why: String },
    #[error("the manager stops")]
    Stopping,
}

impl Hook {
    /// The hook at `path`: if it isn't a directory, it is a program.
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    fn export(&self, segment: &Path, stop: &CancellationToken) -> Result<(), Failed> {
        if self.0.is_dir() { copy(segment, &self.0) } else { self.run(segment, stop) }
    }

    fn run(&self, segment: &Path, stop: &CancellationToken) -> Result<(), Failed> {
        let failed = |source| Failed::Run { path: self.0.clone(), source };
        let mut command = Command::new(&self.0);
        command.arg(segment).stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.spawn().map_err(failed)?;
        let begun = Instant::now();
        loop {
            match child.try_wait().map_err(failed)? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    return Err(Failed::Program { path: self.0.clone(), why: status.to_string() });
                }
                None if stop.is_cancelled() => {
                    end(&mut child);
                    return Err(Failed::Stopping);
                }
                None if begun.elapsed() > PROGRAM_TIME_MAX => {
                    end(&mut child);
                    let why = format!("it took longer than {} minutes", PROGRAM_TIME_MAX.as_secs() / 60);
                    return Err(Failed::Program { path: self.0.clone(), why });
                }
                None => std::thread::sleep(LOOK_EVERY),
            }
        }
    }
}

/// Ends a program, if it hasn't ended yet.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Copies a segment into `directory`. The copy appears complete and durable, or not at all.
fn copy(segment: &Path, directory: &Path) -> Result<(), Failed> {
    let name = segment.file_name().unwrap_or_default();
    let to = directory.join(name);
    if to.exists() {
        let read = |path: &Path| fs::read(path).map_err(Error::io("read", path));
        return if read(segment)? == read(&to)? { Ok(()) } else { Err(Failed::Exists(to)) };
    }
    let draft = directory.join(format!(".{}.draft", name.to_string_lossy()));
    fs::copy(segment, &draft).map_err(Error::io("copy to", &draft))?;
    File::open(&draft).and_then(|file| file.sync_all()).map_err(Error::io("write", &draft))?;
    fs::rename(&draft, &to).map_err(Error::io("put in place", &to))?;
    Ok(flush(directory)?)
}

/// Passes segments to the hook.
#[derive(Debug)]
pub struct Exporter {
    directory: AuditDirectory,
    hook: Hook,
    /// Failures in a row.
    failures: u32,
}

impl Exporter {
    pub fn new(directory: AuditDirectory, hook: Hook) -> Self {
        Self { directory, hook, failures: 0 }
    }

    /// Exports the next of the first `segments` segments. Returns whether there was one.
    ///
    /// # Errors
    /// If the export failed. The next call tries again.
    pub fn step(&mut self, segments: u64, stop: &CancellationToken) -> Result<bool, Failed> {
        let done = self.try_step(segments, stop);
        self.failures = if done.is_ok() { 0 } else { self.failures.saturating_add(1) };
        done
    }

    fn try_step(&self, segments: u64, stop: &CancellationToken) -> Result<bool, Failed> {
        let exported = self.directory.exported()?;
        let next: Option<SegmentFile> = self
            .directory
            .segments()?
            .into_iter()
            .find(|file| file.number > exported && file.number <= segments);
        let Some(file) = next else { return Ok(false) };
        self.hook.export(&file.path, stop)?;
        self.directory.set_exported(file.number)?;
        tracing::info!(segment = file.number, "exported a segment of the audit log");
        Ok(true)
    }

    /// The number of segments that wait.
    ///
    /// # Errors
    /// If the directory can't be read.
    pub fn waiting(&self, segments: u64) -> Result<u64, Error> {
        Ok(segments.saturating_sub(self.directory.exported()?))
    }

    /// The pause before a failed export is tried again.
    pub fn pause(&self) -> Duration {
        RETRY_MIN.saturating_mul(1 << self.failures.saturating_sub(1).min(16)).min(RETRY_MAX)
    }
}
