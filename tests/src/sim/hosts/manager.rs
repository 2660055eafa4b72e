//! One manager's machine and process.

use crate::sim::clock::HostClock;
use meridian_manager::host::Host;
use meridian_manager::journal::faulty::FaultyDisk;
use meridian_manager::journal::mark::Mark;
use meridian_manager::journal::{Batch, Error, Journal, RedbJournal, Snapshot};
use meridian_manager_core::World;
use meridian_manager_core::facts::input::Input;
use meridian_manager_core::facts::outcome::{Bodies, Reply};
use meridian_manager_core::state::State;
use meridian_shared::ids::{ClusterName, ContentHash, Leadership, RecordNumber};
use meridian_shared::lease::ClaimWrite;
use meridian_shared::time::{Mono, Now};
use std::collections::VecDeque;
use std::sync::Arc;

/// The sender of an input, which gets the reply.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// A transmission of an agent.
    Agent { agent: usize, life: u64, cluster: ClusterName, transmission: u64 },
    /// A request of a user or an operator.
    User(u64),
}

/// An input that waits for the next turn.
#[derive(Debug)]
pub(crate) struct QueuedInput {
    pub(crate) caller: Caller,
    pub(crate) input: Input,
}

/// When the wait of a poll is over.
#[derive(Debug)]
pub(crate) struct PollEnd {
    pub(crate) at: u64,
    pub(crate) cluster: ClusterName,
    pub(crate) transmission: u64,
}

/// A commit under way.
#[derive(Debug)]
pub(crate) struct PendingCommit {
    pub(crate) write: ClaimWrite,
    pub(crate) batches: Vec<Batch>,
    /// Recovery is over and the rules are confirmed.
    pub(crate) settled: bool,
    pub(crate) written: bool,
    pub(crate) replies: Vec<(Caller, Reply)>,
    /// The state before the turn, where a disk fault may make it needed.
    pub(crate) before: Option<Box<State>>,
}

/// One manager's machine and process.
#[derive(Debug)]
pub(crate) struct ManagerHost {
    pub(crate) clock: HostClock,
    pub(crate) boot: u128,
    pub(crate) disk: FaultyDisk,
    pub(crate) journal: Option<RedbJournal>,
    pub(crate) host: Option<Host<Caller>>,
    pub(crate) leading: bool,
    /// Number of the process, increased each time it ends.
    pub(crate) life: u64,
    /// Its volume was attached to another machine.
    pub(crate) cut: bool,
    pub(crate) inbox: VecDeque<QueuedInput>,
    pub(crate) poll_ends: Vec<PollEnd>,
    pub(crate) mark: Option<Mark>,
    pub(crate) snapshot_at: RecordNumber,
    /// The snapshot, taken with one batch and written with the next.
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) committing: Option<PendingCommit>,
    pub(crate) paused_until: u64,
    pub(crate) slow_until: u64,
    turn_at: u64,
    turn: u64,
    /// The committed state that the next process must read back.
    pub(crate) expected: Option<Box<State>>,
    /// Why the last write failed.
    pub(crate) failure: Option<Error>,
    /// The leadership that it continues after a failed commit.
    pub(crate) continues: Option<Leadership>,
    /// Its wall clock was set back, and the process hasn't read the clock since.
    pub(crate) unseen_back: bool,
}

/// Bodies of jobs in the journal.
pub(crate) struct StoredBodies<'a>(pub(crate) &'a RedbJournal);

impl Bodies for StoredBodies<'_> {
    fn body(&self, hash: ContentHash) -> Option<Arc<str>> {
        let stored = self.0.reader().body(hash).ok().flatten()?;
        String::from_utf8(stored).ok().map(Arc::from)
    }
}

impl ManagerHost {
    pub(crate) fn new(clock: HostClock, boot: u128, disk: FaultyDisk) -> Self {
        Self {
            clock,
            boot,
            disk,
            journal: None,
            host: None,
            leading: false,
            life: 0,
            cut: false,
            inbox: VecDeque::new(),
            poll_ends: Vec::new(),
            mark: None,
            snapshot_at: RecordNumber(0),
            snapshot: None,
            committing: None,
            paused_until: 0,
            slow_until: 0,
            turn_at: u64::MAX,
            turn: 0,
            expected: None,
            failure: None,
            continues: None,
            unseen_back: false,
        }
    }

    /// Whether a process runs.
    pub(crate) fn is_up(&self) -> bool {
        self.journal.is_some()
    }

    /// The world of its process.
    pub(crate) fn world(&self) -> Option<&World> {
        self.host.as_ref().map(Host::world)
    }

    /// The world of a manager that leads and can commit.
    pub(crate) fn leading_world(&self) -> Option<&World> {
        self.world().filter(|_| self.leading && !self.cut)
    }

    /// The world of a manager that has just been seen to have one.
    pub(crate) fn expect_world(&self) -> &World {
        self.world().expect("a process that leads has a world")
    }

    /// Reads the clocks. Where wall time ran ahead of boot time, the claim is shorter by the difference.
    pub(crate) fn read_clocks(&mut self, at: u64) -> Now {
        let now = self.clock.now(at);
        self.unseen_back = false;
        if let Some(host) = &mut self.host {
            host.observe(now);
        }
        now
    }

    /// Whether only ends and deletions are accepted.
    pub(crate) fn is_restricted(&self, now: Mono) -> bool {
        self.host.as_ref().is_some_and(|host| host.is_restricted(now))
    }

    /// The next process reads another history from this disk.
    pub(crate) fn forget_expected_state(&mut self) {
        self.expected = None;
    }

    /// Moves the next turn forward to `at`; returns its number unless an earlier one is planned.
    pub(crate) fn plan_turn(&mut self, at: u64) -> Option<u64> {
        if at >= self.turn_at {
            return None;
        }
        self.turn_at = at;
        self.turn += 1;
        Some(self.turn)
    }

    /// Begins the turn with this number; false if another one was planned since.
    pub(crate) fn begin_turn(&mut self, turn: u64) -> bool {
        let is_planned = turn == self.turn;
        if is_planned {
            self.turn_at = u64::MAX;
        }
        is_planned
    }

    /// Takes the place of another manager of the same index. Events of the old one must not reach this one.
    pub(crate) fn succeed(&mut self, old: &Self) {
        (self.life, self.turn) = (old.life + 1, old.turn);
    }
}
