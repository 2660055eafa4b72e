//! How a leadership starts (the protocol's section 7), and what follows a failed commit (the end of its section 6).
//!
//! After a failed commit the world in memory may be ahead of the journal, so it is thrown away and read again, under a higher
//! epoch. Where the claim never expired and the reload found no foreign record, the new leadership takes the short cut: nobody
//! else can have led in between, so nothing has to be found out, no recovery opens, and dispatch goes on at once. Of what is
//! volatile only the deadlines of leases are carried over: this process knows of every answer that carried one, so that a lost
//! cluster's leases lapse in time also on a disk that fails again and again. The failed batch has changed everything else
//! (events that were taken, commands that were queued), so sessions send their inventories again. Otherwise the reload is a
//! start like any other: it waits for claims to expire, and recovers.
//!
//! A full disk must not go round in this: the record of the new leadership may use the reserved space, scheduling pauses and
//! new work is refused while only that is left, and for a growing while after each time that it happened.

use super::bodies::Source;
use super::pending::Pending;
use super::turns::Engine;
use super::{Error, Options, StartMode, Unavailable};
use crate::journal::{self, Found, Journal, mark};
use meridian_manager_core::facts::record::Record;
use meridian_manager_core::facts::submission::RecoveryStart;
use meridian_manager_core::{Config, Start, World};
use meridian_shared::backoff;
use meridian_shared::ids::RecordNumber;
use meridian_shared::lease;
use meridian_shared::time::Millis;
use std::collections::HashMap;

/// First pause before a reload is tried again.
const RELOAD_PAUSE: Millis = Millis(200);
/// Longest pause before a reload is tried again.
const RELOAD_PAUSE_MAX: Millis = Millis::secs(10);
/// How long new work is refused after the disk was found full, at first and at most.
const FULL_PAUSE: Millis = Millis::secs(2);
const FULL_PAUSE_MAX: Millis = Millis::mins(2);

/// The world that a journal holds.
pub(super) fn load(journal: &dyn Journal, config: Config) -> Result<World, Error> {
    let (mut world, after) = match journal.snapshot()? {
        Some(snapshot) => (World::restore(&snapshot.bytes, config).map_err(Error::Replay)?, snapshot.through),
        None => (World::empty(journal.meta().journal, config), RecordNumber(0)),
    };
    if world.state.journal != journal.meta().journal {
        return Err(Error::Replay(format!(
            "its snapshot is of journal `{}`, not of `{}`",
            world.state.journal,
            journal.meta().journal
        )));
    }
    let mut absorb = |number: RecordNumber, bytes: &[u8]| {
        let record: Record = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        world.absorb(number, &record);
        Ok(())
    };
    journal.replay(after, &mut absorb)?;
    Ok(world)
}

/// Whether the mark in shared memory shows that this journal is the one that was left a moment ago.
pub(super) fn is_vouched_for(journal: &dyn Journal, options: &Options) -> bool {
    let Some((room, boot)) = &options.marks else { return false };
    let claim = lease::claim(options.config.term_min);
    let now = options.clock.now().mono;
    mark::read(room, journal.meta().journal).is_some_and(|mark| mark.vouches_for(journal, *boot, now, claim))
}

impl Engine {
    /// Starts to lead, after the wait that is due.
    pub(super) fn begin(&mut self) -> Result<(), Error> {
        let (recovery, fresh) = match self.start {
            StartMode::Init => (None, true),
            StartMode::InitRecover => (Some(RecoveryStart { restored: false, members_unknown: true }), false),
            StartMode::Open if self.vouched => (None, false),
            StartMode::Open => (Some(self.recovery_start()), false),
        };
        if recovery.is_some() && !self.wait_out_claims() {
            return Ok(());
        }
        self.lead(recovery, fresh)
    }

    fn recovery_start(&self) -> RecoveryStart {
        // An empty journal says nothing of what runs: who made it in place of a lost one may have ended before anything was written.
        let members_unknown = self.world.state.last == RecordNumber(0);
        RecoveryStart { restored: self.desk.journal().identity_changed(), members_unknown }
    }

    /// Waits until every claim of a predecessor has expired. False when asked to stop meanwhile.
    fn wait_out_claims(&mut self) -> bool {
        let claim = lease::claim(self.world.config.term_min);
        let span = claim + lease::drift(claim);
        tracing::info!(%span, "waiting until any earlier manager's claim has expired");
        self.wait(span)
    }

