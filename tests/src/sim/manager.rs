//! One manager's host: the real world and the real journal, and the shell's order around them.
//!
//! `apply* → Input::Turn → answers to agents → commit → committed → replies`. A commit takes time, and the process can end before it,
//! within it, after it and between two replies.

use meridian_manager_core::facts::record::{LeadershipFact};
use super::clock::HostClock;
use super::memory::may_forget;
use super::oracle::{self, Act, Before, broken};
use super::ranks::judge_priorities;
use super::worker::Machine;
use super::{Happening, Sim};
use meridian_manager::journal::faulty::FaultyDisk;
use meridian_manager::journal::mark::{BootId, Mark};
use meridian_manager::journal::{Batch, Found, Journal, RedbJournal, Snapshot};
use meridian_manager_core::facts::input::{Change, Input};
use meridian_manager_core::facts::outcome::{Bodies, Outcome, Reply};
use meridian_manager_core::facts::record::Record;
use meridian_manager_core::facts::submission::RecoveryStart;
use meridian_manager_core::state::State;
use meridian_manager_core::{Start, World};
use meridian_shared::ids::{ClusterName, ContentHash, JournalId, Leadership, RecordNumber, Session};
use meridian_shared::jumps::Jumps;
use meridian_shared::lease;
use meridian_shared::planted::Bug;
use meridian_shared::protocol::{SyncAnswer, SyncRefusal, SyncRequest};
use meridian_shared::time::{Millis, Mono, Now, Wall};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Records between two snapshots.
const SNAPSHOT_EVERY: u64 = 150;
/// How long scheduling rests after the disk was found full.
const FULL_PAUSE: Millis = Millis::secs(2);

/// Who asked, and where the answer goes.
#[derive(Clone, Debug)]
pub(super) enum Asker {
    /// An agent's transmission.
    Agent { agent: usize, life: u64, cluster: ClusterName, session: Session, transmission: u64 },
    /// A person's request.
    Person(u64),
    /// Nobody.
    Nobody,
}

/// One input that waits.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) asker: Asker,
    pub(super) input: Input,
}

/// A request that is held until there is something to say.
#[derive(Debug)]
struct Parked {
    asker: Asker,
    until: u64,
}

/// A commit under way.
#[derive(Debug)]
struct Committing {
    begun: Mono,
    batches: Vec<Batch>,
    written: bool,
    replies: Vec<(Asker, Reply)>,
    before: Option<Box<State>>,
}

/// How a process begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// On the journal that is there.
    Open,
    /// `init`: nothing ran before.
    Init,
    /// `init --recover`: a new journal in place of a lost one.
    Recover,
}

/// One manager's machine and process.
#[derive(Debug)]
pub(super) struct Manager {
    pub(super) clock: HostClock,
    boot: u128,
    pub(super) disk: FaultyDisk,
    journal: Option<RedbJournal>,
    pub(super) world: Option<World>,
    pub(super) leading: bool,
    pub(super) life: u64,
    /// Its volume was attached elsewhere.
    pub(super) cut: bool,
    pub(super) inbox: VecDeque<Item>,
    parked: Vec<Parked>,
    bodies: BTreeMap<ContentHash, Arc<str>>,
    mark: Option<Mark>,
    written: Mono,
    snapshot_at: RecordNumber,
    /// Taken of the world as it was with a batch before, and written with the next.
    snapshot: Option<Snapshot>,
    committing: Option<Committing>,
    pub(super) paused_until: u64,
    pub(super) slow_until: u64,
    engine_at: u64,
    engine_turn: u64,
    expected: Option<Box<State>>,
    recover: bool,
    jumps: Option<Jumps>,
    /// The leadership whose claim it kept over a failed commit.
    goes_on: Option<Leadership>,
    /// Its wall clock was set back, and it hasn't looked since.
    pub(super) unseen_back: bool,
    full_until: Mono,
}

struct Library<'a> {
    cache: &'a BTreeMap<ContentHash, Arc<str>>,
    journal: &'a RedbJournal,
}

impl Bodies for Library<'_> {
    fn body(&self, hash: ContentHash) -> Option<Arc<str>> {
        let stored = || self.journal.reader().body(hash).ok().flatten();
        self.cache
            .get(&hash)
            .cloned()
            .or_else(|| stored().and_then(|b| String::from_utf8(b).ok()).map(Arc::from))
    }
}

