//! The loop: select, apply, commit, reply, dispatch.

use super::bodies::Source;
use super::clock::{Clock, Jumps};
use super::pending::{Caller, Pending};
use super::publish::Publisher;
use super::seen::Seen;
use super::{Error, Message, Options, Shared, StartMode, Unavailable};
use crate::journal::mark::{self, BootId, Mark, MarkWriter};
use crate::journal::{self, Journal, Snapshot};
use meridian_manager_core::World;
use meridian_manager_core::input::{Change, Input, Reply};
use meridian_objects::Kind;
use meridian_shared::ids::ContentHash;
use meridian_shared::lease;
use meridian_shared::protocol::{SyncAnswer, SyncRefusal};
use meridian_shared::time::{Millis, Mono, Now};
use serde_json::json;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Inputs in one batch: bounds how long the first one waits for the commit that all share.
const BATCH_INPUTS_MAX: usize = 512;
/// How long a batch takes inputs: leases are renewed between batches, however much is submitted.
const BATCH_TIME_MAX: Duration = Duration::from_millis(200);
/// Of so many inputs one is not an agent's, while both wait.
const OTHERS_SHARE: usize = 4;
/// Inputs that are sorted while they wait; the rest stays in the queue.
const WAITING_MAX: usize = 4_096;
/// Bytes of records and bodies after which a batch takes no more inputs.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// Timers are looked at at least this often; also how late a jump of the wall clock is noticed.
const IDLE_MAX: Millis = Millis::secs(1);
/// The same while recovery is open, which ends by time.
const IDLE_IN_RECOVERY: Millis = Millis(90);
/// Turns that only a timer asks for are at least this far apart.
const TURN_GAP: Millis = Millis(5);
/// How often statuses that no record changes, and gauges, are brought up to date.
const REFRESH_EVERY: Millis = Millis(250);
/// How often the world is checked against itself.
const CHECK_EVERY: Millis = Millis::mins(1);
/// Workloads up to which it is checked: the check is quadratic in the length of a queue.
const CHECK_WORKLOADS_MAX: usize = 5_000;
/// A chore waits for this many times what it took, so that all of them together take a small part of the engine's time.
const CHORE_REST: u32 = 20;
/// Records after which a snapshot replaces them.
const SNAPSHOT_RECORDS: u64 = 50_000;
/// Bytes of records after which a snapshot replaces them; a larger snapshot waits for as many bytes as twice its own.
const SNAPSHOT_BYTES: usize = 32 << 20;
/// Bodies of deleted jobs that are kept for the last view that watchers get, in bytes per batch.
const LAST_VIEW_BYTES_MAX: usize = 4 << 20;

/// Something done again and again, at least `due` from now.
#[derive(Clone, Copy, Debug, Default)]
struct Chore {
    due: Mono,
}

impl Chore {
    fn rest(&mut self, now: Mono, every: Millis, took: Duration) {
        let took = u64::try_from((took * CHORE_REST).as_millis()).unwrap_or(u64::MAX);
        self.due = now + every.max(Millis(took));
    }
}

/// What the journal has grown by since its snapshot.
#[derive(Clone, Copy, Debug, Default)]
struct Grown {
    records: u64,
    bytes: usize,
    snapshot_bytes: usize,
}

impl Grown {
    fn calls_for_snapshot(&self) -> bool {
        (self.records >= SNAPSHOT_RECORDS || self.bytes >= SNAPSHOT_BYTES) && self.bytes >= 2 * self.snapshot_bytes
    }
}

/// Who asked something that changes nothing; answered after the batch's commit.
#[derive(Debug)]
enum Aside {
    Explain(String, String, oneshot::Sender<Option<serde_json::Value>>),
    Recovery(oneshot::Sender<serde_json::Value>),
}

