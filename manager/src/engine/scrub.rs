//! The scrub: a thread that reads everything that is stored, slowly, so that damage is found before it is
//! needed.
//!
//! Manifests are read job by job, so that a missing manifest is found too; records, snapshot and audit log in
//! small steps. A manifest that a reader couldn't read is checked at once. Findings are repeated until the
//! published state shows that the core knows them, because the core may not lead at the moment, or may just
//! have replayed its journal.

use super::bodies::Body;
use super::{Message, Shared};
use crate::journal::{self, Part, Verified};
use meridian_manager_core::facts::input::{Input, ManifestRead};
use meridian_manager_core::facts::key::Key;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// How fast the scrub reads: slow enough not to delay commits. A journal of 10 GiB takes 45 minutes.
const BYTES_PER_SECOND: u64 = 4 << 20;
/// Bytes added per read for its fixed cost: about one page.
const READ_BYTES: u64 = 4 << 10;
/// Bytes of records, snapshot or audit log that one step reads.
const STEP_BYTES: usize = 256 << 10;
/// Time from the start of one pass to the start of the next.
const PASS_EVERY: Duration = Duration::from_secs(60 * 60);
/// Time between passes while some jobs count as damaged, in case the disk failed only briefly. Doubles with
/// each pass.
const RECHECK_EVERY: Duration = Duration::from_secs(60);
/// Failed reads in a row, one per [`REPORT_EVERY`], after which a part of the journal counts as damaged.
const READ_TRIES: u32 = 30;
/// How often findings that the core doesn't know are reported again. The same timer notices the end of the
/// engine.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// Jobs that wait to be checked because a reader couldn't read their manifest. The next pass finds more.
pub(super) const SUSPECTS_MAX: usize = 1_024;

/// A request to the scrub's thread.
#[derive(Debug)]
pub(super) enum ScrubRequest {
    /// A reader couldn't read the manifest of this job.
    Check(Key),
    Stop,
}

/// Channel by which readers report jobs whose manifests they couldn't read.
pub(super) type Suspects = SyncSender<ScrubRequest>;

/// The pause after a read of this size, so that the rate is bounded.
fn pause_after(bytes: usize) -> Duration {
    Duration::from_micros((bytes as u64 + READ_BYTES).saturating_mul(1_000_000) / BYTES_PER_SECOND)
}

/// Time from the start of one pass to the start of the next, after this many consecutive passes with damaged
/// jobs.
fn pass_interval(damaged: bool, rechecks: u32) -> Duration {
    if damaged { RECHECK_EVERY.saturating_mul(1 << rechecks.min(6)).min(PASS_EVERY) } else { PASS_EVERY }
}

/// Position of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Position {
    /// Manifests of the jobs after this one.
    Manifests(Option<Key>),
    /// A part of the journal from this entry on.
    Part(Part, u64),
    Done,
}

impl Position {
    const START: Self = Self::Manifests(None);

    /// The position after all manifests, or after a whole part.
    fn next_part(&self) -> Self {
        match self {
            Self::Manifests(_) => Self::Part(Part::Records, 0),
            Self::Part(Part::Records, _) => Self::Part(Part::Snapshot, 0),
            Self::Part(Part::Snapshot, _) => Self::Part(Part::Audit, 0),
            Self::Part(Part::Audit, _) | Self::Done => Self::Done,
        }
    }
}

/// The scrub's thread.
#[derive(Debug)]
pub(super) struct ScrubThread {
    requests: SyncSender<ScrubRequest>,
    thread: JoinHandle<()>,
}

impl ScrubThread {
    /// Starts the thread, which ends with the engine at the latest. Fails if no thread can be started.
    pub(super) fn start(
        shared: Arc<Shared>,
        queue: Weak<SyncSender<Message>>,
        (requests, inbox): (SyncSender<ScrubRequest>, Receiver<ScrubRequest>),
        ended: CancellationToken,
    ) -> std::io::Result<Self> {
        let mut scrub = Scrub {
            shared,
            queue,
            position: Position::Done,
            begun: None,
            rechecks: 0,
            failed_reads: 0,
            reported: None,
            found: BTreeMap::new(),
        };
        let thread =
            std::thread::Builder::new().name("scrub".into()).spawn(move || scrub.run(&inbox, &ended))?;
        Ok(Self { requests, thread })
    }