impl Manager {
    pub(super) fn new(clock: HostClock, boot: u128, disk: FaultyDisk) -> Self {
        Self {
            clock,
            boot,
            disk,
            journal: None,
            world: None,
            leading: false,
            life: 0,
            cut: false,
            inbox: VecDeque::new(),
            parked: Vec::new(),
            bodies: BTreeMap::new(),
            mark: None,
            written: Mono(0),
            snapshot_at: RecordNumber(0),
            snapshot: None,
            committing: None,
            paused_until: 0,
            slow_until: 0,
            engine_at: u64::MAX,
            engine_turn: 0,
            expected: None,
            recover: false,
            jumps: None,
            goes_on: None,
            unseen_back: false,
            full_until: Mono(0),
        }
    }

    /// Whether a process is there.
    pub(super) fn up(&self) -> bool {
        self.journal.is_some()
    }

    /// Reads the clocks. Where wall time ran ahead of boot time, the claim has run out by as much.
    fn look(&mut self, at: u64) -> Now {
        let now = self.clock.now(at);
        self.unseen_back = false;
        let ahead = self.jumps.get_or_insert(Jumps::since(now)).look(now);
        if let Some(world) = &mut self.world {
            world.live.claim_until = world.live.claim_until - ahead;
        }
        now
    }

    /// Whether only ends and deletions are taken.
    fn restricted(&self, now: Mono) -> bool {
        now < self.full_until || self.journal.as_ref().is_some_and(Journal::urgent_only)
    }

    /// Whatever comes next on this disk is another history.
    pub(super) fn forget_expected(&mut self) {
        self.expected = None;
    }

    /// Counters that keep events of an earlier process from reaching a later one.
    pub(super) fn generation(&self) -> (u64, u64) {
        (self.life, self.engine_turn)
    }

    /// See [`Self::generation`].
    pub(super) fn continue_from(&mut self, life: u64, turns: u64) {
        (self.life, self.engine_turn) = (life, turns);
    }

    /// Once nothing is left to be confirmed about it, this file is the one; false when that couldn't be written.
    fn settle(&mut self) -> bool {
        let settled = self
            .world
            .as_ref()
            .is_some_and(|world| world.state.recovery.is_none() && world.state.rules_doubted.is_none());
        match &mut self.journal {
            Some(journal) if settled && journal.identity_changed() => journal.accept_identity().is_ok(),
            _ => true,
        }
    }
}

impl Sim {
    /// Wakes a manager's engine at `at`, if nothing wakes it before.
    pub(super) fn kick(&mut self, m: usize, at: u64) {
        let host = &mut self.managers[m];
        let at = at.max(self.now);
        if at < host.engine_at {
            host.engine_at = at;
            host.engine_turn += 1;
            let turn = host.engine_turn;
            self.at(at, Happening::Engine { manager: m, turn });
        }
    }

    /// Starts a process; it leads at once where the mark vouches, else after claim and drift.
    pub(super) fn boot(&mut self, m: usize, life: u64, begin: Begin) {
        let now = self.managers[m].clock.now(self.now);
        if self.managers[m].life != life || self.managers[m].cut || self.managers[m].up() {
            return;
        }
        let disk = self.managers[m].disk.clone();
        let opened = match begin {
            Begin::Open => RedbJournal::open_on(disk),
            Begin::Init | Begin::Recover => {
                RedbJournal::init_on(disk, JournalId(self.chance.manager.wide()), Wall(now.wall.0))
            }
        };
        let journal = match opened {
            Ok(journal) => journal,
            Err(error) => {
                self.trace.say(self.now, || format!("manager {m} can't open its journal: {error}"));
                if !self.disk_is_bad(m) {
                    return self.judge(broken(
                        "journal",
                        format!("it can't be opened after a fault that it must survive: {error}"),
                    ));
                }
                let again = self.now + 1_000;
                return self.at(again, Happening::Boot { manager: m, life, begin });
            }
        };
        let world = match self.replay(&journal) {
            Ok(world) => world,
            Err(words) => return self.judge(broken("replay", words)),
        };
        self.trace.say(self.now, || format!("manager {m} opens its journal at record {}", journal.last()));
        let host = &mut self.managers[m];
        if let Some(expected) = host.expected.take()
            && let Err(why) = oracle::same_state("replayed against committed", &world.state, &expected)
        {
            return self.judge(Err(why));
        }
        let claim = lease::claim(self.plan.term_min);
        let vouched = host
            .mark
            .as_ref()
            .is_some_and(|mark| mark.vouches_for(&journal, BootId(host.boot), now.mono, claim));
        // An empty journal says nothing of what runs: who made it may have ended before anything was written.
        host.recover =
            begin == Begin::Recover || (begin == Begin::Open && world.state.last == RecordNumber(0));
        (host.snapshot_at, host.snapshot) = (world.state.last, None);
        host.journal = Some(journal);
        host.world = Some(world);
        let short = vouched || begin == Begin::Init;
        if vouched {
            self.counters.one("short cuts");
        }
        let at = if short {
            self.now
        } else {
            self.managers[m].clock.when(now.mono + claim + lease::drift(claim))
        };
        self.at(at, Happening::Lead { manager: m, life, short, fresh: begin == Begin::Init });
    }