/// The engine's thread.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) journal: Box<dyn Journal>,
    pub(super) world: World,
    pub(super) inbox: Receiver<Message>,
    /// What agents said, and everything else: a sync doesn't wait behind what is submitted.
    waiting: [VecDeque<Message>; 2],
    pub(super) shared: Arc<Shared>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) start: StartMode,
    /// Whether the mark showed this journal to be the one that was left.
    pub(super) vouched: bool,
    pub(super) publisher: Publisher,
    pub(super) seen: Seen,
    pub(super) stopping: bool,
    /// New work is refused until then, because the disk was full.
    pub(super) full_until: Mono,
    pub(super) full_pause: Millis,
    jumps: Jumps,
    mark: Option<(MarkWriter, BootId)>,
    beat_at: Mono,
    turned: Mono,
    refresh: Chore,
    check: Chore,
    grown: Grown,
}

impl std::fmt::Debug for dyn Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("journal", &self.meta().journal).field("last", &self.last()).finish_non_exhaustive()
    }
}

impl Engine {
    pub(super) fn new(journal: Box<dyn Journal>, world: World, inbox: Receiver<Message>, shared: Arc<Shared>, options: Options, vouched: bool) -> Self {
        let Options { config: _, start, clock, marks, metrics, traces } = options;
        let now = clock.now();
        if let Some((room, boot)) = &marks
            && let Err(error) = mark::sweep(room, *boot, now.mono)
        {
            tracing::debug!(room = %room.display(), %error, "old marks are left where they are");
        }
        let mark = marks.and_then(|(room, boot)| match MarkWriter::open(&room, journal.meta().journal) {
            Ok(writer) => Some((writer, boot)),
            Err(error) => {
                tracing::warn!(room = %room.display(), %error, "no mark can be left there: the next start will wait for this one's claim");
                None
            }
        });
        Self {
            journal,
            world,
            inbox,
            waiting: Default::default(),
            shared,
            clock,
            start,
            vouched,
            publisher: Publisher::new(),
            seen: Seen::new(metrics, traces),
            stopping: false,
            full_until: Mono(0),
            full_pause: Millis(0),
            jumps: Jumps::since(now),
            mark,
            beat_at: Mono(0),
            turned: Mono(0),
            refresh: Chore::default(),
            check: Chore { due: now.mono + CHECK_EVERY },
            grown: Grown::default(),
        }
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Shows readers all of the committed world.
    pub(super) fn publish_all(&mut self) {
        let now = self.look();
        self.publisher.publish_all(&self.shared.reads, &self.world, now);
    }

    pub(super) fn run(mut self) -> Result<(), Error> {
        let result = self.turn_after_turn();
        // A store that somebody else has written to may panic while it is closed; why the engine ended stands already.
        let closed = catch_unwind(AssertUnwindSafe(move || drop(self)));
        if closed.is_err() {
            tracing::error!("the journal could not be closed in order");
        }
        result
    }

    fn turn_after_turn(&mut self) -> Result<(), Error> {
        self.begin()?;
        while !self.stopping {
            let first = self.select();
            self.cycle(first)?;
        }
        self.farewell();
        Ok(())
    }

    /// The only wait.
    fn select(&mut self) -> Option<Message> {
        if let Some(message) = self.next_waiting(0) {
            return Some(message);
        }
        let now = self.look();
        self.receive(self.next_due(now).since(now.mono))
    }

    /// A message, if one comes within `span`. Without anybody who could send one there is nothing left to do.
    pub(super) fn receive(&mut self, span: Millis) -> Option<Message> {
        match self.inbox.recv_timeout(self.clock.real(span)) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                self.stopping = true;
                None
            }
        }
    }

    /// The next of those that wait already, by whose turn it is.
    fn next_waiting(&mut self, taken: usize) -> Option<Message> {
        while self.waiting.iter().map(VecDeque::len).sum::<usize>() < WAITING_MAX
            && let Ok(message) = self.inbox.try_recv()
        {
            self.waiting[usize::from(!is_an_agents(&message))].push_back(message);
        }
        let first = usize::from(taken % OTHERS_SHARE == OTHERS_SHARE - 1);
        self.waiting[first].pop_front().or_else(|| self.waiting[1 - first].pop_front())
    }

    fn next_due(&self, now: Now) -> Mono {
        let idle = if self.world.state.recovery.is_some() { IDLE_IN_RECOVERY } else { IDLE_MAX };
        let due = self.beat_at.min(self.refresh.due).min(self.check.due).min(self.turned + idle);
        match self.world.next_deadline(now).filter(|_| !self.restricted(now.mono)) {
            Some(deadline) => due.min(deadline.max(self.turned + TURN_GAP)),
            None => due,
        }
    }

    /// Reads the clocks. Where wall time ran ahead of boot time, the claim has run out by as much.
    pub(super) fn look(&mut self) -> Now {
        let now = self.clock.now();
        let ahead = self.jumps.look(now);
        if ahead > Millis(0) {
            tracing::warn!(%ahead, "wall time ran ahead of boot time: the claim is shortened by as much");
            self.world.live.claim_until = self.world.live.claim_until - ahead;
            self.beat_at = now.mono;
        }
        now
    }

    /// Whether only ends and deletions are taken.
    fn restricted(&self, now: Mono) -> bool {
        self.journal.urgent_only() || now < self.full_until
    }

    /// One batch: everything that arrived, then timers and one scheduling pass.
    fn cycle(&mut self, first: Option<Message>) -> Result<(), Error> {
        let mut pending = Pending::default();
        let mut asides = Vec::new();
        let now = self.look();
        let restricted = self.restricted(now.mono);
        let mut next = first;
        let (mut taken, began) = (0, Instant::now());
        while let Some(message) = next.take() {
            self.take(message, restricted, &mut pending, &mut asides);
            taken += 1;
            if taken < BATCH_INPUTS_MAX && pending.bytes < BATCH_BYTES_MAX && began.elapsed() < BATCH_TIME_MAX && !self.stopping {
                next = self.next_waiting(taken);
            }
        }
        // A scheduling pass makes offers, which must wait for space; ends that agents report are taken above.
        if !restricted {
            self.apply(Input::Turn, &mut pending);
        }
        self.turned = self.look().mono;
        let dropped = self.last_bodies(&pending);
        let written = if !pending.is_empty() {
            self.commit(&mut pending, restricted)
        } else if self.turned >= self.beat_at {
            self.heartbeat()
        } else {
            Ok(())
        };
        if let Err(error) = written {
            for (caller, _) in pending.replies {
                // Who has gone away needs no answer, here and below.
                let _ = caller.send(Err(Unavailable::NotCommitted));
            }
            asides.clear();
            return self.reload(&error);
        }
        self.settle(pending, &dropped);
        self.answer(asides);
        self.chores();
        Ok(())
    }

    fn take(&mut self, message: Message, restricted: bool, pending: &mut Pending, asides: &mut Vec<Aside>) {
        match message {
            Message::Stop => self.stopping = true,
            Message::Explain { namespace, name, reply } => asides.push(Aside::Explain(namespace, name, reply)),
            Message::Recovery { reply } => asides.push(Aside::Recovery(reply)),
            Message::Ask { input, reply } => {
                if restricted && brings_new_work(&input) {
                    let _ = reply.send(Err(Unavailable::Full));
                    return;
                }
                let submits = submits(&input);
                let answer = self.apply(*input, pending);
                self.seen.replied(&answer, submits);
                pending.replies.push((reply, answer));
            }
        }
    }

    /// One input. Each gets its own reading of the clocks: a lease counts from when its answer was composed, and an agent may
    /// have sent its request after the batch was begun.
    fn apply(&mut self, input: Input, pending: &mut Pending) -> Reply {
        let now = self.look();
        let source = Source { fresh: &pending.bodies, store: &self.shared.bodies };
        let outcome = self.world.apply(now, input, &source);
        pending.take(outcome)
    }

    /// What watchers will see last of the jobs that this batch forgets.
    fn last_bodies(&self, pending: &Pending) -> HashMap<ContentHash, Arc<str>> {
        let mut bytes = 0;
        let mut kept = HashMap::new();
        for hash in &pending.dropped {
            if let Some(body) = self.shared.bodies.get(*hash) {
                bytes += body.len();
                kept.insert(*hash, body);
            }
            if bytes > LAST_VIEW_BYTES_MAX {
                break;
            }
        }
        kept
    }

    /// Makes a batch durable.
    pub(super) fn commit(&mut self, pending: &mut Pending, urgent: bool) -> Result<(), journal::Error> {
        let begun = self.look().mono;
        let started = Instant::now();
        let mut batches = pending.batches(self.world.state.leadership, &*self.journal, urgent);
        self.grown.records += pending.records.len() as u64;
        self.grown.bytes += pending.bytes;
        if self.grown.calls_for_snapshot()
            && !self.restricted(begun)
            && let Some(last) = batches.last_mut()
        {
            let bytes = self.world.snapshot();
            self.grown = Grown { snapshot_bytes: bytes.len(), ..Grown::default() };
            last.snapshot = Some(Snapshot { through: last.last(), bytes });
        }
        for batch in &batches {
            self.journal.commit(batch)?;
        }
        let metrics = &self.shared.metrics;
        metrics.journal_commit_seconds.took([], started.elapsed());
        #[expect(clippy::cast_precision_loss, reason = "a batch has far fewer records than a float is exact for")]
        metrics.journal_commit_records.observe([], pending.records.len() as f64);
        metrics.journal_records.add([], pending.records.len() as u64);
        if !pending.urgent && !urgent {
            self.full_pause = Millis(0);
        }
        self.written(begun);
        Ok(())
    }

    fn heartbeat(&mut self) -> Result<(), journal::Error> {
        let begun = self.look().mono;
        self.journal.heartbeat()?;
        self.written(begun);
        Ok(())
    }

    /// A write that was begun at `begun` is durable: the claim holds from then, and the mark says so before any effect.
    fn written(&mut self, begun: Mono) {
        self.world.committed(begun);
        let now = self.look().mono;
        self.beat_at = begun + Millis(lease::claim(self.world.config.term_min).0 / 3);
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

    /// What follows a commit: readers, callers, parked polls.
    pub(super) fn settle(&mut self, pending: Pending, dropped: &HashMap<ContentHash, Arc<str>>) {
        let Pending { records, bodies, changed, workloads, replies, wake, milestones, .. } = pending;
        for (hash, body) in bodies {
            self.shared.bodies.keep(hash, body);
        }
        for (_, record) in &records {
            self.seen.note(&self.world, record);
        }
        for milestone in &milestones {
            self.seen.reached(&self.world, milestone);
        }
        let now = self.look();
        if !records.is_empty() || !changed.is_empty() {
            self.publisher.publish(&self.shared.reads, &self.world, now, (changed, workloads), dropped);
        }
        for (caller, reply) in replies {
            self.reply(caller, reply);
        }
        self.shared.wakes.wake(&wake);
    }

    /// An answer leaves only while the claim is valid: a slow commit may have outlived it, and another may lead since. Nor is
    /// what needed no commit said then, such as that nothing changes (simulation seed 1008166): it may be long out of date.
    fn reply(&mut self, caller: Caller, reply: Reply) {
        let claims = self.look().mono < self.world.live.claim_until;
        let reply = match reply {
            Reply::Sync(answer) if !claims && matches!(*answer, SyncAnswer::Ok(_)) => Ok(Reply::Sync(Box::new(SyncAnswer::Refused(SyncRefusal::NotLeading)))),
            Reply::Written(_) | Reply::Rejected(_) | Reply::Done(_) if !claims => Err(Unavailable::NotLeading),
            reply => Ok(reply),
        };
        let _ = caller.send(reply);
    }

    fn answer(&mut self, asides: Vec<Aside>) {
        for aside in asides {
            match aside {
                Aside::Explain(namespace, name, reply) => {
                    let now = self.look();
                    let uid = self.world.uid_of(&namespace, &name);
                    let _ = reply.send(uid.and_then(|uid| self.world.explain(uid, now)));
                }
                Aside::Recovery(reply) => {
                    let _ = reply.send(self.recovery());
                }
            }
        }
    }

    fn recovery(&self) -> serde_json::Value {
        let (state, live) = (&self.world.state, &self.world.live);
        let orphans: Vec<_> = state
            .orphans
            .values()
            .map(|o| json!({"uid": o.run.uid.to_string(), "fence": o.run.fence.to_string(), "cluster": o.cluster.as_str(), "ledger": o.ledger.to_string()}))
            .collect();
        json!({
            "open": state.recovery.is_some(),
            "restored": state.recovery.as_ref().is_some_and(|r| r.restored),
            "membersUnknown": state.recovery.as_ref().is_some_and(|r| r.members_unknown),
            "awaited": live.awaited.iter().map(|c| c.as_str()).collect::<Vec<_>>(),
            "orphans": orphans,
            "rulesDoubted": state.rules_doubted.map(|n| n.to_string()),
            "leadership": state.leadership.to_string(),
            "record": state.last.to_string(),
        })
    }

    fn chores(&mut self) {
        let now = self.look();
        if now.mono >= self.refresh.due {
            let started = Instant::now();
            self.publisher.refresh(&self.shared.reads, &self.world, now);
            self.seen.gauge(&self.world, now);
            self.refresh.rest(now.mono, REFRESH_EVERY, started.elapsed());
        }
        if now.mono >= self.check.due {
            let started = Instant::now();
            if self.world.state.workloads.len() <= CHECK_WORKLOADS_MAX
                && let Err(broken) = self.world.check()
            {
                self.shared.metrics.invariant_violations.inc([]);
                tracing::error!(%broken, "the world contradicts itself: please report this with the journal");
            }
            self.check.rest(now.mono, CHECK_EVERY, started.elapsed());
        }
    }

    /// Leaves a young mark, so that a start soon after takes the short cut. Who never led has nothing to vouch for.
    fn farewell(&mut self) {
        let led = self.shared.lead(false);
        if led
            && !self.journal.poisoned()
            && let Err(error) = self.heartbeat()
        {
            tracing::warn!(%error, "the last heartbeat failed");
        }
        self.shared.wakes.wake_all();
    }

    /// Answers whatever arrives with `why`.
    pub(super) fn refuse(&mut self, message: Message, why: Unavailable) {
        match message {
            Message::Stop => self.stopping = true,
            Message::Ask { input, reply } => {
                if submits(&input) {
                    self.seen.submission_failed();
                }
                let _ = reply.send(Err(why));
            }
            // Their callers take a dropped channel for "can't say".
            Message::Explain { .. } | Message::Recovery { .. } => {}
        }
    }
}

/// Whether an agent waits for the answer.
fn is_an_agents(message: &Message) -> bool {
    matches!(message, Message::Ask { input, .. } if matches!(**input, Input::Sync { .. } | Input::Unpark { .. }))
}

/// Whether an input only adds to what the journal must hold.
fn brings_new_work(input: &Input) -> bool {
    let adds = |change: &Change| matches!(change, Change::Put { .. } | Change::SetActive { active: true, .. });
    matches!(input, Input::Write(write) if !write.dry_run && write.changes.iter().any(adds))
}

fn submits(input: &Input) -> bool {
    matches!(input, Input::Write(write) if write.changes.iter().any(|c| matches!(c, Change::Put { object, .. } if object.kind == Kind::Job)))
}