    /// Lets time pass; who asks meanwhile is told that nobody leads. False when asked to stop.
    fn wait(&mut self, span: Millis) -> bool {
        let until = self.look().mono + span;
        loop {
            let now = self.look().mono;
            if self.stopping || now >= until {
                return !self.stopping;
            }
            if let Some(message) = self.receive(until.since(now)) {
                self.refuse(message, Unavailable::NotLeading);
            }
        }
    }

    fn lead(&mut self, recovery: Option<RecoveryStart>, fresh: bool) -> Result<(), Error> {
        // What an earlier leadership left open stays open with all that it was opened for.
        let before = self.world.state.recovery.clone();
        let recovery = recovery.map(|start| RecoveryStart {
            restored: start.restored || before.as_ref().is_some_and(|b| b.restored),
            members_unknown: start.members_unknown || before.as_ref().is_some_and(|b| b.members_unknown),
        });
        let id = getrandom::u64().map_err(|error| Error::Random(error.to_string()))?;
        let start = Start { id, recovery, fresh, now: self.look() };
        let mut pending = Pending::default();
        let none = HashMap::new();
        let source = Source { fresh: [&none, &none], store: &self.shared.bodies };
        let outcome = self.world.lead(start, &source);
        pending.take(outcome);
        self.carry_out(pending)?;
        self.publish_all();
        self.seen.reset(&self.world);
        self.desk.scribe().counts.reset(&self.world);
        self.shared.lead(true);
        let state = &self.world.state;
        tracing::info!(leadership = %state.leadership, record = %state.last, recovery = state.recovery.is_some(), workloads = state.workloads.len(), "leading");
        Ok(())
    }

    /// After a commit failed: back to what is durable. Errors only where this process can't lead again.
    pub(super) fn reload(&mut self, cause: &journal::Error) -> Result<(), Error> {
        self.shared.lead(false);
        self.parked.refuse();
        tracing::error!(error = %cause, "a commit failed: reading back what is durable");
        if matches!(cause, journal::Error::Fenced { .. }) {
            return Err(Error::Foreign);
        }
        self.note_full(cause);
        let mut attempt = 0;
        while !self.stopping {
            match self.try_reload() {
                Ok(()) => return Ok(()),
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => {
                    if let Error::Journal(cause) = &error {
                        self.note_full(cause);
                    }
                    tracing::warn!(%error, attempt, "the journal can't be used yet");
                    self.wait(backoff::wait(RELOAD_PAUSE, RELOAD_PAUSE_MAX, attempt, u64::from(attempt)));
                    attempt = attempt.saturating_add(1);
                }
            }
        }
        Ok(())
    }

    fn note_full(&mut self, cause: &journal::Error) {
        if matches!(cause, journal::Error::Full { .. }) {
            self.full_pause = Millis(self.full_pause.0 * 2).max(FULL_PAUSE).min(FULL_PAUSE_MAX);
            self.full_until = self.look().mono + self.full_pause;
        }
    }

    fn try_reload(&mut self) -> Result<(), Error> {
        let journal = &mut self.desk.scribe().journal;
        if journal.poisoned() && journal.reload()? == Found::Foreign {
            return Err(Error::Foreign);
        }
        let mut world = load(self.desk.journal(), self.world.config.clone())?;
        let kept = self.look().mono < self.world.live.claim_until;
        if kept {
            world.go_on_from(&self.world);
        }
        self.world = world;
        self.snapshots.forget();
        if kept {
            return self.lead(None, false);
        }
        let recovery = self.recovery_start();
        if self.wait_out_claims() { self.lead(Some(recovery), false) } else { Ok(()) }
    }
}

/// Whether trying again can't help: somebody else leads, or what is there isn't this journal any more.
fn is_final(error: &Error) -> bool {
    use journal::Error as J;
    match error {
        Error::Journal(
            J::Io { .. } | J::Store { .. } | J::Full { .. } | J::Poisoned { .. } | J::Invalid { .. },
        ) => false,
        Error::Journal(_)
        | Error::Replay(_)
        | Error::Foreign
        | Error::Random(_)
        | Error::Thread(_)
        | Error::Broken => true,
    }
}