    fn replay(&self, journal: &RedbJournal) -> Result<World, String> {
        let snapshot = journal.snapshot().map_err(|e| e.to_string())?;
        let (mut world, after) = match snapshot {
            Some(s) => (World::restore(&s.bytes, self.plan.config())?, s.through),
            None => (World::empty(journal.meta().journal, self.plan.config()), RecordNumber(0)),
        };
        let mut take = |number: RecordNumber, bytes: &[u8]| {
            let record: Record = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
            world.absorb(number, &record);
            Ok(())
        };
        journal.replay(after, &mut take).map_err(|e| e.to_string())?;
        Ok(world)
    }

    /// A leadership begins.
    pub(super) fn lead(&mut self, m: usize, life: u64, short: bool, fresh: bool) {
        let id = self.chance.manager.bits();
        let host = &mut self.managers[m];
        if host.life != life || host.leading || !host.up() {
            return;
        }
        let now = host.look(self.now);
        let restored = host.journal.as_ref().is_some_and(Journal::identity_changed);
        let (Some(world), Some(journal)) = (&mut host.world, &host.journal) else { return };
        // What an earlier leadership left open stays open with all that it was opened for.
        let open = world.state.recovery.clone();
        let recovery = (!short).then_some(RecoveryStart {
            restored: restored || open.as_ref().is_some_and(|o| o.restored),
            members_unknown: host.recover || open.as_ref().is_some_and(|o| o.members_unknown),
        });
        let before = Before::of(world);
        let outcome = world.lead(
            Start { id, recovery: recovery.clone(), fresh, now },
            &Library { cache: &host.bodies, journal },
        );
        host.written = now.mono;
        let from = host.goes_on.take();
        self.oracle.leads(
            self.managers[m].world.as_ref().expect("it was replayed").state.leadership,
            now.mono,
            from,
        );
        self.judge_outcome(m, now.mono, &before, &outcome);
        let mut batches = self.batches(m, vec![outcome]);
        batches.iter_mut().for_each(|b| b.urgent = true);
        if !self.write(m, &batches) {
            self.trace.say(self.now, || format!("manager {m} can't commit its leadership"));
            return self.end_process(m, false, 1_000);
        }
        let host = &mut self.managers[m];
        host.world.as_mut().expect("it was replayed").committed(now.mono);
        host.leading = true;
        let state = &host.world.as_ref().expect("it was replayed").state;
        let leadership = state.leadership;
        self.trace.say(self.now, || format!("manager {m} leads as {leadership}, recovery {recovery:?}"));
        self.counters.one(if recovery.is_some() { "recoveries" } else { "starts without recovery" });
        if self.gone {
            self.gone = false;
            let world = self.managers[m].world.as_ref();
            self.oracle.history_is_gone(world);
            self.people.history_is_gone(world, &self.oracle);
            self.people.rules.clear();
            self.people.activity.history_is_gone();
            self.people.sizes.history_is_gone();
        }
        let world = self.managers[m].world.as_ref().expect("it was replayed");
        let verdict = self.check_memory(world);
        self.judge(verdict);
        let empty = self.managers[m].world.as_ref().is_some_and(|w| w.state.catalog.iter().next().is_none());
        if empty {
            self.needs_fleet = true;
        }
        self.kick(m, self.now);
    }

