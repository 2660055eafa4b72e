//! Work after a decision, on a second thread: the commit, then the views of readers, replies to callers, and
//! counts.
//!
//! While one batch is written, the engine decides the next. The committer moves to its thread with a batch
//! and moves back with the result. So one thread at a time owns the journal, and no batch is handed over
//! before the outcome of the previous one is known.
//!
//! Invariants: nothing of a batch is published before its commit returned. Nothing of a failed batch is
//! published, and its callers get an error. An answer leaves only while the claim is valid.

use super::clock::Clock;
use super::event_log::{BatchLog, EventLog};
use super::queries::QueryAnswer;
use super::reads::{ObjectChanges, StoredObject};
use super::telemetry::{
    AdmissionRounds, CommitCounters, CountedEvent, GaugeValues, PhaseCounts, RecordContext,
};
use super::{Caller, PendingCut, Shared};
use crate::host::batch::PendingBatch;
use crate::host::{self, replies};
use crate::journal::mark::{BootId, Mark, MarkWriter};
use crate::journal::{self, Batch, Journal, Snapshot};
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::outcome::Reply;
use meridian_manager_core::queue::pending_reasons::Changed;
use meridian_shared::ids::{ContentHash, Leadership, RecordNumber};
use meridian_shared::lease::{Claim, ClaimWrite};
use meridian_shared::time::Millis;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// One batch as the engine decided it, with everything to publish after its commit.
#[derive(Debug)]
pub(super) struct DecidedBatch {
    pub(super) pending: PendingBatch<Caller>,
    pub(super) leadership: Leadership,
    /// The batch holds ends and deletions only, so it may use the reserved space.
    pub(super) urgent: bool,
    /// After this batch, recovery is over and the rules are confirmed.
    pub(super) settled: bool,
    /// A snapshot that replaces the records up to its own.
    pub(super) snapshot: Option<Snapshot>,
    pub(super) audit_cut: Option<PendingCut>,
    /// Objects that change for readers and watchers.
    pub(super) changes: ObjectChanges,
    /// Classes with new pending reasons.
    pub(super) pending_reasons: Changed,
    pub(super) rounds: AdmissionRounds,
    /// The last record of the batch.
    pub(super) at: RecordNumber,
    /// Bodies that the batch drops, for the last views of their jobs.
    pub(super) dropped: HashMap<ContentHash, Arc<str>>,
    /// Facts besides the records that are needed to count them, by index of the record.
    pub(super) contexts: Vec<(usize, RecordContext)>,
    pub(super) events: Vec<CountedEvent>,
    pub(super) phase_counts: PhaseCounts,
    /// Objects that change for readers, without an event for watchers.
    pub(super) without_event: Vec<(Key, StoredObject)>,
    /// State of queues and agents, if a refresh was due.
    pub(super) gauges: Option<Box<GaugeValues>>,
    pub(super) answers: Vec<QueryAnswer>,
    /// Log lines to write once the batch is committed.
    pub(super) log: BatchLog,
}

/// The result of a batch that is durable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Committed {
    pub(super) bytes: usize,
    /// Whether the batch was committed without access to the reserved space.
    pub(super) usual: bool,
}

/// Makes batches durable and publishes them.
pub(super) struct Committer {
    pub(super) journal: Box<dyn Journal>,
    pub(super) counters: CommitCounters,
    mark: Option<(MarkWriter, BootId)>,
    event_log: EventLog,
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    /// This thread's own copy, because a jump of the wall clock must count even between two readings by the
    /// engine's thread.
    claim: Claim,
}

impl std::fmt::Debug for Committer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Committer")
            .field("journal", &self.journal)
            .field("claim", &self.claim)
            .finish_non_exhaustive()
    }
}

impl Committer {
    pub(super) fn new(
        journal: Box<dyn Journal>,
        counters: CommitCounters,
        mark: Option<(MarkWriter, BootId)>,
        shared: Arc<Shared>,
        clock: Arc<dyn Clock>,
        term_min: Millis,
    ) -> Self {
        let claim = Claim::expired(term_min, clock.now());
        Self { journal, counters, mark, event_log: EventLog::default(), shared, clock, claim }
    }

