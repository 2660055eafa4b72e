//! The threads that turn old lines of the audit log into segments, export them, and verify them again.

#[cfg(test)]
mod tests;

use super::settings::Settings;
use crate::audit::export::{Exporter, Failed, Hook};
use crate::audit::keeper::{Keeper, KeeperStep};
use crate::audit::key::SigningKey;
use crate::audit::scrub::{ScrubStep, SegmentScrub};
use crate::audit::{self, AuditFiles};
use crate::engine::Handle;
use crate::engine::clock::{BootClock, Clock as _};
use meridian_shared::ids::JournalId;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime;
use tokio_util::sync::CancellationToken;

/// How often new lines are counted, and the exporter looks for finished segments.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The pause after a failure to write a segment, to drop lines or to remove a segment.
const RETRY_EVERY: Duration = Duration::from_secs(5);

/// How fast segments are verified: slow enough not to delay commits.
const VERIFIED_BYTES_PER_SECOND: u32 = 4 << 20;
/// When segments are verified.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    /// The pause before the first pass.
    first: Duration,
    /// The time between two passes over all segments.
    pass: Duration,
    /// The pause before damaged segments are read again: an operator may have replaced them.
    recheck: Duration,
}

const SCHEDULE: Schedule =
    Schedule { first: LOOK_EVERY, pass: Duration::from_secs(60 * 60), recheck: Duration::from_secs(60) };

/// The keeper, the exporter and the scrub, before they are started.
#[derive(Debug)]
pub(super) struct AuditTasks {
    keeper: Keeper,
    exporter: Option<Exporter>,
    scrub: SegmentScrub,
    engine: Handle,
}

impl AuditTasks {
    pub(super) fn new(
        settings: &Settings,
        files: &AuditFiles,
        key: Arc<SigningKey>,
        engine: &Handle,
        id: JournalId,
    ) -> Result<Self, audit::Error> {
        let hook = settings.audit_export.clone().map(Hook::new);
        Ok(Self {
            keeper: Keeper::new(
                files.directory.clone(),
                key,
                (engine.journal(), id),
                settings.audit_retention,
            )?,
            exporter: hook.map(|hook| Exporter::new(files.directory.clone(), hook)),
            scrub: SegmentScrub::new(files.directory.clone(), files.key, engine.journal()),
            engine: engine.clone(),
        })
    }

    /// Starts all three tasks, which end with `stop`.
    pub(super) fn start(self, stop: &CancellationToken) {
        let Self { mut keeper, exporter, mut scrub, engine } = self;
        let run = AuditRun { engine, runtime: runtime::Handle::current(), stop: stop.clone() };
        if let Some(mut exporter) = exporter {
            let run = run.clone();
            tokio::task::spawn_blocking(move || run.export(&mut exporter));
        }
        let verifies = run.clone();
        tokio::task::spawn_blocking(move || verifies.verify(&mut scrub, SCHEDULE));
        tokio::task::spawn_blocking(move || run.keep(&mut keeper));
    }
}

#[derive(Clone)]
struct AuditRun {
    engine: Handle,
    runtime: runtime::Handle,
    stop: CancellationToken,
}

impl AuditRun {
    /// Waits; returns whether to continue.
    fn pause(&self, pause: Duration) -> bool {
        let stopped = async { tokio::time::timeout(pause, self.stop.cancelled()).await };
        self.runtime.block_on(stopped).is_err()
    }