    /// Ends the thread and waits for its end.
    pub(super) fn stop(self) {
        // a thread that has ended needs no request
        let _ = self.requests.send(ScrubRequest::Stop);
        if self.thread.join().is_err() {
            tracing::error!("the scrub's thread stopped unexpectedly");
        }
    }
}

struct Scrub {
    shared: Arc<Shared>,
    /// Weak, because the engine ends when no sender is left.
    queue: Weak<SyncSender<Message>>,
    position: Position,
    /// When this pass was begun.
    begun: Option<Instant>,
    /// Consecutive passes that began while the core considered jobs damaged.
    rechecks: u32,
    /// Consecutive reads of a part that failed.
    failed_reads: u32,
    /// When findings were last repeated.
    reported: Option<Instant>,
    /// Jobs with a damaged manifest, and jobs with an intact one that the core considers damaged.
    found: BTreeMap<Key, Finding>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Finding {
    intact: bool,
}

impl Scrub {
    fn run(&mut self, inbox: &Receiver<ScrubRequest>, ended: &CancellationToken) {
        let mut pause = REPORT_EVERY;
        while !ended.is_cancelled() {
            match inbox.recv_timeout(pause.min(REPORT_EVERY)) {
                Ok(ScrubRequest::Check(key)) => {
                    self.check(&key);
                }
                Ok(ScrubRequest::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) if *self.shared.leading.borrow() => {
                    self.report_again();
                    pause = self.step();
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Reads one step, and returns how long to pause afterwards.
    fn step(&mut self) -> Duration {
        let damaged = self.shared.health.has_damaged_jobs();
        let every = pass_interval(damaged, self.rechecks);
        if self.position == Position::Done && self.begun.is_none_or(|begun| begun.elapsed() >= every) {
            (self.position, self.begun) = (Position::START, Some(Instant::now()));
            self.rechecks = if damaged { self.rechecks.saturating_add(1) } else { 0 };
        }
        let bytes = match &self.position {
            Position::Done => return REPORT_EVERY,
            Position::Manifests(last) => match self.shared.reads.next_job(last.as_ref()) {
                Some(key) => {
                    let bytes = self.check(&key);
                    self.position = Position::Manifests(Some(key));
                    bytes
                }
                None => {
                    self.position = self.position.next_part();
                    0
                }
            },
            Position::Part(part, from) => self.verify(*part, *from),
        };
        if self.failed_reads > 0 {
            return REPORT_EVERY;
        }
        self.shared.metrics.journal.scrubbed_bytes.add([], bytes as u64);
        pause_after(bytes)
    }

    /// Verifies a step of a part. After damage the rest of the part isn't read.
    fn verify(&mut self, part: Part, from: u64) -> usize {
        let error = match self.shared.bodies.reader().verify(part, from, STEP_BYTES) {
            Ok(Verified { bytes, next }) => {
                self.failed_reads = 0;
                self.position = match next {
                    Some(next) => Position::Part(part, next),
                    None => {
                        self.shared.health.set_part(part, false);
                        self.position.next_part()
                    }
                };
                return bytes;
            }
            Err(error) => error,
        };
        if is_damage(&error, &mut self.failed_reads) {
            tracing::error!(%error, "the scrub found damage");
            self.shared.health.set_part(part, true);
            self.position = self.position.next_part();
        } else {
            tracing::debug!(%error, "the scrub can't read the journal");
        }
        STEP_BYTES
    }

    /// Reads the manifest of a job, and reports a finding that the core doesn't know. Returns the bytes read.
    fn check(&mut self, key: &Key) -> usize {
        let before = self.found.remove(key);
        let Some(known) = self.shared.reads.manifest(key) else { return 0 };
        let (intact, bytes) = match self.shared.bodies.read_stored(known.hash) {
            Body::Intact(body) => (true, body.len()),
            Body::Missing | Body::Damaged => (false, STEP_BYTES),
            Body::Unavailable => return 0,
        };
        if intact != known.intact {
            self.report(ManifestRead { intact, ..known });
        }
        if !(intact && known.intact) {
            self.found.insert(key.clone(), Finding { intact });
        }
        if !intact && before != Some(Finding { intact }) {
            tracing::error!(%key, hash = %known.hash, "the stored manifest of a job is damaged or missing");
        }
        bytes
    }

    /// Repeats the check for findings that the core doesn't know yet.
    fn report_again(&mut self) {
        if self.reported.is_some_and(|at| at.elapsed() < REPORT_EVERY) {
            return;
        }
        self.reported = Some(Instant::now());
        let is_unknown = |key: &Key, finding: &Finding| {
            self.shared.reads.manifest(key).is_none_or(|known| known.intact != finding.intact)
        };
        let unknown: Vec<Key> = self
            .found
            .iter()
            .filter(|(key, finding)| is_unknown(key, finding))
            .map(|(key, _)| key.clone())
            .collect();
        unknown.iter().for_each(|key| {
            self.check(key);
        });
    }

    fn report(&self, read: ManifestRead) {
        let Some(queue) = self.queue.upgrade() else { return };
        let input = Box::new(Input::ManifestsRead(vec![read]));
        // ignore the answer: if the engine is busy or doesn't lead, the finding is repeated
        drop(queue.try_send(Message::Ask { input, reply: oneshot::channel().0 }));
    }
}

/// Whether a failed read means that the part is damaged. `failed_reads` counts consecutive errors that may be
/// temporary.
fn is_damage(error: &journal::Error, failed_reads: &mut u32) -> bool {
    let is_damage = match error {
        journal::Error::Damaged { .. } => true,
        // a bad sector fails every time; a disk that failed only briefly doesn't
        journal::Error::Io { .. } | journal::Error::Storage { .. } => {
            *failed_reads += 1;
            *failed_reads >= READ_TRIES
        }
        // no sign of damage: the journal is being read again, which the engine handles
        _ => {
            *failed_reads = 0;
            false
        }
    };
    if is_damage {
        *failed_reads = 0;
    }
    is_damage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_cannot_be_read_again_and_again_counts_as_damaged() {
        let place = || "journal.redb".to_owned();
        let unreadable = || journal::Error::Io {
            operation: "read",
            place: place(),
            source: std::io::Error::from_raw_os_error(5),
        };
        let mut failed = 0;
        let tries = (1..).find(|_| is_damage(&unreadable(), &mut failed));
        assert_eq!((tries, failed), (Some(READ_TRIES), 0), "the next part has its own tries");
        assert!(is_damage(&journal::Error::Damaged { place: place(), what: "x".into() }, &mut failed));
        for _ in 0..2 * READ_TRIES {
            assert!(!is_damage(&journal::Error::ReloadRequired { place: place() }, &mut failed));
        }
    }

    #[test]
    fn the_rate_is_bounded_for_small_and_for_large_reads() {
        for (bytes, reads_per_second) in [(0, 1_024), (2 << 10, 683), (STEP_BYTES, 16)] {
            let in_a_second = Duration::from_secs(1).div_duration_f64(pause_after(bytes));
            assert!((in_a_second - f64::from(reads_per_second)).abs() < 1.0, "{bytes}: {in_a_second}");
            assert!(in_a_second * bytes as f64 <= BYTES_PER_SECOND as f64);
        }
    }

    #[test]
    fn jobs_taken_for_damaged_are_checked_again_soon() {
        let minutes = |damaged, rechecks| pass_interval(damaged, rechecks).as_secs() / 60;
        assert_eq!([0, 1, 2, 5, 6, u32::MAX].map(|rechecks| minutes(true, rechecks)), [1, 2, 4, 32, 60, 60]);
        assert_eq!(minutes(false, 0), 60);
    }

    #[test]
    fn a_pass_reads_every_part_once() {
        let mut position = Position::START;
        let mut parts = Vec::new();
        while position != Position::Done {
            position = position.next_part();
            if let Position::Part(part, 0) = position {
                parts.push(part);
            }
        }
        assert_eq!(parts, [Part::Records, Part::Snapshot, Part::Audit]);
    }
}