    fn judge_outcome(&mut self, m: usize, now: Mono, before: &Before, outcome: &Outcome) {
        let world = self.managers[m].world.as_ref().expect("a leading manager has a world");
        for (number, record) in &outcome.records {
            let number = *number;
            if !matches!(record, Record::Audited(_)) {
                self.trace.say(self.now, || format!("manager {m} record {number}: {record:?}"));
            }
            self.counters.record(record);
        }
        if self.managers[m].cut {
            // Nothing that it decides can be committed any more.
            return self.judge(
                self.managers[m]
                    .world
                    .as_ref()
                    .expect("it leads")
                    .check()
                    .or_else(|words| broken("World::check", words)),
            );
        }
        let (machines, at) = (&self.machines, self.now);
        let bound = |mac: &Machine, key| mac.runner.bound(mac.clock.now(at)).any(|k| k == key);
        let alive = |uid, fence| {
            machines.iter().any(|mac| mac.honest && !mac.clock.is_frozen() && bound(mac, (uid, fence)))
        };
        let act = Act { manager: m, now, before, world, outcome };
        let mut verdict = self.oracle.judge(&act, &alive).and_then(|()| judge_priorities(world));
        if outcome.records.iter().any(|(_, record)| may_forget(record)) {
            verdict = verdict.and_then(|()| self.check_memory(world));
        }
        self.judge(verdict);
    }

    /// One turn of the engine: select, apply, then the commit begins.
    pub(super) fn engine(&mut self, m: usize, turn: u64) {
        let host = &mut self.managers[m];
        if turn != host.engine_turn {
            return;
        }
        host.engine_at = u64::MAX;
        if host.committing.is_some() {
            return;
        }
        if !host.leading {
            let refused: Vec<Item> = host.inbox.drain(..).collect();
            let up = host.up();
            for item in refused {
                self.refuse(m, item.asker, up);
            }
            return;
        }
        let now = host.look(self.now);
        let (restricted, full) = (host.restricted(now.mono), now.mono < host.full_until);
        let mut items = self.select(m);
        if restricted {
            items.retain(|i| !matches!(&i.input, Input::Write(w) if w.changes().iter().any(|c| matches!(c, Change::Put { .. }))));
        }
        if !full {
            items.push(Item {
                asker: Asker::Nobody,
                input: if restricted { Input::Lapse } else { Input::Turn },
            });
        }
        let before = self
            .disk_is_bad(m)
            .then(|| self.managers[m].world.as_ref().map(|w| Box::new(w.state.clone())))
            .flatten();
        let mut outcomes = Vec::new();
        let mut replies = Vec::new();
        let mut taken = Vec::new();
        for item in items {
            let waits = matches!(&item.input, Input::Sync { request, .. } if request.may_wait());
            let mut outcome = self.apply(m, now, &item);
            match std::mem::replace(&mut outcome.reply, Reply::None) {
                Reply::Park => taken.push((item.asker, waits)),
                reply => replies.push((item.asker, reply)),
            }
            outcomes.push(outcome);
            if self.failure.is_some() {
                return;
            }
        }
        if !restricted {
            self.judge_explained(m, turn, now);
        }
        for item in self.to_answer(m, now.mono, taken, &outcomes) {
            let mut outcome = self.apply(m, now, &item);
            replies.push((item.asker, std::mem::replace(&mut outcome.reply, Reply::None)));
            outcomes.push(outcome);
            if self.failure.is_some() {
                return;
            }
        }
        let mut batches = self.batches(m, outcomes);
        let host = &self.managers[m];
        let beat = now.mono.since(host.written).0 * 3 >= lease::claim(self.plan.term_min).0;
        if self.plan.planted == Some(Bug::ReplyBeforeCommit) {
            for (asker, reply) in std::mem::take(&mut replies) {
                self.deliver(m, asker, reply);
            }
        }
        if restricted && let Some(batch) = batches.iter_mut().next() {
            batch.urgent = true;
        }
        if batches.is_empty() && (!beat || self.plan.late_beats) {
            self.effects(m, replies);
            if !beat || self.managers[m].world.is_none() {
                return;
            }
            replies = Vec::new();
        }
        let slow = self.now < self.managers[m].slow_until;
        let takes = if slow {
            self.chance.disk.between(200, 3_000)
        } else {
            self.chance.disk.between(0, self.plan.commit_max)
        };
        let committing = Committing { begun: now.mono, batches, written: false, replies, before };
        self.managers[m].committing = Some(committing);
        if takes == 0 {
            return self.finish(m, self.managers[m].life);
        }
        if self.chance.disk.of_1000(500) {
            // The bytes are down early, and the process learns of it late.
            self.write_now(m);
        }
        let life = self.managers[m].life;
        self.at(self.now + takes, Happening::Finish { manager: m, life });
    }