    /// Commits and publishes a batch. If it isn't durable, its callers get the error, and so does the caller
    /// of this function.
    fn process(&mut self, mut batch: DecidedBatch) -> Result<Committed, journal::Error> {
        let written = if batch.pending.is_empty() && batch.audit_cut.is_none() {
            Ok(Committed { bytes: 0, usual: false })
        } else {
            self.shared.bodies.set_dropping(batch.pending.dropped.clone());
            self.commit(&mut batch)
        };
        match &written {
            Ok(_) => self.publish(batch),
            // before the callers learn of the failure: this manager doesn't lead until it has read the
            // journal again
            Err(cause) => {
                self.shared.lead(false);
                let why = PendingBatch::<Caller>::failure(cause);
                for (caller, _) in batch.pending.replies {
                    // a caller that has gone away needs no answer
                    let _ = caller.send(Err(why));
                }
            }
        }
        self.shared.bodies.set_dropping(BTreeSet::new());
        written
    }

    fn commit(&mut self, decided: &mut DecidedBatch) -> Result<Committed, journal::Error> {
        let write = self.claim.begin_write(self.clock.now());
        let started = Instant::now();
        let (mut batches, bytes) =
            decided.pending.batches(decided.leadership, self.journal.last(), decided.urgent);
        if batches.is_empty() {
            batches.push(Batch::new(decided.leadership, self.journal.last()));
        }
        if let Some(last) = batches.last_mut() {
            last.snapshot = decided.snapshot.take();
            last.audit_cut = decided.audit_cut.as_ref().map(|pending| pending.cut);
        }
        host::commit(&mut *self.journal, &batches, decided.settled)?;
        let metrics = &self.shared.metrics;
        metrics.journal.commit_seconds.observe_duration([], started.elapsed());
        #[expect(
            clippy::cast_precision_loss,
            reason = "a batch has far fewer records than a float is exact for"
        )]
        metrics.journal.commit_records.observe([], decided.pending.records.len() as f64);
        metrics.journal.records.add([], decided.pending.records.len() as u64);
        self.written(write);
        Ok(Committed { bytes, usual: !decided.pending.urgent && !decided.urgent })
    }

    /// A write that changes nothing, for the claim of an idle leader.
    pub(super) fn heartbeat(&mut self) -> Result<(), journal::Error> {
        let write = self.claim.begin_write(self.clock.now());
        host::commit(&mut *self.journal, &[], false)?;
        self.written(write);
        Ok(())
    }

    /// After a durable write: renews the claim, and writes the mark before any effect.
    fn written(&mut self, write: ClaimWrite) {
        self.claim.renew(write);
        let now = self.clock.now();
        self.claim.observe(now);
        let Some((writer, boot)) = &self.mark else { return };
        if let Err(error) = writer.write(&Mark::of(&*self.journal, *boot, now.mono)) {
            tracing::warn!(
                %error,
                "the mark can't be written: the next start will wait until this manager's claim has expired"
            );
            self.mark = None;
        }
    }

    /// Publishes a committed batch to readers, callers and metrics.
    fn publish(&mut self, batch: DecidedBatch) {
        let DecidedBatch {
            pending,
            changes,
            pending_reasons,
            rounds,
            at,
            dropped,
            contexts,
            events,
            phase_counts,
            without_event,
            gauges,
            answers,
            log,
            audit_cut,
            ..
        } = batch;
        let PendingBatch { records, bodies, replies, .. } = pending;
        for (hash, body) in bodies {
            self.shared.bodies.keep(hash, body);
        }
        self.counters.count_rounds(rounds);
        self.counters.show_phase_counts(&phase_counts);
        self.counters.count_records(&records, contexts);
        for event in &events {
            self.counters.count_event(event);
        }
        self.shared.reads.set_pending_reasons(pending_reasons);
        if !records.is_empty() || !changes.is_empty() {
            self.shared.reads.publish(changes, at, &dropped);
        }
        for (key, entry) in without_event {
            self.shared.reads.replace_without_event(&key, entry);
        }
        for (caller, reply) in replies {
            self.reply(caller, reply);
        }
        if let Some(gauges) = gauges {
            self.counters.show_gauges(&gauges);
            self.show_space();
        }
        answers.into_iter().for_each(QueryAnswer::send);
        self.event_log.print(log, self.clock.now());
        if let Some(PendingCut { done, .. }) = audit_cut {
            // a caller that has gone away needs no answer
            let _ = done.send(());
        }
    }

    fn show_space(&self) {
        let Some(space) = self.journal.space() else { return };
        let (metrics, whole) = (&self.shared.metrics.journal, |n: u64| i64::try_from(n).unwrap_or(i64::MAX));
        metrics.bytes.set(whole(space.bytes));
        metrics.reserve_bytes.set(whole(space.reserve_bytes));
        metrics.disk_free_bytes.set(whole(space.free_bytes));
        self.shared.health.observe_free(space.free_bytes);
    }

    fn reply(&mut self, caller: Caller, reply: Reply) {
        let claim_is_valid = self.claim.is_valid(self.clock.now());
        let _ = caller.send(replies::after_commit(reply, claim_is_valid));
    }
}

