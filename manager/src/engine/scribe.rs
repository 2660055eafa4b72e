//! What follows a decision, on a thread of its own: the commit, and after it what readers see, who is answered, and what is
//! counted.
//!
//! While one batch is written the engine decides on the next. The scribe goes to its thread with a batch and comes back with
//! what became of it, so the journal is always in one thread only, and a batch is never handed over before the fate of the one
//! before it is known.
//!
//! Invariants: nothing of a batch is shown or said before its commit returned; of a batch that failed nothing is shown, and
//! whoever asked is told so; an answer leaves only while the claim is valid.

use super::clock::Clock;
use super::pending::{Caller, Pending};
use super::reads::{Changes, Entry};
use super::seen::{Beside, Counts, Gauges, Reached, Rounds, Standings};
use super::{Shared, Unavailable};
use crate::journal::mark::{BootId, Mark, MarkWriter};
use crate::journal::{self, Journal, Snapshot};
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::outcome::Reply;
use meridian_manager_core::queue::pending_reasons::Changed;
use meridian_shared::ids::{ContentHash, Leadership, RecordNumber};
use meridian_shared::jumps::Jumps;
use meridian_shared::lease;
use meridian_shared::protocol::{SyncAnswer, SyncRefusal};
use meridian_shared::time::{Millis, Mono, Now};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// An answer to somebody who asked what changes nothing.
#[derive(Debug)]
pub(super) enum Told {
    Explained(oneshot::Sender<Option<Value>>, Option<Value>),
    Recovery(oneshot::Sender<Value>, Value),
}

/// One batch as the engine decided it, with everything that follows.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) pending: Pending,
    pub(super) leadership: Leadership,
    /// Ends and deletions: may use the space that is kept back.
    pub(super) urgent: bool,
    /// With it nothing is left to be found out or confirmed about this journal.
    pub(super) settled: bool,
    /// The world behind the last record, as bytes, where it is to replace the records.
    pub(super) snapshot: Option<Snapshot>,
    /// What readers see of it, and at which record.
    pub(super) changes: Changes,
    /// Whom something else keeps than before, by class.
    pub(super) keeps: Changed,
    /// How it was decided.
    pub(super) rounds: Rounds,
    pub(super) at: RecordNumber,
    /// Bodies that it drops, for the last views of their jobs.
    pub(super) dropped: HashMap<ContentHash, Arc<str>>,
    /// What counting takes besides the records.
    pub(super) beside: Vec<(usize, Beside)>,
    pub(super) reached: Vec<Reached>,
    pub(super) standings: Standings,
    /// What changes for readers without a watcher needing to hear of it.
    pub(super) quietly: Vec<(Key, Entry)>,
    /// What rests between batches: how queues and agents stand.
    pub(super) gauges: Option<Box<Gauges>>,
    pub(super) told: Vec<Told>,
}

/// What a batch came to that is durable now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    /// When its write was begun; none where there was nothing to write.
    pub(super) begun: Option<Mono>,
    pub(super) bytes: usize,
    /// It was not let into the space that is kept back.
    pub(super) usual: bool,
}

/// Makes batches durable, and everybody hear of it.
pub(super) struct Scribe {
    pub(super) journal: Box<dyn Journal>,
    pub(super) counts: Counts,
    mark: Option<(MarkWriter, BootId)>,
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    jumps: Jumps,
    term_min: Millis,
    /// Until when this process may say that it leads.
    claim_until: Mono,
}

impl std::fmt::Debug for Scribe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scribe")
            .field("journal", &self.journal)
            .field("claim_until", &self.claim_until)
            .finish_non_exhaustive()
    }
}

impl Scribe {
    pub(super) fn new(
        journal: Box<dyn Journal>,
        counts: Counts,
        mark: Option<(MarkWriter, BootId)>,
        shared: Arc<Shared>,
        clock: Arc<dyn Clock>,
        term_min: Millis,
    ) -> Self {
        let jumps = Jumps::since(clock.now());
        Self { journal, counts, mark, shared, clock, jumps, term_min, claim_until: Mono(0) }
    }

    /// Reads the clocks. Where wall time ran ahead of boot time, the claim has run out by as much.
    fn look(&mut self) -> Now {
        let now = self.clock.now();
        self.claim_until = self.claim_until - self.jumps.look(now);
        now
    }