    /// Inputs of one turn: what has waited, and polls whose time is over.
    fn select(&mut self, m: usize) -> Vec<Item> {
        let most = 1 + self.chance.manager.index(16);
        let now = self.now;
        let host = &mut self.managers[m];
        let (over, still): (Vec<Parked>, Vec<Parked>) =
            std::mem::take(&mut host.parked).into_iter().partition(|p| p.until <= now);
        host.parked = still;
        let mut items: Vec<Item> = over.into_iter().filter_map(|poll| unpark(poll.asker)).collect();
        while items.len() < most
            && let Some(item) = host.inbox.pop_front()
        {
            items.push(item);
        }
        items
    }

    /// Syncs that are answered at the end of a turn, with whatever it decided: those that it took, and polls that are woken. A poll
    /// that is told nothing is parked.
    fn to_answer(
        &mut self,
        m: usize,
        now: Mono,
        taken: Vec<(Asker, bool)>,
        outcomes: &[Outcome],
    ) -> Vec<Item> {
        let until = self.now + lease::poll(self.plan.term_min).0;
        let host = &mut self.managers[m];
        let Some(world) = &host.world else { return Vec::new() };
        let owes = |asker: &Asker| matches!(asker, Asker::Agent { cluster, .. } if world.owes(cluster, now));
        let (park, answer): (Vec<_>, Vec<_>) =
            taken.into_iter().partition(|(asker, waits)| *waits && !owes(asker));
        host.parked.extend(park.into_iter().map(|(asker, _)| Parked { asker, until }));
        let wakes = |poll: &Parked| matches!(&poll.asker, Asker::Agent { cluster, .. } if outcomes.iter().any(|o| o.wake.contains(cluster)));
        let (woken, still): (Vec<Parked>, Vec<Parked>) =
            std::mem::take(&mut host.parked).into_iter().partition(wakes);
        host.parked = still;
        answer
            .into_iter()
            .map(|(asker, _)| asker)
            .chain(woken.into_iter().map(|poll| poll.asker))
            .filter_map(unpark)
            .collect()
    }

    fn apply(&mut self, m: usize, now: Now, item: &Item) -> Outcome {
        let host = &mut self.managers[m];
        let (Some(world), Some(journal)) = (&mut host.world, &host.journal) else {
            unreachable!("a leading manager has both")
        };
        let before = Before::of(world);
        let newest = if let Input::Sync { cluster, request, .. } = &item.input
            && let Some(inventory) = &request.inventory
            && inventory.for_leadership == Some(world.state.leadership)
            && !inventory.more
        {
            self.oracle.inventory(world.state.leadership, cluster, (request.session, request.transmission))
        } else {
            false
        };
        let counts = world.live.counts.clone();
        let outcome = world.apply(now, item.input.clone(), &Library { cache: &host.bodies, journal });
        host.bodies.extend(outcome.bodies.iter().cloned());
        self.counters.differences(&counts, &world.live.counts);
        self.judge_outcome(m, now.mono, &before, &outcome);
        let world = self.managers[m].world.as_ref().expect("it leads");
        let verdict = match (&item.asker, &item.input, &outcome.reply) {
            (Asker::Agent { agent, cluster, .. }, Input::Sync { request, .. }, Reply::Park) => {
                let whole = request.inventory.as_ref().filter(|_| newest && !self.agents[*agent].lies);
                whole.map_or(Ok(()), |inventory| {
                    self.oracle.reported(world, cluster, &inventory.runs, &inventory.ends)
                })
            }
            (Asker::Agent { cluster, .. }, _, Reply::Sync(answer)) => match &**answer {
                SyncAnswer::Ok(response) => {
                    self.oracle.composes(&self.managers[m].clock, now.mono, world, cluster, response)
                }
                SyncAnswer::Refused(_) => Ok(()),
            },
            _ => Ok(()),
        };
        self.judge(verdict);
        outcome
    }

