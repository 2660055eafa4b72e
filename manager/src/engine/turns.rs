//! The loop: select, apply, answer, hand over. While one batch is committed the next is applied.

use super::bodies::Source;
use super::calls::{Call, Parked};
use super::clock::Clock;
use super::pending::Pending;
use super::publish::Publisher;
use super::scribe::{Desk, Done, Scribe, Told, Work};
use super::seen::{Beside, Counts, Reached, Rounds, Seen, Standings};
use super::snapshots::Snapshots;
use super::{Error, Message, Options, Shared, StartMode, Unavailable};
use crate::journal::mark::{self, MarkWriter};
use crate::journal::{self, Journal};
use meridian_manager_core::World;
use meridian_manager_core::facts::input::{Change, Input};
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::outcome::Reply;
use meridian_objects::Kind;
use meridian_shared::ids::ContentHash;
use meridian_shared::jumps::Jumps;
use meridian_shared::lease;
use meridian_shared::time::{Millis, Mono, Now};
use serde_json::json;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Inputs in one batch: bounds how long the first one waits for the commit that all share.
const BATCH_INPUTS_MAX: usize = 512;
/// How long a batch takes inputs: leases are renewed between batches, however much is submitted.
const BATCH_TIME_MAX: Duration = Duration::from_millis(200);
/// The same while nothing is being written: the disk and the agents needn't wait for more.
const BATCH_TIME_ALONE: Duration = Duration::from_millis(15);
/// Of so many inputs one is not an agent's, while both wait.
const OTHERS_SHARE: usize = 4;
/// Inputs that are sorted while they wait; the rest stays in the queue.
const WAITING_MAX: usize = 4_096;
/// Bytes of records and bodies after which a batch takes no more inputs.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// How often it is looked whether a message came while nothing else is to be done but to wait for the disk.
const LISTEN_EVERY: Duration = Duration::from_millis(1);
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

/// Who asked something that changes nothing; answered after the batch's commit.
#[derive(Debug)]
enum Aside {
    Explain(String, String, oneshot::Sender<Option<serde_json::Value>>),
    Recovery(oneshot::Sender<serde_json::Value>),
}

/// The engine's thread.
#[derive(Debug)]
pub(super) struct Engine {
    /// Who has the journal.
    pub(super) desk: Desk,
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
    /// Of the pass that the next batch comes from.
    rounds: Rounds,
    pub(super) parked: Parked,
    pub(super) stopping: bool,
    /// New work is refused until then, because the disk was full.
    pub(super) full_until: Mono,
    pub(super) full_pause: Millis,
    /// The space that is kept back is in use.
    urgent_only: bool,
    jumps: Jumps,
    beat_at: Mono,
    turned: Mono,
    refresh: Chore,
    check: Chore,
    pub(super) snapshots: Snapshots,
}

impl std::fmt::Debug for dyn Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal")
            .field("journal", &self.meta().journal)
            .field("last", &self.last())
            .finish_non_exhaustive()
    }
}