    /// Makes a batch durable and tells whom it concerns; who waits for one that isn't durable is told that.
    fn carry_out(&mut self, mut work: Work) -> Result<Done, journal::Error> {
        let written = if work.pending.is_empty() {
            Ok(Done { begun: None, bytes: 0, usual: false })
        } else {
            self.commit(&mut work)
        };
        match &written {
            Ok(_) => self.tell(work),
            // Whoever is told of it finds nobody leading until what is durable was read back.
            Err(cause) => {
                self.shared.lead(false);
                work.pending.fail(cause);
            }
        }
        written
    }

    fn commit(&mut self, work: &mut Work) -> Result<Done, journal::Error> {
        let begun = self.look().mono;
        let started = Instant::now();
        let (mut batches, bytes) = work.pending.batches(work.leadership, self.journal.last(), work.urgent);
        if let Some(last) = batches.last_mut() {
            last.snapshot = work.snapshot.take();
        }
        for batch in &batches {
            self.journal.commit(batch)?;
        }
        if work.settled && self.journal.identity_changed() {
            // A person has said so: from now on this file is the one, and the next start is a usual one.
            self.journal.accept_identity()?;
        }
        let metrics = &self.shared.metrics;
        metrics.journal_commit_seconds.took([], started.elapsed());
        #[expect(
            clippy::cast_precision_loss,
            reason = "a batch has far fewer records than a float is exact for"
        )]
        metrics.journal_commit_records.observe([], work.pending.records.len() as f64);
        metrics.journal_records.add([], work.pending.records.len() as u64);
        self.written(begun);
        Ok(Done { begun: Some(begun), bytes, usual: !work.pending.urgent && !work.urgent })
    }

    /// A write that changes nothing, for the claim of a leader who has nothing to write; returns when it was begun.
    pub(super) fn heartbeat(&mut self) -> Result<Mono, journal::Error> {
        let begun = self.look().mono;
        self.journal.heartbeat()?;
        self.written(begun);
        Ok(begun)
    }

    /// A write that was begun at `begun` is durable: the claim holds from then, and the mark says so before any effect.
    fn written(&mut self, begun: Mono) {
        self.claim_until = self.claim_until.max(begun + lease::claim(self.term_min));
        let now = self.look().mono;
        let Some((writer, boot)) = &self.mark else { return };
        let mark = Mark {
            journal: self.journal.meta().journal,
            leadership: self.journal.leadership(),
            last: self.journal.last(),
            chain: self.journal.chain(),
            boot: *boot,
            at: now,
        };
        if let Err(error) = writer.write(&mark) {
            tracing::warn!(%error, "the mark can't be written: the next start will wait for this one's claim");
            self.mark = None;
        }
    }

    /// What follows a commit: readers, and callers.
    fn tell(&mut self, work: Work) {
        let Work {
            pending,
            changes,
            keeps,
            rounds,
            at,
            dropped,
            beside,
            reached,
            standings,
            quietly,
            gauges,
            told,
            ..
        } = work;
        let Pending { records, bodies, replies, .. } = pending;
        for (hash, body) in bodies {
            self.shared.bodies.keep(hash, body);
        }
        self.counts.decided(rounds);
        self.counts.stand(&standings);
        self.counts.note(&records, beside);
        for reached in &reached {
            self.counts.reached(reached);
        }
        self.shared.reads.keep(keeps);
        if !records.is_empty() || !changes.is_empty() {
            self.shared.reads.publish(changes, at, &dropped);
        }
        for (key, entry) in quietly {
            self.shared.reads.replace_quietly(&key, entry);
        }
        for (caller, reply) in replies {
            self.reply(caller, reply);
        }
        if let Some(gauges) = gauges {
            self.counts.show(&gauges);
        }
        for told in told {
            // Who has gone away needs no answer, here and below.
            match told {
                Told::Explained(caller, value) => drop(caller.send(value)),
                Told::Recovery(caller, value) => drop(caller.send(value)),
            }
        }
    }

    /// An answer leaves only while the claim is valid: a slow commit may have outlived it, and another may lead since. Nor is
    /// what needed no commit said then, such as that nothing changes (simulation seed 1008166): it may be long out of date.
    fn reply(&mut self, caller: Caller, reply: Reply) {
        let claims = self.look().mono < self.claim_until;
        let reply = match reply {
            Reply::Sync(answer) if !claims && matches!(*answer, SyncAnswer::Ok(_)) => {
                Ok(Reply::Sync(Box::new(SyncAnswer::Refused(SyncRefusal::NotLeading))))
            }
            Reply::Written(_) | Reply::Rejected(_) | Reply::Done(_) if !claims => {
                Err(Unavailable::NotLeading)
            }
            reply => Ok(reply),
        };
        let _ = caller.send(reply);
    }
}