    /// Records as batches: one, or one more for each gap in their numbers.
    fn batches(&mut self, m: usize, outcomes: Vec<Outcome>) -> Vec<Batch> {
        let host = &mut self.managers[m];
        let (Some(world), Some(journal)) = (&host.world, &host.journal) else { return Vec::new() };
        let mut batches: Vec<Batch> = Vec::new();
        let mut after = journal.last();
        let mut leadership = journal.leadership();
        for outcome in outcomes {
            let mut bodies = outcome.bodies;
            let mut dropped = outcome.dropped_bodies;
            for (number, record) in outcome.records {
                if let Record::Leadership(LeadershipFact::Started { leadership: led, .. }) = &record {
                    leadership = *led;
                }
                if batches.last().is_none_or(|b| b.last().next() != number) {
                    batches.push(Batch { first: number, ..Batch::new(leadership, after) });
                }
                let batch = batches.last_mut().expect("pushed just now");
                batch.leadership = leadership;
                if let Record::Audited(line) = &record {
                    batch.audit.push(serde_json::to_vec(line).expect("our own types serialise"));
                }
                batch.records.push(serde_json::to_vec(&record).expect("our own types serialise"));
                batch.urgent |= outcome.urgent;
                batch.bodies.extend(bodies.drain(..).map(|(h, b)| (h, b.as_bytes().to_vec())));
                batch.drop_bodies.append(&mut dropped);
                after = batch.last();
            }
        }
        if let Some(last) = batches.last_mut() {
            last.snapshot = host.snapshot.take();
            self.counters.add("snapshots", u64::from(last.snapshot.is_some()));
            if world.state.last.0 >= host.snapshot_at.0 + SNAPSHOT_EVERY && world.state.last == last.last() {
                host.snapshot_at = world.state.last;
                host.snapshot = Some(Snapshot { through: last.last(), bytes: world.snapshot() });
            }
        }
        batches
    }

    /// Commits; false when any part failed.
    fn write(&mut self, m: usize, batches: &[Batch]) -> bool {
        let host = &mut self.managers[m];
        let Some(journal) = &mut host.journal else { return false };
        let written = if batches.is_empty() {
            journal.heartbeat()
        } else {
            batches.iter().try_for_each(|b| journal.commit(b))
        };
        match written {
            Ok(()) => true,
            Err(error) => {
                self.trace.say(self.now, || format!("manager {m} fails to commit: {error}"));
                false
            }
        }
    }

    fn write_now(&mut self, m: usize) {
        let Some(mut committing) = self.managers[m].committing.take() else { return };
        committing.written = self.write(m, &committing.batches);
        // What failed is tried no second time: the end of the commit finds the journal poisoned.
        self.managers[m].committing = Some(committing);
    }

    /// The end of a commit: replies, or everything is thrown away.
    pub(super) fn finish(&mut self, m: usize, life: u64) {
        if self.managers[m].life != life {
            return;
        }
        let Some(committing) = self.managers[m].committing.take() else { return };
        let poisoned = self.managers[m].journal.as_ref().is_none_or(Journal::poisoned);
        let good = committing.written || (!poisoned && self.write(m, &committing.batches));
        if !good || !self.managers[m].settle() {
            return self.commit_failed(m, committing);
        }
        let host = &mut self.managers[m];
        let now = host.look(self.now);
        let (Some(world), Some(journal)) = (&mut host.world, &host.journal) else { return };
        world.committed(committing.begun);
        world.durable(journal.last());
        host.written = committing.begun;
        let (journal_id, leadership, last, chain) =
            (journal.meta().journal, journal.leadership(), journal.last(), journal.chain());
        host.mark = Some(Mark {
            journal: journal_id,
            leadership,
            last,
            chain,
            boot: BootId(host.boot),
            at: now.mono,
        });
        self.effects(m, committing.replies);
    }

    fn effects(&mut self, m: usize, replies: Vec<(Asker, Reply)>) {
        let life = self.managers[m].life;
        for (asker, reply) in replies {
            self.deliver(m, asker, reply);
            if self.plan.faults.contains_key(&super::plan::Fault::ManagerKill)
                && self.chance.faults.below(20_000) == 0
                && !self.healed
            {
                self.trace.say(self.now, || format!("manager {m} ends between two replies"));
                return self.end_process(m, false, 500);
            }
        }
        if self.managers[m].life == life {
            self.next_turn(m);
        }
    }

