//! The engine without its threads, clocks and sockets: everything between an input and its reply except the
//! waiting. The engine's thread and the simulator both drive this code, so the simulation tests the code that
//! runs.
//!
//! ```text
//! admit ─▶ decide ─▶ record ┐   one batch: inputs, then `scheduling`, then `answers` to syncs
//!                           ├─▶ take_batch ─▶ the driver commits ─▶ written ─▶ replies, if the claim holds
//!                           └─▶ … or commit failed ─▶ reload ─▶ lead
//! ```
//!
//! The driver reads the clocks, owns the journal, and decides how long a batch collects inputs. Invariants:
//! - No reply leaves before the commit of its batch; the driver gets replies only together with their batch.
//! - Answers to agents are composed last, so they carry the decisions of the batch.
//! - After a failed commit the world is read again from the journal.

pub mod batch;
pub mod leadership;
pub mod polls;
pub mod replay;
pub mod replies;

use crate::journal::{self, Batch, Journal};
use batch::PendingBatch;
use meridian_manager_core::World;
use meridian_manager_core::facts::input::{Change, Input};
use meridian_manager_core::facts::outcome::{Bodies, Outcome, Reply};
use meridian_shared::ids::ContentHash;
use meridian_shared::lease::{Claim, ClaimWrite};
use meridian_shared::time::{Millis, Mono, Now};
use polls::{Poll, Polls};
use replies::Unavailable;
use std::collections::HashMap;
use std::sync::Arc;

/// The shortest and the longest time for which new work is refused after the disk was found full.
const FULL_PAUSE: Millis = Millis::secs(2);
const FULL_PAUSE_MAX: Millis = Millis::mins(2);

/// The state of one manager's engine. `C` is a caller that waits for a reply.
#[derive(Debug)]
pub struct Host<C> {
    world: World,
    claim: Claim,
    polls: Polls<C>,
    batch: PendingBatch<C>,
    /// Time until which new work is refused, because the disk was full.
    full_until: Mono,
    full_pause: Millis,
    /// Whether the journal's reserved space is in use.
    urgent_only: bool,
    /// When a heartbeat is due.
    heartbeat_at: Mono,
}

/// One input to decide, and where its reply goes.
#[derive(Debug)]
pub struct Step<C> {
    pub input: Input,
    pub recipient: Recipient<C>,
}

/// The destination of a reply.
#[derive(Debug)]
pub enum Recipient<C> {
    Nobody,
    Caller(C),
    /// An agent's sync, which may be answered later.
    Poll(Poll<C>),
}

impl<C> Recipient<C> {
    pub fn caller(&self) -> Option<&C> {
        match self {
            Self::Nobody => None,
            Self::Caller(caller) => Some(caller),
            Self::Poll(poll) => Some(&poll.caller),
        }
    }
}

impl<C> Host<C> {
    /// A host that doesn't lead yet, with the world that was replayed from its journal.
    pub fn new(world: World, journal: &dyn Journal, now: Now) -> Self {
        Self {
            claim: Claim::expired(world.config().term_min, now),
            world,
            polls: Polls::default(),
            batch: PendingBatch::default(),
            full_until: Mono(0),
            full_pause: Millis(0),
            urgent_only: journal.urgent_only(),
            heartbeat_at: Mono(0),
        }
    }

    pub fn world(&self) -> &World {
        &self.world
    }

    /// Access for readers that take counters and changed pending reasons from the world.
    pub fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    /// The batch as decided so far.
    pub fn batch(&self) -> &PendingBatch<C> {
        &self.batch
    }

    /// Takes a reading of the clocks into account. Returns by how much the claim became shorter, because wall
    /// time ran ahead of boot time.
    pub fn observe(&mut self, now: Now) -> Millis {
        let ahead = self.claim.observe(now);
        if ahead > Millis(0) {
            self.world.set_claim(self.claim.valid_until());
            self.heartbeat_at = now.mono;
        }
        ahead
    }

    /// Whether an answer may leave.
    pub fn holds_claim(&mut self, now: Now) -> bool {
        self.observe(now);
        now.mono < self.claim.valid_until()
    }

    /// Whether only ends and deletions are accepted, because the disk is full.
    pub fn is_restricted(&self, now: Mono) -> bool {
        self.urgent_only || now < self.full_until
    }

    /// Whether the disk was found full, and no batch of new work was stored since.
    pub fn found_full(&self) -> bool {
        self.full_pause > Millis(0)
    }

    /// Takes one input of a caller. While the disk is full, new work is refused.
    ///
    /// # Errors
    /// The caller, and why its input isn't taken.
    pub fn admit(&self, input: Input, caller: C, now: Mono) -> Result<Step<C>, (C, Unavailable)> {
        if self.is_restricted(now) && brings_new_work(&input) {
            return Err((caller, Unavailable::Full));
        }
        let recipient = match &input {
            Input::Sync { cluster, request, may_park: true } => {
                Recipient::Poll(Poll::of(cluster, request, caller))
            }
            _ => Recipient::Caller(caller),
        };
        Ok(Step { input, recipient })
    }

    /// The scheduling step at the end of a batch: timers and one pass. The pass makes offers, which need disk
    /// space. So while the disk is full, only lapses are applied, and shortly after it was found full, there
    /// is no step at all.
    pub fn scheduling(&self, now: Mono) -> Option<Step<C>> {
        let input = match (self.is_restricted(now), now >= self.full_until) {
            (false, _) => Input::Turn,
            (true, true) => Input::Lapse,
            (true, false) => return None,
        };
        Some(Step { input, recipient: Recipient::Nobody })
    }