    fn keep(&self, keeper: &mut Keeper) {
        let metrics = &self.engine.metrics().journal;
        let mut pause = LOOK_EVERY;
        while self.pause(pause) {
            if !self.engine.leading() {
                pause = LOOK_EVERY;
                continue;
            }
            let mut cut =
                |cut| self.runtime.block_on(self.engine.cut_audit(cut)).map_err(|_| audit::Error::NotCut);
            pause = match keeper.step(BootClock.now().wall, &mut cut) {
                Ok(KeeperStep::Idle) => LOOK_EVERY,
                Ok(KeeperStep::Worked) => Duration::ZERO,
                Ok(KeeperStep::Sealed) => {
                    metrics.audit_segments.inc([]);
                    Duration::ZERO
                }
                Err(error) => {
                    metrics.audit_failures.inc(["keep"]);
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the audit log can't be rotated now"
                    );
                    RETRY_EVERY
                }
            };
        }
    }

    fn verify(&self, scrub: &mut SegmentScrub, schedule: Schedule) {
        let mut passed: Option<Instant> = None;
        let mut pause = schedule.first;
        while self.pause(pause) {
            if !self.engine.leading() {
                continue;
            }
            let all_due = passed.is_none_or(|at| at.elapsed() >= schedule.pass);
            if all_due {
                passed = Some(Instant::now());
            } else if scrub.damaged().is_empty() && scrub.damaged_statement().is_none() {
                pause = schedule.recheck;
                continue;
            }
            if let Err(error) = self.verify_pass(scrub, !all_due, schedule.recheck) {
                cannot_verify(&error);
                // the pass couldn't begin, so it stays due
                passed = passed.filter(|_| !all_due);
            }
            pause = schedule.recheck;
        }
    }

    /// Reads all segments, or those that were found damaged, slowly. A segment that can't be read is tried
    /// again after a pause. Fails if the pass can't begin.
    fn verify_pass(
        &self,
        scrub: &mut SegmentScrub,
        only_damaged: bool,
        retry: Duration,
    ) -> Result<(), audit::Error> {
        let metrics = &self.engine.metrics().journal;
        let known = scrub.damaged_statement().is_some();
        scrub.begin(only_damaged)?;
        if let Some(why) = scrub.damaged_statement().filter(|_| !known) {
            tracing::error!(why, "the statement on removed segments of the audit log is damaged");
        }
        loop {
            let known = scrub.damaged().len();
            let bytes = match scrub.step() {
                Ok(ScrubStep::Read(bytes)) => bytes,
                Ok(ScrubStep::Done) => break,
                Err(error) => {
                    cannot_verify(&error);
                    if !self.pause(retry) {
                        break;
                    }
                    continue;
                }
            };
            metrics.scrubbed_bytes.add([], bytes as u64);
            if scrub.damaged().len() > known {
                for (segment, why) in scrub.damaged() {
                    tracing::error!(segment, why, "a segment of the audit log is damaged");
                }
            }
            self.report(scrub);
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            if !self.pause(Duration::from_secs(1) * bytes / VERIFIED_BYTES_PER_SECOND) {
                break;
            }
        }
        self.report(scrub);
        Ok(())
    }

    fn report(&self, scrub: &SegmentScrub) {
        let damaged = scrub.damaged().keys().copied().collect();
        self.engine.report_segments(damaged, scrub.damaged_statement().is_some());
    }

    fn export(&self, exporter: &mut Exporter) {
        let metrics = &self.engine.metrics().journal;
        let mut pause = LOOK_EVERY;
        while self.pause(pause) {
            let segments = match self.engine.journal().audit_cut() {
                Ok(cut) => cut.segments,
                // the journal is being read again; repeat the step
                Err(_) => continue,
            };
            pause = match exporter.step(segments, &self.stop) {
                Ok(true) => Duration::ZERO,
                Ok(false) => LOOK_EVERY,
                Err(Failed::Stopping) => return,
                Err(error) => {
                    metrics.audit_failures.inc(["export"]);
                    let pause = exporter.pause();
                    tracing::warn!(
                        error = &error as &dyn std::error::Error, retry = ?pause,
                        "a segment of the audit log can't be exported"
                    );
                    pause
                }
            };
            let waiting = exporter.waiting(segments).unwrap_or(segments);
            metrics.audit_segments_waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        }
    }
}

fn cannot_verify(error: &audit::Error) {
    let error = error as &dyn std::error::Error;
    tracing::warn!(error, "segments of the audit log can't be verified now");
}