    fn next_turn(&mut self, m: usize) {
        let host = &self.managers[m];
        let Some(world) = host.world.as_ref().filter(|_| host.leading) else { return };
        let now = host.clock.now(self.now);
        let beat = host.written + Millis(lease::claim(self.plan.term_min).0 / 3 + 1);
        let timed =
            world.next_deadline(now).filter(|_| !host.restricted(now.mono)).map_or(beat, |at| at.min(beat));
        let soonest = host.parked.iter().map(|p| p.until).min().unwrap_or(u64::MAX);
        let mut at = host.clock.when(timed).max(self.now + 5).min(soonest);
        if !host.inbox.is_empty() {
            at = self.now;
        }
        self.kick(m, at);
    }

    /// An answer leaves only while the claim is valid: a slow commit may have outlived it, and another may lead since.
    fn deliver(&mut self, m: usize, asker: Asker, reply: Reply) {
        let host = &mut self.managers[m];
        let now = host.look(self.now).mono;
        let claims = host.world.as_ref().is_some_and(|w| now < w.live.claim_until)
            || self.plan.planted == Some(Bug::AnswersWithoutClaim);
        match (asker, reply) {
            (Asker::Agent { agent, life, transmission, .. }, Reply::Sync(answer))
                if claims || matches!(*answer, SyncAnswer::Refused(_)) =>
            {
                self.send_answer(m, agent, life, transmission, *answer);
            }
            (Asker::Agent { agent, life, transmission, .. }, _) => {
                self.send_answer(m, agent, life, transmission, SyncAnswer::Refused(SyncRefusal::NotLeading));
            }
            // What it answers without a commit may be as old as its claim (seed 1008166): people try again.
            (Asker::Person(_), _) if !claims => self.counters.one("answers withheld"),
            (Asker::Person(id), reply) => {
                let at = self.now + self.chance.people.between(1, 20);
                self.at(at, Happening::Answered { id, history: self.history, reply: Box::new(reply) });
            }
            (Asker::Nobody, _) => {}
        }
    }

    /// Nobody leads here: agents are told so; people try again.
    fn refuse(&mut self, m: usize, asker: Asker, up: bool) {
        if let Asker::Agent { agent, life, transmission, .. } = asker
            && up
        {
            self.send_answer(m, agent, life, transmission, SyncAnswer::Refused(SyncRefusal::NotLeading));
        }
    }

    /// Throws the uncommitted world away and reads back what is durable. Where the claim still holds and nobody else wrote,
    /// the next leadership takes the short cut; otherwise it is a start like any other.
    fn commit_failed(&mut self, m: usize, committing: Committing) {
        self.counters.one("commits failed");
        for (asker, _) in committing.replies {
            self.refuse(m, asker, true);
        }
        let known = committing.before.filter(|_| committing.batches.len() <= 1);
        self.managers[m].leading = false;
        // Not all that it includes is durable.
        self.managers[m].snapshot = None;
        self.reload(m, self.managers[m].life, known);
    }

    /// One try to read back what is durable.
    pub(super) fn reload(&mut self, m: usize, life: u64, known: Option<Box<State>>) {
        let host = &mut self.managers[m];
        let now = host.look(self.now);
        let Some(journal) = host.journal.as_mut().filter(|_| host.life == life) else { return };
        let full = journal.urgent_only();
        let found = if journal.poisoned() { journal.reload() } else { Ok(Found::Acknowledged) };
        self.trace.say(self.now, || format!("manager {m} reloads: {found:?}"));
        match found {
            Ok(Found::Acknowledged | Found::Unknown) => {}
            Ok(Found::Foreign) => return self.end_process(m, false, 1_500),
            Err(_) if self.managers[m].cut => return self.end_process(m, false, 1_500),
            Err(_) => return self.at(self.now + 300, Happening::Reload { manager: m, life }),
        }
        let world = match self.replay(self.managers[m].journal.as_ref().expect("reloaded just now")) {
            Ok(world) => world,
            Err(words) => return self.judge(broken("replay", words)),
        };
        if let (Ok(Found::Acknowledged), Some(known)) = (&found, &known)
            && let Err(why) = oracle::same_state("reloaded against known", &world.state, known)
        {
            return self.judge(Err(why));
        }
        let host = &mut self.managers[m];
        if full {
            host.full_until = now.mono + FULL_PAUSE;
        }
        let claim_until = host.world.as_ref().map_or(Mono(0), |w| w.live.claim_until);
        let kept = now.mono < claim_until;
        let mut world = world;
        if let Some(before) = host.world.take().filter(|_| kept) {
            world.go_on_from(&before);
            host.goes_on = Some(before.state.leadership);
        }
        host.world = Some(world);
        let claim = lease::claim(self.plan.term_min);
        if kept {
            self.counters.one("claims kept over a failed commit");
        }
        let at =
            if kept { self.now } else { self.managers[m].clock.when(now.mono + claim + lease::drift(claim)) };
        self.at(at, Happening::Lead { manager: m, life, short: kept, fresh: false });
    }