impl Engine {
    pub(super) fn new(
        journal: Box<dyn Journal>,
        world: World,
        inbox: Receiver<Message>,
        shared: Arc<Shared>,
        options: Options,
        vouched: bool,
    ) -> Result<Self, Error> {
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
        let urgent_only = journal.urgent_only();
        let counts = Counts::new(metrics.clone(), traces);
        let scribe = Scribe::new(
            journal,
            counts,
            mark,
            Arc::clone(&shared),
            Arc::clone(&clock),
            world.config.term_min,
        );
        Ok(Self {
            desk: Desk::new(scribe).map_err(Error::Thread)?,
            world,
            inbox,
            waiting: Default::default(),
            shared,
            clock,
            start,
            vouched,
            publisher: Publisher::new(),
            seen: Seen::new(metrics),
            rounds: Rounds::default(),
            parked: Parked::default(),
            stopping: false,
            full_until: Mono(0),
            full_pause: Millis(0),
            urgent_only,
            jumps: Jumps::since(now),
            beat_at: Mono(0),
            turned: Mono(0),
            refresh: Chore::default(),
            check: Chore { due: now.mono + CHECK_EVERY },
            snapshots: Snapshots::default(),
        })
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Shows readers all of the committed world.
    pub(super) fn publish_all(&mut self) {
        let now = self.look();
        self.publisher.publish_all(&self.shared.reads, &self.world, now);
        self.world.take_hindrances();
    }

    pub(super) fn run(mut self) -> Result<(), Error> {
        self.turn_after_turn()
    }

    fn turn_after_turn(&mut self) -> Result<(), Error> {
        self.begin()?;
        while !self.stopping {
            let first = match self.next_waiting(0) {
                Some(message) => Some(message),
                None if self.leaves_something() => None,
                None => match self.rest() {
                    Ok(message) => message,
                    Err(error) => {
                        self.reload(&error)?;
                        continue;
                    }
                },
            };
            self.cycle(first)?;
        }
        self.farewell();
        Ok(())
    }

    /// Whether another turn is to follow at once, as the last one didn't decide everything.
    fn leaves_something(&mut self) -> bool {
        self.world.undecided() && {
            let now = self.look().mono;
            !self.restricted(now)
        }
    }

    /// Waits for a message, or for something to be due; an error is why the batch that was under way isn't durable.
    fn rest(&mut self) -> Result<Option<Message>, journal::Error> {
        while self.desk.is_away() {
            match self.inbox.try_recv() {
                Ok(message) => return Ok(Some(message)),
                // Nobody is left who could send one.
                Err(TryRecvError::Disconnected) => self.land()?,
                Err(TryRecvError::Empty) => self.landed(Some(LISTEN_EVERY))?,
            }
        }
        let now = self.look();
        Ok(self.receive(self.next_due(now).since(now.mono)))
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
        self.urgent_only || now < self.full_until
    }

    /// One batch: everything that arrived, then timers and one scheduling pass, then what agents are told.
    fn cycle(&mut self, first: Option<Message>) -> Result<(), Error> {
        let mut pending = Pending::default();
        let (mut asides, mut calls) = (Vec::new(), Vec::new());
        let now = self.look();
        let restricted = self.restricted(now.mono);
        let mut next = first;
        let (mut taken, began) = (0, Instant::now());
        while let Some(message) = next.take() {
            self.take(message, restricted, &mut pending, (&mut asides, &mut calls));
            taken += 1;
            let time_max = if self.desk.is_at_work() { BATCH_TIME_MAX } else { BATCH_TIME_ALONE };
            if taken < BATCH_INPUTS_MAX
                && pending.bytes < BATCH_BYTES_MAX
                && began.elapsed() < time_max
                && !self.stopping
            {
                next = self.next_waiting(taken);
            }
        }
        // A scheduling pass makes offers, which must wait for space; ends that agents report are taken above. Where not even an end
        // could be written a moment ago, the next one isn't tried at once.
        if !restricted {
            let (before, begun) = (Seen::attempts(&self.world), Instant::now());
            self.apply(Input::Turn, &mut pending);
            self.rounds = Rounds::since(before, &self.world, begun.elapsed());
        } else if now.mono >= self.full_until {
            self.apply(Input::Lapse, &mut pending);
        }
        self.answer_calls(calls, &mut pending);
        self.turned = self.look().mono;
        let told = self.answers(asides);
        // What became of the batch before is known before this one is handed over.
        let handed_over = self.land().and_then(|()| self.hand_over(&mut pending, told, restricted));
        if let Err(error) = handed_over {
            pending.fail(&error);
            return self.reload(&error);
        }
        self.check_now_and_then();
        Ok(())
    }

    fn take(
        &mut self,
        message: Message,
        restricted: bool,
        pending: &mut Pending,
        (asides, calls): (&mut Vec<Aside>, &mut Vec<Call>),
    ) {
        match message {
            Message::Stop => self.stopping = true,
            Message::Explain { namespace, name, reply } => {
                asides.push(Aside::Explain(namespace, name, reply))
            }
            Message::Recovery { reply } => asides.push(Aside::Recovery(reply)),
            Message::PollOver { cluster, transmission } => {
                calls
                    .iter_mut()
                    .chain(self.parked.of(&cluster))
                    .for_each(|call| call.end(&cluster, transmission));
            }
            Message::Ask { input, reply } => {
                if restricted && brings_new_work(&input) {
                    let _ = reply.send(Err(Unavailable::Full));
                    return;
                }
                let submits = submits(&input);
                let call = match &*input {
                    Input::Sync { cluster, request, may_park: true } => Call::of(cluster, request, reply),
                    _ => {
                        let answer = self.apply(*input, pending);
                        self.seen.replied(&answer, submits);
                        return pending.replies.push((reply, answer));
                    }
                };
                match self.apply(*input, pending) {
                    Reply::Park => calls.push(call),
                    refused => pending.replies.push((call.reply, refused)),
                }
            }
        }
    }

    /// Answers the syncs of this batch, and polls that wait for what it says; a poll that is told nothing is parked.
    fn answer_calls(&mut self, calls: Vec<Call>, pending: &mut Pending) {
        for call in calls {
            let now = self.look().mono;
            if call.waits && !self.world.owes(&call.cluster, now) {
                self.parked.park(call);
            } else {
                self.answer_call(call, pending);
            }
        }
        for call in self.parked.due(&std::mem::take(&mut pending.wake)) {
            self.answer_call(call, pending);
        }
    }

    fn answer_call(&mut self, call: Call, pending: &mut Pending) {
        let answer = self.apply(call.unpark(), pending);
        pending.replies.push((call.reply, answer));
    }

    /// One input. Each gets its own reading of the clocks: a lease counts from when its answer was composed, and an agent may
    /// have sent its request after the batch was begun.
    fn apply(&mut self, input: Input, pending: &mut Pending) -> Reply {
        let now = self.look();
        let source = Source { fresh: [&pending.bodies, self.desk.bodies()], store: &self.shared.bodies };
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

    /// Gives a batch to the scribe, who is back. What needs no commit is told at once.
    fn hand_over(
        &mut self,
        pending: &mut Pending,
        told: Vec<Told>,
        restricted: bool,
    ) -> Result<(), journal::Error> {
        let writes = !pending.is_empty();
        if !writes && self.turned >= self.beat_at {
            let begun = self.desk.scribe().heartbeat()?;
            self.written(begun);
        }
        let mut work = self.work(std::mem::take(pending), told, restricted);
        self.refresh(&mut work);
        if writes {
            self.desk.send(work);
            return Ok(());
        }
        self.desk.tell(work).map(|_| ())
    }

    /// A batch with everything that follows from it.
    fn work(&mut self, mut pending: Pending, told: Vec<Told>, urgent: bool) -> Work {
        let now = self.look();
        let dropped = self.last_bodies(&pending);
        let beside = Beside::of(&self.world, &pending.records);
        let reached = std::mem::take(&mut pending.milestones)
            .into_iter()
            .map(|milestone| Reached::new(&self.world, milestone))
            .collect();
        let changed = (std::mem::take(&mut pending.changed), std::mem::take(&mut pending.workloads));
        let changes = self.publisher.changes(&self.shared.reads, &self.world, now, changed);
        let keeps = self.world.take_hindrances();
        self.snapshots.grown(pending.records.len() as u64, 0);
        let may_grow = !pending.is_empty() && !self.restricted(now.mono);
        let snapshot = may_grow.then(|| self.snapshots.with_batch(&self.world)).flatten();
        let state = &self.world.state;
        let settled = state.recovery.is_none() && state.rules_doubted.is_none();
        let (leadership, at) = (state.leadership, state.last);
        Work {
            pending,
            leadership,
            urgent,
            settled,
            snapshot,
            changes,
            keeps,
            rounds: std::mem::take(&mut self.rounds),
            at,
            dropped,
            beside,
            reached,
            standings: Standings::of(&self.world),
            quietly: Vec::new(),
            gauges: None,
            told,
        }
    }

    /// Adds statuses that no record changes, and gauges, to a batch, now and then: they are shown with it. The batch before must be
    /// durable.
    fn refresh(&mut self, work: &mut Work) {
        let now = self.look();
        if now.mono < self.refresh.due {
            return;
        }
        let started = Instant::now();
        let (changes, quietly) = self.publisher.refresh(&self.shared.reads, &self.world, now);
        work.changes.extend(changes);
        work.quietly = quietly;
        work.gauges = Some(Box::new(self.seen.gauges(&self.world, now)));
        self.refresh.rest(now.mono, REFRESH_EVERY, started.elapsed());
    }

    /// Waits for the batch that is under way, if there is one; an error is why it isn't durable.
    pub(super) fn land(&mut self) -> Result<(), journal::Error> {
        self.landed(None)
    }

    fn landed(&mut self, within: Option<Duration>) -> Result<(), journal::Error> {
        let Some(returned) = self.desk.back(within) else { return Ok(()) };
        let Done { begun, bytes, usual } = returned?;
        self.snapshots.grown(0, bytes);
        if usual {
            self.full_pause = Millis(0);
        }
        if let Some(begun) = begun {
            self.written(begun);
        }
        Ok(())
    }

    /// Makes a batch durable and waits for it.
    pub(super) fn carry_out(&mut self, pending: Pending) -> Result<(), journal::Error> {
        let work = self.work(pending, Vec::new(), true);
        self.desk.send(work);
        self.land()
    }

    /// A write that was begun at `begun` is durable: the claim holds from then.
    fn written(&mut self, begun: Mono) {
        self.urgent_only = self.desk.journal().urgent_only();
        self.world.committed(begun);
        self.world.durable(self.desk.journal().last());
        self.beat_at = begun + Millis(lease::claim(self.world.config.term_min).0 / 3);
    }

    /// What those will be told who asked aside, once this batch is durable.
    fn answers(&mut self, asides: Vec<Aside>) -> Vec<Told> {
        let now = self.look();
        let answer = |aside| match aside {
            Aside::Explain(namespace, name, reply) => {
                // A workload may be asked for by the name of its job, or by its own.
                let own = || {
                    self.world
                        .workload_at(&Key::namespaced(Kind::Workload, &namespace, &name))
                        .map(|(uid, _)| uid)
                };
                let uid = self.world.uid_of(&namespace, &name).or_else(own);
                Told::Explained(reply, uid.and_then(|uid| self.world.explain(uid, now)))
            }
            Aside::Recovery(reply) => Told::Recovery(reply, self.recovery()),
        };
        asides.into_iter().map(answer).collect()
    }

    fn recovery(&self) -> serde_json::Value {
        let (state, live) = (&self.world.state, &self.world.live);
        let orphans: Vec<_> = state
            .orphans
            .values()
            .map(|o| json!({"uid": o.run.uid.to_string(), "fence": o.run.fence.to_string(), "cluster": o.cluster.as_str(), "ledger": o.ledger.to_string(), "stopping": o.stopping}))
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

    fn check_now_and_then(&mut self) {
        let now = self.look();
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
        let last = self.land();
        let led = self.shared.lead(false);
        let beat = last.and_then(|()| {
            if led && !self.desk.journal().poisoned() {
                self.desk.scribe().heartbeat().map(|_| ())
            } else {
                Ok(())
            }
        });
        if let Err(error) = beat {
            tracing::warn!(%error, "the last write failed");
        }
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
            Message::Explain { .. } | Message::Recovery { .. } | Message::PollOver { .. } => {}
        }
    }
}

/// Whether an agent waits for the answer.
fn is_an_agents(message: &Message) -> bool {
    match message {
        Message::PollOver { .. } => true,
        Message::Ask { input, .. } => matches!(**input, Input::Sync { .. } | Input::Unpark { .. }),
        _ => false,
    }
}

/// Whether an input only adds to what the journal must hold.
fn brings_new_work(input: &Input) -> bool {
    let adds =
        |change: &Change| matches!(change, Change::Put { .. } | Change::SetActive { active: true, .. });
    matches!(input, Input::Write(write) if !write.dry_run && write.changes().iter().any(adds))
}

fn submits(input: &Input) -> bool {
    matches!(input, Input::Write(write) if write.changes().iter().any(|c| matches!(c, Change::Put { object, .. } if object.kind == Kind::Job)))
}