type CommitterWithBatch = (Box<Committer>, Box<DecidedBatch>);
type CommitterWithResult = (Box<Committer>, Result<Committed, journal::Error>);

/// The committer's thread, and the committer while it has no batch.
#[derive(Debug)]
pub(super) struct CommitterThread {
    idle: Option<Box<Committer>>,
    to: SyncSender<CommitterWithBatch>,
    from: Receiver<CommitterWithResult>,
    /// Bodies of the batch that is being committed.
    bodies: HashMap<ContentHash, Arc<str>>,
    /// Whether that batch is still being written or published.
    writing: Arc<AtomicBool>,
}

impl CommitterThread {
    /// Starts the thread, which ends when this value is dropped. Fails if no thread can be started.
    pub(super) fn new(committer: Committer) -> std::io::Result<Self> {
        let (to, inbox) = sync_channel::<CommitterWithBatch>(1);
        let (outbox, from) = sync_channel::<CommitterWithResult>(1);
        let writing = Arc::new(AtomicBool::new(false));
        let working = Arc::clone(&writing);
        let run = move || {
            for (mut committer, batch) in inbox {
                let done = committer.process(*batch);
                working.store(false, Ordering::Relaxed);
                // the receiver is gone only if the engine's thread panics
                let _ = outbox.send((committer, done));
            }
        };
        std::thread::Builder::new().name("committer".to_owned()).spawn(run)?;
        Ok(Self { idle: Some(Box::new(committer)), to, from, bodies: HashMap::new(), writing })
    }

    /// Whether there is a batch whose result the engine hasn't taken yet.
    pub(super) fn has_batch(&self) -> bool {
        self.idle.is_none()
    }

    /// Whether a batch is still being written or published. False says nothing about its result.
    pub(super) fn is_writing(&self) -> bool {
        self.writing.load(Ordering::Relaxed)
    }

    /// Waits for the result of the current batch, at most for `timeout`. `None` if it isn't known yet, or if
    /// there is no batch.
    pub(super) fn take_result(
        &mut self,
        timeout: Option<Duration>,
    ) -> Option<Result<Committed, journal::Error>> {
        if self.idle.is_some() {
            return None;
        }
        let returned = match timeout.map(|timeout| self.from.recv_timeout(timeout)) {
            None => self.from.recv().ok(),
            Some(Err(RecvTimeoutError::Timeout)) => return None,
            Some(returned) => returned.ok(),
        };
        let (committer, done) =
            returned.expect("the committer's thread ends before its channel only by a panic");
        self.idle = Some(committer);
        self.bodies.clear();
        Some(done)
    }

    /// The committer, which must have no batch.
    pub(super) fn idle(&mut self) -> &mut Committer {
        self.idle.as_mut().expect("the result of the previous batch was taken")
    }

    /// The committer's journal; the committer must have no batch.
    pub(super) fn journal(&self) -> &dyn Journal {
        &*self.idle.as_ref().expect("the result of the previous batch was taken").journal
    }

    /// Starts to commit a batch. The committer must have no batch.
    pub(super) fn start(&mut self, batch: DecidedBatch) {
        let committer = self.idle.take().expect("one batch at a time");
        self.bodies.clone_from(&batch.pending.bodies);
        self.writing.store(true, Ordering::Relaxed);
        assert!(
            self.to.send((committer, Box::new(batch))).is_ok(),
            "the committer's thread ends before its channel only by a panic"
        );
    }

    /// Publishes, on this thread, a batch that needs no commit. The committer must have no batch.
    pub(super) fn process_now(&mut self, batch: DecidedBatch) -> Result<Committed, journal::Error> {
        self.idle().process(batch)
    }

    /// Bodies of the batch that is being committed.
    pub(super) fn bodies(&self) -> &HashMap<ContentHash, Arc<str>> {
        &self.bodies
    }
}