    /// The process is over; the next one begins after `pause`. `power` takes the page cache, the mark and the boot with it.
    pub(super) fn end_process(&mut self, m: usize, power: bool, pause: u64) {
        let partial = self.chance.disk.below(3);
        let operations = self.chance.disk.below(14);
        let (boot, mono) = (self.chance.manager.wide(), self.chance.manager.between(1_000, 60_000));
        let host = &mut self.managers[m];
        host.expected = match (&host.world, &host.committing, host.cut) {
            (Some(world), None, false)
                if host.leading && host.journal.as_ref().is_some_and(|j| !j.poisoned()) =>
            {
                Some(Box::new(world.state.clone()))
            }
            _ => None,
        };
        if let (Some(committing), Some(journal), false) =
            (host.committing.take(), &mut host.journal, host.cut)
        {
            if !committing.written && partial > 0 && !journal.poisoned() {
                if partial == 1 {
                    host.disk.power_off_after(operations);
                }
                // Whether it becomes durable is what the next start finds out.
                for batch in &committing.batches {
                    if journal.commit(batch).is_err() {
                        break;
                    }
                }
            }
        }
        host.disk = if host.cut {
            host.disk.clone()
        } else if power {
            host.disk.crash()
        } else {
            host.disk.kill()
        };
        (host.journal, host.world, host.leading, host.goes_on) = (None, None, false, None);
        host.inbox.clear();
        host.parked.clear();
        host.bodies.clear();
        host.life += 1;
        if power {
            host.mark = None;
            host.boot = boot;
            host.clock.reboot(self.now, mono);
            host.jumps = None;
        }
        host.paused_until = if host.clock.is_frozen() { host.paused_until } else { 0 };
        let life = host.life;
        if !host.cut {
            self.at(self.now + pause, Happening::Boot { manager: m, life, begin: Begin::Open });
        }
    }

    fn disk_is_bad(&self, m: usize) -> bool {
        self.managers[m].cut || self.disk_faults.contains(&m)
    }

    /// A sync arrived at a manager.
    pub(super) fn to_manager(&mut self, m: usize, agent: usize, life: u64, request: SyncRequest) {
        if !self.managers[m].up() {
            return;
        }
        let cluster = self.agents[agent].cluster.clone();
        let asker = Asker::Agent {
            agent,
            life,
            cluster: cluster.clone(),
            session: request.session,
            transmission: request.transmission,
        };
        let input = Input::Sync { cluster, request: Box::new(request), may_park: true };
        self.managers[m].inbox.push_back(Item { asker, input });
        self.kick(m, self.now);
    }

    /// The audit log of a journal, from the first line to the last.
    pub(super) fn verify_audit(&mut self, m: usize) {
        let Some(journal) = &self.managers[m].journal else { return };
        let reader = journal.reader();
        let mut verifier = meridian_manager_core::facts::audit::Verifier::default();
        let head = reader.audit_head().ok().flatten().map_or(0, |(n, _)| n.0);
        let mut take = |_, bytes: &[u8]| {
            let line: meridian_manager_core::facts::audit::Line =
                serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
            verifier.take(&line).map_err(|e| e.to_string())
        };
        use meridian_manager::journal::AuditNumber;
        let walked = reader.audit(AuditNumber(1), AuditNumber(head + 1), &mut take);
        // While a commit is under way the world is ahead of what is written (seed 9204753).
        let settled = self.managers[m].committing.is_none();
        let world_head = self.managers[m].world.as_ref().filter(|_| settled).map(|w| w.state.audit.clone());
        let verdict = match (walked, verifier.finish(world_head.as_ref())) {
            (Ok(()), Ok(_)) => Ok(()),
            (Err(e), _) => broken("audit", e.to_string()),
            (_, Err(e)) => broken("audit", e.to_string()),
        };
        self.judge(verdict);
    }
}

fn unpark(asker: Asker) -> Option<Item> {
    let Asker::Agent { cluster, session, transmission, .. } = &asker else { return None };
    let input = Input::Unpark { cluster: cluster.clone(), session: *session, transmission: *transmission };
    Some(Item { asker, input })
}
