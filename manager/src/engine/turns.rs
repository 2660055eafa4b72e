//! The engine's loop: select, apply, answer, hand over. While one batch is committed, the next one is
//! applied.

use super::bodies::EarlierBodies;
use super::clock::Clock;
use super::committer::{Committed, Committer, CommitterThread, DecidedBatch};
use super::event_log::{BatchLog, Contacts, DeletedRuns};
use super::health::{DiskState, Holds};
use super::inputs::{is_from_agent, submits};
use super::periodic::PeriodicTask;
use super::publish::Publisher;
use super::queries::{Query, QueryAnswer};
use super::shared_mark;
use super::snapshots::Snapshots;
use super::telemetry::{
    AdmissionRounds, CommitCounters, CountedEvent, PhaseCounts, RecordContext, RequestCounters,
};
use super::{Caller, Error, Message, Options, PendingCut, Shared, StartMode, Unavailable};
use crate::host::batch::PendingBatch;
use crate::host::{Host, Recipient, Step};
use crate::journal::{self, Journal, mark};
use meridian_manager_core::World;
use meridian_shared::ids::ContentHash;
use meridian_shared::lease::ClaimWrite;
use meridian_shared::time::{Millis, Mono, Now};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

/// Inputs per batch; bounds how long the first input waits for the commit that all share.
const BATCH_INPUTS_MAX: usize = 512;
/// How long a batch takes inputs, and so how long a flood of submissions delays renewals of leases.
const BATCH_TIME_MAX: Duration = Duration::from_millis(200);
/// Like [`BATCH_TIME_MAX`], while no write is in progress: shorter, because the disk is idle.
const BATCH_TIME_IDLE: Duration = Duration::from_millis(15);
/// While messages of agents and others both wait, every `OTHERS_SHARE`th input is one of the others.
const OTHERS_SHARE: usize = 4;
/// Inputs that are sorted while they wait. The rest stays in the queue.
const WAITING_MAX: usize = 4_096;
/// Bytes of records and bodies after which a batch takes no more inputs.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// How often the queue is checked while the engine waits for the disk.
const LISTEN_EVERY: Duration = Duration::from_millis(1);
/// Longest time between two checks of the timers; also the delay until a jump of the wall clock is noticed.
const IDLE_MAX: Millis = Millis::secs(1);
/// Like [`IDLE_MAX`], while recovery is open. Shorter, because time alone can end recovery.
const IDLE_IN_RECOVERY: Millis = Millis(90);
/// Least time between two turns that only a timer asks for.
const TURN_GAP: Millis = Millis(5);
/// How often gauges, and statuses that no record changes, are refreshed.
const REFRESH_EVERY: Millis = Millis(250);
/// How often the world's invariants are checked.
const CHECK_EVERY: Millis = Millis::mins(1);
/// Most workloads for which invariants are checked, because the check is quadratic in the length of a queue.
const CHECK_WORKLOADS_MAX: usize = 5_000;
/// Bytes of deleted jobs' bodies that one batch keeps for the last watch event of each job.
const LAST_VIEW_BYTES_MAX: usize = 4 << 20;