type Sent = (Box<Scribe>, Box<Work>);
type Returned = (Box<Scribe>, Result<Done, journal::Error>);

/// Where the scribe is: here, or away with a batch.
#[derive(Debug)]
pub(super) struct Desk {
    here: Option<Box<Scribe>>,
    to: SyncSender<Sent>,
    from: Receiver<Returned>,
    /// Bodies of the batch that it is away with.
    bodies: HashMap<ContentHash, Arc<str>>,
    /// Whether that is still being written, or told of.
    at_work: Arc<AtomicBool>,
}

impl Desk {
    /// Starts the scribe's thread, which ends with this desk.
    pub(super) fn new(scribe: Scribe) -> std::io::Result<Self> {
        let (to, inbox) = sync_channel::<Sent>(1);
        let (outbox, from) = sync_channel::<Returned>(1);
        let at_work = Arc::new(AtomicBool::new(false));
        let working = Arc::clone(&at_work);
        let run = move || {
            for (mut scribe, work) in inbox {
                let done = scribe.carry_out(*work);
                working.store(false, Ordering::Relaxed);
                // The desk is gone only while the engine breaks down.
                let _ = outbox.send((scribe, done));
            }
        };
        std::thread::Builder::new().name("scribe".to_owned()).spawn(run)?;
        Ok(Self { here: Some(Box::new(scribe)), to, from, bodies: HashMap::new(), at_work })
    }

    /// Whether a batch is under way.
    pub(super) fn is_away(&self) -> bool {
        self.here.is_none()
    }

    /// Whether a batch is being written, or told of; who asks learns nothing of what became of it.
    pub(super) fn is_at_work(&self) -> bool {
        self.at_work.load(Ordering::Relaxed)
    }

    /// Waits for the batch that is under way, for so long at most, and says what became of it; none where that isn't known yet,
    /// or there is no such batch.
    pub(super) fn back(&mut self, within: Option<Duration>) -> Option<Result<Done, journal::Error>> {
        if self.here.is_some() {
            return None;
        }
        let returned = match within.map(|within| self.from.recv_timeout(within)) {
            None => self.from.recv().ok(),
            Some(Err(RecvTimeoutError::Timeout)) => return None,
            Some(returned) => returned.ok(),
        };
        let (scribe, done) =
            returned.expect("the scribe's thread ends before this desk only by breaking down");
        self.here = Some(scribe);
        self.bodies.clear();
        Some(done)
    }

    /// The scribe, which must be back.
    pub(super) fn scribe(&mut self) -> &mut Scribe {
        self.here.as_mut().expect("nothing is asked of the scribe while it is away")
    }

    /// The journal, which must be back.
    pub(super) fn journal(&self) -> &dyn Journal {
        &*self.here.as_ref().expect("nothing is asked of the journal while it is away").journal
    }

    /// Sends the scribe, which must be back, away with a batch.
    pub(super) fn send(&mut self, work: Work) {
        let scribe = self.here.take().expect("one batch at a time");
        self.bodies.clone_from(&work.pending.bodies);
        self.at_work.store(true, Ordering::Relaxed);
        assert!(
            self.to.send((scribe, Box::new(work))).is_ok(),
            "the scribe's thread ends before this desk only by breaking down"
        );
    }

    /// Has the scribe, which must be back, carry out what needs no commit.
    pub(super) fn tell(&mut self, work: Work) -> Result<Done, journal::Error> {
        self.scribe().carry_out(work)
    }

    /// Bodies of the batch that is under way.
    pub(super) fn bodies(&self) -> &HashMap<ContentHash, Arc<str>> {
        &self.bodies
    }
}