    /// Decides one input. `committed` holds the bodies of earlier batches. Each input needs its own reading
    /// of the clocks: a lease counts from the time when its answer was composed, and an agent may have sent
    /// its request after the batch began.
    pub fn decide(&mut self, now: Now, input: Input, committed: &dyn Bodies) -> Outcome {
        self.observe(now);
        let bodies = BatchBodies { new: &self.batch.bodies, committed };
        self.world.apply(now, input, &bodies)
    }

    /// Adds an outcome to the batch.
    pub fn record(&mut self, recipient: Recipient<C>, outcome: Outcome) {
        match (self.batch.take(outcome), recipient) {
            (Reply::Park, Recipient::Poll(poll)) => self.polls.receive(poll),
            (reply, Recipient::Poll(Poll { caller, .. }) | Recipient::Caller(caller)) => {
                self.batch.replies.push((caller, reply));
            }
            (_, Recipient::Nobody) => {}
        }
    }

    /// The syncs of this batch that are answered now, and the parked polls that it wakes or that have waited
    /// long enough. A sync with nothing to answer is parked. Also returns the callers of parked polls that
    /// newer polls replaced.
    pub fn answers(&mut self, now: Mono) -> (Vec<Step<C>>, Vec<C>) {
        let world = &self.world;
        let wake = std::mem::take(&mut self.batch.wake);
        let (due, replaced) = self.polls.due(&wake, |cluster| world.owes(cluster, now));
        let steps = due.into_iter().map(|poll| {
            let input = poll.release();
            Step { input, recipient: Recipient::Caller(poll.caller) }
        });
        (steps.collect(), replaced)
    }

    pub fn polls(&mut self) -> &mut Polls<C> {
        &mut self.polls
    }

    /// Takes the decided batch, and begins an empty one.
    pub fn take_batch(&mut self) -> PendingBatch<C> {
        std::mem::take(&mut self.batch)
    }

    /// Notes that a write to the journal begins; [`Self::written`] takes the result when it is durable.
    pub fn begin_write(&mut self, now: Now) -> ClaimWrite {
        let write = self.claim.begin_write(now);
        self.world.set_claim(self.claim.valid_until());
        write
    }

    /// Notes that a write is durable: the claim counts from when the write began.
    pub fn written(&mut self, write: ClaimWrite, journal: &dyn Journal) {
        self.claim.renew(write);
        self.world.set_claim(self.claim.valid_until());
        self.world.durable(journal.last());
        self.urgent_only = journal.urgent_only();
        self.heartbeat_at = self.claim.next_heartbeat(write.begun());
    }

    /// Notes that the disk isn't full any more, because a batch without access to the reserved space is
    /// durable.
    pub fn space_found(&mut self) {
        self.full_pause = Millis(0);
    }

    /// Whether the claim needs a write, if there is nothing else to write.
    pub fn needs_heartbeat(&self, now: Mono) -> bool {
        now >= self.heartbeat_at
    }

    /// When the next heartbeat or timer is due.
    pub fn next_deadline(&self, now: Now) -> (Mono, Option<Mono>) {
        let timer = self.world.next_deadline(now).filter(|_| !self.is_restricted(now.mono));
        (self.heartbeat_at, timer)
    }

    /// Whether recovery is over and the rules are confirmed, so that the journal's present file is known to
    /// be the right copy.
    pub fn is_settled(&self) -> bool {
        self.world.state().recovery().is_none() && self.world.state().rules_doubted().is_none()
    }

    /// Notes why a write failed. After a full disk, new work is refused for a time that grows with every
    /// failure.
    pub fn note_failure(&mut self, cause: &journal::Error, now: Mono) {
        if matches!(cause, journal::Error::Full { .. }) {
            self.full_pause = Millis(self.full_pause.0 * 2).max(FULL_PAUSE).min(FULL_PAUSE_MAX);
            self.full_until = now + self.full_pause;
        }
    }
}

/// Writes the transactions of one decided batch. Without transactions, writes a heartbeat. If `settled`, also
/// records that this file is the right copy, so that the next start is a normal one.
///
/// # Errors
/// If any part isn't durable.
pub fn commit(journal: &mut dyn Journal, batches: &[Batch], settled: bool) -> Result<(), journal::Error> {
    if batches.is_empty() {
        return journal.heartbeat();
    }
    batches.iter().try_for_each(|batch| journal.commit(batch))?;
    if settled && journal.identity_changed() { journal.accept_identity() } else { Ok(()) }
}

/// Whether an input adds data to the journal and frees nothing.
fn brings_new_work(input: &Input) -> bool {
    let adds =
        |change: &Change| matches!(change, Change::Put { .. } | Change::SetActive { active: true, .. });
    matches!(input, Input::Write(write) if !write.dry_run && write.changes().iter().any(adds))
}

/// The bodies that a batch can read: its own new ones, then those of earlier batches.
struct BatchBodies<'a> {
    new: &'a HashMap<ContentHash, Arc<str>>,
    committed: &'a dyn Bodies,
}

impl Bodies for BatchBodies<'_> {
    fn body(&self, hash: ContentHash) -> Option<Arc<str>> {
        self.new.get(&hash).cloned().or_else(|| self.committed.body(hash))
    }
}