/// The engine's thread.
#[derive(Debug)]
pub(super) struct Engine {
    /// Owns the journal.
    pub(super) committer: CommitterThread,
    pub(super) host: Host<Caller>,
    pub(super) inbox: Receiver<Message>,
    /// Messages of agents, and all other messages: separate, so that a sync doesn't wait behind submissions.
    waiting: [VecDeque<Message>; 2],
    pub(super) shared: Arc<Shared>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) start: StartMode,
    /// Whether the mark proved that this journal is the one that the last leader left.
    pub(super) vouched: bool,
    pub(super) publisher: Publisher,
    pub(super) counters: RequestCounters,
    /// Results of the last scheduling pass; counted with the next batch.
    rounds: AdmissionRounds,
    pub(super) stopping: bool,
    audit_cut: Option<PendingCut>,
    deleted_runs: DeletedRuns,
    /// The write of the batch that is being committed.
    write: Option<ClaimWrite>,
    /// When the last batch was decided.
    turned: Mono,
    refresh: PeriodicTask,
    check: PeriodicTask,
    pub(super) snapshots: Snapshots,
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
        if let Some((directory, boot)) = &marks
            && let Err(error) = mark::sweep(directory, *boot, now.mono)
        {
            tracing::debug!(directory = %directory.display(), %error, "old marks can't be removed");
        }
        let mark = marks.and_then(|(directory, boot)| shared_mark::open_mark(&directory, boot, &*journal));
        let host = Host::new(world, &*journal, now);
        let counts = CommitCounters::new(metrics.clone(), traces);
        let committer = Committer::new(
            journal,
            counts,
            mark,
            Arc::clone(&shared),
            Arc::clone(&clock),
            host.world().config().term_min,
        );
        Ok(Self {
            committer: CommitterThread::new(committer).map_err(Error::Thread)?,
            host,
            inbox,
            waiting: Default::default(),
            shared,
            clock,
            start,
            vouched,
            publisher: Publisher::new(),
            counters: RequestCounters::new(metrics),
            rounds: AdmissionRounds::default(),
            stopping: false,
            audit_cut: None,
            deleted_runs: DeletedRuns::default(),
            write: None,
            turned: Mono(0),
            refresh: PeriodicTask::default(),
            check: PeriodicTask { due: now.mono + CHECK_EVERY },
            snapshots: Snapshots::default(),
        })
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Publishes the whole committed world to readers.
    pub(super) fn publish_all(&mut self) {
        let now = self.read_clock();
        self.publisher.publish_all(&self.shared.reads, self.host.world(), now);
        self.deleted_runs = DeletedRuns::of(self.host.world());
        self.host.world_mut().take_changed_reasons();
    }

    pub(super) fn run(mut self) -> Result<(), Error> {
        self.begin()?;
        while !self.stopping {
            let first = match self.next_waiting(0) {
                Some(message) => Some(message),
                None if self.has_undecided_work() => None,
                None => match self.wait_for_message() {
                    Ok(message) => message,
                    Err(error) => {
                        self.reload(&error)?;
                        continue;
                    }
                },
            };
            self.run_batch(first)?;
        }
        self.leave_young_mark();
        Ok(())
    }

    /// Whether another turn should follow at once, because the last one didn't decide everything.
    fn has_undecided_work(&mut self) -> bool {
        let now = self.read_clock().mono;
        self.host.world().undecided() && !self.host.is_restricted(now)
    }

    /// Waits for a message or for a timer. The error says why the batch being committed isn't durable.
    fn wait_for_message(&mut self) -> Result<Option<Message>, journal::Error> {
        while self.committer.has_batch() {
            match self.inbox.try_recv() {
                Ok(message) => return Ok(Some(message)),
                // no sender is left
                Err(TryRecvError::Disconnected) => self.wait_for_commit()?,
                Err(TryRecvError::Empty) => self.take_commit_result(Some(LISTEN_EVERY))?,
            }
        }
        let now = self.read_clock();
        Ok(self.receive(self.next_due(now).since(now.mono)))
    }

    /// A message, if one arrives in `span`. Without senders the engine stops.
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

    /// The next message that has arrived already, in the order that [`OTHERS_SHARE`] sets.
    fn next_waiting(&mut self, taken: usize) -> Option<Message> {
        while self.waiting.iter().map(VecDeque::len).sum::<usize>() < WAITING_MAX
            && let Ok(message) = self.inbox.try_recv()
        {
            self.waiting[usize::from(!is_from_agent(&message))].push_back(message);
        }
        let first = usize::from(taken % OTHERS_SHARE == OTHERS_SHARE - 1);
        self.waiting[first].pop_front().or_else(|| self.waiting[1 - first].pop_front())
    }

    /// Takes all messages that have left the queue and are in no batch.
    pub(super) fn take_waiting(&mut self) -> impl Iterator<Item = Message> + use<> {
        std::mem::take(&mut self.waiting).into_iter().flatten()
    }

    fn next_due(&self, now: Now) -> Mono {
        let recovers = self.host.world().state().recovery().is_some();
        let idle = if recovers { IDLE_IN_RECOVERY } else { IDLE_MAX };
        let (heartbeat, timer) = self.host.next_deadline(now);
        let due = heartbeat.min(self.refresh.due).min(self.check.due).min(self.turned + idle);
        match timer {
            Some(deadline) => due.min(deadline.max(self.turned + TURN_GAP)),
            None => due,
        }
    }

    /// Reads the clocks. If wall time ran ahead of boot time, the claim is shortened by the difference.
    pub(super) fn read_clock(&mut self) -> Now {
        let now = self.clock.now();
        let ahead = self.host.observe(now);
        if ahead > Millis(0) {
            tracing::warn!(%ahead, "wall time ran ahead of boot time: the claim is shortened");
        }
        now
    }

    /// One batch: everything that arrived, then timers and one scheduling pass, then the answers to agents.
    fn run_batch(&mut self, first: Option<Message>) -> Result<(), Error> {
        let mut queries = Vec::new();
        let now = self.read_clock();
        let restricted = self.host.is_restricted(now.mono);
        let mut next = first;
        let (mut taken, began) = (0, Instant::now());
        while let Some(message) = next.take() {
            self.take(message, &mut queries);
            taken += 1;
            let time_max = if self.committer.is_writing() { BATCH_TIME_MAX } else { BATCH_TIME_IDLE };
            if taken < BATCH_INPUTS_MAX
                && self.host.batch().bytes < BATCH_BYTES_MAX
                && began.elapsed() < time_max
                && !self.stopping
            {
                next = self.next_waiting(taken);
            }
        }
        if let Some(step) = self.host.scheduling(now.mono) {
            let (before, begun) = (RequestCounters::attempts(self.host.world()), Instant::now());
            self.decide(step, false);
            self.rounds = AdmissionRounds::since(before, self.host.world(), begun.elapsed());
        }
        self.answer_polls();
        self.turned = self.read_clock().mono;
        let answers = self.answer_queries(queries);
        // wait for the previous batch, because its failure would make this one invalid
        let handed_over = self.wait_for_commit().and_then(|()| self.hand_over(answers, restricted));
        if let Err(error) = handed_over {
            self.fail_batch(&error);
            return self.reload(&error);
        }
        self.check_invariants_if_due();
        Ok(())
    }

    fn take(&mut self, message: Message, queries: &mut Vec<Query>) {
        match message {
            Message::Stop => self.stopping = true,
            Message::Explain { namespace, name, asker, reply } => {
                queries.push(Query::Explain(namespace, name, asker, reply))
            }
            Message::Recovery { asker, reply } => queries.push(Query::Recovery(asker, reply)),
            Message::CutAudit(cut) => self.audit_cut = Some(cut),
            Message::PollOver { cluster, transmission } => self.host.polls().end(&cluster, transmission),
            Message::Ask { input, reply } => {
                let now = self.read_clock().mono;
                let submits = submits(&input);
                match self.host.admit(*input, reply, now) {
                    Ok(step) => self.decide(step, submits),
                    Err((caller, why)) => drop(caller.send(Err(why))),
                }
            }
        }
    }

    fn decide(&mut self, step: Step<Caller>, submits: bool) {
        let now = self.read_clock();
        let committed = EarlierBodies { committing: self.committer.bodies(), store: &*self.shared.bodies };
        let outcome = self.host.decide(now, step.input, &committed);
        if matches!(step.recipient, Recipient::Caller(_)) {
            self.counters.replied(&outcome.reply, submits);
        }
        self.host.record(step.recipient, outcome);
    }

    /// Answers the syncs of this batch, and parked polls that are due. A poll with nothing to answer is
    /// parked.
    fn answer_polls(&mut self) {
        let now = self.read_clock().mono;
        let (steps, replaced) = self.host.answers(now);
        for caller in replaced {
            let _ = caller.send(Err(Unavailable::Replaced));
        }
        for step in steps {
            if step.recipient.caller().is_some_and(|caller| !caller.is_closed()) {
                self.decide(step, false);
            }
        }
    }

    /// Tells the callers of the batch being decided that it won't be durable.
    fn fail_batch(&mut self, cause: &journal::Error) {
        let why = PendingBatch::<Caller>::failure(cause);
        for (caller, _) in self.host.take_batch().replies {
            // a caller that has gone away needs no answer
            let _ = caller.send(Err(why));
        }
    }

    /// Bodies of the jobs that this batch deletes, for their last watch events.
    fn last_bodies(&self, pending: &PendingBatch<Caller>) -> HashMap<ContentHash, Arc<str>> {
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

    /// Gives a batch to the idle committer. A batch without records is published at once.
    fn hand_over(&mut self, answers: Vec<QueryAnswer>, restricted: bool) -> Result<(), journal::Error> {
        // a full disk has no space for it
        self.audit_cut.take_if(|_| restricted);
        let writes = !self.host.batch().is_empty() || self.audit_cut.is_some();
        if !writes && self.host.needs_heartbeat(self.turned) {
            let write = self.begin_write();
            self.committer.idle().heartbeat()?;
            self.written(write);
        }
        let mut batch = self.decided_batch(answers, restricted);
        self.refresh(&mut batch);
        if writes {
            self.start_commit(batch);
            return Ok(());
        }
        self.committer.process_now(batch).map(|_| ())
    }

    /// Bundles a batch with everything to do after its commit.
    fn decided_batch(&mut self, answers: Vec<QueryAnswer>, urgent: bool) -> DecidedBatch {
        let now = self.read_clock();
        let mut pending = self.host.take_batch();
        let dropped = self.last_bodies(&pending);
        let contexts = RecordContext::of(self.host.world(), &pending.records);
        let log = BatchLog::of(self.host.world(), &pending.records, &mut self.deleted_runs);
        let events = std::mem::take(&mut pending.lifecycle_events)
            .into_iter()
            .map(|event| CountedEvent::new(self.host.world(), event))
            .collect();
        let (changed, workloads) =
            (std::mem::take(&mut pending.changed), std::mem::take(&mut pending.workloads));
        let changes = self.publisher.changes(&self.shared.reads, self.host.world(), now, changed, workloads);
        let pending_reasons = self.host.world_mut().take_changed_reasons();
        self.snapshots.count_written(pending.records.len() as u64, 0);
        let may_grow = !pending.is_empty() && !self.host.is_restricted(now.mono);
        let snapshot = may_grow.then(|| self.snapshots.with_batch(self.host.world())).flatten();
        let state = self.host.world().state();
        let settled = self.host.is_settled();
        let (leadership, at) = (state.leadership(), state.last());
        DecidedBatch {
            pending,
            leadership,
            urgent,
            settled,
            snapshot,
            audit_cut: self.audit_cut.take(),
            changes,
            pending_reasons,
            rounds: std::mem::take(&mut self.rounds),
            at,
            dropped,
            contexts,
            events,
            phase_counts: PhaseCounts::of(self.host.world()),
            without_event: Vec::new(),
            gauges: None,
            answers,
            log,
        }
    }

    /// Adds gauges, and statuses that no record changes, to a batch if they are due. The previous batch must
    /// be durable.
    fn refresh(&mut self, batch: &mut DecidedBatch) {
        let now = self.read_clock();
        if now.mono < self.refresh.due {
            return;
        }
        let started = Instant::now();
        let world = self.host.world();
        let disk =
            DiskState { refuses: self.host.is_restricted(now.mono), found_full: self.host.found_full() };
        self.shared.health.observe(disk, world.live().damaged().len());
        self.shared.health.observe_holds(Holds::of(world));
        let (changes, without_event) = self.publisher.refresh(&self.shared.reads, self.host.world(), now);
        batch.changes.extend(changes);
        batch.without_event = without_event;
        batch.gauges = Some(Box::new(self.counters.gauges(self.host.world(), now)));
        batch.log.contacts = Some(Contacts::of(self.host.world(), now));
        self.refresh.schedule_next(now.mono, REFRESH_EVERY, started.elapsed());
    }

    /// Waits for the batch that is being committed, if there is one. The error says why it isn't durable.
    pub(super) fn wait_for_commit(&mut self) -> Result<(), journal::Error> {
        self.take_commit_result(None)
    }

    fn take_commit_result(&mut self, timeout: Option<Duration>) -> Result<(), journal::Error> {
        let Some(returned) = self.committer.take_result(timeout) else { return Ok(()) };
        let write = self.write.take();
        let Committed { bytes, usual } = returned?;
        self.snapshots.count_written(0, bytes);
        if usual {
            self.host.space_found();
        }
        if let Some(write) = write {
            self.written(write);
        }
        Ok(())
    }

    /// Commits what was decided and waits for it. Fails if it isn't durable.
    pub(super) fn commit_and_wait(&mut self) -> Result<(), journal::Error> {
        let batch = self.decided_batch(Vec::new(), true);
        self.start_commit(batch);
        self.wait_for_commit()
    }

    /// Hands a batch to the committer's thread. The write begins now or later, so the claim may count from
    /// now.
    fn start_commit(&mut self, batch: DecidedBatch) {
        self.write = Some(self.begin_write());
        self.committer.start(batch);
    }

    fn begin_write(&mut self) -> ClaimWrite {
        let now = self.read_clock();
        self.host.begin_write(now)
    }

    fn written(&mut self, write: ClaimWrite) {
        self.host.written(write, self.committer.journal());
    }

    fn check_invariants_if_due(&mut self) {
        let now = self.read_clock();
        if now.mono >= self.check.due {
            let started = Instant::now();
            if self.host.world().state().workloads().len() <= CHECK_WORKLOADS_MAX
                && let Err(broken) = self.host.world().check()
            {
                self.shared.metrics.engine.invariant_violations.inc([]);
                tracing::error!(%broken, "an invariant is broken: please report this with the journal");
            }
            self.check.schedule_next(now.mono, CHECK_EVERY, started.elapsed());
        }
    }
}
