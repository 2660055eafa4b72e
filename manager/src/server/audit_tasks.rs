//! The threads that turn old lines of the audit log into segments and export them.

use super::settings::Settings;
use crate::audit::export::{Exporter, Failed, Hook};
use crate::audit::keeper::{Keeper, KeeperStep};
use crate::audit::key::SigningKey;
use crate::audit::{self, AuditFiles};
use crate::engine::Handle;
use crate::engine::clock::{BootClock, Clock as _};
use meridian_shared::ids::JournalId;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime;
use tokio_util::sync::CancellationToken;

/// How often new lines are counted, and the exporter looks for finished segments.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The pause after a failure to write a segment, to drop lines or to remove a segment.
const RETRY_EVERY: Duration = Duration::from_secs(5);

/// The keeper and the exporter, before they are started.
#[derive(Debug)]
pub(super) struct AuditTasks {
    keeper: Keeper,
    exporter: Option<Exporter>,
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
            engine: engine.clone(),
        })
    }

    /// Starts both; they end with `stop`.
    pub(super) fn start(self, stop: &CancellationToken) {
        let Self { mut keeper, exporter, engine } = self;
        let run = Run { engine, runtime: runtime::Handle::current(), stop: stop.clone() };
        if let Some(mut exporter) = exporter {
            let run = run.clone();
            tokio::task::spawn_blocking(move || run.export(&mut exporter));
        }
        tokio::task::spawn_blocking(move || run.keep(&mut keeper));
    }
}

#[derive(Clone)]
struct Run {
    engine: Handle,
    runtime: runtime::Handle,
    stop: CancellationToken,
}

impl Run {
    /// Waits; returns whether to go on.
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

    fn export(&self, exporter: &mut Exporter) {
        let metrics = &self.engine.metrics().journal;
        let mut pause = LOOK_EVERY;
        while self.pause(pause) {
            let segments = match self.engine.journal().audit_cut() {
                Ok(cut) => cut.segments,
                // the journal is being read again
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
